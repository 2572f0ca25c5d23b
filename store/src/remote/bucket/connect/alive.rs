//! Tracks whether an endpoint still answers, for a caller that was asked to stop.
//!
//! Such a caller may have something to finish, and an endpoint that answers gets the time for that. For a silent
//! endpoint, the caller waits neither for an answer nor for a pause between two attempts.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};

/// How long an endpoint may be silent after a request to stop.
const GRACE: Duration = Duration::from_secs(2);
/// How often the request to stop is checked.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Bytes per second over a slow line.
const SLOW_BYTES: u64 = 100_000;

/// What is known about a bucket's endpoints. Clones share it.
#[derive(Clone, Debug, Default)]
pub(in crate::remote) struct Alive {
    stop: Arc<AtomicBool>,
    times: Arc<Mutex<Times>>,
}

#[derive(Debug, Default)]
struct Times {
    /// When the request to stop was first noticed.
    stopped: Option<Instant>,
    /// Until when silence is normal.
    busy_until: Option<Instant>,
    /// Whether the endpoint was given up and has not answered since.
    is_silent: bool,
}

/// The error after a request to stop, when the endpoint is silent.
#[derive(Debug)]
pub(in crate::remote) struct Stopped;

impl Alive {
    /// Starts without knowledge; `stop` is set to request a stop.
    pub(in crate::remote) fn new(stop: Arc<AtomicBool>) -> Self {
        Self {
            stop,
            times: Arc::default(),
        }
    }

    /// Waits for `future`, unless a stop is requested and the endpoint is silent.
    pub(in crate::remote) async fn watch<T, F>(&self, future: F) -> object_store::Result<T>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        let given_up = pin!(self.given_up(Instant::now()));
        match select(pin!(future), given_up).await {
            Either::Left((done, _)) => done,
            Either::Right(_) => Err(object_store::Error::Generic {
                store: "bucket",
                source: Box::new(Stopped),
            }),
        }
    }

    /// Records that the endpoint answered or sent part of an answer.
    pub(super) fn sign(&self) {
        let mut times = self.lock();
        times.is_silent = false;
        times.busy_until = times.busy_until.max(Some(Instant::now()));
    }

    /// Records that this many bytes are being sent to the endpoint.
    pub(super) fn sending(&self, bytes: usize) {
        let mut times = self.lock();
        let until = Instant::now() + sending_time(bytes);
        times.busy_until = times.busy_until.max(Some(until));
    }

    async fn given_up(&self, begun: Instant) {
        while !self.is_over(begun, Instant::now()) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn is_over(&self, begun: Instant, now: Instant) -> bool {
        if !self.stop.load(Ordering::Relaxed) {
            return false;
        }
        let mut times = self.lock();
        let stopped = *times.stopped.get_or_insert(now);
        let since = times.busy_until.unwrap_or(stopped).max(stopped).max(begun);
        if !times.is_silent && now < since + GRACE {
            return false;
        }
        times.is_silent = true;
        true
    }

    fn lock(&self) -> MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Stopped {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("stopped on request, while there was no answer")
    }
}

impl std::error::Error for Stopped {}

/// Returns the time to send this many bytes over a slow line.
pub(super) fn sending_time(bytes: usize) -> Duration {
    Duration::from_secs(u64::try_from(bytes).unwrap_or(u64::MAX) / SLOW_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_was_asked_to_stop_gives_up_and_only_on_an_endpoint_that_is_silent() {
        let stop = Arc::new(AtomicBool::new(false));
        let alive = Alive::new(Arc::clone(&stop));
        let begun = Instant::now();
        let later = |secs| begun + Duration::from_secs(secs);
        assert!(!alive.is_over(begun, later(1000)));
        stop.store(true, Ordering::Relaxed);
        assert!(!alive.is_over(begun, later(1000)));
        assert!(!alive.is_over(begun, later(1001)));
        // A new request gets its own grace period.
        assert!(!alive.is_over(later(1002), later(1003)));
        assert!(alive.is_over(begun, later(1002)));
        // After that, nobody waits until there is an answer.
        assert!(alive.is_over(later(1003), later(1003)));
        alive.sign();
        assert!(!alive.is_over(later(1003), later(1003)));
        let large = 1_000_000_000;
        alive.sending(large);
        assert!(!alive.is_over(begun, Instant::now() + sending_time(large)));
    }
}
