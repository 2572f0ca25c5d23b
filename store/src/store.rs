//! The handle on one store: its remote, its format, and the settings of this host.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::chunk::Chunker;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{
    ChunkerParams, Cut, FORMAT_KEY, Format, Policy, Provenance, State, Who, log_key,
};
use crate::id::StoreId;
use crate::index::Index;
use crate::log;
use crate::pack::{PackSink, Portions};
use crate::remedy::Remedy;
use crate::remote::{Created, Prune, Read, SingleWriter, Write, is_far, keeps_first, overwrites};

mod checkpoints;
mod following;
mod last_seen;
mod opening;
mod packs_there;

pub(crate) use last_seen::SetBack;
use opening::{check_nothing_remains, read_format};

/// The settings of the host and the caller.
#[derive(Clone, Debug)]
pub struct Host {
    /// The directory for copies of segments and caches of unchanged files; without it, nothing is cached.
    pub cache_dir: Option<PathBuf>,
    /// Who writes, for the log.
    pub who: Who,
    /// Most bytes of all buffers together.
    pub memory_bytes: u64,
    /// Threads that hash, encode and decode.
    pub threads: usize,
    /// The caller sets this to stop the work cleanly.
    pub stop: Arc<AtomicBool>,
}

impl Default for Host {
    /// No cache, no name, 256 MiB of buffers, one thread per core, and no request to stop.
    fn default() -> Self {
        Self {
            cache_dir: None,
            who: Who::default(),
            memory_bytes: 256 << 20,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            stop: Arc::default(),
        }
    }
}

/// An open store.
#[derive(Clone, Debug)]
pub struct Store {
    remote: Arc<dyn Write>,
    format: Format,
    chunker: Chunker,
    host: Host,
    local_policy: Arc<Policy>,
    portions: Portions,
    /// Problems that did not end the work.
    warnings: Arc<Mutex<Vec<Warning>>>,
    /// Look at the store as it was after this log entry; none: after the newest.
    at: Option<u64>,
    /// The number of the newest log entry that was seen.
    seen: Arc<AtomicU64>,
    /// Whether segments that the log does not know have been checked for evidence of loss.
    is_asked: Arc<AtomicBool>,
}

/// A problem that did not end the work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The problem.
    pub text: String,
    /// What to do about it.
    pub remedy: Option<Remedy>,
    /// Whether something is missing from the result.
    pub is_part: bool,
}

/// One state of a store and its open segments.
#[derive(Clone, Debug)]
pub struct View {
    /// The state: the fold of the log.
    pub state: State,
    /// The live segments of the state.
    pub index: Index,
}

impl Store {
    /// Opens a store.
    ///
    /// # Errors
    /// Not found, when there is no store; unsupported, when its format is of a future version.
    pub fn open(remote: Arc<dyn Write>, host: Host) -> Result<Self> {
        let format = read_format(remote.as_ref())?;
        // How a newer version cuts files matters only to writers, and those are refused.
        let chunker =
            Chunker::new(&format.chunker).or_else(|_| Chunker::new(&ChunkerParams::default()))?;
        let remote = match format.is_single_writer() {
            true => Arc::new(SingleWriter(remote)),
            false => remote,
        };
        Ok(Self {
            remote,
            format,
            chunker,
            host,
            local_policy: Arc::default(),
            portions: Portions::default(),
            warnings: Arc::default(),
            at: None,
            seen: Arc::default(),
            is_asked: Arc::default(),
        })
    }

    /// The same store, with passes that write in these portions.
    #[must_use]
    pub fn in_portions(mut self, portions: Portions) -> Self {
        self.portions = portions;
        self
    }

    /// The portions in which passes write.
    pub fn portions(&self) -> Portions {
        self.portions
    }

    /// Makes a new store if there is none. Some buckets overwrite objects that they are asked to create, so that two
    /// writers could lose each other's work. So this is tested first.
    ///
    /// # Errors
    /// Conflict, when there is a store already; unsupported, when the backend overwrites.
    pub fn create(remote: &Arc<dyn Prune>, host: Host) -> Result<Self> {
        if is_far(remote.as_ref()) && !keeps_first(remote.as_ref())? {
            return Err(overwrites(&remote.url()));
        }
        Self::init(Arc::clone(remote) as Arc<dyn Write>, host)
    }

    /// Makes a new store if there is none, on a backend that is known not to overwrite on put-if-absent.
    ///
    /// # Errors
    /// Conflict, when there is a store already.
    pub fn init(remote: Arc<dyn Write>, host: Host) -> Result<Self> {
        Self::init_as(remote, host, &Format::new(StoreId::random()?))
    }

    /// Makes a new store if there is none, on a backend that overwrites on put-if-absent. Only one process may write at
    /// a time; nothing enforces that.
    ///
    /// # Errors
    /// Conflict, when there is a store already.
    pub fn init_single_writer(remote: Arc<dyn Write>, host: Host) -> Result<Self> {
        let format = Format::new(StoreId::random()?).for_single_writer();
        Self::init_as(Arc::new(SingleWriter(remote)), host, &format)
    }

    fn init_as(remote: Arc<dyn Write>, host: Host, format: &Format) -> Result<Self> {
        check_nothing_remains(remote.as_ref())?;
        let text = Bytes::from(format.encode()?);
        let is_made = match remote.create(FORMAT_KEY, text.clone())? {
            Created::Created => true,
            // It is this one if the answer to an earlier try was lost: no other has its random id.
            Created::Exists => remote.get(FORMAT_KEY)? == text,
        };
        if !is_made {
            let what = format!("{}: there is a store already", remote.url());
            return Err(Error::conflict(what).hint("use it as it is, or name an empty place"));
        }
        // If there is no room for the reserve, nothing else fits either, and the next put will say so.
        let _has_room = log::reserve::fill(remote.as_ref())?;
        Self::open(remote, host)
    }

    /// Opens the store, or makes it if there is none.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_or_init(remote: Arc<dyn Write>, host: Host) -> Result<Self> {
        match Self::open(Arc::clone(&remote), host.clone()) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                match Self::init(Arc::clone(&remote), host.clone()) {
                    Err(first) if first.kind() == ErrorKind::Conflict => {
                        match Self::open(remote, host) {
                            // The process that makes the store has not finished: a bundle has one writer.
                            Err(error) if error.kind() == ErrorKind::NotFound => Err(first),
                            opened => opened,
                        }
                    }
                    made => made,
                }
            }
            opened => opened,
        }
    }

    /// The same store as it was after log entry `number`, for readers only.
    #[must_use]
    pub fn at(mut self, number: u64) -> Self {
        self.at = Some(number);
        self
    }

    /// The same store, for changes that a rule causes: `undo` leaves them alone unless they are named.
    #[must_use]
    pub fn by_rule(mut self) -> Self {
        self.host.who = self.host.who.by_rule();
        self
    }

    /// The same store through another remote.
    pub(crate) fn through(mut self, wrap: impl FnOnce(Arc<dyn Write>) -> Arc<dyn Write>) -> Self {
        self.remote = wrap(self.remote);
        self
    }

    /// The remote that holds the bytes of the store.
    pub fn remote(&self) -> &Arc<dyn Write> {
        &self.remote
    }

    /// The format of the store.
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// Where this host keeps caches of this store; none if the host caches nothing.
    pub(crate) fn cache_dir(&self) -> Option<PathBuf> {
        self.host.cache_dir_of(self.format.id)
    }

    /// The settings of the host and the caller.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The same store; the quotas of `policy` apply while the store has no policy of its own.
    #[must_use]
    pub fn with_local_policy(mut self, policy: Policy) -> Self {
        self.local_policy = Arc::new(policy);
        self
    }

    /// The policy that applies while the store has none of its own.
    pub(crate) fn local_policy(&self) -> &Policy {
        &self.local_policy
    }

    /// The same store without the request to stop, for the work that ends a run cleanly.
    pub(crate) fn unhurried(&self) -> Self {
        let mut store = self.clone();
        store.host.stop = Arc::default();
        store
    }

    /// Cuts files as the format says.
    pub fn chunker(&self) -> &Chunker {
        &self.chunker
    }

    /// Whether every read crosses a network, so that few large reads are faster than many small ones.
    pub fn is_far(&self) -> bool {
        is_far(self.remote.as_ref())
    }

    /// The newest state.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn state(&self) -> Result<State> {
        if let Some(number) = self.at {
            return Err(Error::invalid(format!(
                "{}: only what reads can look at log entry {number}",
                self.remote.url()
            )));
        }
        let state = self.known(false)?.whole()?;
        match self.witness(&state)? {
            Some(damage) => Err(damage),
            None => Ok(state),
        }
    }

    /// [`Self::state`], or the state after the entry that [`Self::at`] set.
    pub(crate) fn source_state(&self) -> Result<State> {
        match self.at {
            Some(_) => self.readable_state(),
            None => self.state(),
        }
    }

    /// The newest state that can be known, for readers only: if the log is damaged, that is a warning.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn readable_state(&self) -> Result<State> {
        if let Some(number) = self.at {
            let (far, again) = (self.far(), self.again());
            let place = self.place(far.as_ref(), &again);
            return log::load_at_from(place, self.format.id, number);
        }
        let log::Known { mut state, damage } = self.known(true)?;
        let damage = match damage {
            None if !self.is_far() => self.witness(&state)?,
            damage => damage,
        };
        if let Some(damage) = damage {
            // A version that an unreadable entry set must not be reported as missing.
            state.cut = Cut(Some(damage.to_string().into()));
            self.warn(damage);
        }
        Ok(state)
    }

    /// What segments that the log does not know say about lost entries, and packs if this host sees the store for the
    /// first time. Checked once: a log is not rolled back while a command runs.
    fn witness(&self, state: &State) -> Result<Option<Error>> {
        if self.is_asked.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let is_new_here = self.is_new_here();
        let named = is_new_here.then(|| self.named_packs(state)).flatten();
        let remote = self.remote.as_ref();
        let witness = match named {
            Some(named) => log::witness::of_all(remote, state, &named),
            None => log::witness::of_segments(remote, state),
        }?;
        if witness.is_none() {
            self.is_asked.store(true, Ordering::Relaxed);
            if is_new_here {
                self.remember(state);
            }
        }
        // Segments of another store matter only to a collector.
        let told = witness.filter(|witness| witness.until.is_some());
        Ok(told.map(|witness| witness.damage))
    }

    /// Checks that this program may write to the store, which is at `state`.
    ///
    /// # Errors
    /// Unsupported, naming the feature that this program does not know.
    pub fn check_writable(&self, state: &State) -> Result<()> {
        self.format.check_writable()?;
        state.features.check_writable(&log_key(state.number))
    }

    /// A sink for packs that are copied within this store.
    pub fn pack_sink(&self) -> PackSink {
        PackSink::new(Arc::clone(&self.remote), self.portions, self.provenance())
    }

    /// The provenance of what is written now: this store, and how much of its log the writer has seen.
    pub fn provenance(&self) -> Provenance {
        Provenance {
            store: self.format.id,
            began: self.seen.load(Ordering::Relaxed),
        }
    }

    /// Loads the newest state. `by_copies` is for readers only.
    fn known(&self, by_copies: bool) -> Result<log::Known> {
        let (far, id, again) = (self.far(), self.format.id, self.again());
        let place = log::CheckpointPlace {
            by_copies,
            ..self.place(far.as_ref(), &again)
        };
        let mut known = match far.as_ref().and_then(|far| far.dir.as_ref()) {
            Some(dir) => log::load_remembered(place, id, dir),
            None => log::load_known_from(place, id),
        }?;
        self.seen.fetch_max(known.state.number, Ordering::Relaxed);
        if known.damage.is_none() {
            known.damage = self.set_back(&known.state)?.map(|found| found.damage);
        }
        if known.damage.is_none() && !self.is_new_here() {
            self.remember(&known.state);
        }
        Ok(known)
    }

    /// Problems that did not end the work, each once, in order, for the caller to report.
    pub fn warnings(&self) -> Vec<Warning> {
        self.noted().clone()
    }

    /// Adds a warning about a problem that leaves the result complete.
    pub fn warn(&self, error: Error) {
        self.warn_as(&error, false);
    }

    /// Adds a warning about a problem that leaves the result incomplete.
    pub fn warn_of_part(&self, error: Error) {
        self.warn_as(&error, true);
    }

    fn warn_as(&self, error: &Error, is_part: bool) {
        let warning = Warning {
            text: error.to_string(),
            remedy: error.remedy().cloned(),
            is_part,
        };
        let mut warnings = self.noted();
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }

    fn noted(&self) -> MutexGuard<'_, Vec<Warning>> {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest state with its segments open.
    ///
    /// # Errors
    /// When the log or a segment cannot be read.
    pub fn view(&self) -> Result<View> {
        self.open_view(self.state()?, Index::default())
    }

    /// [`Self::readable_state`] with its segments open; large segments of a bucket are read in place.
    ///
    /// # Errors
    /// When the log or a segment cannot be read.
    pub fn readable_view(&self) -> Result<View> {
        self.view_of(self.readable_state()?)
    }

    /// [`Self::readable_view`] of a state that was loaded before, without reading the log again.
    ///
    /// # Errors
    /// When a segment cannot be read.
    pub fn view_of(&self, state: State) -> Result<View> {
        let remote = Arc::clone(&self.remote) as Arc<dyn Read>;
        self.open_view(state, Index::in_place(remote))
    }

    fn open_view(&self, state: State, index: Index) -> Result<View> {
        let mut view = View { state, index };
        self.reopen(&mut view)?;
        Ok(view)
    }

    /// Opens the segments of `state`, and keeps those that `before` has open.
    ///
    /// # Errors
    /// When a segment cannot be read.
    pub fn open_index(&self, state: &State, before: &Index) -> Result<Index> {
        Index::open(
            self.remote.as_ref(),
            self.host.cache_dir_of(self.format.id).as_deref(),
            state,
            before,
        )
    }
}

impl Host {
    /// Where caches of the store `id` are kept.
    pub fn cache_dir_of(&self, id: StoreId) -> Option<PathBuf> {
        self.cache_dir.as_ref().map(|dir| dir.join(id.to_string()))
    }

    /// How many workers the memory is enough for, if each takes so many bytes; may be none.
    pub fn affordable(&self, bytes_each: u64) -> usize {
        usize::try_from(self.memory_bytes / bytes_each.max(1)).unwrap_or(usize::MAX)
    }

    /// Fails when the caller asked to stop.
    ///
    /// # Errors
    /// Interrupted.
    pub fn check_stop(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::interrupted(
                "stopped on request; nothing was published",
            ));
        }
        Ok(())
    }
}
