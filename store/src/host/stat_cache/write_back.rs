//! Whether every later change of a file will show in its times, even one through a mapping.
//!
//! A store through a mapping changes the times of a file only when it makes a clean page dirty. A page that is dirty
//! already accepts further stores silently until the system has written it back. So a file may change unnoticed after a
//! put has read it, unless its pages were clean when the reading began.
//!
//! A small file that has not changed for longer than the system takes to write back is assumed to be clean. Others are
//! written back before they are read: the first [`ALONE_MAX`] one by one, which waits for the disk each time, then
//! their whole file system, once. A file that has changed since is not remembered. File systems that never write back
//! (tmpfs), that hide what is below (overlayfs, FUSE) or that other hosts write to are never relied on.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::fs::{FsWord, fdatasync, fstatfs, syncfs};

use super::is_settled_for;
use crate::host::walk::Stat;

/// Most files that one put writes back one by one. Each waits for a flush of the disk; a whole file system flushes it
/// once.
const ALONE_MAX: u64 = 16;
/// The least time after which a page counts as written back, since disks lag behind.
const AGE_MIN: Duration = Duration::from_secs(5 * 60);
/// By which factor disks may lag behind the system's settings.
const LAG: u32 = 4;
/// File systems that were observed to change the times of a file at the first store to a clean page: ext2 to ext4, XFS
/// and btrfs.
pub(crate) const RELIABLE: [FsWord; 3] = [0xEF53, 0x5846_5342, 0x9123_683E];
/// The settings that say how long pages stay dirty.
const SETTINGS: &str = "/proc/sys/vm";

/// What one put knows of the pages of the files that it reads.
#[derive(Debug)]
pub struct WriteBack {
    /// The age after which a small file counts as written back; none if the system never writes back by itself.
    age: Option<Duration>,
    alone_left: AtomicU64,
    devices: Mutex<Vec<Device>>,
}

/// What is known of a file system.
#[derive(Clone, Copy, Debug)]
struct Device {
    id: u64,
    /// Whether it is one of [`RELIABLE`].
    is_reliable: bool,
    /// When this put began to write all of it back.
    written_back: Option<SystemTime>,
}

impl WriteBack {
    /// Uses the settings of this system.
    pub fn of_system() -> Self {
        Self::with_age(age(Path::new(SETTINGS)))
    }

    fn with_age(age: Option<Duration>) -> Self {
        Self {
            age,
            alone_left: AtomicU64::new(ALONE_MAX),
            devices: Mutex::default(),
        }
    }

    /// Makes sure, before `file` is read, that each later change of it will change its times; returns whether that is
    /// so. A file that changed shortly before `read_began` is skipped, since it is not remembered anyway.
    pub fn ensure(&self, file: &File, stat: &Stat, is_small: bool, read_began: SystemTime) -> bool {
        let settled = Duration::from_secs(super::SETTLED_SECS);
        if !is_settled_for(stat, read_began, settled) || !self.is_reliable(file, stat.dev) {
            return false;
        }
        let is_old = |age| is_settled_for(stat, read_began, age);
        if is_small && self.age.is_some_and(is_old) {
            return true;
        }
        if self.take_alone() {
            return fdatasync(file).is_ok();
        }
        let written_back = self.all_written_back(file, stat.dev);
        written_back.is_some_and(|began| is_settled_for(stat, began, settled))
    }

    fn take_alone(&self) -> bool {
        let take = |left: u64| left.checked_sub(1);
        let taken = self
            .alone_left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.is_ok()
    }

    fn is_reliable(&self, file: &File, id: u64) -> bool {
        let mut devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = devices.iter().find(|known| known.id == id) {
            return known.is_reliable;
        }
        let is_reliable = is_reliable(file);
        devices.push(Device {
            id,
            is_reliable,
            written_back: None,
        });
        is_reliable
    }

    /// Writes back the whole file system of `file`, once. Returns when that began; other threads wait for it.
    fn all_written_back(&self, file: &File, id: u64) -> Option<SystemTime> {
        let mut devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        let device = devices.iter_mut().find(|known| known.id == id)?;
        if device.written_back.is_none() {
            let began = SystemTime::now();
            syncfs(file).ok()?;
            device.written_back = Some(began);
        }
        device.written_back
    }
}

/// Makes sure, before `file` is read, that each later change of it will change its times; returns whether that is so.
/// Writes back this file alone, each time.
pub(crate) fn ensure_alone(file: &File, stat: &Stat, read_began: SystemTime) -> bool {
    let settled = Duration::from_secs(super::SETTLED_SECS);
    is_settled_for(stat, read_began, settled) && is_reliable(file) && fdatasync(file).is_ok()
}

fn is_reliable(file: &File) -> bool {
    fstatfs(file).is_ok_and(|found| RELIABLE.contains(&found.f_type))
}

/// How long after its last change a file has certainly been written back, by the `settings` of the system; none if the
/// system does not write back by itself.
fn age(settings: &Path) -> Option<Duration> {
    let read = |name: &str| -> Option<u64> {
        let text = std::fs::read_to_string(settings.join(name)).ok()?;
        text.trim().parse().ok()
    };
    let (expire, interval) = (
        read("dirty_expire_centisecs")?,
        read("dirty_writeback_centisecs")?,
    );
    // In laptop mode, a sleeping disk is only written when something else wakes it.
    if interval == 0 || read("laptop_mode").unwrap_or(0) != 0 {
        return None;
    }
    let age = Duration::from_millis(expire.checked_add(interval)?.checked_mul(10)?);
    Some(age.checked_mul(LAG)?.max(AGE_MIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(dir: &Path, values: &[(&str, &str)]) {
        for (name, value) in values {
            std::fs::write(dir.join(name), format!("{value}\n")).unwrap();
        }
    }

    #[test]
    fn the_age_follows_the_settings_of_the_system() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(age(dir.path()), None);
        set(
            dir.path(),
            &[
                ("dirty_expire_centisecs", "3000"),
                ("dirty_writeback_centisecs", "500"),
                ("laptop_mode", "0"),
            ],
        );
        assert_eq!(age(dir.path()), Some(AGE_MIN));
        set(dir.path(), &[("dirty_expire_centisecs", "360000")]);
        assert_eq!(age(dir.path()), Some(Duration::from_secs(4 * 3605)));
        set(dir.path(), &[("laptop_mode", "5")]);
        assert_eq!(age(dir.path()), None);
        set(
            dir.path(),
            &[("laptop_mode", "0"), ("dirty_writeback_centisecs", "0")],
        );
        assert_eq!(age(dir.path()), None);
    }

    #[test]
    fn a_few_files_are_written_back_alone_and_the_others_at_once() {
        let file = tempfile::tempfile().unwrap();
        let stat = Stat::of_file(&file, Path::new("x")).unwrap();
        let later = |secs| SystemTime::now() + Duration::from_secs(secs);
        let device = |written_back| Device {
            id: stat.dev,
            // The file may be on another file system, so the result of the check is given here.
            is_reliable: true,
            written_back,
        };
        let pages = |age, written_back| {
            let pages = WriteBack::with_age(age);
            pages.devices.lock().unwrap().push(device(written_back));
            pages
        };
        let age = Some(Duration::from_secs(300));
        let young = pages(age, Some(later(0)));
        assert!(!young.ensure(&file, &stat, true, later(1)), "too young");
        for number in 0..ALONE_MAX {
            assert!(
                young.ensure(&file, &stat, number > 3, later(60)),
                "{number}"
            );
        }
        assert!(
            !young.ensure(&file, &stat, true, later(60)),
            "changed after all were written back"
        );
        assert!(
            !young.ensure(&file, &stat, false, later(60)),
            "a large one, too"
        );
        assert!(young.ensure(&file, &stat, true, later(301)), "an old one");
        assert!(
            !young.ensure(&file, &stat, false, later(301)),
            "an old large one"
        );
        let settled = pages(age, Some(later(3)));
        settled.alone_left.store(0, Ordering::Relaxed);
        assert!(settled.ensure(&file, &stat, true, later(60)));
        assert!(settled.ensure(&file, &stat, false, later(60)));
        let never = pages(None, Some(later(0)));
        never.alone_left.store(0, Ordering::Relaxed);
        assert!(!never.ensure(&file, &stat, true, later(100_000)));
        // The first file makes the put write back everything.
        let first = pages(age, None);
        first.alone_left.store(0, Ordering::Relaxed);
        first.ensure(&file, &stat, true, later(60));
        assert!(first.devices.lock().unwrap()[0].written_back.is_some());
    }
}
