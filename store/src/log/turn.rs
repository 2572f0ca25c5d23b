//! Turns: writers on one host add to the log of a directory one after another.
//!
//! With put-if-absent alone, one writer wins and all others have worked in vain: they must read on, validate again and
//! sync another file. So a writer that is about to add an entry locks the directory of the log. The lock is advisory
//! and safety does not depend on it: a writer that waited too long, or that cannot lock (another host, a network file
//! system, a bucket), adds its entry without.

use std::fs::File;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::format::LOG_PREFIX;
use crate::fs::is_host_local;
use crate::remote::Read;

/// A commit takes a few milliseconds. A writer that holds the lock for longer is busy with something else, or
/// suspended.
const PATIENCE: Duration = Duration::from_millis(500);
/// The pause between two attempts to lock.
const PAUSE: Duration = Duration::from_micros(300);

/// A held lock. It ends when this value is dropped or the process ends.
#[derive(Debug)]
pub(super) struct Turn {
    _locked: File,
}

impl Turn {
    /// Waits for the lock, but only for a short time.
    pub(super) fn take(remote: &dyn Read) -> Option<Self> {
        Self::within(remote, PATIENCE)
    }

    fn within(remote: &dyn Read, patience: Duration) -> Option<Self> {
        let path = remote.local_path(LOG_PREFIX)?;
        let dir = File::open(&path).ok().filter(|_| is_host_local(&path))?;
        let began = Instant::now();
        loop {
            match flock(&dir, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Some(Self { _locked: dir }),
                Err(Errno::WOULDBLOCK) if began.elapsed() < patience => std::thread::sleep(PAUSE),
                Err(_) => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Who;
    use crate::log::tests::{name, set};
    use crate::log::{commit, load};
    use crate::remote::Objects;

    #[test]
    fn a_turn_is_one_writers_and_who_never_gets_one_adds_all_the_same() {
        let temp = tempfile::tempdir().unwrap();
        let [one, other] = [(); 2].map(|()| Objects::directory(temp.path()).unwrap());
        let add = |remote: &Objects| {
            let mut state = load(remote).unwrap();
            let committed = commit(remote, &mut state, &Who::default(), &mut |state, _| {
                Ok(vec![set(state, &name(1), "again")])
            });
            committed.unwrap().unwrap().entry.number
        };
        assert!(Turn::take(&one).is_none(), "there is no log yet");
        assert_eq!(add(&one), 1);
        let held = Turn::take(&one).unwrap();
        assert!(Turn::within(&other, Duration::ZERO).is_none());
        assert_eq!(add(&other), 2);
        drop(held);
        assert!(Turn::within(&other, Duration::ZERO).is_some());
        assert!(Turn::take(&Objects::memory()).is_none());
    }
}
