//! Beat: a file whose time says that its owner lives; and how long it may say nothing.

use std::fs::File;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::{Timespec, Timestamps, UTIME_NOW, futimens};

use super::pool::disk;
use crate::format::Time;

/// How often.
const EVERY: Duration = Duration::from_secs(2);
/// How long who cannot be seen has to be silent before others take what it left.
const LONG_SILENCE_SECS: i64 = 3600;
/// How long one looks on before a long silence is believed: after a leap of the clock that files are dated by, or when
/// the host wakes, owners that live have shown it by then.
const CONFIRMATION: Duration = Duration::from_secs(5);

/// Those who have been silent for long at `now`, by the times of their files, and stay so while one looks on, by the
/// clock of this host. Where nobody has been silent, nothing is waited for.
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

/// Touches a file regularly, until it is dropped.
#[derive(Debug)]
pub(crate) struct Beat(Option<(Sender<()>, JoinHandle<()>)>);

impl Beat {
    /// An owner that cannot show that it lives is taken for dead in time, which is harmless.
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
    /// Nothing is touched any more when it returns.
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.0.take() {
            drop(stop);
            drop(thread.join());
        }
    }
}
