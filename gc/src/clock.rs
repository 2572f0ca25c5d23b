//! What time it is for a collection: by this host's clock, or by that of whoever keeps the objects if that one is behind.
//!
//! Entries have the times of their writers, and objects those of the store's server. A collector whose own clock is
//! ahead of both would end graces and the time that retention gives before they are over.

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use store::format::{CLOCK_KEY, RESERVE_PREFIX};
use store::remote::Prune;
use store::{Error, Result, Store};

use crate::request::Request;

/// How far ahead this host's clock may be before the user is told.
const TOLD: SignedDuration = SignedDuration::from_mins(10);

/// A clock that is not ahead of the store's server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    own: fn() -> Timestamp,
    /// How far this host's clock is ahead of the clock of the store's server.
    ahead: SignedDuration,
}

impl Clock {
    /// This host's clock.
    pub(crate) fn own(request: &Request) -> Self {
        Self {
            own: request.clock,
            ahead: SignedDuration::ZERO,
        }
    }

    /// Compares the clocks, by writing an object. If nothing can be written, this host's clock is used.
    ///
    /// # Errors
    /// When the store cannot be listed.
    pub(crate) fn compared(store: &Store, prune: &dyn Prune, request: &Request) -> Result<Self> {
        let mut clock = Self::own(request);
        if prune.put(CLOCK_KEY, Bytes::new()).is_err() {
            return Ok(clock);
        }
        let now = Timestamp::now();
        let listed = prune.list(RESERVE_PREFIX)?;
        if let Some(written) = listed.iter().find(|info| info.key == CLOCK_KEY) {
            clock.ahead = now.duration_since(written.modified);
        }
        if clock.ahead > TOLD {
            store.warn(Error::conflict(format!(
                "this host's clock is {:#} ahead of the store's; the collection goes by the latter",
                SignedDuration::from_secs(clock.ahead.as_secs())
            )));
        }
        Ok(clock)
    }

    /// What time it is.
    pub(crate) fn now(&self) -> Timestamp {
        let now = (self.own)();
        now.checked_sub(self.ahead.max(SignedDuration::ZERO))
            .unwrap_or(now)
    }

    /// How far [`Self::now`] is ahead of the clock of the store's server: never, but perhaps behind.
    pub(crate) fn ahead_of_store(&self) -> SignedDuration {
        self.ahead.min(SignedDuration::ZERO)
    }
}
