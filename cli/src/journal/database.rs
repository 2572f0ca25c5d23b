//! The database of one job: sled, isolated on a thread of its own.
//!
//! sled 0.34.7 is treated as disposable: it is empty after power cuts, panics on some damage, may hang on other damage,
//! and belongs to one process. Nobody waits longer than [`PATIENCE`] for its thread. On any failure, the caller gets a
//! reason and continues without the database; nothing here panics or hangs. Batches stay small, since sled never frees
//! their memory.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use sled::{Batch, Db, Mode};

/// Maximum changes per batch.
pub(crate) const BATCH_MAX: usize = 1000;
/// Size of sled's cache.
const CACHE_BYTES: u64 = 8 << 20;
/// The longest time that the database may take for an operation; more in tests.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 10 });
/// The prefix of the names of sled's own threads.
const OF_SLED: &str = "sled-";

/// Why an operation failed, on one line.
pub(super) type Reason = String;

/// A task for the database's thread.
type Task = Box<dyn FnOnce(&Db) + Send>;

/// Keys and values, grouped by room.
#[derive(Debug)]
pub(super) struct Database {
    /// `None` after the thread was asked to end.
    tasks: Option<Sender<Task>>,
    /// Closes when the thread has ended.
    ended: Receiver<()>,
    is_stuck: AtomicBool,
}

/// A key and its value.
pub(super) type Row = (Vec<u8>, Vec<u8>);

impl Database {
    /// Opens or creates the database in the directory `dir`.
    pub(super) fn open(dir: &Path) -> Result<Self, Reason> {
        let config = sled::Config::new()
            .path(dir)
            .mode(Mode::LowSpace)
            .cache_capacity(CACHE_BYTES)
            .flush_every_ms(None);
        Self::on_a_thread(PATIENCE, move || {
            let db = config.open()?;
            // Damage inside of a tree shows only when it is read.
            for name in db.tree_names() {
                db.open_tree(name)?
                    .iter()
                    .try_for_each(|row| row.map(drop))?;
            }
            Ok(db)
        })
    }

    /// Opens a database on a new thread. The thread serves it until this value is dropped.
    fn on_a_thread(
        patience: Duration,
        open: impl FnOnce() -> sled::Result<Db> + Send + 'static,
    ) -> Result<Self, Reason> {
        let (tasks, to_do) = channel::<Task>();
        let (alive, ended) = channel::<()>();
        let (opened, is_open) = channel();
        let serve = move || {
            let db = guarded(open);
            let told = opened.send(db.as_ref().map(drop).map_err(Clone::clone));
            if let (Ok(db), Ok(())) = (db, told) {
                to_do.iter().for_each(|task| task(&db));
                // Dropping the database may panic, too.
                let _gone = guarded(|| {
                    drop(db);
                    Ok(())
                });
            }
            drop(alive);
        };
        std::thread::Builder::new()
            .name("journal".to_owned())
            .spawn(serve)
            .map_err(|error| format!("its thread: {error}"))?;
        is_open
            .recv_timeout(patience)
            .map_err(|_| stuck(patience))??;
        Ok(Self {
            tasks: Some(tasks),
            ended,
            is_stuck: AtomicBool::new(false),
        })
    }

    /// All rows of a room, in the order of their keys.
    pub(super) fn rows(&self, room: &str) -> Result<Vec<Row>, Reason> {
        let room = room.to_owned();
        self.ask(PATIENCE, move |db| {
            let rows = db.open_tree(room)?.iter();
            rows.map(|row| row.map(|(key, value)| (key.to_vec(), value.to_vec())))
                .collect()
        })
    }

    /// Writes rows.
    pub(super) fn insert(&self, room: &str, rows: &[Row]) -> Result<(), Reason> {
        self.change(room, rows.to_vec(), |batch, (key, value)| {
            batch.insert(key.as_slice(), value.as_slice());
        })
    }

    /// Removes rows. Missing rows are no error.
    pub(super) fn remove(&self, room: &str, keys: &[Vec<u8>]) -> Result<(), Reason> {
        self.change(room, keys.to_vec(), |batch, key| {
            batch.remove(key.as_slice());
        })
    }

    fn change<T: Send + 'static>(
        &self,
        room: &str,
        changes: Vec<T>,
        change: impl Fn(&mut Batch, &T) + Send + 'static,
    ) -> Result<(), Reason> {
        let room = room.to_owned();
        self.ask(PATIENCE, move |db| {
            let tree = db.open_tree(room)?;
            for some in changes.chunks(BATCH_MAX) {
                let mut batch = Batch::default();
                some.iter().for_each(|one| change(&mut batch, one));
                tree.apply_batch(batch)?;
            }
            // Flushes now, in case the process is killed.
            db.flush().map(drop)
        })
    }

    /// Runs `act` on the thread and waits for the result, at most for `patience`.
    fn ask<T: Send + 'static>(
        &self,
        patience: Duration,
        act: impl FnOnce(&Db) -> sled::Result<T> + Send + 'static,
    ) -> Result<T, Reason> {
        let (answer, answered) = channel();
        let task: Task = Box::new(move |db| {
            // The send fails if the caller stopped waiting.
            let _unread = answer.send(guarded(|| act(db)));
        });
        let sent = self.tasks.as_ref().map(|tasks| tasks.send(task));
        if !matches!(sent, Some(Ok(()))) {
            return Err(NO_SENSE.to_owned());
        }
        answered.recv_timeout(patience).unwrap_or_else(|_| {
            self.is_stuck.store(true, Ordering::Relaxed);
            Err(stuck(patience))
        })
    }
}

impl Drop for Database {
    /// Waits until the thread has ended, because the next opening would find the database locked. Does not wait if it
    /// is stuck.
    fn drop(&mut self) {
        drop(self.tasks.take());
        if !self.is_stuck.load(Ordering::Relaxed) {
            let _ended = self.ended.recv_timeout(PATIENCE);
        }
    }
}

const NO_SENSE: &str = "its contents make no sense";

fn stuck(patience: Duration) -> Reason {
    format!("it did not answer for {} s", patience.as_secs())
}

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}
static HOOK: Once = Once::new();

/// Runs `act`. A panic of sled becomes an ordinary failure and is not printed.
fn guarded<T>(act: impl FnOnce() -> sled::Result<T>) -> Result<T, Reason> {
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let thread = std::thread::current();
            let is_of_sled = thread.name().is_some_and(|name| name.starts_with(OF_SLED));
            if !GUARDED.get() && !is_of_sled {
                usual(info);
            }
        }));
    });
    GUARDED.set(true);
    let done = catch_unwind(AssertUnwindSafe(act));
    GUARDED.set(false);
    match done {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(error.to_string().replace('\n', " ")),
        Err(_) => Err(NO_SENSE.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_the_database_is_a_reason_like_others() {
        let panicked = guarded(|| -> sled::Result<()> { panic!("unwrapped") });
        assert_eq!(panicked, Err("its contents make no sense".to_owned()));
        let failed = guarded(|| -> sled::Result<()> {
            Err(sled::Error::Unsupported("two\nlines".to_owned()))
        });
        assert!(failed.is_err_and(|reason| reason.ends_with("two lines")));
    }

    #[test]
    fn nobody_waits_for_a_database_that_hangs() {
        let moment = Duration::from_millis(50);
        let (end, ends) = channel::<()>();
        let hangs = move || {
            let _never = ends.recv();
            Err(sled::Error::Unsupported("over".to_owned()))
        };
        let opened = Database::on_a_thread(moment, hangs);
        assert_eq!(
            opened.map(drop),
            Err("it did not answer for 0 s".to_owned())
        );
        drop(end);
        let dir = tempfile::tempdir().unwrap();
        let database = Database::open(&dir.path().join("db")).unwrap();
        let (end, ends) = channel::<()>();
        let asked = database.ask(moment, move |_| {
            let _never = ends.recv();
            Ok(())
        });
        assert_eq!(asked, Err("it did not answer for 0 s".to_owned()));
        // Dropping it later would wait for a thread that waits for this test.
        drop(database);
        drop(end);
    }

    #[test]
    fn a_database_that_panics_at_any_time_is_a_reason() {
        let opened = Database::on_a_thread(PATIENCE, || panic!("at the start"));
        assert_eq!(opened.map(drop), Err(NO_SENSE.to_owned()));
        let dir = tempfile::tempdir().unwrap();
        let database = Database::open(&dir.path().join("db")).unwrap();
        let asked = database.ask(PATIENCE, |_| -> sled::Result<()> { panic!("later") });
        assert_eq!(asked, Err(NO_SENSE.to_owned()));
        assert_eq!(database.rows("room"), Ok(Vec::new()));
    }
}
