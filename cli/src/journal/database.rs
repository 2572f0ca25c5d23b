//! The database of one job: sled, kept at arm's length.
//!
//! sled 0.34.7 is disposable here: it comes back empty after power cuts, panics on some damage, and belongs to
//! one process. Whatever goes wrong, the caller gets a reason and goes on without; nothing here panics. Batches
//! stay small, since sled never gives their memory back.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Once;

use sled::{Batch, Db, Mode};

/// Most changes of one batch.
pub(crate) const BATCH_MAX: usize = 1000;
/// What sled may keep in memory.
const CACHE_BYTES: u64 = 8 << 20;

/// Why something could not be done, on one line.
pub(super) type Reason = String;

/// Keys and values by room.
#[derive(Debug)]
pub(super) struct Database(Db);

/// A key and its value.
pub(super) type Row = (Vec<u8>, Vec<u8>);

impl Database {
    /// Opens the database in the directory `dir`, or makes it.
    pub(super) fn open(dir: &Path) -> Result<Self, Reason> {
        let config = sled::Config::new()
            .path(dir)
            .mode(Mode::LowSpace)
            .cache_capacity(CACHE_BYTES)
            .flush_every_ms(None);
        let opened = guarded(|| {
            let db = config.open()?;
            // What is damaged in the middle shows itself only where it is read.
            for name in db.tree_names() {
                db.open_tree(name)?
                    .iter()
                    .try_for_each(|row| row.map(drop))?;
            }
            Ok(db)
        });
        opened.map(Self)
    }

    /// All rows of a room, in the order of their keys.
    pub(super) fn rows(&self, room: &str) -> Result<Vec<Row>, Reason> {
        guarded(|| {
            let rows = self.0.open_tree(room)?.iter();
            rows.map(|row| row.map(|(key, value)| (key.to_vec(), value.to_vec())))
                .collect()
        })
    }

    /// Writes rows.
    pub(super) fn insert(&self, room: &str, rows: &[Row]) -> Result<(), Reason> {
        self.change(room, rows, |batch, (key, value)| {
            batch.insert(key.as_slice(), value.as_slice());
        })
    }

    /// Removes rows; one that is not there is fine.
    pub(super) fn remove(&self, room: &str, keys: &[Vec<u8>]) -> Result<(), Reason> {
        self.change(room, keys, |batch, key| batch.remove(key.as_slice()))
    }

    fn change<T>(
        &self,
        room: &str,
        changes: &[T],
        change: impl Fn(&mut Batch, &T),
    ) -> Result<(), Reason> {
        guarded(|| {
            let tree = self.0.open_tree(room)?;
            for some in changes.chunks(BATCH_MAX) {
                let mut batch = Batch::default();
                some.iter().for_each(|one| change(&mut batch, one));
                tree.apply_batch(batch)?;
            }
            // So that a process that is killed has it written down.
            self.0.flush().map(drop)
        })
    }
}

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}
static HOOK: Once = Once::new();

/// Runs `act`; a panic of sled is a failure like others, and is not printed.
fn guarded<T>(act: impl FnOnce() -> sled::Result<T>) -> Result<T, Reason> {
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !GUARDED.get() {
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
        Err(_) => Err("its contents make no sense".to_owned()),
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
}
