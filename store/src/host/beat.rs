//! Beat: a file whose time shows that its owner lives, and how long the owner may be silent.

use std::fs::File;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::{Timespec, Timestamps, UTIME_NOW, futimens};

use super::disk;
use crate::format::Time;

/// The time between beats.
const EVERY: Duration = Duration::from_secs(2);
/// For how many seconds a process that cannot be seen must be silent before others take what it left.
const LONG_SILENCE_SECS: i64 = 3600;
/// For how long a long silence is watched before it is believed. After a leap of the file system's clock, or when the
/// host wakes up, living owners show a beat within this time.
const CONFIRMATION: Duration = Duration::from_secs(5);

/// Returns the suspects that have been silent for long at `now`, by the times of their files, and that stay silent
/// during the confirmation, by the clock of this host. If none has been silent, there is no wait.
pub(crate) fn silent<S>(
    mut suspects: Vec<S>,
    now: Time,
    beaten: impl Fn(&S) -> Time,
    beaten_by_now: impl Fn(&S) -> Option<Time>,
) -> Vec<S> {
    suspects.retain(|suspect| now.secs.saturating_sub(beaten(suspect).secs) > LONG_SILENCE_SECS);
    if !suspects.is_empty() {
        std::thread::sleep(CONFIRMATION);
    }
    suspects.retain(|suspect| beaten_by_now(suspect) == Some(beaten(suspect)));
    suspects
}

/// Touches a file regularly until it is dropped.
#[derive(Debug)]
pub(crate) struct Beat(Option<(Sender<()>, JoinHandle<()>)>);

impl Beat {
    /// Starts to touch `file`. If that fails, the owner is taken for dead after a while, which is harmless.
    pub(crate) fn of(file: File) -> Self {
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || {
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                let now = Timespec {
                    tv_sec: 0,
                    tv_nsec: UTIME_NOW,
                };
                let times = Timestamps {
                    last_access: now,
                    last_modification: now,
                };
                disk::forgive(futimens(&file, &times));
            }
        });
        Self(Some((stop, thread)))
    }
}

impl Drop for Beat {
    /// Stops the thread: nothing is touched after this returns.
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.0.take() {
            drop(stop);
            drop(thread.join());
        }
    }
}
