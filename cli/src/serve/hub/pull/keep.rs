//! Stores what came from the upstream as versions of a ref, in the layout of clients' caches.
//!
//! A version with the listing and the branch of a revision comes before any of its files. Files are added in batches
//! (`Keeper`): when no file has come for a moment, when there are many, after a few seconds, and when the server stops.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use store::{Content, Edit, EditRequest, Error, RefName, Result, Store};
use tokio::sync::watch;

use crate::serve::hub::hashes::Known;
use crate::serve::hub::incoming::File;
use crate::serve::hub::listing::Listing;
use crate::serve::hub::pull::Wanted;
use crate::serve::spool::{PART_BYTES, Spool};

/// When to store a batch: after a time without another file, after a total time, or at a number of files or bytes.
const QUIET: Duration = Duration::from_millis(300);
const BATCH_TIME: Duration = Duration::from_secs(5);
const BATCH_FILES: usize = 256;
const BATCH_BYTES: u64 = 256 << 20;

/// A file that is complete and verified.
pub(super) struct Pending {
    pub(super) wanted: Wanted,
    pub(super) spool: Arc<Spool>,
}

/// A revision of a repo, without its files.
pub(super) struct Revision<'r> {
    pub(super) target: RefName,
    /// `models--OWNER--NAME`.
    pub(super) dir: String,
    pub(super) commit: String,
    /// A branch or a tag at this commit.
    pub(super) branch: Option<&'r str>,
    pub(super) listing: &'r Listing,
    /// Files that the store already has, by hash.
    pub(super) held: HashMap<String, Content>,
}

impl Revision<'_> {
    /// Stores the revision. Blocks.
    ///
    /// # Errors
    /// If the store refuses it.
    pub(super) fn keep(&self, store: &Store, upstream: &str) -> Result<()> {
        let (dir, commit) = (&self.dir, &self.commit);
        let listing = self.listing.text()?;
        let edited = request(&self.target, format!("{commit} of {upstream}"));
        store::edit(store, &edited, |edit| {
            text(edit, &format!("{dir}/trees/{commit}.json"), &listing)?;
            if let Some(branch) = self.branch {
                text(edit, &format!("{dir}/refs/{branch}"), commit.as_bytes())?;
            }
            for (path, listed) in self.listing.files() {
                let name = listed.name();
                if let Some(content) = self.held.get(name) {
                    edit.add(format!("{dir}/blobs/{name}").as_bytes(), *content)?;
                    link(edit, dir, commit, path, name)?;
                }
            }
            Ok(())
        })?;
        Ok(())
    }
}

/// Stores files of one ref. Blocks.
///
/// # Errors
/// If the store refuses them, or the disk returns other bytes than were written.
pub(super) fn keep(
    store: &Store,
    known: &Known,
    target: &RefName,
    (upstream, batch): (&str, &[Pending]),
) -> Result<()> {
    let edited = request(target, format!("{} files of {upstream}", batch.len()));
    store::edit(store, &edited, |edit| {
        for Pending { wanted, spool } in batch {
            let (dir, name) = (&wanted.dir, &wanted.name);
            let content = stored(edit, known, wanted, spool)?;
            edit.add(format!("{dir}/blobs/{name}").as_bytes(), content)?;
        }
        link_all(edit, batch)
    })?;
    Ok(())
}

fn request(target: &RefName, message: String) -> EditRequest {
    EditRequest {
        target: target.clone(),
        onto: None,
        message,
        expires: None,
        time: Timestamp::now(),
    }
}

fn stored(edit: &mut Edit<'_>, known: &Known, wanted: &Wanted, spool: &Spool) -> Result<Content> {
    let mut file = File::new(edit, Some(wanted.size));
    while file.bytes() < wanted.size {
        let at = file.bytes();
        let part = spool.read(at, wanted.size.min(at + PART_BYTES))?;
        file.push(edit, &part)?;
    }
    let arrived = file.finish(edit)?;
    let hashes = arrived.hashes.as_ref();
    let is_same =
        arrived.sha256 == wanted.name || hashes.is_some_and(|hashes| hashes.git == wanted.name);
    if !is_same {
        return Err(Error::corrupt(format!(
            "{}: the disk gave other bytes back than it was given",
            wanted.path
        )));
    }
    if let Some(hashes) = arrived.hashes {
        known.learn(&arrived.content, hashes);
    }
    Ok(arrived.content)
}

/// Links all paths of the files' revisions to them.
fn link_all(edit: &mut Edit<'_>, batch: &[Pending]) -> Result<()> {
    let mut revisions: BTreeMap<&str, &Pending> = BTreeMap::new();
    let mut names: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for pending in batch {
        let commit = pending.wanted.commit.as_str();
        revisions.insert(commit, pending);
        names.entry(commit).or_default().push(&pending.wanted.name);
    }
    for (commit, pending) in revisions {
        let mut names = names.remove(commit).unwrap_or_default();
        names.sort_unstable();
        for (path, name) in pending.wanted.files.named() {
            if names.binary_search(&name).is_ok() {
                link(edit, &pending.wanted.dir, commit, path, name)?;
            }
        }
    }
    Ok(())
}

fn text(edit: &mut Edit<'_>, path: &str, bytes: &[u8]) -> Result<()> {
    let mut file = File::new(edit, Some(bytes.len() as u64));
    file.push(edit, bytes)?;
    let content = file.finish(edit)?.content;
    edit.add(path.as_bytes(), content)
}

/// Adds the symlink `snapshots/COMMIT/PATH`, as clients make it.
fn link(edit: &mut Edit<'_>, dir: &str, commit: &str, path: &str, name: &str) -> Result<()> {
    let up = "../".repeat(path.matches('/').count() + 2);
    let target = format!("{up}blobs/{name}");
    let place = format!("{dir}/snapshots/{commit}/{path}");
    edit.link(place.as_bytes(), target.as_bytes())
}

/// Files that wait to be stored, by ref.
pub(super) struct Keeper {
    waiting: Mutex<HashMap<RefName, Vec<Pending>>>,
    stopping: watch::Sender<bool>,
}

impl Keeper {
    pub(super) fn new() -> Self {
        Self {
            waiting: Mutex::default(),
            stopping: watch::channel(false).0,
        }
    }

    /// Queues a file. Returns true if the ref has no task yet, so that the caller must start one.
    pub(super) fn push(&self, target: &RefName, pending: Pending) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(batch) = waiting.get_mut(target) {
            batch.push(pending);
            return false;
        }
        waiting.insert(target.clone(), vec![pending]);
        true
    }

    /// Waits for the next batch of a ref; `None` if there are no more files and the task may end.
    pub(super) async fn batch(&self, target: &RefName) -> Option<Vec<Pending>> {
        let (began, mut last) = (Instant::now(), 0);
        let mut stopping = self.stopping.subscribe();
        loop {
            let (files, bytes) = self.count(target);
            let is_full = files >= BATCH_FILES || bytes >= BATCH_BYTES;
            let is_time = files == last || began.elapsed() >= BATCH_TIME;
            if is_full || is_time || *stopping.borrow() {
                break;
            }
            last = files;
            // The sender lives as long as this value, so only a stop or the timeout ends the wait.
            let _stopped =
                tokio::time::timeout(QUIET, stopping.wait_for(|is_stopping| *is_stopping)).await;
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let batch = std::mem::take(waiting.get_mut(target)?);
        if batch.is_empty() {
            waiting.remove(target);
            return None;
        }
        Some(batch)
    }

    fn count(&self, target: &RefName) -> (usize, u64) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let batch = waiting.get(target).map(Vec::as_slice).unwrap_or_default();
        let bytes = batch.iter().map(|pending| pending.wanted.size).sum();
        (batch.len(), bytes)
    }

    /// Makes all batches due at once.
    pub(super) fn stop(&self) {
        self.stopping.send_replace(true);
    }

    pub(super) fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Whether no files wait.
    pub(super) fn is_done(&self) -> bool {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.is_empty()
    }
}
