//! One cache of a run. The run copies it from another cluster if `--fallback` names one, materializes it, or starts it
//! as an empty directory.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use store::{
    Error, MaterializeRequest, Pool, Reader, RefName, RefSpec, Remedy, Result, Store, StoreId,
    Unwatched, materialize_from,
};

use super::advice::{not_made, not_started, other_base};
use super::kept;
use super::lies::{inode_of_tree, is_empty, is_of_no_version, is_tree};
use super::moved::Followed;
use crate::commands::materialize;
use crate::config;
use crate::context::Context;
use crate::context::jobs::check_same;
use crate::context::pools::{self, PoolArgs};
use crate::host::apart;
use crate::host::pending::{self, Pending, message_of};
use crate::host::place::Held;
use crate::host::planted;
use crate::ui::{failure, human, names, remedy};

/// A cache and its directory.
pub(super) struct Cache {
    pub(super) name: RefName,
    pub(super) dir: PathBuf,
    /// Where the command looks for it: the directory, or a symlink of this user's to it.
    pub(super) place: PathBuf,
    /// Whether the run fails if the cache cannot be saved.
    pub(super) is_needed: bool,
    /// Globs of files that no save takes.
    pub(super) exclude: Vec<String>,
    /// The note on the list of unsaved directories.
    pub(super) unsaved: Option<Pending>,
    /// Whether an earlier run had left a note there.
    was_noted: bool,
    /// The inode number of the tree that was made.
    tree: Option<u64>,
    /// The directory that the command is given.
    followed: Option<Followed>,
    /// The store that the cache came from and is saved to.
    store: Option<StoreId>,
    /// The version that the directory is of, if this host knows nothing of it; 0: of nothing, so that all of it is the
    /// job's.
    base: Option<u64>,
    /// The version that was made in the directory for the command, if that left nothing of others there.
    given: Option<u64>,
}

impl Cache {
    /// A cache at `place`. If that is a symlink of this user's, the cache is where it leads: a tree in its place
    /// would be on another disk.
    pub(super) fn new(name: RefName, place: &Path, is_needed: bool, exclude: Vec<String>) -> Self {
        Self {
            name,
            dir: led_to(place),
            place: place.to_path_buf(),
            is_needed,
            exclude,
            unsaved: None,
            was_noted: false,
            tree: None,
            followed: None,
            store: None,
            base: None,
            given: None,
        }
    }

    /// Checks that `store` is the one that the cache came from, not another store in its place.
    pub(super) fn check_store(&self, store: &Store) -> Result<()> {
        self.store.map_or(Ok(()), |began| check_same(began, store))
    }

    /// The version that the directory is of, if this host knows nothing of it; 0: of nothing.
    pub(super) fn base(&self) -> Option<u64> {
        self.base
    }

    /// The directory that the command is given, once it is prepared.
    pub(super) fn followed(&self) -> Option<&Followed> {
        self.followed.as_ref()
    }

    /// The version that the command was given, all of it and nothing else.
    pub(super) fn given(&self) -> Option<u64> {
        self.given
    }

    /// Takes the cache, whose command was not started, off the list of unsaved directories, unless it was on it before.
    pub(super) fn forget_unless_left(&self) {
        if let Some(unsaved) = self.unsaved.as_ref().filter(|_| !self.was_noted) {
            unsaved.remove();
        }
    }

    pub(super) fn is_here(&self, reader: &Reader<'_>) -> bool {
        is_here(&self.name, reader)
    }

    /// Prints a note if the ref was removed: files left in the directory will bring it back.
    fn note_removed(&self, reader: &Reader<'_>, context: &Context) -> Result<()> {
        if reader.view().state.refs.last(&self.name)? == 0 {
            return Ok(());
        }
        let (name, dir) = (&self.name, self.dir.display());
        context.out.note(format_args!(
            "note: {name} was removed, and is made again from what is in {dir}: remove that first to begin empty; \
             `store undo {}` brings back what was removed",
            names::quoted(name)
        ));
        Ok(())
    }

    /// Materializes the cache, or makes an empty directory. First saves what an earlier run left there unsaved. If that
    /// fails and the cache is not needed, the directory is left as it is, and the last save of this run tries again.
    pub(super) fn prepare(
        &mut self,
        reader: &mut Reader<'_>,
        pool: &PoolArgs,
        job: &str,
        context: &Context,
    ) -> Result<()> {
        let was_there = self.dir.exists();
        self.make_dir()?;
        let held = Held::open(&self.dir)?;
        let url = context.store_url()?;
        let unsaved = Pending::new(config::state_dir(), &self.dir, (&url, Some(&self.name)));
        unsaved.iter().for_each(Pending::take_back);
        let left = unsaved.as_ref().and_then(Pending::written);
        let left = left.filter(|left| !self.is_saved_instead(reader.store(), left, context));
        let is_gone = |left: &&Pending| {
            !was_there || !left.is_in_place() && (left.is_past() || is_empty(&self.dir))
        };
        let gone = left.as_ref().filter(is_gone);
        if let Some(left) = gone.filter(|left| !left.is_past()) {
            self.tell_gone(left, context);
        }
        let left = left.as_ref().filter(|_| gone.is_none());
        self.was_noted = left.is_some();
        let id = reader.store().format().id;
        self.store = Some(id);
        let unsaved = unsaved.map(|unsaved| unsaved.only_to(Some(id.to_string())));
        let of_nothing = held.is_empty().then_some(0);
        self.base = left.map_or(of_nothing, Pending::base);
        match self.make(reader, pool, (left, &held, job), context) {
            Err(error) if !self.is_needed => {
                // The directory stays as it is: nothing may replace unsaved files.
                let told = failure::one_line(&error);
                context
                    .out
                    .warning(format_args!("warning: {}: {told}", self.name));
            }
            done => done?,
        }
        self.check_saves(reader.store(), context)?;
        // Once a version is in the directory, what it lacks may be a deletion of the job.
        let known = pools::of_source(&self.dir, &context.config().pool);
        self.base = self.base.filter(|_| !is_tree(&known, &self.dir));
        let followed = Followed::new(self.hold_made(held)?, &self.dir);
        let unsaved = unsaved.map(|unsaved| unsaved.of_job(job, &self.exclude));
        let unsaved = unsaved.map(|unsaved| unsaved.of_held(followed.held(), self.given));
        self.followed = Some(followed);
        self.unsaved = unsaved.map(|unsaved| unsaved.with_base(self.base));
        self.unsaved.as_ref().map_or(Ok(()), Pending::write)
    }

    /// Holds the tree that was made, which may be another directory than the one `before`; without a tree, that one.
    fn hold_made(&self, before: Held) -> Result<Held> {
        let Some(tree) = self.tree else {
            return Ok(before);
        };
        let held = Held::open(&self.dir)?;
        match held.identity() {
            Some((_, inode)) if inode == tree => Ok(held),
            _ => Err(not_started(Error::conflict(format!(
                "{}: another directory came to its place meanwhile: see who may rename in the directory above it",
                self.dir.display()
            )))),
        }
    }

    /// Whether another directory is in the place of what an earlier run left, and was saved to the ref. Then the other one
    /// is set aside.
    fn is_saved_instead(&self, store: &Store, left: &Pending, context: &Context) -> bool {
        let known = pools::of_source(&self.dir, &context.config().pool);
        let saved = || store::saved_to(store, &known, &self.dir).ok();
        !left.is_in_place() && saved().as_ref() == Some(&self.name) && left.set_aside()
    }

    /// Says that what an earlier run left is not there. It may come back.
    fn tell_gone(&self, left: &Pending, context: &Context) {
        let may_return = match left.set_aside() {
            true => {
                ": it stays on the list, for `store save --pending` when it is back, as when a volume is mounted again"
            }
            false => "",
        };
        context.out.warning(format_args!(
            "warning: {}: what an earlier run left here was not saved, and is not here any more{may_return}",
            self.dir.display()
        ));
    }

    fn make_dir(&mut self) -> Result<()> {
        if self.dir.exists() && !self.dir.is_dir() {
            let dir = self.dir.display();
            let error = Error::conflict(format!(
                "{dir}: is no directory, and the cache belongs there"
            ));
            return Err(error.hint(format!(
                "the command was not started: move {dir} away, which an earlier job may have made"
            )));
        }
        store::make_directories(&self.dir)?;
        // A link may have led to what was not there.
        self.dir = led_to(&self.place);
        Ok(())
    }

    fn make(
        &mut self,
        reader: &mut Reader<'_>,
        pool: &PoolArgs,
        (left, held, job): (Option<&Pending>, &Held, &str),
        context: &Context,
    ) -> Result<()> {
        let store = reader.store();
        let known = pools::of_source(&self.dir, &context.config().pool);
        let saved_to = store::saved_to(store, &known, &self.dir).ok();
        // A directory that began empty is not a tree of the pool until the ref is materialized in it.
        let is_begun = saved_to.is_some() && !is_tree(&known, &self.dir);
        let is_left = left.is_some() || is_begun;
        if !is_empty(&self.dir) && !self.is_here(reader) {
            self.note_removed(reader, context)?;
        }
        if is_left && self.is_here(reader) && is_of_no_version(&known, &self.dir) {
            // The killed run had not finished an update, and only a tree of one version can be saved. Files of the job
            // stay.
            self.materialize(reader, pool, false, context)?;
            self.given = None;
        }
        let mut left_out = Vec::new();
        let is_in_place = left.is_none_or(Pending::is_in_place);
        if is_left && !is_empty(&self.dir) && !(is_in_place && self.is_all_apart()) {
            left.map_or(Ok(()), |left| left.check_held(held))?;
            // As far as known, the killed run made these files.
            let message = left.and_then(Pending::message);
            let message = message.unwrap_or_else(|| message_of(job));
            left_out = self.save_what_was_left(store, (held, message), context)?;
            // The tree may be made anew, which is another directory than the noted one.
            left.into_iter().for_each(Pending::remove);
            *reader = newest(store)?;
        }
        let takes_over = is_left && (left_out.is_empty() || !is_tree(&known, &self.dir));
        if takes_over && self.has_any(reader, &left_out) {
            context.out.warning(format_args!(
                "warning: {}: is not updated to the newest version, which has other files in place of what is not saved",
                self.dir.display()
            ));
        } else if self.is_here(reader) {
            // Saved files are in the version, so it may replace files that a job changed or deleted. Files that the
            // save left out stay.
            self.materialize(reader, pool, takes_over, context)?;
        }
        Ok(())
    }

    /// Checks that a tree may be made in the directory.
    pub(super) fn check_destination(&self, store: &Store, context: &Context) -> Result<()> {
        let known = || pools::of_source(&self.dir, &context.config().pool);
        store::check_destination(store, &config::precious(), &self.dir, known)
    }

    /// Whether the directory holds only files that no save takes.
    pub(super) fn is_all_apart(&self) -> bool {
        apart::is_all(&self.dir, &self.exclude)
    }

    /// Checks that the directory is empty or already holds this cache. Changes nothing.
    pub(super) fn check_place(&self, store: &Store, context: &Context) -> Result<()> {
        planted::check(&self.place).map_err(not_started)?;
        planted::check(&self.dir).map_err(not_started)?;
        planted::check_link(&self.place)?;
        // The list says what an earlier run left in the directory.
        pending::check(config::state_dir().as_deref())?;
        if let Err(error) = self.check_destination(store, context) {
            // A cache that is not needed is skipped later, with a warning.
            let needed = Some(error).filter(|_| self.is_needed);
            return needed.map_or(Ok(()), |error| Err(not_started(error)));
        }
        if is_empty(&self.dir) || !self.dir.exists() {
            return Ok(());
        }
        let pools = pools::of_source(&self.dir, &context.config().pool);
        let holds = self.held(store, &pools, context)?;
        if holds.contains(&self.name) {
            return Ok(());
        }
        let (dir, name) = (self.dir.display(), &self.name);
        let (told, when) = match holds.first() {
            Some(other) => (
                format!("holds {other}, and {name} is asked for"),
                format!("; if what is there is to be in {name}"),
            ),
            None => (
                format!("is not empty, and no run of yours here made it for {name}"),
                ", or look at what is there and save it first".to_owned(),
            ),
        };
        let by_hand = names::save_by_hand(&self.dir, name.as_str(), None);
        let hint = other_base(format_args!(", one for each user and job{when}: {by_hand}"));
        Err(Error::conflict(format!("{dir}: {told}")).hint(hint))
    }

    /// The refs that the directory was made from, saved to or is to be saved to, as far as this host knows.
    fn held(&self, store: &Store, pools: &[Arc<Pool>], context: &Context) -> Result<Vec<RefName>> {
        let url = context.store_url()?;
        let left = Pending::new(config::state_dir(), &self.dir, (&url, Some(&self.name)));
        let left = left.and_then(|left| left.here().or_else(|| left.written()));
        if let Some(left) = &left {
            left.check(store)?;
        }
        let dir = self.dir.canonicalize().unwrap_or_default();
        let trees = pools
            .iter()
            .flat_map(|pool| pool.trees().unwrap_or_default());
        // Trees from other stores do not count.
        let id = store.format().id;
        let made = trees.filter(|tree| tree.path == dir && tree.store == id);
        let made = made.filter_map(|tree| Some(tree.source.parse::<RefSpec>().ok()?.name));
        let saved = store::saved_to(store, pools, &self.dir).ok();
        let others = Pending::all(config::state_dir())?.into_iter();
        let others = others.filter(|noted| noted.compiles().is_none() && noted.directory() == dir);
        let others = others.filter_map(|noted| noted.target()?.parse().ok());
        let own = left.map(|_| self.name.clone());
        // The ref of the last save decides.
        Ok(match (saved, own) {
            (Some(saved), _) => vec![saved],
            (None, Some(own)) => vec![own],
            (None, None) => made
                .chain(others.filter(|name| *name != self.name))
                .collect(),
        })
    }

    /// Whether the newest version has anything at one of these paths.
    fn has_any(&self, reader: &Reader<'_>, paths: &[PathBuf]) -> bool {
        let dir = self.dir.canonicalize().unwrap_or_default();
        let inside = paths.iter().filter_map(|path| path.strip_prefix(&dir).ok());
        let mut inside = inside.map(|path| RefSpec {
            name: self.name.clone(),
            version: None,
            path: path.as_os_str().as_bytes().to_vec(),
        });
        self.is_here(reader) && inside.any(|spec| reader.resolve(&spec).is_ok())
    }

    /// Checks that this host can write down what is saved of the directory. Otherwise no save of it can succeed.
    fn check_saves(&self, store: &Store, context: &Context) -> Result<()> {
        let pools = pools::of_source(&self.dir, &context.config().pool);
        match store::check_saves(store, &pools, &self.dir) {
            Err(error) if self.is_needed => Err(error),
            _ => Ok(()),
        }
    }

    /// Makes the newest version in the directory.
    fn materialize(
        &mut self,
        reader: &Reader<'_>,
        pool: &PoolArgs,
        takes_over: bool,
        context: &Context,
    ) -> Result<()> {
        let spec = RefSpec {
            name: self.name.clone(),
            version: None,
            path: Vec::new(),
        };
        let mut request = MaterializeRequest::new(spec, &self.dir);
        request.precious = config::precious();
        request.force = takes_over;
        request.is_begun = takes_over;
        // A symlink that a job or someone in the team left must not keep all other jobs from running.
        request.allow_outside_symlinks = true;
        let pool = pools::open(pool, context, Some(&self.dir))?;
        let done = materialize_from(reader, &pool, &request, &Unwatched)
            .map_err(|error| not_made(error, &self.dir, &self.name))?;
        for note in &done.notes {
            // The advice names options that this verb does not have.
            let told = match note.remedy {
                Some(Remedy::LetOthersRead) => note.text.clone(),
                _ => remedy::note(note),
            };
            let dir = self.dir.display();
            match note.is_warning {
                true => context.out.warning(format_args!("warning: {told}")),
                false => context.out.note(format_args!("note: {dir}: {told}")),
            }
        }
        // A file that was written through a link, and not saved, is replaced: it is named with where its bytes are now.
        for damage in &done.damaged {
            context.out.warning(materialize::told(damage));
        }
        let kept = kept::told(&done, &self.exclude);
        context.out.note(format_args!(
            "note: {}@{} is in {}: {}, {}{kept}",
            self.name,
            done.version,
            self.dir.display(),
            human::counted(done.files, "file"),
            human::bytes(done.bytes)
        ));
        self.given = Some(done.version).filter(|_| done.conflicts == 0);
        self.tree = inode_of_tree(&pool, &self.dir);
        Ok(())
    }
}

/// A reader at the newest state. Reading the log takes several requests to a bucket, so all caches share one reader,
/// which is renewed only after a commit.
pub(super) fn newest(store: &Store) -> Result<Reader<'_>> {
    Ok(Reader::at(store, store.view_of(store.state()?)?))
}

pub(super) fn is_here(name: &RefName, reader: &Reader<'_>) -> bool {
    reader.view().state.version(name, None).is_ok()
}

/// Where the symlink of this user at `place` leads; without one, the place.
fn led_to(place: &Path) -> PathBuf {
    let is_own_link = place.is_symlink() && !planted::is_strange(place);
    let real = place.canonicalize().ok().filter(|_| is_own_link);
    real.unwrap_or_else(|| place.to_path_buf())
}
