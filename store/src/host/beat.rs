//! Beat: a file whose time says that its owner lives.

use std::fs::File;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::{Timespec, Timestamps, UTIME_NOW, futimens};

use super::pool::disk;

/// How often.
const EVERY: Duration = Duration::from_secs(2);

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
