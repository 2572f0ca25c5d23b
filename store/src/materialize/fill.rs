//! Filling the pool: each missing file is built by one process and awaited by the others.
//!
//! Whoever gets the claim of a file fetches it; what others have claimed is looked at again and again,
//! and taken over when its owner has died. A file that was written through a link is set aside first,
//! and of its chunks only those are fetched that it does not have any more.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::fetch::{Requests, Sink, fetch};
use crate::id::ChunkId;
use crate::pool::{Claim, Claimed, Damage, Draft, Look, Pool, PoolKey, Watch};
use crate::progress::Progress;
use crate::read::Reader;
use crate::walk::Stat;

/// The longest pause between two looks at what others are building.
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// What a fill brought.
#[derive(Debug, Default)]
pub(super) struct Filled {
    /// Files that this process built.
    pub(super) files: u64,
    /// Bytes of chunks that it fetched for them.
    pub(super) fetched_bytes: u64,
    /// What was set aside.
    pub(super) damaged: Vec<Damage>,
}

/// Files set aside: their key, where they are, as what they were found.
type Aside = Vec<(PoolKey, PathBuf, Stat)>;

/// Returns when every key was in the pool, intact, at some moment of the call.
pub(super) fn fill(
    reader: &Reader<'_>,
    pool: &Pool,
    keys: impl Iterator<Item = PoolKey>,
    progress: &dyn Progress,
) -> Result<Filled> {
    let mut wanted: Vec<PoolKey> = Vec::new();
    let mut known = HashSet::new();
    wanted.extend(keys.filter(|key| known.insert(*key)));
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
        for key in &wanted {
            pool.break_claim(&key.to_string(), &mut watch)?;
        }
    }
    filled.damaged = pool.damages(aside)?;
    Ok(filled)
}

fn absent(pool: &Pool, keys: Vec<PoolKey>) -> Result<Vec<PoolKey>> {
    let mut absent = Vec::new();
    for key in keys {
        if !matches!(pool.look(&key)?, Look::Intact(_)) {
            absent.push(key);
        }
    }
    Ok(absent)
}

/// Builds all that nobody else is building, and returns the rest.
fn round(
    reader: &Reader<'_>,
    pool: &Pool,
    wanted: Vec<PoolKey>,
    progress: &dyn Progress,
    filled: &mut Filled,
    aside: &mut Aside,
) -> Result<Vec<PoolKey>> {
    pool.make_room(wanted.iter().map(|key| key.content.size).sum())?;
    let counts = Counts::default();
    let mut taken = Vec::new();
    fetch(reader, |requests| {
        for key in wanted {
            match pool.claim(&key.to_string())? {
                Claimed::Taken => taken.push(key),
                Claimed::Mine(claim) => {
                    let job = Job {
                        pool,
                        key,
                        claim,
                        progress,
                        counts: &counts,
                    };
                    job.request(requests, aside)?;
                }
            }
        }
        Ok(())
    })?;
    filled.files += counts.files.into_inner();
    filled.fetched_bytes += counts.fetched_bytes.into_inner();
    Ok(taken)
}

#[derive(Default)]
struct Counts {
    files: AtomicU64,
    fetched_bytes: AtomicU64,
}

/// A claimed key.
struct Job<'f> {
    pool: &'f Pool,
    key: PoolKey,
    claim: Option<Claim<'f>>,
    progress: &'f dyn Progress,
    counts: &'f Counts,
}

impl<'f> Job<'f> {
    fn request(self, requests: &mut Requests<'_, PoolSink<'f>>, aside: &mut Aside) -> Result<()> {
        // It may have been built between the look and the claim.
        if matches!(self.pool.look(&self.key)?, Look::Intact(_)) {
            return Ok(());
        }
        let damaged = self.pool.set_aside(&self.key)?;
        let rest = damaged.as_ref().and_then(|(path, _)| File::open(path).ok());
        aside.extend(damaged.map(|(path, stat)| (self.key, path, stat)));
        let sink = PoolSink {
            pool: self.pool,
            key: self.key,
            claim: Mutex::new(self.claim),
            draft: Mutex::default(),
            damaged: rest,
            progress: self.progress,
            counts: self.counts,
        };
        requests.push(sink, &self.key.content)
    }
}

/// A pool file on its way.
struct PoolSink<'f> {
    pool: &'f Pool,
    key: PoolKey,
    claim: Mutex<Option<Claim<'f>>>,
    draft: Mutex<Option<Draft<'f>>>,
    /// The file that had its name and was written to: most of its chunks are often right.
    damaged: Option<File>,
    progress: &'f dyn Progress,
    counts: &'f Counts,
}

impl Sink for PoolSink<'_> {
    fn open(&self) -> Result<File> {
        let (draft, file) = self.pool.draft(self.key)?;
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
        // It will be counted as written, which it is, but it was not fetched.
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
        if let Some(draft) = draft {
            draft.publish(file)?;
        }
        drop(
            self.claim
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        self.counts.files.fetch_add(1, Ordering::Relaxed);
        self.progress.advance(1, 0);
        Ok(())
    }

    fn name(&self) -> String {
        format!("pool file {}", self.pool.path_of(&self.key).display())
    }
}
