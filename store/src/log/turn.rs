//! Turns: writers of one host add to the log of a directory one after the other.
//!
//! Put-if-absent decides who is first, and all others have worked for nothing: they read on, validate again and sync
//! another file. So a writer that is about to add an entry holds an advisory lock on the directory of the log. Safety
//! does not depend on it: a writer that waited long, or that sees no lock (another host, a network file system, a
//! bucket), adds without.

use std::fs::File;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::format::LOG_PREFIX;
use crate::fs::is_host_local;
use crate::remote::Read;

/// A commit takes a few milliseconds; a writer that holds the lock for longer has more to look at, or sleeps.
const PATIENCE: Duration = Duration::from_millis(500);
/// Between two looks at a lock that another one holds.
const PAUSE: Duration = Duration::from_micros(300);

/// Ends when it is dropped, or with its process.
#[derive(Debug)]
pub(super) struct Turn {
    _locked: File,
}

impl Turn {
    /// Waits for one's turn, and not for long.
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
