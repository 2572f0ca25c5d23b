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

/// How far the clocks may be apart before the user is told.
const TOLD: SignedDuration = SignedDuration::from_mins(10);

/// A clock that is not ahead of the store's server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    own: fn() -> Timestamp,
    /// How far this host's clock is ahead of the clock of the store's server.
    ahead: SignedDuration,
    is_compared: bool,
}

impl Clock {
    /// This host's clock.
    pub(crate) fn own(request: &Request) -> Self {
        Self {
            own: request.clock,
            ahead: SignedDuration::ZERO,
            is_compared: false,
        }
    }

    /// Compares the clocks once, by writing an object. Returns whether this host's clock is so far ahead that what was
    /// found by it does not count. If nothing can be written, this host's clock is used.
    ///
    /// # Errors
    /// When the store cannot be listed.
    pub(crate) fn is_set_back(&mut self, store: &Store, prune: &dyn Prune) -> Result<bool> {
        if std::mem::replace(&mut self.is_compared, true) {
            return Ok(false);
        }
        if let Err(error) = prune.put(CLOCK_KEY, Bytes::new()) {
            let what = "the store's clock is not known, and the collection goes by this host's";
            store.warn(error.within(what));
            return Ok(false);
        }
        let now = Timestamp::now();
        let listed = prune.list(RESERVE_PREFIX)?;
        if let Some(written) = listed.iter().find(|info| info.key == CLOCK_KEY) {
            self.ahead = now.duration_since(written.modified);
        }
        let apart = SignedDuration::from_secs(self.ahead.as_secs());
        if apart < -TOLD {
            // What this host condemns has its time, from which others count the grace.
            store.warn(Error::conflict(format!(
                "this host's clock is {:#} behind the store's: the grace of what is dropped now ends so much earlier for others",
                -apart
            )));
        }
        if apart > TOLD {
            store.warn(Error::conflict(format!(
                "this host's clock is {apart:#} ahead of the store's; the collection goes by the latter"
            )));
        }
        Ok(apart > TOLD)
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
