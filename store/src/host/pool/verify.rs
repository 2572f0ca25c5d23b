//! Reads a whole pool again. This also finds files that somebody wrote through a link and whose modification time was
//! set back.
//!
//! The content of a file is recomputed from its bytes alone, with the chunkers that the pool has recorded; no store is
//! needed.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{Read, Seek};
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use rustix::fs;
use rustix::io::Errno;

use super::{Look, Pool, PoolKey, disk, look_of, trust};
use crate::chunk::{Chunker, Cutter};
use crate::error::{Error, Result};
use crate::format::Content;
use crate::host::walk::Stat;
use crate::id::ChunkId;
use crate::shown;
use crate::tree::ListBuilder;

/// Bytes that one read requests.
const READ_BYTES: usize = 1 << 20;

/// A damaged pool file.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Damage {
    /// The name of the pool file.
    pub file: String,
    /// The path to which it was moved.
    #[serde(serialize_with = "shown::path_as_text")]
    pub set_aside: PathBuf,
    /// Files of materialized trees that share its inode.
    #[serde(serialize_with = "shown::paths")]
    pub shared_with: Vec<PathBuf>,
}

/// The result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct PoolVerifyReport {
    /// Files that were read.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that were set aside.
    pub damaged: Vec<Damage>,
    /// Small files, only used for copies, that lost their bytes in a power cut. They are removed.
    pub lost: u64,
}

/// The state of a pool that verifies files before they are used.
#[derive(Debug, Default)]
pub(super) struct Verifying {
    chunkers: OnceLock<Vec<Chunker>>,
    /// Inodes that were read, and whether they match their names.
    read: Mutex<HashMap<PoolKey, (u64, bool)>>,
}

impl Pool {
    /// From now on, each file is read and compared with its name once, before it is linked or copied.
    pub fn verify_before_use(&self) {
        self.verifying.get_or_init(Verifying::default);
    }

    pub(super) fn is_verifying(&self) -> bool {
        self.verifying.get().is_some()
    }

    /// Returns `look`, after reading the bytes if verification is on.
    pub(super) fn verified(&self, key: &PoolKey, look: Look) -> Result<Look> {
        let (Some(verifying), Look::Intact(stat)) = (self.verifying.get(), look) else {
            return Ok(look);
        };
        let known = || {
            verifying
                .read
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
        };
        let before = known().get(key).copied();
        let is_right = match before {
            Some((inode, is_right)) if inode == stat.ino => is_right,
            _ => {
                let chunkers = match verifying.chunkers.get() {
                    Some(chunkers) => chunkers,
                    None => {
                        let chunkers = self.chunkers()?;
                        verifying.chunkers.get_or_init(|| chunkers)
                    }
                };
                let Some(is_right) = self.verify_one(key, chunkers)? else {
                    return Ok(Look::Missing);
                };
                known().insert(*key, (stat.ino, is_right));
                is_right
            }
        };
        Ok(if is_right { look } else { Look::Changed(stat) })
    }

    /// Reads every pool file, and sets aside those that do not match their names.
    ///
    /// # Errors
    /// When a file cannot be read. Wrong bytes are in the report.
    pub fn verify(&self, progress: &dyn crate::progress::Progress) -> Result<PoolVerifyReport> {
        let chunkers = self.chunkers()?;
        let usage = self.usage()?;
        progress.total(usage.files, usage.bytes);
        let report = Mutex::new(PoolVerifyReport::default());
        let wrong = Mutex::new(Vec::new());
        (0..=u8::MAX).into_par_iter().try_for_each(|shard| {
            for key in self.keys(shard)? {
                let Some(is_right) = self.verify_one(&key, &chunkers)? else {
                    continue;
                };
                progress.advance(1, key.content.size);
                let mut report = report
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
                report.files += 1;
                report.bytes += key.content.size;
                drop(report);
                if !is_right {
                    wrong
                        .lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner)
                        .push(key);
                }
            }
            Ok(())
        })?;
        let mut report = report
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let wrong = wrong
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut aside = Vec::new();
        for key in wrong {
            let look = self.look(&key)?;
            let Some((path, stat)) = self.set_aside_anyway(&key)? else {
                continue;
            };
            if matches!(look, Look::Copied | Look::Missing) {
                // No tree shares the file, so nobody can have written to it.
                disk::forgive(fs::unlink(&path));
                report.lost += 1;
            } else {
                aside.push((key, path, stat));
            }
        }
        report.damaged = self.damages(aside)?;
        Ok(report)
    }

    /// Reports files that were set aside, with the trees that share them.
    pub(crate) fn damages(&self, aside: Vec<(PoolKey, PathBuf, Stat)>) -> Result<Vec<Damage>> {
        let inodes: HashSet<_> = aside
            .iter()
            .map(|(_, _, stat)| (stat.dev, stat.ino))
            .collect();
        let sharers = self.sharers(&inodes)?;
        let mut damages: Vec<Damage> = aside
            .into_iter()
            .map(|(key, set_aside, stat)| Damage {
                file: key.to_string(),
                set_aside,
                shared_with: sharers
                    .get(&(stat.dev, stat.ino))
                    .cloned()
                    .unwrap_or_default(),
            })
            .collect();
        damages.sort_by(|a, b| a.file.cmp(&b.file));
        Ok(damages)
    }

    /// Whether a file matches its name; none, if it is missing.
    fn verify_one(&self, key: &PoolKey, chunkers: &[Chunker]) -> Result<Option<bool>> {
        let path = self.path_of(key);
        let Some(shard) = self.shard(key.shard())? else {
            return Ok(None);
        };
        let file = match disk::open_file(&shard, key.name().as_bytes()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(disk::failed("open pool file", &path, errno)),
        };
        let stat = Stat::of_file(&file, &path)?;
        if stat.uid != trust::user() {
            return Ok(None);
        }
        match look_of(key, stat) {
            Look::Intact(_) | Look::Copied => {}
            Look::Missing | Look::Changed(_) => return Ok(Some(false)),
        }
        for chunker in chunkers {
            let read = file
                .try_clone()
                .and_then(|mut file| file.rewind().map(|()| file))
                .map_err(|source| Error::io("read pool file", &path, source))?;
            let found = content_of(read, chunker).map_err(|error| error.within(path.display()))?;
            if found == key.content {
                return Ok(Some(true));
            }
        }
        Ok(Some(false))
    }

    /// Sets aside a file that looks intact but is not. Reports it, unless nobody could have written to it.
    pub(crate) fn set_wrong_aside(&self, key: &PoolKey) -> Result<Vec<Damage>> {
        let was_copied = self.look(key)? == Look::Copied;
        let aside = self.set_aside_anyway(key)?;
        match aside {
            Some((path, _)) if was_copied => {
                disk::forgive(fs::unlink(&path));
                Ok(Vec::new())
            }
            aside => self.damages(
                aside
                    .map(|(path, stat)| (*key, path, stat))
                    .into_iter()
                    .collect(),
            ),
        }
    }

    fn set_aside_anyway(&self, key: &PoolKey) -> Result<Option<(PathBuf, Stat)>> {
        let Some(shard) = self.shard(key.shard())? else {
            return Ok(None);
        };
        let failed = |errno| disk::failed("set aside pool file", &self.path_of(key), errno);
        let aside = format!("damaged/{}.{}", key.name(), disk::random_name()?);
        match fs::renameat(&shard, key.name(), &self.fd, &aside) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(failed(errno)),
        }
        let stat = fs::statat(&self.fd, &aside, fs::AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        Ok(Some((self.path.join(aside), stat.into())))
    }

    fn keys(&self, shard: u8) -> Result<Vec<PoolKey>> {
        let Some(shard) = self.shard(shard)? else {
            return Ok(Vec::new());
        };
        let names = disk::names(shard, &self.path)?;
        let keys = names
            .iter()
            .filter_map(|name| std::str::from_utf8(name).ok()?.parse().ok());
        Ok(keys.collect())
    }
}

/// Computes the content of a file from its bytes.
pub(crate) fn content_of(mut file: File, chunker: &Chunker) -> Result<Content> {
    let failed = |source| Error::io("read", "pool file", source);
    let size = file.metadata().map_err(failed)?.len();
    let mut cutter = Cutter::new(chunker, &file, size).map_err(failed)?;
    let mut list = ListBuilder::default();
    let mut sink = |node: &[u8]| Ok(ChunkId::of(node));
    let mut bytes = Vec::new();
    let mut used = 0;
    loop {
        bytes.drain(..used);
        let read = (&mut file)
            .take(READ_BYTES as u64)
            .read_to_end(&mut bytes)
            .map_err(failed)?;
        used = 0;
        while let Some(rest) = bytes.get(used..).filter(|rest| !rest.is_empty()) {
            let Some(chunk) = cutter.cut(rest, read == 0).and_then(|len| rest.get(..len)) else {
                break;
            };
            let len = u32::try_from(chunk.len()).unwrap_or(u32::MAX);
            list.push(ChunkId::of(chunk), len, &mut sink)?;
            used += chunk.len();
        }
        if read == 0 {
            return list.finish(&mut sink);
        }
    }
}
