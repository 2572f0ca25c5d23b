//! Decides which server of a store fetches a file: one has the claim. The others wait while it beats, and no longer
//! than their clients wait.

use std::time::Duration;

use store::claims::{Claim, Claims, Look};
use store::{Ended, Error, Result};

use crate::serve::source::block;

/// The shortest and the longest pause between two checks.
pub(super) const LOOK_PAUSES: (Duration, Duration) =
    (Duration::from_millis(200), Duration::from_secs(2));
/// The pause is this fraction of the time waited so far.
const PAUSE_PART: u32 = 20;

/// The result of a wait.
pub(super) enum Turn<P> {
    /// This server is to fetch the file, and has one of the places.
    Claimed(Box<Claim>, P),
    Stored,
}

/// The parameters of a wait.
pub(super) struct Wait<C> {
    /// A monotonic clock.
    pub(super) clock: C,
    /// How long the store may fail to answer.
    pub(super) patience: Duration,
    /// How long to wait for an active server. Fetching twice is better than clients that give up.
    pub(super) most: Duration,
    pub(super) pauses: (Duration, Duration),
}

impl<C: Fn() -> Duration> Wait<C> {
    /// Waits until the file is stored, or no other server fetches it. Holds a place, which `enter` gives, while it checks
    /// or fetches, not while it pauses.
    ///
    /// # Errors
    /// If the store does not answer, or the other server takes too long. The caller then fetches the file anyway.
    pub(super) async fn turn<P, E: Future<Output = P>, S: Future<Output = Result<bool>>>(
        &self,
        mut claims: Claims,
        enter: impl Fn() -> E,
        is_stored: impl Fn() -> S,
    ) -> Result<Turn<P>> {
        let began = (self.clock)();
        let mut answered = None;
        loop {
            let place = enter().await;
            let now = (self.clock)();
            let looked = block(move || {
                let look = claims.look(now);
                Ok((claims, look))
            });
            let look;
            (claims, look) = looked.await?;
            match self.judge(look, &is_stored).await {
                Ok(Some(Turn::Claimed(claim, ()))) => return Ok(Turn::Claimed(claim, place)),
                Ok(Some(Turn::Stored)) => return Ok(Turn::Stored),
                Ok(None) => answered = Some(now),
                // One failed check is no reason to fetch a file that another server fetches.
                Err(error) if answered.is_none_or(|at| now - at >= self.patience) => {
                    return Err(error);
                }
                Err(_) => {}
            }
            drop(place);
            if now - began >= self.most {
                return Err(Error::unavailable("what another server fetches"));
            }
            let (least, most) = self.pauses;
            tokio::time::sleep(((now - began) / PAUSE_PART).clamp(least, most)).await;
        }
    }

    async fn judge<S: Future<Output = Result<bool>>>(
        &self,
        look: Result<Look>,
        is_stored: impl Fn() -> S,
    ) -> Result<Option<Turn<()>>> {
        let look = look?;
        let is_first = matches!(&look, Look::Mine(claim) if claim.is_first());
        // Also after taking over a claim: the file may have been stored meanwhile.
        if !is_first && is_stored().await? {
            if let Look::Mine(claim) = look {
                // Nobody waits for this.
                drop(block(move || claim.end(Ended::Done)).await);
            }
            return Ok(Some(Turn::Stored));
        }
        Ok(match look {
            Look::Mine(claim) => Some(Turn::Claimed(Box::new(claim), ())),
            Look::Held { .. } | Look::Failed { .. } => None,
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::sync::{Arc, Mutex};

    use store::remote::Objects;
    use store::{Host, Store, Who};
    use tokio::sync::Semaphore;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(15);
    /// The seconds from one check to the next.
    const STEP_SECS: u64 = 7;

    /// An empty store in memory.
    pub(in crate::serve::hub::pull) fn store() -> Store {
        let host = Host {
            cache_dir: None,
            who: Who::default(),
            memory_bytes: 1 << 20,
            threads: 1,
            stop: Arc::new(AtomicBool::new(false)),
        };
        Store::init(Arc::new(Objects::memory()), host).unwrap()
    }

    /// Waits beside a server that beats `beats` times. Returns how the wait ended, and how long it took by the waiter's
    /// clock.
    fn wait(beats: u64, is_brought: bool, most: Duration) -> (&'static str, u64) {
        let store = store();
        let claims = || Claims::new(&store, "a file", PATIENCE).unwrap();
        let Look::Mine(holder) = claims().look(Duration::ZERO).unwrap() else {
            panic!("nobody had it before");
        };
        let (holder, left) = (
            Arc::new(Mutex::new(holder)),
            Arc::new(AtomicU64::new(beats)),
        );
        let secs = AtomicU64::new(0);
        let wait = Wait {
            clock: || Duration::from_secs(secs.fetch_add(STEP_SECS, Ordering::Relaxed)),
            patience: PATIENCE,
            most,
            pauses: (Duration::ZERO, Duration::ZERO),
        };
        let is_stored = || {
            let (holder, left) = (Arc::clone(&holder), Arc::clone(&left));
            block(move || {
                let is_over = left.load(Ordering::Relaxed) == 0;
                if !is_over {
                    left.fetch_sub(1, Ordering::Relaxed);
                    assert!(holder.lock().unwrap().beat().unwrap());
                }
                Ok(is_over && is_brought)
            })
        };
        let places = Semaphore::new(1);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let turn = runtime
            .unwrap()
            .block_on(wait.turn(claims(), || places.acquire(), is_stored));
        let how = match turn {
            Ok(Turn::Stored) => "stored",
            Ok(Turn::Claimed(_, place)) => {
                assert!(place.is_ok() && places.available_permits() == 0);
                "claimed"
            }
            Err(_) => "given up",
        };
        (how, secs.load(Ordering::Relaxed))
    }

    #[test]
    fn who_waits_waits_as_long_as_the_other_one_works() {
        let (how, secs) = wait(60, true, Duration::MAX);
        assert_eq!(how, "stored");
        assert!(secs > 60 * STEP_SECS, "{secs}");
        // A server that stops beating is replaced, but not at once.
        let (how, secs) = wait(60, false, Duration::MAX);
        assert_eq!(how, "claimed");
        assert!(secs > 60 * STEP_SECS + PATIENCE.as_secs(), "{secs}");
    }

    #[test]
    fn who_waits_gives_up_before_its_clients_do() {
        let (how, secs) = wait(60, true, Duration::from_secs(10 * STEP_SECS));
        assert_eq!(how, "given up");
        assert!((10 * STEP_SECS..=12 * STEP_SECS).contains(&secs), "{secs}");
    }
}
