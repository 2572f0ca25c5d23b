//! A lock that lets one process per host do something. It only saves work: two at the same time are slow, never wrong.

use std::fmt;
use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::{Error, Result};

use crate::ui::human;

/// The lock is held until this value is dropped or the process ends. It is `None` if a full disk has no room for the
/// file: a collector must still be able to run.
#[derive(Debug)]
pub(crate) struct Lock(
    #[expect(dead_code, reason = "closing the file ends the lock")] Option<File>,
);

/// The process that holds the lock, and its activity.
#[derive(Debug, Serialize)]
pub(crate) struct Running {
    running: Option<Holder>,
    #[serde(skip)]
    doing: &'static str,
}

#[derive(Debug, Serialize, Deserialize)]
struct Holder {
    pid: u32,
    since: Timestamp,
}

#[derive(Default, Serialize, Deserialize)]
struct Text {
    running: Option<Holder>,
}

impl Lock {
    /// Takes the lock in the file `path`, or returns its holder. `doing` names the activity, as in `runs this job`.
    pub(crate) fn take(path: &Path, doing: &'static str) -> Result<Result<Self, Running>> {
        match Self::take_file(path, doing) {
            Err(error) if error.is_full() => Ok(Ok(Self(None))),
            taken => taken,
        }
    }

    fn take_file(path: &Path, doing: &'static str) -> Result<Result<Self, Running>> {
        let dir = path.parent().unwrap_or(path);
        std::fs::create_dir_all(dir).map_err(|source| Error::io("create", dir, source))?;
        let failed = |source| Error::io("lock", path, source);
        let mut options = File::options();
        let mut file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                file.read_to_string(&mut text).map_err(failed)?;
                // If the holder has the lock but has not written the file yet, its details are unknown.
                let Text { running } = serde_json::from_str(&text).unwrap_or_default();
                return Ok(Err(Running { running, doing }));
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        let running = Some(Holder {
            pid: std::process::id(),
            since: Timestamp::now(),
        });
        let text = serde_json::to_string(&Text { running })
            .map_err(|source| Error::invalid("the lock's text").because(source))?;
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(text.as_bytes()))
            .map_err(failed)?;
        Ok(Ok(Self(Some(file))))
    }
}

impl fmt::Display for Running {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.running {
            Some(Holder { pid, since }) => write!(
                out,
                "nothing done: process {pid} {} since {} UTC",
                self.doing,
                human::time(*since)
            ),
            None => write!(out, "nothing done: another process {}", self.doing),
        }
    }
}
