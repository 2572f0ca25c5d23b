//! Reads files of a far store ahead of the clients, since each read takes as long as the network does.
//!
//! A file is a row of numbered stretches, which are the same for all clients: those that are at the same place share one
//! read. Each client has several stretches in flight, more of them with each one that it took, while there is memory.
//! What is read ahead has memory of its own, so that it takes none from the bytes that clients wait for.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use store::{Content, Error, Result};
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};

/// The length of a stretch, which the frames at its ends change by a frame at most.
pub(super) const STRETCH_BYTES: u64 = 1 << 20;
/// Most stretches that are read ahead, for all clients together: a stretch that is 30 ms away takes several round trips,
/// since its connection begins slowly.
const AHEAD_MAX: usize = 32;
/// Most stretches that one client has in flight, and how many it begins with.
const DEPTH: Range<u64> = 4..33;
/// What was read ahead for a client that took nothing for so long goes to others who want memory.
const IDLE_TIME: Duration = Duration::from_secs(2);
/// How many shared stretches are remembered before those that are gone are forgotten.
const REMEMBERED: usize = 256;

/// Where a stretch begins in its file, and its bytes.
#[derive(Clone)]
pub(super) struct Stretch {
    pub(super) start: u64,
    pub(super) bytes: Bytes,
}

/// A stretch that is read once; the first one who wants it reads it.
type Shared = OnceCell<Stretch>;

/// Stretches by their files and numbers.
type Known = HashMap<(Content, u64), Weak<Shared>>;

/// The stretches that clients hold.
#[derive(Clone)]
pub(super) struct Ahead {
    known: Arc<Mutex<Known>>,
    clients: Arc<Mutex<Vec<Weak<Held>>>>,
    memory: Arc<Semaphore>,
}

/// The stretches that one client is going to want, by their numbers.
pub(super) struct Held(Mutex<Holding>);

struct Holding {
    stretches: BTreeMap<u64, Arc<Shared>>,
    /// How many may be in flight.
    depth: u64,
    /// When the client took something last.
    taken: Instant,
}

/// Why a stretch was not read.
pub(super) enum Refused {
    /// There is no memory left for what a client wants now.
    NoRoom,
    Failed(Error),
}

/// The memory of a stretch.
pub(super) enum Room {
    /// Some of what waits for clients, if there is any.
    Waiting,
    /// Some of what is read ahead.
    Ahead(OwnedSemaphorePermit),
}

impl Ahead {
    /// With at most a quarter of `memory_bytes`.
    pub(super) fn new(memory_bytes: u64) -> Self {
        let affordable = usize::try_from(memory_bytes / 4 / STRETCH_BYTES).unwrap_or(AHEAD_MAX);
        Self {
            known: Arc::default(),
            clients: Arc::default(),
            memory: Arc::new(Semaphore::new(affordable.min(AHEAD_MAX))),
        }
    }

    /// A new client, who holds nothing.
    pub(super) fn client(&self) -> Arc<Held> {
        let held = Arc::new(Held(Mutex::new(Holding {
            stretches: BTreeMap::new(),
            depth: 0,
            taken: Instant::now(),
        })));
        let mut clients = lock(&self.clients);
        clients.retain(|client| client.strong_count() > 0);
        clients.push(Arc::downgrade(&held));
        held
    }

    /// Returns the verified bytes of `content` from `at` on, as far as the stretch there goes, or nothing if there is no
    /// memory for it. Then begins to read the stretches behind it, up to `end`. `read` reads one stretch; its memory lasts as
    /// long as its bytes. Nobody waits here for memory, since who holds some would wait for others who do.
    ///
    /// # Errors
    /// Those of `read`; corrupt, if the file ends before `at`.
    pub(super) async fn read<R>(
        &self,
        held: &Held,
        content: &Content,
        (at, end): (u64, u64),
        read: impl Fn(u64, Room) -> R,
    ) -> Result<Option<Bytes>>
    where
        R: Future<Output = Result<Stretch, Refused>> + Send + 'static,
    {
        let mut number = at / STRETCH_BYTES;
        loop {
            let shared = self.open(content, number).0;
            let stretch = shared.get_or_try_init(|| read(number, Room::Waiting));
            let Stretch { start, bytes } = match stretch.await {
                Ok(stretch) => stretch,
                Err(Refused::NoRoom) => return Ok(None),
                Err(Refused::Failed(error)) => return Err(error),
            };
            if *start <= at {
                self.begin(held, content, number, end, &read);
                let part = clip(at, *start, bytes)..clip(end, *start, bytes);
                return match part.is_empty() {
                    true => Err(Error::corrupt(format!(
                        "content {}: ends before byte {at}",
                        content.root
                    ))),
                    false => Ok(Some(bytes.slice(part))),
                };
            }
            // A frame that begins before this stretch reaches into it.
            number = number.checked_sub(1).ok_or_else(|| {
                Error::corrupt(format!("content {}: has no first byte", content.root))
            })?;
        }
    }

    /// Begins to read the stretches behind `number`, as many as there is memory for and this client may have.
    fn begin<R>(
        &self,
        held: &Held,
        content: &Content,
        number: u64,
        end: u64,
        read: &impl Fn(u64, Room) -> R,
    ) where
        R: Future<Output = Result<Stretch, Refused>> + Send + 'static,
    {
        let depth = held.take(number);
        let last = end.saturating_sub(1) / STRETCH_BYTES;
        for number in number + 1..=last.min(number.saturating_add(depth)) {
            if held.lock().stretches.contains_key(&number) {
                continue;
            }
            // Two thirds of what is left, so that those who come later read ahead, too.
            if held.lock().stretches.len() > 2 * self.memory.available_permits() {
                return;
            }
            let Ok(permit) = Arc::clone(&self.memory).try_acquire_owned() else {
                return self.reclaim();
            };
            let (shared, is_new) = self.open(content, number);
            held.lock().stretches.insert(number, Arc::clone(&shared));
            if is_new {
                let reading = read(number, Room::Ahead(permit));
                tokio::spawn(async move {
                    // Who wants it reads it again, and gets the error.
                    let _failed = shared.get_or_try_init(|| reading).await;
                });
            }
        }
    }

    /// The stretch `number`, and whether nobody else holds it.
    fn open(&self, content: &Content, number: u64) -> (Arc<Shared>, bool) {
        let mut known = lock(&self.known);
        if known.len() >= REMEMBERED {
            known.retain(|_, stretch| stretch.strong_count() > 0);
        }
        let found = known.get(&(*content, number)).and_then(Weak::upgrade);
        let is_new = found.is_none();
        let shared = found.unwrap_or_default();
        known.insert((*content, number), Arc::downgrade(&shared));
        (shared, is_new)
    }

    /// Takes what was read ahead for clients that do not come for it.
    fn reclaim(&self) {
        for client in lock(&self.clients).iter().filter_map(Weak::upgrade) {
            let mut holding = client.lock();
            if holding.taken.elapsed() > IDLE_TIME {
                holding.stretches.clear();
            }
        }
    }
}

impl Held {
    /// Lets go of all stretches: their client has to wait for memory.
    pub(super) fn let_go(&self) {
        self.lock().stretches.clear();
    }

    /// The client takes stretch `number` now, and has no use for those before. Returns how many it may read ahead: more
    /// each time, so that one who wants few bytes gets few.
    fn take(&self, number: u64) -> u64 {
        let mut holding = self.lock();
        holding.stretches = holding.stretches.split_off(&number.saturating_add(1));
        holding.depth = (holding.depth * 2).clamp(DEPTH.start, DEPTH.end - 1);
        holding.taken = Instant::now();
        holding.depth
    }

    fn lock(&self) -> MutexGuard<'_, Holding> {
        lock(&self.0)
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where byte `at` of the file is in the bytes of a stretch.
fn clip(at: u64, start: u64, bytes: &Bytes) -> usize {
    let place = usize::try_from(at.saturating_sub(start)).unwrap_or(usize::MAX);
    place.min(bytes.len())
}
