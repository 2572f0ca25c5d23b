//! Schedules: several participants on one backend, one call at a time, in an order that dice decide.
//! For tests: the same seed replays the same interleaving, whatever the machine does.
//!
//! A participant calls from one thread, and waits for nothing but its turn: whoever is not at a call is
//! running, and the next turn is given when nobody is.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use bytes::Bytes;

use super::faulty::roll;
use crate::error::Result;
use crate::remote::{Created, ObjectInfo, Prune, Read, Upload, Write, one_by_one};

/// One participant's access to the backend. Dropping it leaves the schedule.
pub struct Scheduled {
    inner: Arc<dyn Prune>,
    number: usize,
    turns: Arc<Turns>,
}

struct Turns {
    board: Mutex<Board>,
    changed: Condvar,
}

#[derive(Debug)]
struct Board {
    dice: u64,
    running: BTreeSet<usize>,
    waiting: BTreeSet<usize>,
    turn: Option<usize>,
}

/// As many participants as there are backends, each with its own.
pub fn schedule(seed: u64, backends: Vec<Arc<dyn Prune>>) -> Vec<Scheduled> {
    let board = Board {
        dice: seed,
        running: (0..backends.len()).collect(),
        waiting: BTreeSet::new(),
        turn: None,
    };
    let turns = Arc::new(Turns {
        board: Mutex::new(board),
        changed: Condvar::new(),
    });
    let participant = |(number, inner)| Scheduled {
        inner,
        number,
        turns: Arc::clone(&turns),
    };
    backends.into_iter().enumerate().map(participant).collect()
}

impl Turns {
    fn wait(&self, number: usize) {
        let mut board = self.board.lock().unwrap_or_else(PoisonError::into_inner);
        board.running.remove(&number);
        board.waiting.insert(number);
        self.next(&mut board);
        while board.turn != Some(number) {
            board = self
                .changed
                .wait(board)
                .unwrap_or_else(PoisonError::into_inner);
        }
        board.turn = None;
        board.waiting.remove(&number);
        board.running.insert(number);
    }

    fn leave(&self, number: usize) {
        let mut board = self.board.lock().unwrap_or_else(PoisonError::into_inner);
        board.running.remove(&number);
        self.next(&mut board);
    }

    fn next(&self, board: &mut Board) {
        if !board.running.is_empty() || board.waiting.is_empty() {
            return;
        }
        let index =
            usize::try_from(roll(&mut board.dice) % board.waiting.len() as u64).unwrap_or(0);
        board.turn = board.waiting.iter().nth(index).copied();
        self.changed.notify_all();
    }
}

impl Scheduled {
    fn turn(&self) -> &dyn Prune {
        self.turns.wait(self.number);
        &*self.inner
    }
}

impl Drop for Scheduled {
    fn drop(&mut self) {
        self.turns.leave(self.number);
    }
}

impl fmt::Debug for Scheduled {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Scheduled({}, {:?})", self.number, self.inner)
    }
}

#[deny(clippy::missing_trait_methods)]
impl Read for Scheduled {
    fn url(&self) -> String {
        self.inner.url()
    }

    fn get(&self, key: &str) -> Result<Bytes> {
        self.turn().get(key)
    }

    fn get_run(&self, keys: &[String]) -> Result<Vec<Bytes>> {
        one_by_one(self, keys)
    }

    fn get_ranges(&self, key: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.turn().get_ranges(key, ranges)
    }

    fn size(&self, key: &str) -> Result<u64> {
        self.turn().size(key)
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>> {
        self.turn().list(prefix)
    }

    fn keys_after(&self, prefix: &str, after: &str) -> Result<Vec<String>> {
        self.turn().keys_after(prefix, after)
    }

    fn local_path(&self, key: &str) -> Option<PathBuf> {
        self.inner.local_path(key)
    }
}

#[deny(clippy::missing_trait_methods)]
impl Write for Scheduled {
    fn create(&self, key: &str, bytes: Bytes) -> Result<Created> {
        self.turn().create(key, bytes)
    }

    fn put(&self, key: &str, bytes: Bytes) -> Result<()> {
        self.turn().put(key, bytes)
    }

    fn touch(&self, key: &str) -> Result<()> {
        self.turn().touch(key)
    }

    fn give_up(&self, key: &str) -> Result<()> {
        self.turn().give_up(key)
    }

    /// Its pieces need no turn: nobody sees them.
    fn upload(&self, key: &str) -> Result<Box<dyn Upload>> {
        let inner = self.turn().upload(key)?;
        Ok(Box::new(ScheduledUpload {
            inner,
            number: self.number,
            turns: Arc::clone(&self.turns),
        }))
    }
}

#[deny(clippy::missing_trait_methods)]
impl Prune for Scheduled {
    fn delete(&self, keys: &[String]) -> Result<()> {
        keys.iter()
            .try_for_each(|key| self.turn().delete(std::slice::from_ref(key)))
    }

    fn stale_uploads(&self, prefix: &str) -> Result<Vec<ObjectInfo>> {
        self.turn().stale_uploads(prefix)
    }
}

struct ScheduledUpload {
    inner: Box<dyn Upload>,
    number: usize,
    turns: Arc<Turns>,
}

#[deny(clippy::missing_trait_methods)]
impl Upload for ScheduledUpload {
    fn write(&mut self, bytes: Bytes) -> Result<()> {
        self.inner.write(bytes)
    }

    fn seal(&mut self) -> Result<()> {
        self.inner.seal()
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.turns.wait(self.number);
        self.inner.finish()
    }
}
