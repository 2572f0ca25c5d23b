//! The journal of a job on this host: its runs, the failed refs, and the packs that a resumed run need not send again.
//!
//! The journal is disposable: if it is lost, damaged or empty, that costs time, never correctness. So nothing here
//! fails; a problem becomes a note. One process at a time holds the journal, see [`JobDir::hold`].

pub(crate) mod compiles;
mod database;
mod place;
mod rows;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Mutex;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use store::replicate::Resume;
use store::{PackId, StoreId};

use self::database::{Database, Reason, Row};
pub(crate) use self::place::{Held, JobDir};
pub(crate) use self::rows::{Numbers, Outcome, RefError, Run};
pub(crate) use self::status::{Facts, Far, Status};
use crate::ui::failure;

/// Rooms of the database.
const FACTS: &str = "facts";
const RUNS: &str = "runs";
const ERRORS: &str = "errors";
const PACKS: &str = "packs";

/// How many runs are remembered.
const RUNS_MAX: usize = 100;
/// How many of them are in the status.
const RUNS_TOLD: usize = 10;
/// How often the status is written during a run.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// The journal of the job that this process runs.
#[derive(Debug)]
pub(crate) struct Journal {
    dir: JobDir,
    facts: Mutex<Facts>,
    /// `None` after a failure.
    database: Mutex<Option<Database>>,
    notes: Mutex<Vec<String>>,
    /// Oldest first; the last one is this run.
    runs: Mutex<Vec<Run>>,
    errors: Mutex<Vec<RefError>>,
    told: Mutex<Told>,
    _held: Held,
}

#[derive(Debug)]
struct Told {
    far: Far,
    next: Instant,
}

impl Journal {
    /// Opens the journal for a new run.
    pub(crate) fn begin(dir: JobDir, held: Held, facts: Facts) -> Self {
        let (database, note) = open(&dir);
        let journal = Self {
            dir,
            facts: Mutex::new(facts),
            database: Mutex::new(database),
            notes: Mutex::new(note.into_iter().collect()),
            runs: Mutex::default(),
            errors: Mutex::default(),
            told: Mutex::new(Told {
                far: Far::default(),
                next: Instant::now() + TELL_EVERY,
            }),
            _held: held,
        };
        journal.begin_run();
        journal
    }

    /// Sets the stores of the run. Resume points for other stores are dropped: the job was changed, or a store was
    /// recreated.
    pub(crate) fn between(&self, from: StoreId, to: StoreId) {
        let stores = Some((from, to));
        if self.last_stores() != stores {
            self.packs_committed(&self.packs());
        }
        let mut facts = locked(&self.facts);
        facts.stores = stores;
        let facts_row = row(FACTS.as_bytes().to_vec(), &*facts);
        drop(facts);
        self.try_to(|database| database.insert(FACTS, facts_row.as_slice()));
        self.tell();
    }

    /// The stores of the last run, the source first.
    pub(crate) fn last_stores(&self) -> Option<(StoreId, StoreId)> {
        let known: Option<Facts> = values(self.try_to(|database| database.rows(FACTS))).pop();
        known.and_then(|known| known.stores)
    }

    /// When a run last succeeded completely.
    pub(crate) fn last_success(&self) -> Option<Timestamp> {
        let runs = locked(&self.runs);
        let done = runs.iter().rfind(|run| run.outcome == Outcome::Done);
        done.and_then(|run| run.ended)
    }

    /// Writes the progress of the run to the status, at most once per [`TELL_EVERY`].
    pub(crate) fn far(&self, far: Far) {
        // If another thread holds the lock, that thread writes the status.
        let Ok(mut told) = self.told.try_lock() else {
            return;
        };
        told.far = far;
        if Instant::now() >= told.next {
            told.next = Instant::now() + TELL_EVERY;
            drop(told);
            self.tell();
        }
    }

    /// Records how the run ended, and which refs failed.
    pub(crate) fn end(
        &self,
        outcome: Outcome,
        numbers: Numbers,
        error: Option<String>,
        errors: Vec<RefError>,
    ) {
        let mut runs = locked(&self.runs);
        let Some(run) = runs.last_mut() else {
            return;
        };
        run.ended = Some(Timestamp::now());
        (run.outcome, run.numbers, run.error) = (outcome, numbers, error);
        let rows: Vec<Row> = errors
            .iter()
            .filter_map(|error| row(error_key(run.number, &error.name), error))
            .collect();
        let ended = row(run.number.to_be_bytes().to_vec(), run);
        drop(runs);
        self.try_to(|database| database.insert(ERRORS, &rows));
        self.try_to(|database| database.insert(RUNS, ended.as_slice()));
        *locked(&self.errors) = errors;
        self.tell();
    }

    /// What could not be remembered, and why.
    pub(crate) fn notes(&self) -> Vec<String> {
        std::mem::take(&mut *locked(&self.notes))
    }

    fn begin_run(&self) {
        let rows = self.try_to(|database| database.rows(RUNS));
        let mut runs: Vec<Run> = values(rows);
        runs.iter_mut().for_each(Run::end_killed);
        let number = runs.last().map_or(1, |run| run.number.saturating_add(1));
        runs.push(Run {
            number,
            pid: std::process::id(),
            started: Timestamp::now(),
            ended: None,
            outcome: Outcome::Running,
            numbers: Numbers::default(),
            error: None,
        });
        let forgotten: Vec<Run> = runs.drain(..runs.len().saturating_sub(RUNS_MAX)).collect();
        self.forget(&forgotten);
        let rows: Vec<Row> = runs
            .iter()
            .filter_map(|run| row(run.number.to_be_bytes().to_vec(), run))
            .collect();
        self.try_to(|database| database.insert(RUNS, &rows));
        *locked(&self.runs) = runs;
        self.tell();
    }

    fn forget(&self, runs: &[Run]) {
        let Some(last) = runs.last() else {
            return;
        };
        let numbers: Vec<Vec<u8>> = runs
            .iter()
            .map(|run| run.number.to_be_bytes().to_vec())
            .collect();
        self.try_to(|database| database.remove(RUNS, &numbers));
        let mut errors = keys(self.try_to(|database| database.rows(ERRORS)));
        errors.retain(|key| key.as_slice() < (last.number + 1).to_be_bytes().as_slice());
        self.try_to(|database| database.remove(ERRORS, &errors));
    }

    fn tell(&self) {
        let runs = locked(&self.runs);
        let status = Status {
            facts: locked(&self.facts).clone(),
            progress: locked(&self.told).far,
            errors: locked(&self.errors).clone(),
            runs: runs.iter().rev().take(RUNS_TOLD).cloned().collect(),
        };
        drop(runs);
        if let Err(error) = status.write(&self.dir) {
            self.note(format!(
                "the status of the job cannot be read: {}",
                failure::one_line(&error)
            ));
        }
    }

    /// Uses the database, unless it failed before. After a failure nothing more is remembered.
    fn try_to<T: Default>(&self, act: impl FnOnce(&Database) -> Result<T, Reason>) -> T {
        let mut database = locked(&self.database);
        let done = match database.as_ref() {
            Some(database) => act(database),
            None => return T::default(),
        };
        done.unwrap_or_else(|reason| {
            *database = None;
            self.note(format!(
                "the journal in {} failed, and this run is not remembered: {reason}",
                self.dir.path().display()
            ));
            T::default()
        })
    }

    /// Adds a note once.
    fn note(&self, note: String) {
        let mut notes = locked(&self.notes);
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
}

impl Resume for Journal {
    fn packs(&self) -> Vec<PackId> {
        packs(self.try_to(|database| database.rows(PACKS)))
    }

    fn pack_sealed(&self, pack: PackId) {
        let row = (pack.0.to_vec(), Vec::new());
        self.try_to(|database| database.insert(PACKS, &[row]));
    }

    fn packs_committed(&self, packs: &[PackId]) {
        let keys: Vec<Vec<u8>> = packs.iter().map(|pack| pack.0.to_vec()).collect();
        self.try_to(|database| database.remove(PACKS, &keys));
    }
}

/// Packs that earlier runs finished and did not commit, for callers that only read.
#[derive(Debug, Default)]
pub(crate) struct Left {
    packs: Vec<PackId>,
    stores: Option<(StoreId, StoreId)>,
}

impl Left {
    /// What the journal of a job between these stores remembers; empty while a process runs the job.
    pub(crate) fn of(id: &str, stores: (StoreId, StoreId)) -> Self {
        let left = JobDir::of(id).and_then(|dir| left(&dir));
        let mut left = left.unwrap_or_default();
        if left.stores != Some(stores) {
            left.packs.clear();
        }
        left
    }

    /// The stores of the last run, the source first.
    pub(crate) fn last_stores(&self) -> Option<(StoreId, StoreId)> {
        self.stores
    }
}

impl Resume for Left {
    fn packs(&self) -> Vec<PackId> {
        self.packs.clone()
    }

    fn pack_sealed(&self, _pack: PackId) {}

    fn packs_committed(&self, _packs: &[PackId]) {}
}

fn left(dir: &JobDir) -> Option<Left> {
    let _alive = dir.peek()?;
    let database = Database::open(&dir.database()).ok()?;
    let facts: Facts = values(database.rows(FACTS).ok()?).pop()?;
    let rows = database.rows(PACKS).ok()?;
    Some(Left {
        packs: packs(rows),
        stores: facts.stores,
    })
}

fn packs(rows: Vec<Row>) -> Vec<PackId> {
    let id = |key: Vec<u8>| Some(PackId(key.try_into().ok()?));
    keys(rows).into_iter().filter_map(id).collect()
}

/// The status of a job. It comes from the journal if there is no status file and nobody runs the job.
pub(crate) fn status(dir: &JobDir) -> Option<Status> {
    Status::read(dir).or_else(|| {
        let _alive = dir.peek()?;
        let database = Database::open(&dir.database()).ok()?;
        let mut runs: Vec<Run> = values(database.rows(RUNS).ok()?);
        runs.iter_mut().for_each(Run::end_killed);
        let ended = runs.iter().rfind(|run| run.ended.is_some());
        let of = ended.map_or(0, |run| run.number).to_be_bytes();
        let mut errors = database.rows(ERRORS).ok()?;
        errors.retain(|(key, _)| key.starts_with(&of));
        Some(Status {
            facts: values(database.rows(FACTS).ok()?).pop()?,
            progress: Far::default(),
            errors: values(errors),
            runs: runs.into_iter().rev().take(RUNS_TOLD).collect(),
        })
    })
}

/// Opens the database, or a new one if the old one is damaged. The second value is a note about a problem.
fn open(dir: &JobDir) -> (Option<Database>, Option<String>) {
    let path = dir.database();
    let damage = match Database::open(&path) {
        Ok(database) => return (Some(database), None),
        Err(damage) => damage,
    };
    let removed = match std::fs::remove_dir_all(&path) {
        // Another file has this name.
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
            std::fs::remove_file(&path)
        }
        removed => removed,
    };
    let opened = removed
        .map_err(|error| error.to_string())
        .and_then(|()| Database::open(&path));
    let shown = path.display();
    match opened {
        Ok(database) => {
            let note = format!("the journal {shown} was damaged and is started again: {damage}");
            (Some(database), Some(note))
        }
        Err(reason) => {
            let note =
                format!("there is no journal, and this run is not remembered: {shown}: {reason}");
            (None, Some(note))
        }
    }
}

fn error_key(run: u64, name: &str) -> Vec<u8> {
    [run.to_be_bytes().as_slice(), name.as_bytes()].concat()
}

fn row(key: Vec<u8>, value: &impl Serialize) -> Option<Row> {
    Some((key, serde_json::to_vec(value).ok()?))
}

fn keys(rows: Vec<Row>) -> Vec<Vec<u8>> {
    rows.into_iter().map(|(key, _)| key).collect()
}

/// The values that can be parsed.
fn values<T: DeserializeOwned>(rows: Vec<Row>) -> Vec<T> {
    let value = |(_, value): Row| serde_json::from_slice(&value).ok();
    rows.into_iter().filter_map(value).collect()
}

/// Ignores poison: a thread that panicked with a lock left no partial change here.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
