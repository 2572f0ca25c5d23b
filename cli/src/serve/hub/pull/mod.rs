//! Pull-through: fetches from an upstream Hub what a namespace lacks, once for all clients, and stores it.
//!
//! `heads` finds the commit of a branch, `listing` the files in it; both are stored before anything is answered from
//! them. `places`, `turn`, `flight` and `fetch` fetch files, `keep` stores them. `access` decides who may see repos that are not
//! public. Only `upstream` talks to the upstream. DESIGN, pull-through, has the reasons.

mod access;
mod fetch;
mod flight;
mod heads;
mod keep;
mod places;
mod turn;
mod upstream;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use store::claims::Claims;
use store::{Ended, Error, ErrorKind, RefName, Result};

use crate::serve::Shared;
use crate::serve::hub::Inner;
use crate::serve::hub::fault::{Fault, Outcome};
use crate::serve::hub::files::Files;
use crate::serve::hub::repos::Commit;
use crate::serve::hub::repos::Repo;
use crate::serve::hub::route::Named;
use crate::serve::source::{Sight, Source, block};
use crate::serve::spool::Spool;
use crate::ui::failure::one_line;
use access::Access;
pub(super) use access::Who;
use flight::{Flight, Flights, Key, Stage};
use heads::Heads;
pub(super) use heads::dir_of;
use keep::{Keeper, Pending};
use places::{Busy, Places};
use turn::{LOOK_PAUSES, Turn, Wait};
pub(crate) use upstream::check_url;
use upstream::{Failure, Upstream};

/// How long a request waits for the upstream. Clients treat a slower answer as a failure.
const ANSWER_TIME: Duration = Duration::from_secs(8);
/// How long a server waits for another one that fetches a file. Hub clients retry five times, for about a minute in
/// all.
const WAIT_MOST: Duration = Duration::from_secs(40);
/// How long to wait for another server that shows no sign of life; then both fetch the file.
const PATIENCE: Duration = Duration::from_secs(15);
const BEAT_PAUSE: Duration = Duration::from_secs(4);
/// Attempts to store files, and the unit of the pauses between them.
const KEEP_TRIES_MAX: u32 = 6;
const KEEP_PAUSE: Duration = Duration::from_millis(500);
/// How long to remember the files of which wrong bytes were sent, and how many.
const WRONG_TIME: Duration = Duration::from_secs(60 * 60);
const WRONG_MAX: usize = 10_000;
/// How long a stopping server waits for fetched files to be stored.
const END_TIME: Duration = Duration::from_secs(8);

/// Options of the command line.
pub(crate) struct Options {
    pub(crate) upstream: String,
    /// A token of the upstream.
    pub(crate) token: Option<String>,
    /// Whether the upstream is never asked.
    pub(crate) is_offline: bool,
}

/// Access to the upstream.
pub(crate) struct Pull {
    upstream: Upstream,
    token: Option<String>,
    is_offline: bool,
    source: Arc<Source>,
    shared: Arc<Shared>,
    inner: Arc<Inner>,
    heads: Heads,
    access: Access,
    flights: Flights,
    places: Places,
    keeper: Keeper,
    /// Files of which wrong bytes were sent, and when.
    wrong: Mutex<HashMap<Key, Instant>>,
    beating: Once,
    began: Instant,
}

/// A file to fetch.
#[derive(Clone)]
pub(super) struct Wanted {
    pub(super) named: Named,
    pub(super) target: RefName,
    /// `models--OWNER--NAME`.
    pub(super) dir: String,
    pub(super) commit: String,
    pub(super) path: String,
    /// The file's hash.
    pub(super) name: String,
    pub(super) size: u64,
    pub(super) token: Option<String>,
    /// All files of the commit.
    pub(super) files: Arc<Files>,
}

/// A revision of a repo of the upstream, as the store knows it.
pub(super) struct Mirrored {
    pub(super) sight: Sight,
    pub(super) repo: Repo,
    pub(super) commit: Commit,
    /// Why the upstream could not be asked.
    pub(super) note: Option<String>,
}

/// Where a wanted file is.
pub(super) enum Place {
    Arriving(Arc<Spool>, Arc<Flight>),
    Stored,
}

impl Pull {
    /// # Errors
    /// If the upstream's URL is invalid.
    pub(super) fn new(
        options: Options,
        source: Arc<Source>,
        shared: Arc<Shared>,
        inner: Arc<Inner>,
    ) -> Result<Self> {
        Ok(Self {
            upstream: Upstream::new(&options.upstream)?,
            token: options.token,
            is_offline: options.is_offline,
            access: Access::new(source.cache_dir()),
            source,
            shared,
            inner,
            heads: Heads::default(),
            flights: Flights::default(),
            places: Places::new(),
            keeper: Keeper::new(),
            wrong: Mutex::default(),
            beating: Once::new(),
            began: Instant::now(),
        })
    }

    /// The token for requests of a file.
    pub(super) fn token_for(&self, who: &Who, is_open: bool) -> Option<String> {
        match is_open {
            true => self.token.clone(),
            false => who.token.clone().or_else(|| self.token.clone()),
        }
    }

    /// Waits until some of a file is available, and returns its place.
    pub(super) async fn file(self: &Arc<Self>, wanted: Wanted) -> Outcome<Place> {
        if self.is_offline {
            return Err(Fault::away(
                "this file was never fetched, and the upstream is not asked",
            ));
        }
        let pull = Arc::clone(self);
        self.beating.call_once(|| drop(tokio::spawn(pull.beat())));
        let key = (wanted.target.clone(), wanted.name.clone());
        let (flight, is_new) = self.flights.enter(&key);
        if is_new {
            let (pull, flight) = (Arc::clone(self), Arc::clone(&flight));
            // The flight continues after a timeout, so a retry may find it done.
            drop(tokio::spawn(pull.fly(key, wanted, flight)));
        }
        match tokio::time::timeout(ANSWER_TIME, flight.begun()).await {
            Err(_) | Ok(Stage::Waiting) => Err(Fault::later(
                "others are fetched before this file, or another server fetches it: ask again",
            )),
            Ok(Stage::Stored) => Ok(Place::Stored),
            Ok(Stage::Failed(failure)) => Err(failure.fault()),
            Ok(Stage::Arriving(spool)) => Ok(Place::Arriving(spool, flight)),
        }
    }

    /// The error for a flight that failed before its first byte.
    pub(super) fn fault_of(flight: &Flight, error: Error) -> Fault {
        match flight.failure() {
            Some(failure) => failure.fault(),
            None => error.into(),
        }
    }

    /// Whether wrong bytes of this file of a ref were sent, which a client may want to resume. Another ref may have had the
    /// right ones all along.
    pub(super) fn was_wrong(&self, target: &RefName, name: &str) -> bool {
        let wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (target.clone(), name.to_owned());
        wrong.get(&key).is_some_and(|at| at.elapsed() < WRONG_TIME)
    }

    async fn fly(self: Arc<Self>, key: Key, wanted: Wanted, flight: Arc<Flight>) {
        let held = match self.turn(&key, &wanted).await {
            Ok(Turn::Stored) => {
                flight.reach(Stage::Stored);
                self.flights.leave(&key);
                return;
            }
            Ok(Turn::Claimed(claim, place)) => {
                flight.hold(*claim);
                place
            }
            // Without a claim, the file is fetched anyway.
            Err(_) => self.places.enter(&wanted.named).await,
        };
        let place = places::Place::new(&self.places, held);
        let (source, inner) = (Arc::clone(&self.source), Arc::clone(&self.inner));
        let size = wanted.size;
        let spool = match block(move || inner.spool(&source, size)).await {
            Ok(spool) => Arc::new(spool),
            Err(error) => {
                return self
                    .failed(&key, &wanted, &flight, Failure::own(&error))
                    .await;
            }
        };
        flight.reach(Stage::Arriving(Arc::clone(&spool)));
        let numbers = &self.shared.numbers;
        match fetch::fetch(&self.upstream, &wanted, &spool, numbers, place).await {
            Ok(()) => {
                let target = wanted.target.clone();
                let pending = Pending {
                    wanted,
                    spool: Arc::clone(&spool),
                };
                // Queued before the last byte is released, so that a stopping server stores what a client has
                // completely.
                if self.keeper.push(&target, pending) {
                    drop(tokio::spawn(Arc::clone(&self).keep(target)));
                }
                spool.is_right();
            }
            Err(failure) => {
                if let Failure::Wrong(_) = &failure {
                    self.note_wrong(key.clone());
                }
                let why = failure.why();
                self.failed(&key, &wanted, &flight, failure).await;
                spool.fail(&why);
            }
        }
    }

    async fn failed(&self, key: &Key, wanted: &Wanted, flight: &Arc<Flight>, failure: Failure) {
        let (repo, path) = (wanted.named.id.as_str(), &wanted.path);
        let text = format!("{repo}: {path}: {}", failure.why());
        self.shared.journal.event("hub", &text);
        self.flights.leave(key);
        flight.reach(Stage::Failed(failure));
        release(Arc::clone(flight), Ended::Left).await;
    }

    fn note_wrong(&self, key: Key) {
        let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        if wrong.len() >= WRONG_MAX {
            wrong.retain(|_, at| at.elapsed() < WRONG_TIME);
        }
        wrong.insert(key, Instant::now());
    }

    /// Waits until this server is to fetch the file, or another server has stored it.
    async fn turn<'p>(&'p self, key: &Key, wanted: &Wanted) -> Result<Turn<Busy<'p>>> {
        let (namespace, name) = (key.0.namespace(), &key.1);
        let about = format!("{namespace} {} {name}", wanted.named.id.as_str());
        let claims = Claims::new(self.source.store(), &about, PATIENCE)?;
        let wait = Wait {
            clock: || self.began.elapsed(),
            patience: PATIENCE,
            most: WAIT_MOST,
            pauses: LOOK_PAUSES,
        };
        let enter = || self.places.enter(&wanted.named);
        wait.turn(claims, enter, || self.is_stored(wanted)).await
    }

    async fn is_stored(&self, wanted: &Wanted) -> Result<bool> {
        let (source, inner) = (Arc::clone(&self.source), Arc::clone(&self.inner));
        let (named, target, name) = (
            wanted.named.clone(),
            wanted.target.clone(),
            wanted.name.clone(),
        );
        block(move || {
            let sight = source.newest()?;
            inner.repos.has_hashed(&sight, (&named, &target), &name)
        })
        .await
    }

    /// Stores batches of one ref until no more files come.
    async fn keep(self: Arc<Self>, target: RefName) {
        while let Some(batch) = self.keeper.batch(&target).await {
            let batch = Arc::new(batch);
            for tries in 1..=KEEP_TRIES_MAX {
                let Err(error) = self.keep_batch(&target, &batch).await else {
                    break;
                };
                let is_last = tries == KEEP_TRIES_MAX
                    || matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::Denied);
                let files = batch.len();
                let what = match is_last {
                    true => "given up, and fetched again when somebody asks",
                    false => "tried again",
                };
                let text = format!(
                    "{target}: {files} files could not be stored, {what}: {}",
                    one_line(&error)
                );
                self.shared.journal.event("hub", &text);
                if is_last {
                    break;
                }
                let pause = match self.keeper.is_stopping() {
                    true => KEEP_PAUSE,
                    false => KEEP_PAUSE * 2_u32.pow(tries),
                };
                tokio::time::sleep(pause).await;
            }
            for pending in batch.iter() {
                let key = (target.clone(), pending.wanted.name.clone());
                if let Some(flight) = self.flights.leave(&key) {
                    flight.reach(Stage::Stored);
                    release(flight, Ended::Done).await;
                }
            }
        }
    }

    async fn keep_batch(&self, target: &RefName, batch: &Arc<Vec<Pending>>) -> Result<()> {
        let (source, inner) = (Arc::clone(&self.source), Arc::clone(&self.inner));
        let (target, batch) = (target.clone(), Arc::clone(batch));
        let upstream = self.upstream.base().to_owned();
        block(move || {
            keep::keep(source.store(), &inner.known, &target, (&upstream, &batch))?;
            // From now on, requests find the files in the store.
            source.newest().map(drop)
        })
        .await
    }

    async fn beat(self: Arc<Self>) {
        loop {
            tokio::time::sleep(BEAT_PAUSE).await;
            let pull = Arc::clone(&self);
            // If this fails, the next beat follows soon.
            drop(
                block(move || {
                    pull.flights.beat();
                    Ok(())
                })
                .await,
            );
        }
    }

    /// Stores fetched files without waiting for more.
    pub(super) fn stop(&self) {
        self.keeper.stop();
    }

    /// Waits until all fetched files are stored, or for [`END_TIME`].
    pub(super) async fn finish(&self) {
        let began = Instant::now();
        while !self.keeper.is_done() && began.elapsed() < END_TIME {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Tells other servers that they need not wait for this one.
async fn release(flight: Arc<Flight>, how: Ended) {
    let released = block(move || {
        flight.release(how);
        Ok(())
    });
    drop(released.await);
}
