//! The saves of a run: periodic ones on a thread of their own, and the last one after the command has ended.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use store::{Error, ErrorKind, PutReport, PutRequest, Remedy, Result, Store, Unwatched, View};

use super::advice;
use super::caches::Cache;
use super::child::{Asked, Signals};
use super::moved::Followed;
use crate::commands::cache::of_run::{Compiles, Pushing};
use crate::commands::{reach, save};
use crate::context::Context;
use crate::host::pending::{Pending, message_of};
use crate::host::place::Held;
use crate::host::planted;
use crate::ui::{failure, names, remedy};

/// How often to check whether a save has ended.
const LOOK: Duration = Duration::from_millis(5);
/// The time between two checks of the list of pending saves.
const NOTED: Duration = Duration::from_secs(1);

/// The caches to save.
pub(super) struct Saver<'s> {
    context: &'s Context,
    caches: &'s [Cache],
    compiles: &'s Compiles<'s>,
    job: &'s str,
}

/// The schedule of the periodic saves.
pub(super) struct Rhythm<'s> {
    saver: &'s Saver<'s>,
    every: Option<Duration>,
    grace: Duration,
    /// When to check next whether the unsaved caches are still on the list, as time since the start.
    noted: Duration,
    /// When the next save is due, as time since the start.
    next: Option<Duration>,
    /// Whether a save began after the command was asked to stop.
    is_saved_for_the_end: bool,
    running: Option<Running>,
    /// The push of compile caches, which are saved as refs of their own.
    pushing: Option<Pushing>,
}

/// A save of one cache on a thread of its own.
struct Running {
    stop: Arc<AtomicBool>,
    /// The index of this cache; the caches after it follow.
    cache: usize,
    began: Instant,
    thread: JoinHandle<Result<(PutReport, Looked)>>,
}

/// The store after the save of one cache, for the save of the next: opening it and reading its log takes several
/// requests to a bucket.
struct Looked {
    store: Store,
    stop: Arc<AtomicBool>,
    view: View,
}

impl Looked {
    /// Moves the view to the newest entry, if the save added one.
    fn after(mut self, done: &PutReport) -> Result<Self> {
        if !done.unchanged {
            self.store.refresh(&mut self.view)?;
        }
        Ok(self)
    }
}

impl<'s> Saver<'s> {
    pub(super) fn new(
        context: &'s Context,
        caches: &'s [Cache],
        compiles: &'s Compiles<'s>,
        job: &'s str,
    ) -> Self {
        Self {
            context,
            caches,
            compiles,
            job,
        }
    }

    pub(super) fn rhythm(&'s self, every: Option<Duration>, grace: Duration) -> Rhythm<'s> {
        Rhythm {
            saver: self,
            every,
            grace,
            noted: NOTED,
            next: every,
            is_saved_for_the_end: false,
            running: None,
            pushing: None,
        }
    }

    /// Keeps the caches on the list of pending saves. `store save --pending` removes them after a save, but the command
    /// may still change them.
    fn keep_noted(&self) {
        let unsaved = self.caches.iter().flat_map(|cache| &cache.unsaved);
        unsaved.for_each(Pending::keep);
        self.caches.iter().for_each(note_made_again);
        self.compiles.keep_noted();
    }

    fn request(&self, cache: &Cache, held: &Held) -> PutRequest {
        let message = message_of(self.job);
        save::of_run(
            &cache.dir,
            &cache.name,
            (&cache.exclude, base(cache)),
            (held, message),
            self.context,
        )
    }

    /// Begins to save a cache, with the store of the previous save; `None` if there is no such cache.
    fn begin(&self, at: usize, looked: Option<Looked>) -> Result<Option<Running>> {
        let Some(cache) = self.caches.get(at) else {
            return Ok(None);
        };
        let held = Self::hold(cache)?;
        let (store, stop, view) = match looked {
            Some(Looked { store, stop, view }) => (store, stop, Some(view)),
            None => {
                let stop = Arc::new(AtomicBool::new(false));
                let store = self.context.open_until(Arc::clone(&stop));
                // A missing store is only out of reach, since it existed when the command began.
                (store.map_err(reach::out_of_reach)?, stop, None)
            }
        };
        cache.check_store(&store)?;
        let request = self.request(cache, &held);
        let for_next = Arc::clone(&stop);
        let work = move || {
            // While it is held, no other directory gets its inode.
            let _held = held;
            let view = view.map_or_else(|| store.view(), Ok)?;
            let done = save::put_or_nothing(&store, &request, &Unwatched, Some(view.clone()))?;
            let stop = for_next;
            Ok((done, Looked { store, stop, view }))
        };
        Ok(Some(Running {
            stop,
            cache: at,
            began: Instant::now(),
            thread: std::thread::spawn(work),
        }))
    }

    /// Saves everything after the command has ended. Only a further request to stop ends it early.
    pub(super) fn last(&self, signals: &Signals) -> Result<()> {
        let mut outcome = Ok(());
        let mut looked = None;
        for (at, cache) in self.caches.iter().enumerate() {
            if cache.is_all_apart() && !is_exchanged(cache) {
                // Its note on the list stays: no version says which ref the directory belongs to.
                cache.unsaved.iter().for_each(Pending::write_done);
                save::tell_apart(&cache.dir, &cache.exclude, self.context);
                continue;
            }
            let saved = self
                .begin(at, looked.take())
                .and_then(|running| match running {
                    Some(running) => self.told(running, signals, &mut looked),
                    None => Ok(()),
                });
            // After a partial save, the rest was already named, and a retry would name it again.
            let is_done = match &saved {
                Ok(()) => true,
                Err(error) => error.kind() == ErrorKind::Partial,
            };
            if let Some(unsaved) = cache.unsaved.as_ref().filter(|_| is_done) {
                unsaved.remove();
            }
            let Err(error) = saved else { continue };
            let error = if is_done {
                error
            } else {
                self.not_saved(error, cache)
            };
            match outcome {
                Ok(()) if cache.is_needed => outcome = Err(error),
                _ => super::tell("warning", &error, self.context),
            }
        }
        outcome
    }

    /// Holds the directory of a cache, for a save of it.
    ///
    /// # Errors
    /// Not found, if the command removed it. Conflict, if it is another one than the command was given; it may be
    /// anybody's.
    fn hold(cache: &Cache) -> Result<Held> {
        if cache.place.symlink_metadata().is_err() {
            let dir = cache.place.display();
            return Err(Error::not_found(format!(
                "{dir}: there is no such directory"
            )));
        }
        let held = match cache.followed() {
            Some(followed) => followed.hold(&cache.place)?,
            None => Some(Held::open(&cache.place)?),
        };
        held.ok_or_else(|| {
            Error::conflict(format!(
                "{}: is another directory than the one that the command was given",
                cache.place.display()
            ))
        })
    }

    /// Says what becomes of a cache that is not saved.
    fn not_saved(&self, error: Error, cache: &Cache) -> Error {
        let (dir, name) = (cache.dir.display(), &cache.name);
        let is_there = cache.dir.exists();
        if let Some(place) = moved_to(cache) {
            let [from, to] = [&place, &cache.dir].map(|dir| names::quoted_path(dir));
            let first = match is_there {
                true => format!("move away what is in {to} now, then "),
                false => String::new(),
            };
            return error.within(format!("{name}: not saved")).hint(format!(
                "the cache was moved to another place: {first}`mv -T {from} {to}` takes it back, and `store save \
                 --pending` saves it; before the next run there"
            ));
        }
        if is_exchanged(cache) {
            let unsaved = cache.unsaved.iter().filter(|_| is_removed(cache));
            unsaved.for_each(Pending::write_removed);
            let given = cache.given().filter(|_| is_removed(cache));
            let by_hand = names::save_by_hand(&cache.dir, name.as_str(), given);
            let by_hand = match planted::is_strange(&cache.place) {
                true => "it is of another user".to_owned(),
                false => format!("if the command made it: {by_hand}"),
            };
            let quoted = names::quoted_path(&cache.dir);
            let otherwise = match is_removed(cache) {
                false => {
                    "without it, `store save --pending` saves what the command left".to_owned()
                }
                true => format!(
                    "if it is not the command's, `store save --forget {quoted}` leaves {name} as it is"
                ),
            };
            return error.within(format!("{name}: not saved")).hint(format!(
                "look at what is in the place of {dir}: a mount, or a directory or link of somebody else; {otherwise}; \
                 {by_hand}"
            ));
        }
        if is_there {
            note_made_again(cache);
            return not_saved(error, cache, base(cache));
        }
        let error = error.within(format!("{name}: not saved"));
        if let Some(unsaved) = &cache.unsaved {
            unsaved.remove();
        }
        error.hint(format!(
            "the command removed its cache; {name} is as it was, and the next run makes {dir} again"
        ))
    }

    /// Waits for a save and reports it.
    fn told(&self, running: Running, signals: &Signals, looked: &mut Option<Looked>) -> Result<()> {
        while !running.thread.is_finished() {
            match signals.asked() {
                Asked::Not => {}
                Asked::Once => self.context.out.note(format_args!(
                    "note: what the command made is being saved; asking to end once more stops that"
                )),
                Asked::Again => running.stop.store(true, Ordering::Relaxed),
            }
            std::thread::sleep(LOOK);
        }
        self.tell(running, looked, true)
    }

    /// Reports a finished save, which may be the last one of the run. Leaves its store for the next save.
    fn tell(&self, running: Running, looked: &mut Option<Looked>, is_final: bool) -> Result<()> {
        let Some(cache) = self.caches.get(running.cache) else {
            return Ok(());
        };
        let (done, left) = running
            .thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let is_last = running.cache + 1 >= self.caches.len();
        if !is_last {
            // If this fails, the next save opens the store again and reports the problem.
            *looked = left.after(&done).ok();
        }
        save::tell_of_run(
            &cache.dir,
            &cache.name,
            (done, is_final),
            running.began.elapsed(),
            self.context,
        )
    }

    fn warn(&self, error: &Error) {
        let told = failure::one_line(error);
        self.context.out.warning(format_args!("warning: {told}"));
    }
}

impl Rhythm<'_> {
    /// Reports a finished save, and begins a save if one is due. `asked`: the time since the command was asked to stop.
    pub(super) fn look(&mut self, asked: Option<Duration>, since: Duration) {
        if since >= self.noted {
            self.noted = since + NOTED;
            self.saver.keep_noted();
        }
        if let Some(running) = self.running.take_if(|running| running.thread.is_finished()) {
            let next = running.cache + 1;
            let mut looked = None;
            if let Err(error) = self.saver.tell(running, &mut looked, false) {
                self.saver.warn(&error);
            }
            self.begin(next, looked);
        }
        if let Some(pushing) = self.pushing.take_if(|pushing| pushing.is_finished()) {
            self.saver.compiles.end(pushing);
        }
        if self.running.is_some() || self.pushing.is_some() {
            return;
        }
        let is_late = asked.is_some_and(|asked| asked >= self.grace);
        let is_due = self.next.is_some_and(|next| since >= next);
        if is_due || (is_late && !self.is_saved_for_the_end) {
            self.is_saved_for_the_end |= is_late;
            self.next = self.every.map(|every| since + every);
            self.begin(0, None);
        }
    }

    /// Begins to save the first cache from `at` on that has something to save. After the last cache, begins to push the
    /// compile caches.
    fn begin(&mut self, at: usize, looked: Option<Looked>) {
        let caches = self.saver.caches.iter().skip(at);
        let at = at + caches.take_while(|cache| cache.is_all_apart()).count();
        match self.saver.begin(at, looked) {
            Ok(running) => self.running = running,
            Err(error) => self.saver.warn(&error),
        }
        if self.running.is_none() {
            self.pushing = self.saver.compiles.begin();
        }
    }

    /// Stops a running save: the last save, after the command, saves everything.
    pub(super) fn finish(self) {
        if let Some(pushing) = self.pushing {
            pushing.stop();
            self.saver.compiles.end(pushing);
        }
        if let Some(running) = self.running {
            running.stop.store(true, Ordering::Relaxed);
            match self.saver.tell(running, &mut None, false) {
                Err(error) if error.kind() != ErrorKind::Interrupted => self.saver.warn(&error),
                _ => {}
            }
        }
    }
}

/// Where the directory is that the command was given, if it is elsewhere by now.
fn moved_to(cache: &Cache) -> Option<PathBuf> {
    let place = cache.followed()?.place()?;
    (cache.dir.canonicalize().ok().as_ref() != Some(&place)).then_some(place)
}

/// Whether the directory that the command was given is gone.
fn is_removed(cache: &Cache) -> bool {
    cache.followed().is_some_and(Followed::is_removed)
}

/// Whether another directory, a link to one, or a mount is in the place of the one that the command was given.
fn is_exchanged(cache: &Cache) -> bool {
    let is_there = cache.place.symlink_metadata().is_ok();
    let followed = cache.followed();
    is_there && followed.is_some_and(|followed| !followed.is_at(&cache.place))
}

/// Puts the directory on the list that the command made in the place of its own, if it did: the list has the other one.
fn note_made_again(cache: &Cache) {
    let unsaved = cache.unsaved.as_ref().filter(|_| is_removed(cache));
    let (Some(unsaved), Ok(held)) = (unsaved, Saver::hold(cache)) else {
        return;
    };
    if unsaved.written().is_some_and(|noted| !noted.is_of(&held)) {
        let unsaved = unsaved.clone().of_held(&held, cache.given());
        // If this fails, the next save asks for the version.
        drop(unsaved.with_base(base(cache)).write());
    }
}

/// What the directory is of, if this host knows nothing of it: one that the command made in the place of its own has
/// nothing of the version that was there.
fn base(cache: &Cache) -> Option<u64> {
    let given = cache.given().filter(|_| is_removed(cache));
    given.or(cache.base())
}

fn not_saved(error: Error, cache: &Cache, base: Option<u64>) -> Error {
    let (dir, name) = (cache.dir.display(), &cache.name);
    let error = error.within(format!("{name}: not saved"));
    let when = match error.kind() {
        ErrorKind::Denied => format!(" {}", reach::when(&error)),
        _ => String::new(),
    };
    let again = match &cache.unsaved {
        Some(_) => format!("`store save --pending` saves it{when}, and so does the next run there"),
        None => {
            let base = base.map(|base| format!(" --base {base}"));
            let base = base.unwrap_or_default();
            let (dir, name) = (names::quoted_path(&cache.dir), names::quoted(name));
            format!(
                "`store save {dir} {name}{base}` saves it{when}; nothing here remembers it, since neither XDG_STATE_HOME nor \
                 HOME is set"
            )
        }
    };
    let kept = format!("{dir} is as the command left it; {again}");
    let is_for_rights = failure::is_for_want_of_rights(&error);
    match (error.remedy(), error.kind()) {
        (Some(Remedy::Advice(advice)), _) if is_for_rights && !advice.contains("--") => {
            let advised = format!("{advice}; {kept}");
            error.hint(advised)
        }
        // Says what to do about the store, and also where the files are.
        (Some(remedy), ErrorKind::Unavailable | ErrorKind::Io) => {
            let advice = remedy::words(remedy);
            error.hint(format!("{advice}; {kept}"))
        }
        // The advice for interrupted puts does not apply here.
        (Some(_), kind) if kind != ErrorKind::Interrupted => {
            advice::not_saved(error, &cache.dir, &cache.name)
        }
        _ => error.hint(kept),
    }
}
