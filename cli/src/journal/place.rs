//! The directory of a job's journal on this host, and whether a process runs the job.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use store::{Error, Result};

use crate::config;
use crate::host::lock::{self, Lock, Running};

/// A job without a name is forgotten this long after its last run.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(30 * 24 * 3600);

/// How long readers of a journal may take, and the pause between two looks.
const READERS_MAX: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(10);

/// The directory of one job: `lock`, `alive`, `status.json`, and the database in `journal/`.
#[derive(Clone, Debug)]
pub(crate) struct JobDir(PathBuf);

/// The right to run a job, until this value is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    _lock: Lock,
    /// A second lock, for readers of the journal: a run waits until they have finished.
    _alive: Option<File>,
}

impl JobDir {
    /// The directory of the job `id`; `None` without a home directory.
    pub(crate) fn of(id: &str) -> Option<Self> {
        Some(Self(jobs_dir()?.join(id)))
    }

    #[cfg(test)]
    pub(super) fn at(dir: PathBuf) -> Self {
        Self(dir)
    }

    /// All jobs that ran on this host and are not forgotten, by id.
    pub(crate) fn all() -> Result<Vec<Self>> {
        let Some(dir) = jobs_dir() else {
            return Ok(Vec::new());
        };
        let entries = match std::fs::read_dir(&dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            read => read.map_err(|source| Error::io("list", &dir, source))?,
        };
        let paths = entries.flatten().map(|entry| entry.path());
        let mut found: Vec<PathBuf> = paths.filter(|path| path.is_dir()).collect();
        found.sort();
        Ok(found.into_iter().map(Self).collect())
    }

    /// The job's id.
    pub(crate) fn id(&self) -> String {
        self.0
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn database(&self) -> PathBuf {
        self.0.join("journal")
    }

    pub(super) fn status(&self) -> PathBuf {
        self.0.join("status.json")
    }

    /// Takes the right to run the job, or returns its holder.
    pub(crate) fn hold(&self) -> Result<Result<Held, Running>> {
        let lock = match Lock::take(&self.0.join("lock"), "runs this job")? {
            Ok(lock) => lock,
            Err(running) => return Ok(Err(running)),
        };
        let alive = lock::open_closed(&self.0.join("alive")).ok();
        let alive = alive.filter(is_taken);
        Ok(Ok(Held {
            _lock: lock,
            _alive: alive,
        }))
    }

    /// Takes the right to read the database; `None` while a process runs the job.
    pub(super) fn peek(&self) -> Option<File> {
        let alive = store::open_regular(&self.0.join("alive")).ok()?;
        alive.try_lock().ok()?;
        Some(alive)
    }

    /// Whether a process runs the job.
    pub(crate) fn is_running(&self) -> bool {
        let alive = store::open_regular(&self.0.join("alive"));
        alive.is_ok_and(|alive| matches!(alive.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    /// Forgets jobs without a name that have not run for long. `is_named` says which ids belong to named jobs.
    pub(crate) fn sweep(is_named: impl Fn(&str) -> bool) {
        let old = |dir: &Self| {
            let changed = std::fs::metadata(dir.0.join("lock")).and_then(|file| file.modified());
            let age = changed.map(|changed| SystemTime::now().duration_since(changed));
            matches!(age, Ok(Ok(age)) if age > FORGOTTEN_AFTER)
        };
        let forgotten = Self::all().unwrap_or_default().into_iter();
        for dir in forgotten.filter(|dir| !is_named(&dir.id()) && old(dir)) {
            if let Ok(Ok(_held)) = dir.hold() {
                // The next sweep removes remains.
                let _kept = std::fs::remove_dir_all(&dir.0);
            }
        }
    }
}

/// Takes the lock within [`READERS_MAX`]. Whoever keeps it for longer is no reader, and keeps no job from running.
fn is_taken(alive: &File) -> bool {
    let began = Instant::now();
    loop {
        match alive.try_lock() {
            Err(TryLockError::WouldBlock) if began.elapsed() < READERS_MAX => {
                std::thread::sleep(PAUSE);
            }
            taken => return taken.is_ok(),
        }
    }
}

/// `$XDG_STATE_HOME/store/jobs`.
fn jobs_dir() -> Option<PathBuf> {
    Some(config::state_dir()?.join("jobs"))
}
