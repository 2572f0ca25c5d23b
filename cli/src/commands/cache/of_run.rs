//! The compile caches of `store run`: they are pulled before the command and pushed after it. Failures are warnings.

use std::collections::BTreeSet;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use store::{Error, Reader, RefName, Result, StoreId};

use super::entries::{self, State};
use super::profile::Profile;
use super::{pull, push};
use crate::commands::save;
use crate::config::clusters;
use crate::config::layouts::{Compile, Layout, Places};
use crate::context::Context;
use crate::context::jobs::check_same;
use crate::journal::compiles::{self, Line};
use crate::ui::{failure, human, names};

/// How often the end of a push is looked for.
const LOOK: Duration = Duration::from_millis(5);

/// Those of one run.
pub(crate) struct Compiles<'c> {
    context: &'c Context,
    all: Vec<One>,
    /// The store that they were pulled from, and are pushed to.
    store: Option<StoreId>,
}

struct One {
    profile: Profile,
    dir: PathBuf,
    pull: Vec<RefName>,
    push: Option<(RefName, push::How)>,
    /// What came before the command began.
    pulled: u64,
    /// What was complete when it began.
    ready: BTreeSet<Vec<u8>>,
}

/// What a machine reads.
#[derive(Serialize)]
struct Report {
    profile: String,
    #[serde(serialize_with = "store::path_as_text")]
    directory: PathBuf,
    /// Entries that were pulled: compiles that the command need not do.
    avoided: u64,
    /// Entries that were there when it began.
    hits: u64,
    /// Entries that it added.
    misses: u64,
    pushed: u64,
}

impl<'c> Compiles<'c> {
    /// Reads what the layout says, before anything is done.
    pub(crate) fn new(layout: &Layout, places: &Places, context: &'c Context) -> Result<Self> {
        let all = layout.compile.iter().filter_map(|(name, how)| {
            let dir = places.filled(&how.dir)?;
            Some(
                One::new(name, how, dir.into())
                    .map_err(|error| error.within(format!("compile.{name}"))),
            )
        });
        Ok(Self {
            context,
            all: all.collect::<Result<_>>()?,
            store: None,
        })
    }

    pub(crate) fn before(&mut self, reader: &Reader<'_>) {
        self.store = Some(reader.store().format().id);
        for one in &mut self.all {
            if let Err(error) = one.before(reader, self.context) {
                warn(self.context, &one.dir, &error);
            }
        }
    }

    /// The command may have ended because somebody asked for it: only who asks once more, as `is_asked` tells, stops this.
    pub(crate) fn after(&self, is_asked: &dyn Fn() -> bool) {
        for one in &self.all {
            if let Err(error) = one.after(self.store, is_asked, self.context) {
                warn(self.context, &one.dir, &error);
            }
        }
    }
}

fn warn(context: &Context, dir: &Path, error: &Error) {
    let told = failure::one_line(error);
    let dir = dir.display();
    context
        .out
        .warning(format_args!("warning: compile cache {dir}: {told}"));
}

impl One {
    fn new(name: &str, how: &Compile, dir: PathBuf) -> Result<Self> {
        let target = how.push.as_deref().map(name_of).transpose()?;
        let public = push::How {
            public: how.public,
            dry_run: false,
        };
        if let Some(target) = &target {
            push::check_public(target, public)?;
        }
        Ok(Self {
            profile: Profile::load(name)?,
            dir,
            pull: how
                .pull
                .iter()
                .map(|name| name_of(name))
                .collect::<Result<_>>()?,
            push: target.map(|target| (target, public)),
            pulled: 0,
            ready: BTreeSet::new(),
        })
    }

    fn complete(&self) -> Result<BTreeSet<Vec<u8>>> {
        let found = entries::of_dir(&self.dir, &self.profile)?.into_iter();
        let whole = found.filter(|(_, entry)| entry.state(&self.profile) == State::Complete);
        Ok(whole.map(|(path, _)| path).collect())
    }

    fn before(&mut self, reader: &Reader<'_>, context: &Context) -> Result<()> {
        std::fs::create_dir_all(&self.dir)
            .map_err(|source| Error::io("make", &self.dir, source))?;
        let pulled = pull::pull(reader, (&self.dir, &self.pull), &self.profile, false);
        self.ready = self.complete()?;
        let report = pulled?;
        self.pulled = report.pulled;
        report.tell(context);
        Ok(())
    }

    fn after(
        &self,
        began: Option<StoreId>,
        is_asked: &dyn Fn() -> bool,
        context: &Context,
    ) -> Result<()> {
        let misses = self.complete()?.difference(&self.ready).count() as u64;
        let mut report = Report {
            profile: self.profile.name.clone(),
            directory: self.dir.clone(),
            avoided: self.pulled,
            hits: self.ready.len() as u64,
            misses,
            pushed: 0,
        };
        self.remember(&report, context);
        let Some(push) = &self.push else {
            context.out.report_aside(&report);
            return Ok(());
        };
        let pushed = self.push(push, began, is_asked, context);
        let done = pushed.as_ref().map_or(0, |pushed| pushed.pushed);
        report.pushed = done;
        context.out.report_aside(&report);
        let pushed = pushed?;
        pushed.tell(context);
        pushed.outcome()
    }

    /// To the store that was there when the command began.
    fn push(
        &self,
        (target, how): &(RefName, push::How),
        began: Option<StoreId>,
        is_asked: &dyn Fn() -> bool,
        context: &Context,
    ) -> Result<push::PushReport> {
        let stop = Arc::new(AtomicBool::new(false));
        let store = context.open_until(Arc::clone(&stop));
        let store = store.map_err(save::out_of_reach)?;
        began.map_or(Ok(()), |began| check_same(began, &store))?;
        std::thread::scope(|scope| {
            let pushing =
                scope.spawn(|| push::push(&store, (&self.dir, target), &self.profile, *how));
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

    /// For whoever wants to know later how well the cache does.
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
            avoided: report.avoided,
            hits: report.hits,
            misses: report.misses,
        });
    }
}

fn name_of(name: &str) -> Result<RefName> {
    names::name(std::ffi::OsStr::new(name))
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} ({}): {} avoided, {} there before the command, {} added by it, {} pushed",
            names::shown(self.directory.as_os_str().as_bytes()),
            self.profile,
            human::counted(self.avoided, "compile"),
            human::counted(self.hits, "entry"),
            human::count(self.misses),
            human::count(self.pushed)
        )
    }
}
