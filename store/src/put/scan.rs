//! The walk: sends the assembler what exists, in order, and gives the workers the files to read.
//!
//! A file that looks as it did at the last put from here is not read again, if the store still has all of its chunks.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crossbeam_channel::{Sender, TrySendError};

use super::PutRequest;
use super::beside::Attributes;
use super::dedup::Dedup;
use super::expected::Expected;
use super::ingest::workers;
use super::job::{FileJob, SMALL_BYTES_MAX, Task, batch_dirs_max};
use super::long_paths::LongPaths;
use super::messages::{Base, EVENTS_TOLD, Event, Walked};
use super::own::{Own, own_paths};
use super::private::Private;
use super::ties::Ties;
use crate::error::{Error, ErrorKind, Result};
use crate::format::Content;
use crate::host::rooms::is_proof;
use crate::host::saved::exchanged;
use crate::host::stat_cache::{StatCache, StatCacheReader, StatCacheWriter};
use crate::host::walk::{FileWalk, Item, Stat, WalkOptions, walk};
use crate::profile::{Admitted, AdmittedFile, Follow, Profile, Secrets};
use crate::progress::Progress;
use crate::read::Reader;
use crate::remedy::{Note, Remedy};
use crate::sound::vouched::Vouchers;
use crate::store::{Store, View};

/// Most bytes of small files in one batch for a worker.
const BATCH_BYTES: u64 = 2 << 20;
/// Most small files in one batch for a worker.
const BATCH_FILES: usize = 128;

/// Smaller files are never stored as deltas.
const NEAR_BYTES_MIN: u64 = 256 << 10;

/// The walk of one put.
pub(super) struct Scan<'p> {
    store: &'p Store,
    own: Own,
    walk: FileWalk,
    expected: Option<Expected>,
    profile: Profile,
    follow: Follow,
    /// The source as the caller named it.
    given: PathBuf,
    has_globs: bool,
    may_leave_out_all: bool,
    /// Whether to leave out and name what the profile refuses.
    is_save: bool,
    private: Private,
    is_readable: bool,
    reads_all: bool,
    beside: Attributes,
    has_left_out: bool,
    /// The cache of the last put from here.
    cache: Option<StatCacheReader>,
    /// The version that the cached contents belong to, if it is still live.
    base: Option<Base>,
    reader: &'p Reader<'p>,
    ties: Ties<'p>,
    /// Events that were not sent to the assembler yet.
    untold: Vec<Event>,
    batch: Vec<FileJob>,
    batch_bytes: u64,
    batch_dirs: usize,
    batch_dirs_max: usize,
    number: u64,
    totals: (u64, u64),
    long: LongPaths,
}

impl<'p> Scan<'p> {
    /// Prepares the walk, and opens the cache of the last put from here. The new cache is for the assembler.
    pub(super) fn prepare(
        store: &'p Store,
        request: &'p PutRequest,
        reader: &'p Reader<'p>,
        (view, vouchers): (&View, &mut Vouchers<'_>),
    ) -> Result<(Self, Option<StatCacheWriter>)> {
        let source = &request.source;
        let root = resolved(source)?;
        let own = Own::of(store, &root)?;
        let exclude = own.excluded(&request.exclude)?;
        let profile = Profile::new(&request.profile, &root, &exclude)?;
        let options = WalkOptions {
            exclude,
            filter: profile.filter(),
            skip_unreadable: request.skip_unreadable,
        };
        let id = store.format().id;
        let cache_dir = store.host().cache_dir_of(id);
        let known_as = profile.cache_root(&root);
        let cache = cache_dir.map(|dir| StatCache::open(&dir.join("unchanged"), id, &known_as));
        let (cache, writer) = cache.map(|cache| (cache.reader, cache.writer)).unzip();
        let cache = cache.filter(|_| !request.read_all);
        let base = cache
            .as_ref()
            .and_then(StatCacheReader::base)
            .filter(|base| vouchers.vouch_for(&base.name, base.version))
            // A dry run may be asked how much its namespace would take, so chunks of other namespaces must be looked
            // up.
            .filter(|base| !request.dry_run || base.name.namespace() == request.target.namespace())
            .and_then(|base| {
                let (_, version) = view.state.version(&base.name, Some(base.version)).ok()?;
                (version.root == base.root).then_some(Base(version))
            });
        let root_path = root.clone();
        let counted = WalkOptions {
            filter: profile.filter_untold(),
            ..options.clone()
        };
        let ties = Ties::new(&request.pools, reader, vouchers, &root);
        let scan = Self {
            store,
            private: Private::new(ties.private_trees()),
            ties,
            own,
            walk: of_request(walk(&root, options)?, request)?,
            expected: Some(Expected {
                root,
                options: counted,
            }),
            profile,
            follow: Follow::new(request.links, source, &root_path, own_paths(store)),
            given: source.clone(),
            has_globs: !request.exclude.is_empty(),
            may_leave_out_all: request.may_leave_out_all,
            is_save: request.profile.leave_out_secrets,
            is_readable: request.readable,
            reads_all: request.read_all,
            beside: Attributes::new(&request.keep),
            has_left_out: false,
            base,
            cache,
            reader,
            untold: Vec::new(),
            batch: Vec::new(),
            batch_bytes: 0,
            batch_dirs: 0,
            batch_dirs_max: batch_dirs_max(workers(store)),
            number: 0,
            totals: (0, 0),
            long: LongPaths::default(),
        };
        Ok((scan, writer))
    }

    /// The versions whose chunks are relied on without looking up each.
    pub(super) fn bases(&self) -> Vec<Base> {
        let linked = self.ties.bases().map(|version| Base(version.clone()));
        self.base.clone().into_iter().chain(linked).collect()
    }

    fn notes(&self) -> Vec<Note> {
        let own = self.own.notes().into_iter();
        own.chain(self.profile.notes())
            .chain(self.follow.notes())
            .chain(self.damage().map(Note::from))
            .chain(self.ties.notes().map(Note::from))
            .chain(self.long.note().map(Note::from))
            .chain(self.private.note(self.is_readable))
            .collect()
    }

    /// The damage of the cache, if it had to be treated as empty.
    fn damage(&self) -> Option<String> {
        let damage = self.cache.as_ref().and_then(StatCacheReader::damage)?;
        Some(format!("{damage}: the files behind it were read again"))
    }

    /// The credentials that are found; complete once every file was read.
    pub(super) fn secrets(&self) -> Option<Arc<Secrets>> {
        self.profile.secrets()
    }

    /// The count to run beside the walk; none after the first call.
    pub(super) fn expected(&mut self) -> Option<Expected> {
        self.expected.take()
    }

    /// Walks to the end.
    pub(super) fn run(
        mut self,
        dedup: &Dedup,
        progress: &dyn Progress,
        events: &Sender<Vec<Event>>,
        tasks: &Sender<Task>,
    ) -> Result<Walked> {
        while let Some(item) = self.walk.next() {
            self.store.host().check_stop()?;
            let item = item?;
            if !matches!(item, Item::Leave) {
                self.long.look_at(self.walk.path());
            }
            if is_proof(&item) {
                continue;
            }
            if self.own.is_room(self.walk.path(), &item) {
                self.has_left_out = true;
                if matches!(item, Item::Enter { .. }) {
                    self.walk.turn_back()?;
                }
                continue;
            }
            let (item, name) = match item {
                item if self.profile.resolves(self.walk.path()) => (item, None),
                item => self.follow.look(&mut self.walk, item)?,
            };
            let mut admitted = self.admit(item)?;
            if let (Some(name), Admitted::File(file)) = (name, &mut admitted) {
                file.name = name;
            }
            self.private
                .look(self.walk.path(), &admitted, &self.profile);
            let Some(event) = self.event(admitted, dedup, tasks)? else {
                self.has_left_out = true;
                continue;
            };
            if let Event::Known { stat, .. } = &event {
                progress.advance(1, stat.size);
            }
            self.untold.push(event);
            if self.untold.len() >= EVENTS_TOLD {
                self.tell(events, tasks)?;
            }
        }
        self.tell(events, tasks)?;
        progress.total(self.totals.0, self.totals.1);
        self.send_batch(tasks)?;
        self.follow.check_something_is_kept()?;
        let is_all_left_out = self.is_all_left_out();
        if is_all_left_out && !self.may_leave_out_all {
            return Err(self.nothing_is_left());
        }
        Ok(Walked {
            notes: self.notes(),
            is_all_left_out,
            is_private: self.private.is_any(),
            has_left_out: self.has_left_out || self.walk.passed_over() > 0,
            has_missed: self.has_left_out || self.walk.passed_over() > self.profile.harmless(),
            excluded: {
                let excluded = self.walk.take_excluded().into_iter();
                excluded
                    .map(|path| OsString::from_vec(path).into())
                    .collect()
            },
        })
    }

    /// Lets the profile judge an item. A save leaves out what it refuses, a directory with everything in it.
    fn admit(&mut self, item: Item) -> Result<Admitted> {
        let (is_dir, is_leaf) = match item {
            Item::Enter { .. } => (true, false),
            Item::File { .. } | Item::Symlink { .. } => (false, true),
            _ => (false, false),
        };
        let hidden = match &item {
            Item::Enter { dir, .. } if self.is_save && !self.walk.path().is_empty() => {
                dir.is_empty_mount()
            }
            _ => false,
        };
        let admitted = match hidden {
            true => Err(hidden_by_mount(
                &self.given.join(OsStr::from_bytes(self.walk.path())),
            )),
            false => self.profile.admit(self.walk.path(), item),
        };
        let error = match admitted {
            Err(error) if self.is_save && (is_leaf || is_dir) => error,
            admitted => return admitted,
        };
        if matches!(
            error.kind(),
            ErrorKind::Unavailable | ErrorKind::Interrupted
        ) {
            return Err(error);
        }
        let path = self.given.join(OsStr::from_bytes(self.walk.path()));
        if is_dir {
            self.walk.turn_back()?;
        }
        Ok(Admitted::Other(Item::Skipped { path, error }))
    }

    /// Whether globs are given, and nothing is left of a source that is not empty.
    fn is_all_left_out(&self) -> bool {
        let is_cut = self.has_globs && self.walk.passed_over() > 0;
        is_cut && self.totals.0 + self.follow.seen() == 0
    }

    fn nothing_is_left(&self) -> Error {
        Error::invalid(format!(
            "{}: what is excluded leaves no file of it",
            self.given.display()
        ))
        .hint("a glob without a slash matches names at any depth, one with a slash whole paths from the top")
    }

    fn event(
        &mut self,
        admitted: Admitted,
        dedup: &Dedup,
        tasks: &Sender<Task>,
    ) -> Result<Option<Event>> {
        Ok(Some(match admitted {
            Admitted::Out => return Ok(None),
            Admitted::File(file) => self.file(file, dedup, tasks)?,
            Admitted::Other(Item::File { .. }) => return Err(lost()),
            Admitted::Other(Item::Enter { name, stat, dir }) => {
                let xattrs = self.beside.of_directory(&dir)?;
                Event::Enter { name, stat, xattrs }
            }
            Admitted::Other(Item::Symlink { name, target, stat }) => {
                Event::Symlink { name, target, stat }
            }
            Admitted::Other(Item::Leave) => Event::Leave,
            Admitted::Other(Item::Skipped { path, error }) => Event::Skipped { path, error },
        }))
    }

    fn file(&mut self, file: AdmittedFile, dedup: &Dedup, tasks: &Sender<Task>) -> Result<Event> {
        let name = file.name;
        let xattrs = self.beside.of_file(&file.dir, &name)?;
        let tie = self.ties.of(self.walk.path(), &file.stat)?;
        tie.check_whole((&self.given, self.walk.path()), &file.stat)?;
        self.totals = (self.totals.0 + 1, self.totals.1 + file.stat.size);
        // The chunks of a version that vouches for them need not be looked up one by one.
        let linked = tie.linked().filter(|_| !self.reads_all);
        let known = match linked.filter(|_| tie.is_vouched_for()) {
            Some(content) => Some(content),
            None => match self.known(&file.stat, dedup)? {
                None => self.complete(linked, dedup)?,
                known => known,
            },
        };
        if let Some(content) = known {
            return Ok(Event::Known {
                name,
                stat: file.stat.as_program(file.may_execute),
                content,
                tie,
                xattrs,
            });
        }
        let read_began = SystemTime::now();
        let job = FileJob {
            number: self.number,
            dir: file.dir,
            name: file.file,
            place: (file.stat.size >= NEAR_BYTES_MIN).then(|| Arc::from(self.walk.path())),
            stat: file.stat,
            read_began,
            check: file.check,
            may_execute: file.may_execute,
            is_suspect: tie.is_suspect(),
        };
        let number = self.give(job, tasks)?;
        Ok(Event::Read {
            name,
            number,
            read_began,
            tie,
            xattrs,
        })
    }

    /// The content of an unchanged file, if the store still has all of it.
    fn known(&mut self, stat: &Stat, dedup: &Dedup) -> Result<Option<Content>> {
        let Some(cache) = &mut self.cache else {
            return Ok(None);
        };
        let cached = cache.lookup(self.walk.path(), stat);
        match cached {
            // A live version has all its chunks, unless some were given up; see `vouched`.
            Some(content) if self.base.is_some() || self.is_complete(&content, dedup)? => {
                Ok(Some(content))
            }
            _ => Ok(None),
        }
    }

    /// The content of a file that is the unchanged inode of a pool, if the store still has all of it.
    fn complete(&self, linked: Option<Content>, dedup: &Dedup) -> Result<Option<Content>> {
        match linked {
            Some(content) if self.is_complete(&content, dedup)? => Ok(Some(content)),
            _ => Ok(None),
        }
    }

    fn is_complete(&self, content: &Content, dedup: &Dedup) -> Result<bool> {
        let mut is_complete = true;
        let listed = self.reader.list(content, &mut |id, _, _| {
            is_complete = is_complete && dedup.is_offered(&id)?;
            Ok(())
        });
        match listed {
            Ok(()) => Ok(is_complete),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corrupt) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn give(&mut self, job: FileJob, tasks: &Sender<Task>) -> Result<u64> {
        let number = job.number;
        self.number += 1;
        if job.stat.size > SMALL_BYTES_MAX {
            self.send_batch(tasks)?;
            tasks.send(Task::Large(Box::new(job))).map_err(|_| lost())?;
            return Ok(number);
        }
        let is_new_dir = self
            .batch
            .last()
            .is_none_or(|last| !Arc::ptr_eq(&last.dir, &job.dir));
        self.batch_dirs += usize::from(is_new_dir);
        self.batch_bytes += job.stat.size;
        self.batch.push(job);
        if self.batch.len() >= BATCH_FILES
            || self.batch_bytes >= BATCH_BYTES
            || self.batch_dirs >= self.batch_dirs_max
        {
            self.send_batch(tasks)?;
        }
        Ok(number)
    }

    fn send_batch(&mut self, tasks: &Sender<Task>) -> Result<()> {
        (self.batch_bytes, self.batch_dirs) = (0, 0);
        let batch = std::mem::take(&mut self.batch);
        if batch.is_empty() {
            return Ok(());
        }
        tasks.send(Task::Small(batch)).map_err(|_| lost())
    }

    /// Sends the events. Before waiting, sends the files that the assembler may be waiting for.
    fn tell(&mut self, events: &Sender<Vec<Event>>, tasks: &Sender<Task>) -> Result<()> {
        let untold = std::mem::replace(&mut self.untold, Vec::with_capacity(EVENTS_TOLD));
        match events.try_send(untold) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(untold)) => {
                self.send_batch(tasks)?;
                events.send(untold).map_err(|_| lost())
            }
            Err(TrySendError::Disconnected(_)) => Err(lost()),
        }
    }
}

/// The path of the source with symlinks resolved.
pub(super) fn resolved(source: &Path) -> Result<PathBuf> {
    source
        .canonicalize()
        .map_err(|error| not_there(source, error))
}

fn not_there(source: &Path, error: std::io::Error) -> Error {
    if error.kind() != std::io::ErrorKind::NotFound {
        return Error::io("open", source, error);
    }
    Error::not_found(format!(
        "{}: there is no such file or directory",
        source.display()
    ))
    .hint(Remedy::PathThenRef)
}

fn hidden_by_mount(path: &Path) -> Error {
    let path = path.display();
    Error::conflict(format!("{path}: an empty file system is mounted there")).hint(Remedy::Unmount)
}

fn lost() -> Error {
    Error::interrupted("a later stage of the put stopped")
}

/// Checks that the walk is over the directory that the request means, whatever is at its path.
fn of_request(walk: FileWalk, request: &PutRequest) -> Result<FileWalk> {
    match request.identity {
        Some(meant) if walk.identity() != Some(meant) => Err(exchanged(&request.source)),
        _ => Ok(walk),
    }
}
