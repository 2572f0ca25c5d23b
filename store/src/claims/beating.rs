//! Beating: a claim whose owner shows that it works, while it works on other threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Claim;
use crate::error::Result;
use crate::format::Ended;

/// How often. One who waits has several times this patience, as long as it is no less than [`Beating::PATIENCE_MIN`].
const EVERY: Duration = Duration::from_secs(1);

/// Beats until it ends or is dropped; one that is dropped is taken for dead in time.
#[derive(Debug)]
pub struct Beating {
    stop: Option<(Sender<()>, JoinHandle<Claim>)>,
    is_lost: Arc<AtomicBool>,
}

impl Beating {
    /// Less patience than this takes a slow owner for a dead one.
    pub const PATIENCE_MIN: Duration = Duration::from_secs(4);

    pub(super) fn new(mut claim: Claim) -> Self {
        let (stop, stopped) = channel();
        let is_lost = Arc::new(AtomicBool::new(false));
        let lost = Arc::clone(&is_lost);
        let thread = std::thread::spawn(move || {
            loop {
                // A beat that does not arrive is followed by the next one.
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

    /// Whether somebody has taken over: what is made here is made twice.
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Says how it ended.
    ///
    /// # Errors
    /// When the store does not answer: then others wait for their patience.
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
    /// Nothing is shown any more when it returns.
    fn drop(&mut self) {
        drop(self.stopped());
    }
}
