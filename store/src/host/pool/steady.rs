//! The state of an open pool file, which tells whether its bytes are still those that were verified.
//!
//! A job may write to a file that it shares with the pool, at any time. Every such write changes the file's times, and
//! what a job sets back is its mtime only: its ctime is set by the system. So bytes that were verified in one state are
//! right whenever they are read in that state. The rules of the stat cache say when times can be relied on.

use std::fs::File;
use std::time::SystemTime;

use rustix::fs;

use super::POOL_TIME;
use crate::host::stat_cache::ensure_alone;
use crate::host::walk::Stat;

/// A state of an open pool file in which each later change of its bytes will show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steady(Stat);

impl Steady {
    /// The state of `file`; none if somebody wrote to it, if anything about it changed in the last seconds, or if its
    /// file system may hide changes. Writes the file back, so it may wait for the disk. Bytes count as verified in this
    /// state if they are read after this call, and [`Self::is_of`] holds after that.
    pub fn of(file: &File) -> Option<Self> {
        let began = SystemTime::now();
        let stat = Stat::from(fs::fstat(file).ok()?);
        let is_steady = stat.mtime == POOL_TIME && ensure_alone(file, &stat, began);
        is_steady.then_some(Self(stat))
    }

    /// Whether `file` is in this state: nobody has written to it before this call.
    pub fn is_of(&self, file: &File) -> bool {
        fs::fstat(file).is_ok_and(|stat| Stat::from(stat) == self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::time::{Duration, UNIX_EPOCH};

    use rustix::fs::fstatfs;

    use super::*;
    use crate::host::stat_cache::{RELIABLE, SETTLED_SECS};

    fn set_pool_time(file: &File) {
        let secs = u64::try_from(POOL_TIME.secs).unwrap();
        let time = UNIX_EPOCH + Duration::from_secs(secs);
        file.set_modified(time).unwrap();
    }

    #[test]
    fn a_write_ends_the_state_also_if_the_mtime_is_set_back() {
        let file = tempfile::tempfile_in("/var/tmp").unwrap();
        let settle = || std::thread::sleep(Duration::from_secs(SETTLED_SECS + 1));
        file.write_all_at(b"right", 0).unwrap();
        settle();
        assert_eq!(Steady::of(&file), None, "of no pool");
        set_pool_time(&file);
        assert_eq!(Steady::of(&file), None, "just changed");
        settle();
        let state = Steady::of(&file);
        let kind = fstatfs(&file).unwrap().f_type;
        assert_eq!(state.is_some(), RELIABLE.contains(&kind));
        let Some(state) = state else {
            return;
        };
        assert!(state.is_of(&file));
        file.write_all_at(b"wrong", 0).unwrap();
        assert!(!state.is_of(&file));
        set_pool_time(&file);
        assert!(!state.is_of(&file));
        settle();
        assert_ne!(Steady::of(&file), Some(state));
    }
}
