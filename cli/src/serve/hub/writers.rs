//! Turns to store bodies. There are few, since each takes memory.
//!
//! A token has at most half of them. A body that brings almost nothing while others wait loses its turn.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use store::{Error, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Number of callers at which those without a turn are forgotten.
const CALLERS_MAX: usize = 1000;
/// The bytes that a body must bring in each window of waiting time, while others wait for a turn.
const WINDOW: Duration = Duration::from_secs(8);
const WINDOW_BYTES: u64 = 512 << 10;

/// All turns.
pub(super) struct Writers {
    all: Arc<Semaphore>,
    each: usize,
    by: Mutex<HashMap<String, Arc<Semaphore>>>,
    waiting: AtomicUsize,
}

/// A turn, until it is dropped.
pub(super) struct Turn {
    _of_caller: Option<OwnedSemaphorePermit>,
    _of_all: OwnedSemaphorePermit,
}

/// The progress of a body during its turn.
#[derive(Debug, Default)]
pub(super) struct Pace {
    waited: Duration,
    bytes: u64,
}

impl Writers {
    pub(super) fn new(count: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(count)),
            each: count.div_ceil(2),
            by: Mutex::default(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Waits for a turn for the bearer of this token. Without tokens, all clients share all turns.
    ///
    /// # Errors
    /// Never while the server runs.
    pub(super) async fn turn(&self, caller: Option<&str>) -> Result<Turn> {
        let ended = |_| Error::interrupted("the server stops");
        let of_caller = match caller.map(|caller| self.of(caller)) {
            Some(own) => Some(own.acquire_owned().await.map_err(ended)?),
            None => None,
        };
        let all = Arc::clone(&self.all);
        let _waits = Waits::new(&self.waiting);
        Ok(Turn {
            _of_caller: of_caller,
            _of_all: all.acquire_owned().await.map_err(ended)?,
        })
    }

    fn of(&self, caller: &str) -> Arc<Semaphore> {
        let mut by = self.by.lock().unwrap_or_else(PoisonError::into_inner);
        if by.len() >= CALLERS_MAX {
            by.retain(|_, own| Arc::strong_count(own) > 1);
        }
        let own = || Arc::new(Semaphore::new(self.each));
        Arc::clone(by.entry(caller.to_owned()).or_insert_with(own))
    }

    /// Records the time that the client was waited for, and the bytes that it sent.
    ///
    /// # Errors
    /// Unavailable, if that is almost nothing and others wait for a turn.
    pub(super) fn check(&self, pace: &mut Pace, waited: Duration, bytes: u64) -> Result<()> {
        pace.waited += waited;
        pace.bytes += bytes;
        if pace.waited < WINDOW {
            return Ok(());
        }
        let is_slow = pace.bytes < WINDOW_BYTES;
        *pace = Pace::default();
        match is_slow && self.waiting.load(Ordering::Relaxed) > 0 {
            true => Err(Error::unavailable(
                "the upload brings next to nothing while others wait: send it again later",
            )),
            false => Ok(()),
        }
    }
}

/// Counts a request that waits for a turn.
struct Waits<'w>(&'w AtomicUsize);

impl<'w> Waits<'w> {
    fn new(waiting: &'w AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_token_has_half_of_the_turns() {
        let runtime = crate::serve::runtime().unwrap();
        let writers = Writers::new(4);
        let turn = |caller| {
            runtime.block_on(async {
                let soon = tokio::time::timeout(Duration::from_millis(50), writers.turn(caller));
                soon.await.ok().map(Result::unwrap)
            })
        };
        let held = [
            turn(Some("a")),
            turn(Some("a")),
            turn(Some("a")),
            turn(Some("b")),
        ];
        let is_held: Vec<bool> = held.iter().map(Option::is_some).collect();
        assert_eq!(is_held, [true, true, false, true]);
        assert!(turn(None).is_some());
    }

    #[test]
    fn who_brings_next_to_nothing_gives_way_to_those_who_wait() {
        let writers = Writers::new(1);
        let mut pace = Pace::default();
        let mut bring = |bytes| writers.check(&mut pace, WINDOW, bytes).is_ok();
        assert!(bring(0), "nobody waits");
        let waits = Waits::new(&writers.waiting);
        assert!(bring(WINDOW_BYTES) && !bring(WINDOW_BYTES - 1));
        drop(waits);
        assert!(bring(0));
    }
}
