//! One cache of a run: brought from another cluster where it is to be, made as a tree, or begun as an empty directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use store::replicate::{
    Delete, Forgetful, RefStatus, ReplicateRequest, Selection, Versions, replicate,
};
use store::{
    Error, Kind, MaterializeRequest, Pool, RefName, RefSpec, Result, Store, Unwatched, materialize,
};

use crate::commands::save;
use crate::config;
use crate::context::pools::{self, PoolArgs};
use crate::context::{Context, elsewhere};
use crate::host::pending::Pending;
use crate::ui::human;

/// What `--fallback` says where nothing is brought.
const EMPTY: &str = "empty";

/// A cache and its place.
pub(super) struct Cache {
    pub(super) name: RefName,
    pub(super) dir: PathBuf,
    /// A run fails when it cannot be saved.
    pub(super) is_needed: bool,
    /// What says that it is not saved yet.
    pub(super) unsaved: Option<Pending>,
}

impl Cache {
    pub(super) fn new(name: RefName, dir: &Path, is_needed: bool) -> Self {
        Self {
            name,
            dir: dir.to_path_buf(),
            is_needed,
            unsaved: None,
        }
    }

    fn is_here(&self, store: &Store) -> Result<bool> {
        Ok(store.state()?.version(&self.name, None).is_ok())
    }

    /// Sees to it that the store has it, or that it may begin empty.
    pub(super) fn bring_here(
        &self,
        store: &Store,
        (is_required, fallback): (bool, &str),
        context: &Context,
    ) -> Result<()> {
        if self.is_here(store)? {
            return Ok(());
        }
        if is_required {
            let error = Error::not_found(format!(
                "{}: is not in this store, and --require-local is given",
                self.name
            ));
            let having = elsewhere::having(&self.name, context);
            return Err(match having.as_slice() {
                [] => error.hint("no cluster that was asked has it; without --require-local the first run makes it"),
                having => error.hint(format!(
                    "{} has it: run there, `store pull {} {}`, or give --fallback",
                    having.join(", "),
                    having.first().map_or("", String::as_str),
                    self.name
                )),
            });
        }
        if fallback == EMPTY {
            return Ok(());
        }
        let from = context.open_named(fallback, None)?;
        let request = ReplicateRequest {
            what: vec![Selection::Ref(self.name.clone())],
            versions: Versions::default(),
            delete: Delete::Nothing,
            verify: false,
            bytes_per_second: None,
            dry_run: false,
        };
        let done = match replicate(&from, store, &request, &Forgetful, &Unwatched) {
            Err(error) if error.kind() == Kind::NotFound => {
                let name = &self.name;
                context
                    .out
                    .note(format_args!("note: {fallback} does not have {name} either"));
                return Ok(());
            }
            done => done?,
        };
        if let Some(stopped) = done.stopped {
            return Err(stopped);
        }
        for one in done.refs {
            match one.status {
                RefStatus::Failed(error) if error.kind() != Kind::NotFound => return Err(error),
                RefStatus::Failed(_) => {}
                _ => context.out.note(format_args!(
                    "note: {} was brought from {fallback}",
                    self.name
                )),
            }
        }
        Ok(())
    }

    /// Makes its tree, or an empty directory; what an earlier run left there unsaved is saved before.
    pub(super) fn prepare(
        &mut self,
        store: &Store,
        pool: &PoolArgs,
        exclude: &[String],
        context: &Context,
    ) -> Result<()> {
        std::fs::create_dir_all(&self.dir)
            .map_err(|source| Error::io("create", &self.dir, source))?;
        let url = context.store_url()?;
        let unsaved = Pending::new(config::state_dir(), &self.dir, (&url, Some(&self.name)));
        let left = unsaved.as_ref().and_then(Pending::written);
        let known = pools::of_source(&self.dir, &context.config().pool);
        let saved_to = store::saved_to(store, &known, &self.dir).ok();
        let left_to = left.as_ref().and_then(Pending::target);
        self.check_own(
            saved_to
                .as_ref()
                .map(ToString::to_string)
                .as_deref()
                .or(left_to),
        )?;
        // What was begun empty is no tree of the pool until the ref is made in its place.
        let is_begun = saved_to.is_some() && !is_tree(&known, &self.dir);
        let is_left = left.is_some() || is_begun;
        if is_left && !is_empty(&self.dir) {
            self.save_what_was_left(store, exclude, context)?;
        }
        if self.is_here(store)? {
            // All of it is saved: what the version has comes in the place of what a job changed or deleted.
            self.materialize(store, pool, is_left, context)?;
        }
        if let Some(unsaved) = &unsaved {
            unsaved.write()?;
        }
        self.unsaved = unsaved;
        Ok(())
    }

    /// That the directory is not the cache of another ref, whose files would come into this one.
    fn check_own(&self, other: Option<&str>) -> Result<()> {
        match other {
            Some(other) if other != self.name.to_string() => Err(Error::conflict(format!(
                "{}: holds {other}, and {} is asked for",
                self.dir.display(),
                self.name
            ))
            .hint("the command was not started: name another directory with --base")),
            _ => Ok(()),
        }
    }

    fn save_what_was_left(
        &self,
        store: &Store,
        exclude: &[String],
        context: &Context,
    ) -> Result<()> {
        let request = save::of_run(&self.dir, &self.name, exclude, String::new(), context);
        let report = store::put(store, &request, &Unwatched).map_err(|error| {
            let dir = self.dir.display();
            error.within(format!("{dir}: what an earlier run left here is not saved"))
        })?;
        if !report.unchanged {
            context.out.note(format_args!(
                "note: {}: what an earlier run left here was saved as {}@{}",
                self.dir.display(),
                self.name,
                report.version.unwrap_or_default()
            ));
        }
        Ok(())
    }

    fn materialize(
        &self,
        store: &Store,
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
        let pool = pools::open(pool, context, Some(&self.dir))?;
        let done = materialize(store, &pool, &request, &Unwatched)?;
        let kept = match done.conflicts {
            0 => String::new(),
            count => format!(
                ", {} kept as a job left them",
                human::counted(count, "path")
            ),
        };
        context.out.note(format_args!(
            "note: {}@{} is in {}: {}, {}{kept}",
            self.name,
            done.version,
            self.dir.display(),
            human::counted(done.files, "file"),
            human::bytes(done.bytes)
        ));
        Ok(())
    }
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).is_ok_and(|mut names| names.next().is_none())
}

/// Whether a pool knows it as a tree of its own.
fn is_tree(pools: &[Arc<Pool>], dir: &Path) -> bool {
    let trees = pools
        .iter()
        .flat_map(|pool| pool.trees().unwrap_or_default());
    trees.into_iter().any(|tree| tree.path == dir)
}
