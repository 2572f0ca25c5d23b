//! Whose turn it is to fetch a file, of all servers of a store: one has the claim, and the others wait as long as it beats
//! and their own clients are patient.

use std::time::Duration;

use store::claims::{Claim, Claims, Look};
use store::{Ended, Error, Result};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::serve::source::block;

/// How long between two looks, at first and at most.
pub(super) const LOOK_PAUSES: (Duration, Duration) =
    (Duration::from_millis(200), Duration::from_secs(2));
/// What part of the time that was waited passes until the next look.
const PAUSE_PART: u32 = 20;

/// What a wait came to.
pub(super) enum Turn<'p> {
    /// The file is to be fetched here; nobody else does, and there is a place for it.
    Claimed(Box<Claim>, Option<SemaphorePermit<'p>>),
    Stored,
}

/// By what a server waits.
pub(super) struct Wait<C> {
    /// A clock that is never set.
    pub(super) clock: C,
    /// How long the store may give no answer.
    pub(super) patience: Duration,
    /// How long it waits for a server that goes on. Twice the bytes are better than clients that give up.
    pub(super) most: Duration,
    pub(super) pauses: (Duration, Duration),
}

impl<C: Fn() -> Duration> Wait<C> {
    /// Waits until the file is stored, or nobody shows any more that it fetches it. Takes one of `places` to look and to
    /// fetch, and none to wait.
    ///
    /// # Errors
    /// When the store does not answer, or the other server takes too long: then the file is fetched here, too.
    pub(super) async fn turn<'p, S: Future<Output = Result<bool>>>(
        &self,
        mut claims: Claims,
        places: &'p Semaphore,
        is_stored: impl Fn() -> S,
    ) -> Result<Turn<'p>> {
        let began = (self.clock)();
        let mut answered = None;
        loop {
            // It is never closed.
            let place = places.acquire().await.ok();
            let now = (self.clock)();
            let looked = block(move || {
                let look = claims.look(now);
                Ok((claims, look))
            });
            let look;
            (claims, look) = looked.await?;
            match self.judge(look, &is_stored).await {
                Ok(Some(claim)) => return Ok(claim.with(place)),
                Ok(None) => answered = Some(now),
                // One look that fails is no reason to fetch what another server brings.
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
    ) -> Result<Option<Turn<'static>>> {
        let look = look?;
        let is_first = matches!(&look, Look::Mine(claim) if claim.is_first());
        // Also who has it looks: it may have been made meanwhile.
        if !is_first && is_stored().await? {
            if let Look::Mine(claim) = look {
                // Nobody waits for it.
                drop(block(move || claim.end(Ended::Done)).await);
            }
            return Ok(Some(Turn::Stored));
        }
        Ok(match look {
            Look::Mine(claim) => Some(Turn::Claimed(Box::new(claim), None)),
            Look::Held { .. } | Look::Failed { .. } => None,
        })
    }
}

impl<'p> Turn<'p> {
    fn with(self, place: Option<SemaphorePermit<'p>>) -> Self {
        match self {
            Self::Claimed(claim, _) => Self::Claimed(claim, place),
            Self::Stored => Self::Stored,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::sync::{Arc, Mutex};

    use store::remote::Objects;
    use store::{Host, Store, Who};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(15);
    /// What passes from one look to the next.
    const STEP_SECS: u64 = 7;

    fn store() -> Store {
        let host = Host {
            cache_dir: None,
            who: Who::default(),
            memory_bytes: 1 << 20,
            threads: 1,
            stop: Arc::new(AtomicBool::new(false)),
        };
        Store::init(Arc::new(Objects::memory()), host).unwrap()
    }

    /// How a wait ends beside a server that shows so often that it works; and how long that took by the waiter's clock.
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
            .block_on(wait.turn(claims(), &places, is_stored));
        let how = match turn {
            Ok(Turn::Stored) => "stored",
            Ok(Turn::Claimed(_, place)) => {
                assert!(place.is_some() && places.available_permits() == 0);
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
        // One that stands still is followed, and not at once.
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
