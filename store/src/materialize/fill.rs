//! Fills the pool: one process builds each missing file, and the others wait for it.
//!
//! The process that gets the claim of a file fetches it. Files that others have claimed are checked repeatedly, and
//! taken over when their owner has died. A file that was written to through a link is set aside first; then only the
//! chunks that it has lost are fetched. All files of a round get their names together, so that the disk is synced only
//! once.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::fs::open_regular;
use crate::host::pool::{Claim, Claimed, Damage, Draft, Pool, PoolKey, Watch};
use crate::host::walk::Stat;
use crate::id::ChunkId;
use crate::progress::Progress;
use crate::read::Reader;
use crate::read::fetch::{Requests, Sink, fetch};

/// The longest pause between two checks of what others build.
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// A file that the pool should have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) key: PoolKey,
    /// The file is only copied, never linked.
    pub(super) is_copied: bool,
}

/// The result of a fill.
#[derive(Debug, Default)]
pub(super) struct Filled {
    /// Files that this process built.
    pub(super) files: u64,
    /// Bytes of chunks that were fetched for these files.
    pub(super) fetched_bytes: u64,
    /// Files that were set aside.
    pub(super) damaged: Vec<Damage>,
}

/// Files that were set aside: their keys, paths and attributes.
type Aside = Vec<(PoolKey, PathBuf, Stat)>;

/// Fills the pool. Every key was in the pool, intact, at some moment of the call.
pub(super) fn fill(
    reader: &Reader<'_>,
    pool: &Pool,
    wanted: impl Iterator<Item = Wanted>,
    progress: &dyn Progress,
) -> Result<Filled> {
    let mut wanted = distinct(wanted);
    let mut filled = Filled::default();
    let mut watch = Watch::new();
    let mut aside = Aside::new();
    let mut pause = Duration::from_millis(1);
    loop {
        wanted = absent(pool, wanted)?;
        if wanted.is_empty() {
            break;
        }
        let before = wanted.len();
        wanted = round(reader, pool, wanted, progress, &mut filled, &mut aside)?;
        if wanted.len() < before {
            pause = Duration::from_millis(1);
            continue;
        }
        reader.store().host().check_stop()?;
        std::thread::sleep(pause);
        pause = (2 * pause).min(PAUSE_MAX);
        for one in &wanted {
            pool.break_claim(&one.key.to_string(), &mut watch)?;
        }
    }
    filled.damaged = pool.damages(aside)?;
    Ok(filled)
}

/// Each file once, in the order of first mention; it is linked if any mention says so.
fn distinct(wanted: impl Iterator<Item = Wanted>) -> Vec<Wanted> {
    let mut places: HashMap<PoolKey, usize> = HashMap::new();
    let mut distinct: Vec<Wanted> = Vec::new();
    for one in wanted {
        let at = *places.entry(one.key).or_insert(distinct.len());
        match distinct.get_mut(at) {
            Some(known) => known.is_copied &= one.is_copied,
            None => distinct.push(one),
        }
    }
    distinct
}

fn absent(pool: &Pool, wanted: Vec<Wanted>) -> Result<Vec<Wanted>> {
    let mut absent = Vec::new();
    for one in wanted {
        if !pool.has(&one.key, one.is_copied)? {
            absent.push(one);
        }
    }
    Ok(absent)
}

/// Builds all files that nobody else builds, and returns the rest.
fn round(
    reader: &Reader<'_>,
    pool: &Pool,
    wanted: Vec<Wanted>,
    progress: &dyn Progress,
    filled: &mut Filled,
    aside: &mut Aside,
) -> Result<Vec<Wanted>> {
    let bytes = wanted.iter().map(|one| one.key.content.size).sum();
    if !pool.has_room(bytes)? {
        pool.make_room(written_bytes(reader, &wanted)?)?;
    }
    let counts = Counts::default();
    let mut taken = Vec::new();
    let fetched = fetch(reader, |requests| {
        for wanted in wanted {
            match pool.claim(&wanted.key.to_string())? {
                Claimed::Taken => taken.push(wanted),
                Claimed::Mine(claim) => {
                    let job = Job {
                        pool,
                        wanted,
                        claim,
                        progress,
                        counts: &counts,
                    };
                    job.request(requests, aside)?;
                }
            }
        }
        Ok(())
    });
    // Files that were built before a failure get their names, too, so that the next process need not fetch them.
    let built = counts
        .built
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    let (drafts, claims): (Vec<_>, Vec<_>) = built.into_iter().unzip();
    filled.files += drafts.len() as u64;
    let published = pool.publish(drafts);
    drop(claims);
    fetched.and(published)?;
    filled.fetched_bytes += counts.fetched_bytes.into_inner();
    Ok(taken)
}

/// How many bytes building the files writes. Runs of zeros become holes.
fn written_bytes(reader: &Reader<'_>, wanted: &[Wanted]) -> Result<u64> {
    let (zero, zero_len) = reader.store().chunker().zero_chunk();
    let mut bytes = 0_u64;
    for one in wanted {
        reader.chunks(&one.key.content, &mut |id, len| {
            if (id, len) != (zero, u64::from(zero_len)) {
                bytes = bytes.saturating_add(len);
            }
            Ok(())
        })?;
    }
    Ok(bytes)
}

/// What the jobs of a round share.
#[derive(Default)]
struct Counts<'p> {
    /// Complete files without their names.
    built: Mutex<Vec<(Draft<'p>, Option<Claim<'p>>)>>,
    fetched_bytes: AtomicU64,
}

/// A claimed file to build.
struct Job<'f, 'p> {
    pool: &'p Pool,
    wanted: Wanted,
    claim: Option<Claim<'p>>,
    progress: &'f dyn Progress,
    counts: &'f Counts<'p>,
}

impl<'f, 'p> Job<'f, 'p> {
    fn request(
        self,
        requests: &mut Requests<'_, PoolSink<'f, 'p>>,
        aside: &mut Aside,
    ) -> Result<()> {
        // Another process may have built the file between the check and the claim.
        let Wanted { key, is_copied } = self.wanted;
        if self.pool.has(&key, is_copied)? {
            return Ok(());
        }
        let damaged = self.pool.set_aside(&key)?;
        let rest = damaged
            .as_ref()
            .and_then(|(path, _)| open_regular(path).ok());
        aside.extend(damaged.map(|(path, stat)| (key, path, stat)));
        let sink = PoolSink {
            pool: self.pool,
            wanted: self.wanted,
            claim: Mutex::new(self.claim),
            draft: Mutex::default(),
            damaged: rest,
            progress: self.progress,
            counts: self.counts,
        };
        requests.push(sink, &key.content)
    }
}

/// A pool file that is being built.
struct PoolSink<'f, 'p> {
    pool: &'p Pool,
    wanted: Wanted,
    claim: Mutex<Option<Claim<'p>>>,
    draft: Mutex<Option<Draft<'p>>>,
    /// The file that had this name and was written to. Most of its chunks are often intact.
    damaged: Option<File>,
    progress: &'f dyn Progress,
    counts: &'f Counts<'p>,
}

impl Sink for PoolSink<'_, '_> {
    fn open(&self) -> Result<File> {
        let Wanted { key, is_copied } = self.wanted;
        let (draft, file) = self.pool.draft(key, is_copied)?;
        *self.draft.lock().unwrap_or_else(PoisonError::into_inner) = Some(draft);
        Ok(file)
    }

    fn written(&self, bytes: u64) {
        self.counts
            .fetched_bytes
            .fetch_add(bytes, Ordering::Relaxed);
        self.progress.advance(0, bytes);
    }

    fn can_supply(&self) -> bool {
        self.damaged.is_some()
    }

    fn supply(&self, file: &File, id: &ChunkId, offset: u64, len: u64) -> Result<bool> {
        let (Some(damaged), Ok(len)) = (&self.damaged, usize::try_from(len)) else {
            return Ok(false);
        };
        let mut bytes = vec![0; len];
        if damaged.read_exact_at(&mut bytes, offset).is_err() || ChunkId::of(&bytes) != *id {
            return Ok(false);
        }
        file.write_all_at(&bytes, offset)
            .map_err(|source| Error::io("write", self.name(), source))?;
        // The caller counts these bytes as written, but they were not fetched.
        self.counts
            .fetched_bytes
            .fetch_sub(len as u64, Ordering::Relaxed);
        Ok(true)
    }

    fn finish(&self, file: &File) -> Result<()> {
        let draft = self
            .draft
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let claim = self
            .claim
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(draft) = draft {
            draft.seal(file)?;
            let mut built = self
                .counts
                .built
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            built.push((draft, claim));
        }
        self.progress.advance(1, 0);
        Ok(())
    }

    fn name(&self) -> String {
        format!(
            "pool file {}",
            self.pool.path_of(&self.wanted.key).display()
        )
    }
}
