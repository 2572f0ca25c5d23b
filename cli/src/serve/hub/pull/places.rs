//! Places: who may fetch from the upstream at the same time.
//!
//! A repo has some of the places, so that a slow one leaves some to others. A file for which little comes gives its place
//! to another file, and goes on as one of the quiet ones; one for which next to nothing comes for long is given up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::serve::hub::pull::upstream::Failure;
use crate::serve::hub::route::Named;

/// Maximum number of files to fetch at once, of those for one repo, and of quiet ones beside them.
const PLACES: usize = 32;
const PLACES_OF_REPO: usize = 24;
const QUIET_MAX: usize = 256;
/// How often to look at what has come.
const WINDOW: Duration = Duration::from_secs(2);
/// With less in a window, a file is quiet.
const QUIET_BYTES: u64 = 128 << 10;
/// With less in each window for so long, it is given up: 4 KiB a second, as for uploads.
const FEW_BYTES: u64 = 8 << 10;
const FEW_TIME: Duration = Duration::from_secs(60);
/// Maximum number of repos to remember before unused ones are forgotten.
const REPOS_MAX: usize = 1000;

/// All places.
pub(super) struct Places {
    busy: Semaphore,
    quiet: Semaphore,
    repos: Mutex<HashMap<Named, Weak<Semaphore>>>,
}

/// What a file holds.
enum Held<'p> {
    Busy(#[expect(dead_code, reason = "held")] Busy<'p>),
    Quiet(#[expect(dead_code, reason = "held")] SemaphorePermit<'p>),
}

/// A place among those that get bytes, and the share of the repo. The semaphores are never closed.
pub(super) struct Busy<'p> {
    _share: Option<OwnedSemaphorePermit>,
    _place: Option<SemaphorePermit<'p>>,
}

/// The place of one file.
pub(super) struct Place<'p> {
    places: &'p Places,
    held: Held<'p>,
    window: Instant,
    bytes: u64,
    /// Since when next to nothing comes.
    few: Option<Instant>,
}

impl Places {
    pub(super) fn new() -> Self {
        Self {
            busy: Semaphore::new(PLACES),
            quiet: Semaphore::new(QUIET_MAX),
            repos: Mutex::default(),
        }
    }

    /// Waits for a place for a file of this repo.
    pub(super) async fn enter(&self, named: &Named) -> Busy<'_> {
        Busy {
            _share: self.share(named).acquire_owned().await.ok(),
            _place: self.busy.acquire().await.ok(),
        }
    }

    fn share(&self, named: &Named) -> Arc<Semaphore> {
        let mut repos = self.repos.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = repos.get(named).and_then(Weak::upgrade) {
            return share;
        }
        if repos.len() >= REPOS_MAX {
            repos.retain(|_, share| share.strong_count() > 0);
        }
        let share = Arc::new(Semaphore::new(PLACES_OF_REPO));
        repos.insert(named.clone(), Arc::downgrade(&share));
        share
    }
}

impl<'p> Place<'p> {
    pub(super) fn new(places: &'p Places, busy: Busy<'p>) -> Self {
        Self {
            places,
            held: Held::Busy(busy),
            window: Instant::now(),
            bytes: 0,
            few: None,
        }
    }

    /// Waits for the upstream. If it is silent for a moment, the place is given to another file.
    ///
    /// # Errors
    /// If it is silent, and so are as many other files as may be.
    pub(super) async fn patiently<T>(
        &mut self,
        work: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        let mut work = std::pin::pin!(work);
        if let Ok(done) = tokio::time::timeout(WINDOW, &mut work).await {
            return Ok(done);
        }
        self.be_quiet();
        match self.held {
            Held::Quiet(_) => Ok(work.await),
            Held::Busy(_) => Err(Failure::Crowded),
        }
    }

    /// Counts bytes that came. Returns false if so few have come for so long that the file is to be given up.
    pub(super) fn came(&mut self, bytes: u64) -> bool {
        self.came_at(Instant::now(), bytes)
    }

    fn came_at(&mut self, now: Instant, bytes: u64) -> bool {
        self.bytes += bytes;
        if now - self.window < WINDOW {
            return true;
        }
        if self.bytes < QUIET_BYTES {
            self.be_quiet();
        }
        match self.bytes < FEW_BYTES {
            true => self.few = self.few.or(Some(self.window)),
            false => self.few = None,
        }
        (self.window, self.bytes) = (now, 0);
        self.few.is_none_or(|since| now - since < FEW_TIME)
    }

    /// Gives the place to another file, if there is one among the quiet ones.
    fn be_quiet(&mut self) {
        if matches!(self.held, Held::Busy(_))
            && let Ok(quiet) = self.places.quiet.try_acquire()
        {
            self.held = Held::Quiet(quiet);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::hub::route::{Id, Type};

    fn named(id: &str) -> Named {
        Named {
            namespace: "project/demo".parse().unwrap(),
            kind: Type::Model,
            id: Id::parse(id).unwrap(),
        }
    }

    fn now<T>(work: impl Future<Output = T>) -> Option<T> {
        use std::task::{Context, Poll, Waker};
        match std::pin::pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        }
    }

    #[test]
    fn one_repo_leaves_places_to_others() {
        let places = Places::new();
        let (slow, other) = (named("o/slow"), named("o/other"));
        let mut held: Vec<Busy<'_>> = Vec::new();
        while let Some(place) = now(places.enter(&slow)) {
            held.push(place);
        }
        assert_eq!(held.len(), PLACES_OF_REPO);
        held.pop();
        assert!(now(places.enter(&other)).is_some() && now(places.enter(&slow)).is_some());
    }

    #[test]
    fn who_is_silent_among_many_gives_up_its_place() {
        let places = Places::new();
        let runtime = crate::serve::runtime().unwrap();
        let busy = || Place::new(&places, now(places.enter(&named("o/m"))).unwrap());
        let silent = std::time::Duration::from_secs(3);
        let wait = |mut place: Place<'_>| {
            runtime.block_on(async { place.patiently(tokio::time::sleep(silent)).await })
        };
        assert_eq!(wait(busy()), Ok(()));
        let all = u32::try_from(QUIET_MAX).unwrap();
        let _held = places.quiet.try_acquire_many(all).unwrap();
        assert_eq!(wait(busy()), Err(Failure::Crowded));
        assert_eq!(places.busy.available_permits(), PLACES);
    }

    #[test]
    fn who_gets_little_gives_its_place_away_and_who_gets_next_to_nothing_is_given_up() {
        let places = Places::new();
        let at = |place: &Place<'_>, secs| place.window + Duration::from_secs(secs);
        for (bytes, is_busy, is_kept) in [
            (QUIET_BYTES, true, true),
            (FEW_BYTES, false, true),
            (FEW_BYTES - 1, false, false),
        ] {
            let busy = now(places.enter(&named("o/m"))).unwrap();
            let mut place = Place::new(&places, busy);
            let mut is_good = true;
            for _ in 0..30 {
                is_good = place.came_at(at(&place, 2), bytes);
            }
            let found = (matches!(place.held, Held::Busy(_)), is_good);
            assert_eq!(found, (is_busy, is_kept), "{bytes}");
        }
        assert_eq!(places.busy.available_permits(), PLACES);
    }
}
