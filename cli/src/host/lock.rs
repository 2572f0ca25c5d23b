//! A lock that lets one process per host do something. It only saves work: two at the same time are slow, never wrong.

use std::fmt;
use std::fs::{DirBuilder, File, Permissions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::{Error, Result};

use crate::ui::human;

/// How often the text of a lock is read again, if the holder has not written it yet, and the pause between.
const LOOKS_MAX: u32 = 20;
const PAUSE: Duration = Duration::from_millis(10);

/// The lock is held until this value is dropped or the process ends. It is `None` if a full disk has no room for the
/// file: a collector must still be able to run.
#[derive(Debug)]
pub(crate) struct Lock(
    #[expect(dead_code, reason = "closing the file ends the lock")] Option<File>,
);

/// The process that holds the lock, and its activity.
#[derive(Debug, Serialize)]
pub(crate) struct Running {
    running: Holder,
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
        let failed = |source| Error::io("lock", path, source);
        let mut file = open_closed(path)?;
        let mut looks = 0;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
            let mut text = String::new();
            file.rewind()
                .and_then(|()| file.read_to_string(&mut text))
                .map_err(failed)?;
            let Text { running } = serde_json::from_str(&text).unwrap_or_default();
            let running = match running {
                Some(running) if running.is_alive() => return Ok(Err(Running { running, doing })),
                running => running,
            };
            // The holder may have the lock and not have written the file yet.
            looks += 1;
            if looks == LOOKS_MAX {
                return Err(held_by_nobody(path, running));
            }
            std::thread::sleep(PAUSE);
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

impl Holder {
    /// Whether the process runs on this host, as far as can be seen from here.
    fn is_alive(&self) -> bool {
        let pid = i32::try_from(self.pid).ok();
        let pid = pid.and_then(rustix::process::Pid::from_raw);
        // A process of another user may not be signalled, and is there.
        pid.is_some_and(|pid| {
            let found = rustix::process::test_kill_process(pid);
            found != Err(rustix::io::Errno::SRCH)
        })
    }
}

/// Opens the file of a lock, and makes it, and its directory, if they are missing. Whoever may open a file may lock it,
/// so that both are closed to others, also if an earlier build left them open.
///
/// # Errors
/// An I/O error, naming the file or the directory.
pub(crate) fn open_closed(path: &Path) -> Result<File> {
    let dir = path.parent().unwrap_or(path);
    let mut builder = DirBuilder::new();
    let made = builder.recursive(true).mode(0o700).create(dir);
    made.map_err(|source| Error::io("create", dir, source))?;
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let mut options = File::options();
    let options = options.read(true).write(true).create(true).truncate(false);
    let options = options.mode(0o600).custom_flags(flags.bits().cast_signed());
    let failed = |source| Error::io("lock", path, source);
    let file = options.open(path).map_err(failed)?;
    let own = rustix::process::geteuid().as_raw();
    let is_open = |found: &std::fs::Metadata| found.uid() == own && found.mode() & 0o077 != 0;
    if is_open(&file.metadata().map_err(failed)?) {
        file.set_permissions(Permissions::from_mode(0o600))
            .map_err(failed)?;
    }
    if std::fs::symlink_metadata(dir).is_ok_and(|found| found.is_dir() && is_open(&found)) {
        // The file is closed; a directory that cannot be closed only shows its names.
        let _open = std::fs::set_permissions(dir, Permissions::from_mode(0o700));
    }
    Ok(file)
}

fn held_by_nobody(path: &Path, running: Option<Holder>) -> Error {
    let named = match running {
        Some(Holder { pid, .. }) => format!("process {pid}, which it names, is not running here"),
        None => "it names no process, and what should hold it is not running".to_owned(),
    };
    Error::conflict(format!(
        "{}: is held, and {named}",
        path.display()
    ))
    .hint("see who holds it, as `lslocks` and `fuser` show; once that has ended, or the file is removed, run this again")
}

impl fmt::Display for Running {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Holder { pid, since } = &self.running;
        write!(
            out,
            "nothing done: process {pid} {} since {} UTC",
            self.doing,
            human::time(*since)
        )
    }
}
