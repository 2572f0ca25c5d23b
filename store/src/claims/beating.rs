//! Beating: a claim that shows that its owner works, from a thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Claim;
use crate::error::Result;
use crate::format::Ended;

/// The time between beats. Waiting processes should have several times this patience, at least
/// [`Beating::PATIENCE_MIN`].
const EVERY: Duration = Duration::from_secs(1);

/// A claim that beats until it is ended or dropped. If it is dropped, others take its owner for dead after a while.
#[derive(Debug)]
pub struct Beating {
    stop: Option<(Sender<()>, JoinHandle<Claim>)>,
    is_lost: Arc<AtomicBool>,
}

impl Beating {
    /// With less patience than this, a slow owner is taken for a dead one.
    pub const PATIENCE_MIN: Duration = Duration::from_secs(4);

    pub(super) fn new(mut claim: Claim) -> Self {
        let (stop, stopped) = channel();
        let is_lost = Arc::new(AtomicBool::new(false));
        let lost = Arc::clone(&is_lost);
        let thread = std::thread::spawn(move || {
            loop {
                // If a beat cannot be written, the next one makes up for it.
                if matches!(claim.beat(), Ok(false)) {
                    lost.store(true, Ordering::Relaxed);
                }
                if stopped.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
                    return claim;
                }
            }
        });
        Self {
            stop: Some((stop, thread)),
            is_lost,
        }
    }

    /// Whether another process has taken over, so that the work is done twice.
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Announces how the work ended.
    ///
    /// # Errors
    /// When the store does not answer: the others then wait until their patience ends.
    pub fn end(mut self, how: Ended) -> Result<()> {
        match self.stopped() {
            Some(claim) => claim.end(how),
            None => Ok(()),
        }
    }

    fn stopped(&mut self) -> Option<Claim> {
        let (stop, thread) = self.stop.take()?;
        drop(stop);
        thread.join().ok()
    }
}

impl Drop for Beating {
    /// Stops the thread: no beat is written after this returns.
    fn drop(&mut self) {
        drop(self.stopped());
    }
}
