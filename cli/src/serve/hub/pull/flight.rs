//! Files on their way from the upstream: one flight per file, however many clients want it.
//!
//! A flight begins with the first request and ends when the file is in the store; later requests find it there. A
//! failed flight is removed at once, and all waiting requests fail.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use store::claims::Claim;
use store::{Ended, RefName};
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
    claim: Mutex<Held>,
}

/// The claim for which other servers wait.
#[derive(Default)]
struct Held {
    claim: Option<Claim>,
    /// How the flight has ended. While the claim is being renewed, nobody can end it.
    ended: Option<Ended>,
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
            claim: Mutex::default(),
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

    /// Renews the claim. Blocks.
    fn beat(&self) {
        let Some(mut claim) = self.held().claim.take() else {
            return;
        };
        // If this renewal fails, the next one follows soon.
        let _shown = claim.beat();
        self.hold(claim);
        self.end_claim();
    }

    pub(super) fn hold(&self, claim: Claim) {
        self.held().claim = Some(claim);
    }

    /// Tells other servers that they need not wait for this one. Blocks.
    pub(super) fn release(&self, how: Ended) {
        self.held().ended = Some(how);
        self.end_claim();
    }

    /// Ends the claim if it is here and the flight has ended.
    fn end_claim(&self) {
        let mut held = self.held();
        let Some(how) = held.ended.clone() else {
            return;
        };
        if let Some(claim) = held.claim.take() {
            drop(held);
            // If this fails, other servers wait until their patience ends.
            let _told = claim.end(how);
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.claim.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use store::claims::{Claims, Look};

    use super::*;
    use crate::serve::hub::pull::turn::tests::store;

    /// Who waits for such a claim waits until its patience ends.
    #[test]
    fn a_flight_that_ends_while_its_claim_is_renewed_leaves_none() {
        let store = store();
        for round in 0..200 {
            let claims = || Claims::new(&store, &round.to_string(), Duration::MAX).unwrap();
            let Look::Mine(claim) = claims().look(Duration::ZERO).unwrap() else {
                panic!("nobody had it before");
            };
            let flights = Flights::default();
            let key = ("project/demo/x".parse().unwrap(), "a".to_owned());
            let (flight, _) = flights.enter(&key);
            flight.hold(claim);
            std::thread::scope(|scope| {
                scope.spawn(|| flights.beat());
                std::thread::sleep(Duration::from_micros(round));
                flight.release(Ended::Left);
            });
            let next = claims().look(Duration::ZERO).unwrap();
            assert!(matches!(next, Look::Mine(_)), "round {round}");
        }
    }

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
