//! The compile caches of `store run`: pulled before the command, pushed after it. Failures are warnings.
//!
//! Caches of built-in layouts are also pushed during the run, as often as the other caches are saved. If nothing is
//! compiled, the run does not mention them.

mod file_by_file;
mod links;
mod pushing;
mod told;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use store::{Error, Globs, Reader, RefName, Result, Store, StoreId};

use self::pushing::Made;
pub(crate) use self::pushing::Pushing;
use self::told::Report;
use super::entries::{Entries, Entry, State};
use super::of_dir;
use super::profile::Profile;
use super::stray;
use super::unpushed::Unpushed;
use super::uses::Uses;
use super::{pull, push};
use crate::commands::reach;
use crate::config::clusters;
use crate::config::layouts::{Compile, Layout, Namespaces, Places};
use crate::context::Context;
use crate::context::jobs::check_same;
use crate::host::apart;
use crate::host::place::Held;
use crate::journal::compiles::{self, Line};
use crate::ui::{failure, human, names, remedy};

/// How often to check whether a push has ended.
const LOOK: Duration = Duration::from_millis(5);

/// The compile caches of one run.
pub(crate) struct Compiles<'c> {
    context: &'c Context,
    all: Vec<One>,
    /// The caches of the run that are saved file by file, and what their saves exclude.
    saved: Vec<(PathBuf, Globs)>,
    /// The store that the caches are pulled from and pushed to.
    store: Option<StoreId>,
}

struct One {
    profile: Profile,
    dir: PathBuf,
    /// Set for built-in layouts: the ref with which earlier versions of this program saved the cache, and the path in
    /// it.
    within: Option<(RefName, PathBuf)>,
    /// The directory of the cache that it is in.
    cache: Option<PathBuf>,
    /// Whether nothing is pulled or pushed.
    is_off: bool,
    pull: Vec<RefName>,
    push: Option<(RefName, push::How)>,
    /// Entries that were complete when the command began.
    ready: BTreeSet<Vec<u8>>,
    /// Entries in `ready` that came from a ref.
    pulled: BTreeSet<Vec<u8>>,
    /// Records which entries in `ready` the command reads; `None` if that cannot be observed.
    uses: RefCell<Option<Uses>>,
    /// The note that the cache is not pushed yet.
    unpushed: RefCell<Option<Unpushed>>,
}

impl<'c> Compiles<'c> {
    /// Resolves the caches of the layout before anything is done.
    pub(crate) fn new(
        layout: &Layout,
        places: &Places,
        of: Namespaces<'_>,
        context: &'c Context,
    ) -> Result<Self> {
        let all = layout.compile.iter().filter_map(|(name, how)| {
            let dir = places.filled(&how.dir)?;
            let mut one = One::new(name, how, dir.into(), of);
            if let Ok(one) = &mut one
                && how.is_shipped()
            {
                one.within = file_by_file::within(&one.dir, places, of);
            }
            if let Ok(one) = &mut one {
                one.cache = links::cache_of(&one.dir, places);
            }
            Some(one.map_err(|error| error.within(format!("compile.{name}"))))
        });
        let project: Vec<String> = layout
            .exclude
            .iter()
            .cloned()
            .chain(layout.apart())
            .collect();
        let mut saved = vec![(places.project.clone(), Globs::new(&project)?)];
        if let Some(team) = &places.team {
            saved.push((team.clone(), Globs::new(&layout.exclude)?));
        }
        Ok(Self {
            context,
            all: all.collect::<Result<_>>()?,
            saved,
            store: None,
        })
    }

    /// The refs of the built-in caches.
    pub(crate) fn shipped(&self) -> Vec<RefName> {
        let shipped = self.all.iter().filter(|one| one.within.is_some());
        shipped.flat_map(|one| one.pull.clone()).collect()
    }

    /// Begins to push the complete entries of built-in caches; `None` if nothing was compiled.
    pub(crate) fn begin(&self) -> Option<Pushing> {
        let shipped = self.all.iter().filter(|one| one.within.is_some());
        let made = shipped.filter_map(|one| {
            Some(Made {
                held: one.dir.is_dir().then(|| one.hold().ok()).flatten()?,
                profile: one.profile.clone(),
                dir: one.dir.clone(),
                push: one.push.clone()?,
            })
        });
        let made: Vec<_> = made.collect();
        let dir = made.first().map(|made| made.dir.clone())?;
        self.each_use(Uses::gather);
        let stop = Arc::new(AtomicBool::new(false));
        let opened = self.open(&stop);
        let store = opened
            .map_err(|error| warn(self.context, &dir, &error))
            .ok()?;
        Some(Pushing::start(store, stop, made))
    }

    /// Waits for a push during the run, and reports it.
    pub(crate) fn end(&self, pushing: Pushing) {
        pushing.tell(self.context);
        // These reads were not the command's.
        self.each_use(Uses::forget);
    }

    fn each_use(&self, does: impl Fn(&mut Uses)) {
        let all = self.all.iter();
        all.for_each(|one| one.uses.borrow_mut().iter_mut().for_each(&does));
    }

    /// Opens the store, and checks that it is the same as when the command began.
    fn open(&self, stop: &Arc<AtomicBool>) -> Result<Store> {
        let store = self.context.open_until(Arc::clone(stop));
        let store = store.map_err(reach::out_of_reach)?;
        self.store
            .map_or(Ok(()), |began| check_same(began, &store))?;
        Ok(store)
    }

    /// Pushes what an earlier run left, before an update of the project's cache can replace it. Returns whether the store
    /// changed.
    pub(crate) fn push_what_was_left(&self, store: &Store) -> bool {
        let mut is_new = false;
        for one in &self.all {
            match one.push_what_was_left(store, self.context) {
                Ok(pushed) => is_new |= pushed > 0,
                Err(error) => warn(self.context, &one.dir, &error),
            }
        }
        is_new
    }

    /// Keeps what is not pushed yet on the list of pending saves.
    pub(crate) fn keep_noted(&self) {
        for one in &self.all {
            one.unpushed.borrow().iter().for_each(Unpushed::keep);
        }
    }

    pub(crate) fn before(&mut self, reader: &Reader<'_>) {
        self.store = Some(reader.store().format().id);
        for one in &mut self.all {
            if let Err(error) = one.before(reader, self.context) {
                warn(self.context, &one.dir, &error);
            }
        }
    }

    /// Whether a path is saved file by file, or is another compile cache than `own`.
    fn is_elsewhere(&self, own: &Path, path: &Path, is_dir: bool) -> bool {
        let is_saved = |(dir, globs): &(PathBuf, Globs)| {
            let below = path.strip_prefix(dir);
            below.is_ok_and(|below| !is_dir && !apart::is_in(globs, below))
        };
        let is_other = |one: &One| one.dir != own && one.dir == path;
        self.saved.iter().any(is_saved) || self.all.iter().any(is_other)
    }

    /// Pushes. The command may have ended because of a signal; only a further signal, which `is_asked` reports, stops
    /// the push.
    pub(crate) fn after(&self, is_asked: &dyn Fn() -> bool) {
        for one in &self.all {
            if let Err(error) = one.after(self, is_asked) {
                let advice = error.remedy().map(remedy::words);
                let advice = advice.map_or_else(String::new, |advice| format!("; {advice}"));
                warned(
                    self.context,
                    &one.dir,
                    &(failure::one_line(&error) + &advice),
                );
            }
        }
    }
}

fn warn(context: &Context, dir: &Path, error: &Error) {
    warned(context, dir, &failure::advised(error));
}

fn warned(context: &Context, dir: &Path, told: &str) {
    let dir = dir.display();
    context
        .out
        .warning(format_args!("warning: compile cache {dir}: {told}"));
}

impl One {
    fn new(name: &str, how: &Compile, dir: PathBuf, of: Namespaces<'_>) -> Result<Self> {
        let target = how.push.as_deref().and_then(|name| of.filled(name));
        let target = target.as_deref().map(name_of).transpose()?;
        let public = push::How {
            public: how.public,
            dry_run: false,
            is_unnamed: how.is_shipped(),
            allow_secret: Vec::new(),
        };
        if let Some(target) = &target {
            push::check_public(target, &public)?;
        }
        let pull = how.pull.iter().filter_map(|name| of.filled(name));
        Ok(Self {
            profile: Profile::load(name)?,
            dir,
            within: None,
            cache: None,
            is_off: false,
            pull: pull.map(|name| name_of(&name)).collect::<Result<_>>()?,
            push: target.map(|target| (target, public)),
            ready: BTreeSet::new(),
            pulled: BTreeSet::new(),
            uses: RefCell::new(None),
            unpushed: RefCell::new(None),
        })
    }

    fn complete(&self) -> Result<Entries> {
        let mut found = of_dir::read(&self.dir, &self.profile)?;
        found.retain(|_, entry| entry.state(&self.profile) == State::Complete);
        Ok(found)
    }

    /// The note that the cache is not pushed yet to this store.
    fn unpushed(&self, store: &Store, context: &Context) -> Option<Unpushed> {
        let (target, how) = self.push.as_ref()?;
        let known = (Some(store.format().id.to_string()), context);
        let place = (&*self.dir, target);
        Some(Unpushed::new(place, &self.profile, how, known))
    }

    fn push_what_was_left(&self, store: &Store, context: &Context) -> Result<u64> {
        let Some((target, how)) = &self.push else {
            return Ok(0);
        };
        let left = self.unpushed(store, context);
        let Some(left) = left.and_then(|left| left.written()) else {
            return Ok(0);
        };
        if self.complete()?.is_empty() {
            return Ok(0);
        }
        links::check(self.cache.as_deref(), &self.dir)?;
        let held = left.hold_pushed()?;
        let report = push::push(store, (&self.dir, &held, target), &self.profile, how)?;
        if report.pushed > 0 {
            context.out.note(format_args!(
                "note: compile cache {}: {} of an earlier run pushed",
                self.dir.display(),
                human::counted(report.pushed, "entry")
            ));
        }
        Ok(report.pushed)
    }

    /// Holds the directory, if it is still the one that the command was given.
    fn hold(&self) -> Result<Held> {
        links::check(self.cache.as_deref(), &self.dir)?;
        let unpushed = self.unpushed.borrow();
        let hold = |unpushed: &Unpushed| unpushed.hold(&self.dir);
        unpushed
            .as_ref()
            .map_or_else(|| Held::open(&self.dir), hold)
    }

    fn before(&mut self, reader: &Reader<'_>, context: &Context) -> Result<()> {
        if let Err(error) = links::check(self.cache.as_deref(), &self.dir) {
            self.is_off = true;
            return Err(error);
        }
        let unpushed = self.unpushed(reader.store(), context);
        let left = unpushed.as_ref().and_then(Unpushed::written);
        let is_exchanged = left
            .as_ref()
            .is_some_and(|left| left.check_place().is_err());
        if is_exchanged && !self.complete()?.is_empty() {
            // That was said when what was left was to be pushed. It stays on the list, and what is there now is not pushed.
            self.push = None;
        } else {
            if let Some(left) = left.filter(|_| is_exchanged) {
                // It may come back with the cache that it is in.
                left.set_aside();
            }
            unpushed.iter().for_each(Unpushed::set_aside_away);
            unpushed.iter().for_each(Unpushed::write);
            self.unpushed = RefCell::new(unpushed);
        }
        let was_there = self.dir.exists();
        let before = self.pull(reader, context);
        if !was_there && self.dir.exists() {
            let mut unpushed = self.unpushed.borrow_mut();
            unpushed.iter_mut().for_each(Unpushed::write_again);
        }
        let ready = self.complete()?;
        if let Ok(Some(before)) = &before {
            let new = ready.keys().filter(|path| !before.contains_key(*path));
            self.pulled = new.cloned().collect();
        }
        self.uses = RefCell::new(Uses::new(&self.dir, &ready, &self.profile));
        self.ready = ready.into_keys().collect();
        before.map(drop)
    }

    /// Pulls the cache from its refs. Returns the entries that were complete before; `None` if nothing was pulled.
    fn pull(&mut self, reader: &Reader<'_>, context: &Context) -> Result<Option<Entries>> {
        if let Some((cache, below)) = self.within.clone() {
            let profile = &self.profile;
            file_by_file::mend(reader, (&cache, &below), (&self.dir, profile), context)?;
            // A ref without any push yet is not worth a message.
            let is_there = |name: &RefName| reader.view().state.version(name, None).is_ok();
            self.pull.retain(is_there);
            if self.pull.is_empty() {
                return Ok(None);
            }
        }
        std::fs::create_dir_all(&self.dir)
            .map_err(|source| Error::io("make", &self.dir, source))?;
        let before = self.complete()?;
        let report = pull::pull(reader, (&self.dir, &self.pull), &self.profile, false)?;
        report.tell(context);
        if let Err(error) = report.outcome() {
            context.out.warning(format_args!(
                "warning: compile cache {}: {error}",
                self.dir.display()
            ));
        }
        Ok((report.pulled > 0).then_some(before))
    }

    fn after(&self, all: &Compiles<'_>, is_asked: &dyn Fn() -> bool) -> Result<()> {
        let context = all.context;
        if self.is_off {
            return Ok(());
        }
        let found = of_dir::read(&self.dir, &self.profile)?;
        let is_elsewhere = |path: &Path, is_dir: bool| all.is_elsewhere(&self.dir, path, is_dir);
        let no_entry = stray::of_dir(&self.dir, &self.profile, &is_elsewhere)?;
        let unsaved = "neither pushed nor saved with a cache";
        no_entry.tell((&self.dir, &self.profile), unsaved, context);
        if self.within.is_some() && found.is_empty() && no_entry.is_none() {
            // Where another directory is, this says nothing of what was compiled.
            let unpushed = self.unpushed.borrow();
            let in_place = unpushed.iter().filter(|one| one.check_place().is_ok());
            in_place.for_each(Unpushed::remove);
            return Ok(());
        }
        let is_complete = |entry: &Entry| entry.state(&self.profile) == State::Complete;
        let new = found
            .iter()
            .filter(|(path, entry)| is_complete(entry) && !self.ready.contains(*path));
        let misses = new.count() as u64;
        let read = self.uses.take().map(Uses::read);
        let of_ref = |read: &BTreeSet<Vec<u8>>| read.intersection(&self.pulled).count() as u64;
        let mut report = Report {
            profile: self.profile.name.clone(),
            directory: self.dir.clone(),
            there: self.ready.len() as u64,
            pulled: self.pulled.len() as u64,
            hits: read.as_ref().map(|read| read.len() as u64),
            avoided: read.as_ref().map(of_ref),
            misses,
            pushed: 0,
            no_entry,
        };
        self.remember(&report, context);
        let Some(push) = &self.push else {
            context.out.report_aside(&report);
            return Ok(());
        };
        let mut pushed = self.push(push, all, is_asked);
        if let Some(unpushed) = self.unpushed.borrow_mut().as_mut() {
            pushed = unpushed.ended(&self.profile, pushed, context);
        }
        let done = pushed.as_ref().map_or(0, |pushed| pushed.pushed);
        report.pushed = done;
        context.out.report_aside(&report);
        let pushed = pushed?;
        pushed.tell(context);
        pushed.outcome()
    }

    /// Pushes to the store that was used when the command began.
    fn push(
        &self,
        (target, how): &(RefName, push::How),
        all: &Compiles<'_>,
        is_asked: &dyn Fn() -> bool,
    ) -> Result<push::PushReport> {
        let held = &self.hold()?;
        let stop = Arc::new(AtomicBool::new(false));
        let store = all.open(&stop)?;
        let (dir, profile) = (&self.dir, &self.profile);
        std::thread::scope(|scope| {
            let pushing = scope.spawn(|| push::push(&store, (dir, held, target), profile, how));
            while !pushing.is_finished() {
                if is_asked() {
                    stop.store(true, Ordering::Relaxed);
                }
                std::thread::sleep(LOOK);
            }
            let ended = pushing.join();
            ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Records how well the cache did.
    fn remember(&self, report: &Report, context: &Context) {
        let Ok(store) = context.store_url() else {
            return;
        };
        let target = self.push.iter().map(|(target, _)| target);
        let mut refs: Vec<String> = self
            .pull
            .iter()
            .chain(target)
            .map(RefName::to_string)
            .collect();
        refs.sort();
        refs.dedup();
        compiles::add(&Line {
            time: Timestamp::now(),
            store: clusters::masked(&store),
            profile: report.profile.clone(),
            refs,
            there: report.there,
            pulled: report.pulled,
            read: report.hits,
            added: report.misses,
        });
    }
}

fn name_of(name: &str) -> Result<RefName> {
    names::name(std::ffi::OsStr::new(name))
}
