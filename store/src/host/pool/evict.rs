//! How much a pool takes, and how space is freed: the least recently linked files are removed first, and only files
//! that no tree shares, since deleting others frees nothing.
//!
//! Eviction needs no lock: a file is renamed away, checked again, and unlinked only if it still has one link. A tree
//! that linked it in between keeps the inode; a later one builds the file again.

use rustix::fs::{self, AtFlags};

use super::{Pool, PoolKey, disk};
use crate::error::{Error, Result};
use crate::host::walk::Stat;

/// How much a pool takes on disk, and how much deleting would free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct PoolUsage {
    /// Whole files.
    pub files: u64,
    /// Their bytes on disk.
    pub bytes: u64,
    /// Files that no tree shares.
    pub unlinked_files: u64,
    /// Bytes that evicting them frees.
    pub unlinked_bytes: u64,
    /// Files that trees share: deleting them from the pool frees nothing while the trees exist.
    pub linked_files: u64,
    /// Their bytes.
    pub linked_bytes: u64,
    /// Files that were set aside because somebody wrote to them.
    pub damaged_files: u64,
    /// Bytes that deleting those frees.
    pub damaged_bytes: u64,
    /// Bytes of files that are being built.
    pub building_bytes: u64,
    /// Bytes that are free on the file system, if it tells.
    pub free_bytes: Option<u64>,
}

/// The result of an eviction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct EvictReport {
    /// Files that were removed.
    pub files: u64,
    /// Bytes on disk that this freed.
    pub bytes: u64,
    /// Marks of missing trees that were removed.
    pub marks: u64,
}

/// A file that may be evicted.
struct Candidate {
    used: (i64, i64),
    bytes: u64,
    key: PoolKey,
}

impl Pool {
    /// Counts the content of the pool.
    ///
    /// # Errors
    /// When the pool cannot be listed.
    pub fn usage(&self) -> Result<PoolUsage> {
        let mut usage = PoolUsage {
            free_bytes: self.free_bytes()?,
            ..PoolUsage::default()
        };
        self.each_file(&mut |_, stat, _| {
            let stat = Stat::from(stat);
            let bytes = stat.blocks * 512;
            usage.files += 1;
            usage.bytes += bytes;
            if stat.nlink == 1 {
                usage.unlinked_files += 1;
                usage.unlinked_bytes += bytes;
            } else {
                usage.linked_files += 1;
                usage.linked_bytes += bytes;
            }
            Ok(())
        })?;
        self.each_beside("damaged", &mut |_, stat| {
            usage.damaged_files += 1;
            usage.damaged_bytes += if stat.nlink == 1 {
                stat.blocks * 512
            } else {
                0
            };
        })?;
        let owners = self.directory("tmp")?;
        for owner in disk::names(&owners, &self.path)? {
            let building = format!("tmp/{}", String::from_utf8_lossy(&owner));
            // A process that ends meanwhile removes its directory.
            drop(self.each_beside(&building, &mut |_, stat| {
                usage.building_bytes += stat.blocks * 512
            }));
        }
        Ok(usage)
    }

    /// Forgets missing trees, and removes damaged files, then unlinked ones, least recently used first, until the pool
    /// takes at most `bytes_max` and the file system has `free_bytes_min` left. Without either, the limits of the pool
    /// apply.
    ///
    /// # Errors
    /// When the pool cannot be listed or written.
    pub fn evict(
        &self,
        bytes_max: Option<u64>,
        free_bytes_min: Option<u64>,
    ) -> Result<EvictReport> {
        let mut report = EvictReport {
            marks: self.forget_gone()?,
            ..EvictReport::default()
        };
        self.remove_damaged(&mut report)?;
        let (bytes_max, free_bytes_min) = match (bytes_max, free_bytes_min) {
            (None, None) => (self.limits.bytes_max, self.limits.free_bytes_min),
            (bytes_max, free_bytes_min) => (bytes_max, free_bytes_min.unwrap_or(0)),
        };
        let mut total = 0;
        let mut candidates = Vec::new();
        self.each_file(&mut |key, stat, _| {
            // The ctime is the time of the last link or unlink. Copies change the time of access.
            let used = (stat.st_ctime, stat.st_ctime_nsec as i64)
                .max((stat.st_atime, stat.st_atime_nsec as i64));
            let (links, bytes) = (stat.st_nlink, Stat::from(stat).blocks * 512);
            total += bytes;
            if links == 1 {
                candidates.push(Candidate { used, bytes, key });
            }
            Ok(())
        })?;
        candidates.sort_by_key(|candidate| candidate.used);
        for candidate in candidates {
            let is_small_enough = bytes_max.is_none_or(|most| total <= most);
            if is_small_enough && self.lacks(free_bytes_min)?.is_none() {
                break;
            }
            if self.evict_one(&candidate.key)? {
                total -= candidate.bytes;
                report.files += 1;
                report.bytes += candidate.bytes;
            }
        }
        self.recount(total);
        Ok(report)
    }

    /// Whether `bytes` more fit without an eviction.
    pub(crate) fn has_room(&self, bytes: u64) -> Result<bool> {
        let free_wanted = self.limits.free_bytes_min.saturating_add(bytes);
        Ok(self.bytes_over(bytes)?.is_none() && self.lacks(free_wanted)?.is_none())
    }

    /// How many bytes the existing files may take, if they take too much together with `bytes` more.
    fn bytes_over(&self, bytes: u64) -> Result<Option<u64>> {
        Ok(match self.limits.bytes_max {
            Some(most) if self.counted()?.saturating_add(bytes) > most => {
                Some(most.saturating_sub(bytes))
            }
            _ => None,
        })
    }

    /// Makes room for `bytes` more, as far as eviction can.
    pub(crate) fn make_room(&self, bytes: u64) -> Result<()> {
        if self.has_room(bytes)? {
            return Ok(());
        }
        let free_wanted = self.limits.free_bytes_min.saturating_add(bytes);
        self.evict(self.bytes_over(bytes)?, Some(free_wanted))?;
        let Some(free) = self.lacks(free_wanted)? else {
            return Ok(());
        };
        Err(Error::unavailable(format!(
            "pool {}: {} is free, expected {} for new files and a rest of {}",
            self.path.display(),
            size(free),
            size(bytes),
            size(self.limits.free_bytes_min)
        ))
        .hint(self.room_hint()))
    }

    /// Removes the files that were set aside.
    fn remove_damaged(&self, report: &mut EvictReport) -> Result<()> {
        let damaged = self.directory("damaged")?;
        self.each_beside("damaged", &mut |name, stat| {
            if fs::unlinkat(&damaged, name, AtFlags::empty()).is_ok() {
                report.files += 1;
                report.bytes += if stat.nlink == 1 {
                    stat.blocks * 512
                } else {
                    0
                };
            }
        })
    }

    /// Removes one file unless somebody links it. Returns whether it was removed.
    pub(super) fn evict_one(&self, key: &PoolKey) -> Result<bool> {
        let failed = |errno| disk::failed("evict pool file", &self.path_of(key), errno);
        let Some(shard) = self.shard(key.shard())? else {
            return Ok(false);
        };
        let owner = self.owner()?;
        let name = format!("evict-{}", disk::random_name()?);
        match fs::renameat(&shard, key.name(), &owner.temporaries, &name) {
            Ok(()) => {}
            Err(rustix::io::Errno::NOENT) => return Ok(false),
            Err(errno) => return Err(failed(errno)),
        }
        let stat =
            fs::statat(&owner.temporaries, &name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        let is_alone = stat.st_nlink == 1;
        if !is_alone {
            // Somebody linked it in between: it gets its name back, unless it was built again meanwhile.
            disk::forgive(fs::linkat(
                &owner.temporaries,
                &name,
                &shard,
                key.name(),
                AtFlags::empty(),
            ));
        }
        fs::unlinkat(&owner.temporaries, &name, AtFlags::empty()).map_err(failed)?;
        Ok(is_alone)
    }

    /// Adds the disk space of a new file, without holes.
    pub(super) fn count_file(&self, shard: &std::os::fd::OwnedFd, key: &PoolKey) {
        if let Some(bytes) = self.count_lock().as_mut() {
            let found = fs::statat(shard, key.name(), AtFlags::SYMLINK_NOFOLLOW);
            *bytes += found.map_or(key.content.size, |stat| Stat::from(stat).blocks * 512);
        }
    }

    fn free_bytes(&self) -> Result<Option<u64>> {
        crate::fs::free_bytes_at(&self.fd)
            .map_err(|errno| disk::failed("ask for free space at", &self.path, errno))
    }

    /// How many bytes are free, if they are known to be fewer than `wanted`.
    fn lacks(&self, wanted: u64) -> Result<Option<u64>> {
        Ok(self.free_bytes()?.filter(|free| *free < wanted))
    }

    pub(super) fn directory(&self, name: &str) -> Result<std::os::fd::OwnedFd> {
        disk::open_dir(&self.fd, name.as_bytes())
            .map_err(|errno| disk::failed("open a directory of pool", &self.path, errno))
    }

    pub(super) fn each_beside(
        &self,
        directory: &str,
        each: &mut dyn FnMut(&[u8], Stat),
    ) -> Result<()> {
        let directory = self.directory(directory)?;
        for name in disk::names(&directory, &self.path)? {
            if let Ok(stat) = fs::statat(&directory, &*name, AtFlags::SYMLINK_NOFOLLOW) {
                each(&name, stat.into());
            }
        }
        Ok(())
    }

    /// Bytes of all files: listed once, then updated.
    fn counted(&self) -> Result<u64> {
        if let Some(bytes) = *self.count_lock() {
            return Ok(bytes);
        }
        let bytes = self.usage()?.bytes;
        self.recount(bytes);
        Ok(bytes)
    }

    fn recount(&self, bytes: u64) {
        *self.count_lock() = Some(bytes);
    }

    fn count_lock(&self) -> std::sync::MutexGuard<'_, Option<u64>> {
        self.counted_bytes
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A size for people, decimal as disks count: `999 B`, `12.3 MB`.
#[expect(
    clippy::cast_precision_loss,
    reason = "three digits are shown, a double has fifteen"
)]
fn size(bytes: u64) -> String {
    let units = ["kB", "MB", "GB", "TB", "PB", "EB"];
    let mut shown = (bytes as f64, "B");
    for unit in units {
        if shown.0 < 999.5 {
            break;
        }
        shown = (shown.0 / 1000.0, unit);
    }
    match shown {
        (count, "B") => format!("{count} B"),
        (count, unit) if count < 9.995 => format!("{count:.2} {unit}"),
        (count, unit) if count < 99.95 => format!("{count:.1} {unit}"),
        (count, unit) => format!("{count:.0} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::{Look, PoolLimits};
    use super::*;
    use crate::format::Content;
    use crate::id::ChunkId;

    /// A pool with a file for each of these first letters, 8 kB on disk, the last one newest.
    fn pool(dir: &std::path::Path, letters: &[u8]) -> (Pool, Vec<PoolKey>) {
        let pool = Pool::open(&dir.join("pool"), PoolLimits::default()).unwrap();
        let keys = letters.iter().map(|letter| {
            let bytes = vec![*letter; 8192];
            let content = Content {
                size: 8192,
                depth: 0,
                root: ChunkId::of(&bytes),
            };
            let key = PoolKey {
                content,
                executable: false,
            };
            let (draft, mut file) = pool.draft(key, false).unwrap();
            file.write_all(&bytes).unwrap();
            draft.seal(&file).unwrap();
            pool.publish(vec![draft]).unwrap();
            // Times of changes have the resolution of a kernel tick.
            std::thread::sleep(std::time::Duration::from_millis(20));
            key
        });
        let keys = keys.collect();
        (pool, keys)
    }

    fn is_there(pool: &Pool, key: &PoolKey) -> bool {
        matches!(pool.look(key).unwrap(), Look::Intact(_))
    }

    #[test]
    fn a_file_that_was_linked_in_between_keeps_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let (pool, keys) = pool(dir.path(), b"a");
        let key = keys[0];
        std::fs::hard_link(pool.path_of(&key), dir.path().join("link")).unwrap();
        assert!(!pool.evict_one(&key).unwrap());
        assert!(is_there(&pool, &key));
        std::fs::remove_file(dir.path().join("link")).unwrap();
        assert!(pool.evict_one(&key).unwrap());
        assert_eq!(pool.look(&key).unwrap(), Look::Missing);
    }

    #[test]
    fn a_limit_that_is_met_exactly_evicts_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (pool, keys) = pool(dir.path(), b"ab");
        let bytes = pool.usage().unwrap().bytes;
        assert_eq!(pool.evict(Some(bytes), None).unwrap().files, 0);
        assert_eq!(pool.evict(Some(bytes - 1), None).unwrap().files, 1);
        assert!(!is_there(&pool, &keys[0]) && is_there(&pool, &keys[1]));
    }

    #[test]
    fn who_was_read_last_goes_last() {
        let dir = tempfile::tempdir().unwrap();
        let (pool, keys) = pool(dir.path(), b"ab");
        // Copies change the time of access; nothing else shows that the older file is in use.
        let older = std::fs::File::open(pool.path_of(&keys[0])).unwrap();
        let soon = std::time::SystemTime::now() + std::time::Duration::from_secs(1000);
        let times = std::fs::FileTimes::new().set_accessed(soon);
        older.set_times(times).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        let newer = std::fs::File::open(pool.path_of(&keys[1])).unwrap();
        newer
            .set_times(std::fs::FileTimes::new().set_accessed(std::time::SystemTime::now()))
            .unwrap();
        let bytes = pool.usage().unwrap().bytes;
        assert_eq!(pool.evict(Some(bytes - 1), None).unwrap().files, 1);
        assert!(is_there(&pool, &keys[0]) && !is_there(&pool, &keys[1]));
    }

    #[test]
    fn sizes_have_three_digits() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.00 kB"),
            (9_999, "10.0 kB"),
            (123_456, "123 kB"),
            (999_500, "1.00 MB"),
            (900_000_000_000_000, "900 TB"),
            (u64::MAX, "18.4 EB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
