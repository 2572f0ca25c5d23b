//! Files on their way from the upstream: one flight per file, however many clients want it.
//!
//! A flight begins with the first request and ends when the file is in the store; later requests find it there. A
//! failed flight is removed at once, and all waiting requests fail.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use store::RefName;
use store::claims::Claim;
use tokio::sync::watch;

use crate::serve::hub::pull::upstream::Failure;
use crate::serve::spool::Spool;

/// Maximum number of claims to renew at once.
const BEATERS_MAX: usize = 8;

/// A file: the ref that it goes into, and its hash.
pub(super) type Key = (RefName, String);

/// One flight.
pub(in crate::serve::hub) struct Flight {
    stage: watch::Sender<Stage>,
    /// The claim for which other servers wait.
    claim: Mutex<Option<Claim>>,
}

/// The progress of a flight.
#[derive(Clone)]
pub(in crate::serve::hub) enum Stage {
    /// No bytes have arrived; perhaps another server fetches the file.
    Waiting,
    Arriving(Arc<Spool>),
    Stored,
    Failed(Failure),
}

/// All flights.
#[derive(Default)]
pub(super) struct Flights(Mutex<HashMap<Key, Arc<Flight>>>);

impl Flights {
    /// Returns the flight of a file, and whether it is new.
    pub(super) fn enter(&self, key: &Key) -> (Arc<Flight>, bool) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(key) {
            return (Arc::clone(known), false);
        }
        let flight = Arc::new(Flight {
            stage: watch::channel(Stage::Waiting).0,
            claim: Mutex::new(None),
        });
        all.insert(key.clone(), Arc::clone(&flight));
        (flight, true)
    }

    /// Removes a flight.
    pub(super) fn leave(&self, key: &Key) -> Option<Arc<Flight>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(key)
    }

    /// Renews the claims, which shows other servers that this one works. Blocks.
    pub(super) fn beat(&self) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let flights: Vec<_> = all.values().map(Arc::clone).collect();
        drop(all);
        // Renews several at once: with many files and a slow bucket, the last one must be in time, too.
        let waiting = Mutex::new(flights.iter());
        let next = || {
            let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.next()
        };
        std::thread::scope(|scope| {
            for _ in 0..flights.len().min(BEATERS_MAX) {
                scope.spawn(|| {
                    while let Some(flight) = next() {
                        flight.beat();
                    }
                });
            }
        });
    }
}

impl Flight {
    pub(super) fn reach(&self, stage: Stage) {
        self.stage.send_replace(stage);
    }

    /// Waits until the flight has left the first stage.
    pub(super) async fn begun(&self) -> Stage {
        let mut stage = self.stage.subscribe();
        let begun = stage.wait_for(|stage| !matches!(stage, Stage::Waiting));
        match begun.await {
            Ok(stage) => stage.clone(),
            Err(_) => Stage::Failed(Failure::Own("the server stops".to_owned())),
        }
    }

    /// Why the flight failed, if it did.
    pub(super) fn failure(&self) -> Option<Failure> {
        match &*self.stage.borrow() {
            Stage::Failed(failure) => Some(failure.clone()),
            _ => None,
        }
    }

    fn beat(&self) {
        if let Some(mut claim) = self.take_claim() {
            // If this renewal fails, the next one follows soon.
            let _shown = claim.beat();
            self.hold(claim);
        }
    }

    pub(super) fn hold(&self, claim: Claim) {
        *self.claim.lock().unwrap_or_else(PoisonError::into_inner) = Some(claim);
    }

    pub(super) fn take_claim(&self) -> Option<Claim> {
        let mut claim = self.claim.lock().unwrap_or_else(PoisonError::into_inner);
        claim.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_flight_until_it_is_forgotten() {
        let flights = Flights::default();
        let key = ("project/demo/x".parse().unwrap(), "a".to_owned());
        let (first, is_new) = flights.enter(&key);
        assert!(is_new);
        assert!(!flights.enter(&key).1);
        first.reach(Stage::Failed(Failure::Wrong("x".to_owned())));
        assert_eq!(first.failure(), Some(Failure::Wrong("x".to_owned())));
        assert!(flights.leave(&key).is_some());
        assert!(flights.enter(&key).1);
    }
}
