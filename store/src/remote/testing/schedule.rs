//! Schedules: several participants use one backend, one call at a time, in a random order. For tests: the same seed
//! replays the same order on any machine.
//!
//! A call gets its turn when no other call is running and every participant has a call waiting. So the order is
//! reproducible for participants that call from one thread and wait for nothing else. Participants of [`in_bursts`] may
//! do both, but then the order of their own calls is not reproducible.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::ops::{Deref, Range};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use super::faulty::roll;
use crate::error::Result;
use crate::remote::{Created, ObjectInfo, Prune, Read, Upload, Write, one_by_one};

/// A participant that makes no call for this long is not waited for until its next call: it may be sleeping before a
/// retry, or need threads that are shared by all.
const PATIENCE: Duration = Duration::from_millis(20);

/// One participant's access to the backend. Dropping it leaves the schedule.
pub struct Scheduled {
    inner: Arc<dyn Prune>,
    number: usize,
    turns: Arc<Turns>,
}

struct Turns {
    board: Mutex<Board>,
    changed: Condvar,
    /// The average number of consecutive calls of a participant.
    burst: u64,
    patience: Option<Duration>,
}

#[derive(Debug)]
struct Board {
    dice: u64,
    /// The number of waiting calls of each participant.
    waiting: BTreeMap<usize, usize>,
    /// The participants that are not waited for.
    away: BTreeSet<usize>,
    /// The participant whose turn it is, until one of its calls is finished.
    turn: Option<usize>,
    is_calling: bool,
    last: Option<usize>,
}

/// Creates one participant for each of `backends`.
pub fn schedule(seed: u64, backends: Vec<Arc<dyn Prune>>) -> Vec<Scheduled> {
    participants(seed, 1, None, backends)
}

/// Like [`schedule`], but each participant makes about `burst` calls in a row, so that one can do all of its work while
/// another is between two steps. Each may call from several threads.
pub fn in_bursts(seed: u64, burst: u64, backends: Vec<Arc<dyn Prune>>) -> Vec<Scheduled> {
    participants(seed, burst, Some(PATIENCE), backends)
}

fn participants(
    seed: u64,
    burst: u64,
    patience: Option<Duration>,
    backends: Vec<Arc<dyn Prune>>,
) -> Vec<Scheduled> {
    let board = Board {
        dice: seed,
        waiting: (0..backends.len()).map(|number| (number, 0)).collect(),
        away: BTreeSet::new(),
        turn: None,
        is_calling: false,
        last: None,
    };
    let turns = Arc::new(Turns {
        board: Mutex::new(board),
        changed: Condvar::new(),
        burst,
        patience,
    });
    let participant = |(number, inner)| Scheduled {
        inner,
        number,
        turns: Arc::clone(&turns),
    };
    backends.into_iter().enumerate().map(participant).collect()
}

impl Turns {
    fn wait(&self, number: usize) -> Turn<'_> {
        let mut board = self.board();
        *board.waiting.entry(number).or_default() += 1;
        board.away.remove(&number);
        self.next(&mut board);
        while board.is_calling || board.turn != Some(number) {
            board = match self.patience {
                None => self
                    .changed
                    .wait(board)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(patience) => {
                    let waited = self.changed.wait_timeout(board, patience);
                    let (mut board, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                    if timeout.timed_out() && board.turn.is_none() {
                        board.let_go();
                        self.next(&mut board);
                    }
                    board
                }
            };
        }
        board.is_calling = true;
        if let Some(waiting) = board.waiting.get_mut(&number) {
            *waiting -= 1;
        }
        Turn(self)
    }

    fn leave(&self, number: usize) {
        let mut board = self.board();
        board.waiting.remove(&number);
        self.next(&mut board);
    }

    /// Starts a turn if there is none and nobody is waited for.
    fn next(&self, board: &mut Board) {
        let mut missing = board.waiting.iter().filter(|(_, calls)| **calls == 0);
        if board.turn.is_some() || missing.any(|(number, _)| !board.away.contains(number)) {
            return;
        }
        let there = board.waiting.iter().filter(|(_, calls)| **calls > 0);
        let there: Vec<usize> = there.map(|(number, _)| *number).collect();
        if there.is_empty() {
            return;
        }
        let stays = board.last.filter(|last| there.contains(last));
        let goes_on = self.burst > 1 && !roll(&mut board.dice).is_multiple_of(self.burst);
        board.turn = stays.filter(|_| goes_on).or_else(|| {
            let index = usize::try_from(roll(&mut board.dice) % there.len() as u64).unwrap_or(0);
            there.get(index).copied()
        });
        board.last = board.turn;
        self.changed.notify_all();
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Board {
    /// Stops waiting for participants without calls.
    fn let_go(&mut self) {
        let missing = self.waiting.iter().filter(|(_, calls)| **calls == 0);
        self.away.extend(missing.map(|(number, _)| *number));
    }
}

/// A turn, which ends when it is dropped.
struct Turn<'t>(&'t Turns);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut board = self.0.board();
        (board.turn, board.is_calling) = (None, false);
        self.0.next(&mut board);
    }
}

/// The backend for the duration of one call.
struct Call<'c> {
    inner: &'c dyn Prune,
    _turn: Turn<'c>,
}

impl<'c> Deref for Call<'c> {
    type Target = dyn Prune + 'c;

    fn deref(&self) -> &Self::Target {
        self.inner
    }
}

impl Scheduled {
    fn turn(&self) -> Call<'_> {
        let turn = self.turns.wait(self.number);
        Call {
            inner: &*self.inner,
            _turn: turn,
        }
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

    /// Pieces of an upload need no turn, because nobody sees them.
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

    fn abandoned(&self, uploads: &[ObjectInfo]) -> HashSet<String> {
        self.turn().abandoned(uploads)
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
        let _turn = self.turns.wait(self.number);
        self.inner.finish()
    }
}
