//! materialize: makes a tree of links into the pool, in the time that it takes to make links.
//!
//! ```text
//! resolve -> diff (what was made, what is wanted, what is there -> a plan) -> apply (fill the pool, make links)
//! ```
//!
//! A new destination is built beside its place and renamed into it: whole or not at all. An existing one is brought to
//! the new tree file by file, each by rename: first what is new, then what is different, last what is gone. What a job
//! added, changed or deleted stays. No symlink is followed while writing.

mod apply;
mod build;
mod diff;
mod fill;
mod found;
mod guard;
mod history;
mod known;
mod overruled;
mod place;
mod plan;
mod prefetch;
mod records;
mod report;
mod request;
mod trail;
mod update;
mod wanted;

use std::cell::Cell;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{self, CWD, RenameFlags};
use rustix::io::Errno;

use crate::access;
use crate::error::{Error, Result};
use crate::format::{Content, Node, RefSpec, Time};
use crate::host::destination::{Replaced, Site, check_may_be_replaced};
use crate::host::disk;
use crate::host::pool::list;
use crate::host::pool::{Claim, Claimed, Mark, Pool, Room, Watch, parent};
use crate::host::trust;
use crate::host::walk::Stat;
use crate::progress::Progress;
use crate::read::{Found, Reader};
use crate::remedy::{Note, Remedy};
use crate::store::Store;

use apply::{Apply, Fence};
use build::{Goes, one_file};
use diff::{Diff, Made, Options};
use list::Thing;
use place::Placer;
use records::Records;
use wanted::{Outside, Wanted};

pub use diff::Why;
pub use guard::check_destination;
pub use overruled::{Gone, Overruled};
pub use plan::{Plan, Step};
pub use report::{Kept, MaterializeReport};
pub use request::{COPY_BELOW_BYTES, LinkMode, MaterializeRequest};

/// Makes a tree, or brings an existing tree to the ref's version.
///
/// # Errors
/// Conflict, when the destination was not made here, or another process took it over meanwhile; denied, when the system
/// does not make the requested links; corrupt, not found and unavailable as for [`Reader`].
#[doc = "\n# Example\n```"]
#[doc = include_str!("../../examples/materialize.rs")]
#[doc = "```"]
pub fn materialize(
    store: &Store,
    pool: &Pool,
    request: &MaterializeRequest,
    progress: &dyn Progress,
) -> Result<MaterializeReport> {
    materialize_from(&Reader::new(store)?, pool, request, progress)
}

/// Does the same with a reader that was made before.
///
/// # Errors
/// As [`materialize()`].
pub fn materialize_from(
    reader: &Reader<'_>,
    pool: &Pool,
    request: &MaterializeRequest,
    progress: &dyn Progress,
) -> Result<MaterializeReport> {
    if is_behind(reader, pool, request)? {
        return materialize(reader.store(), pool, request, progress);
    }
    with_task(reader, pool, request, progress, |task, replaced| {
        let mut done = match &request.destination {
            None => task.prefetch()?,
            Some(destination) => task.make(&absolute(destination)?)?,
        };
        done.replaced = replaced;
        access::leave(reader.store(), &done.name, done.version);
        Ok(done)
    })
}

/// Whether the destination was saved, after the reader was made, as a version that the store has by now.
fn is_behind(reader: &Reader<'_>, pool: &Pool, request: &MaterializeRequest) -> Result<bool> {
    let Some(destination) = request.destination.as_deref().filter(|dir| dir.is_dir()) else {
        return Ok(false);
    };
    let (store, name) = (reader.store(), &request.spec.name);
    let (destination, state) = (absolute(destination)?, &reader.view().state);
    let Some(notes) = store.notes(Some(pool), &destination) else {
        return Ok(false);
    };
    if !notes.is_ahead(state, name)? {
        return Ok(false);
    }
    let mut now = state.clone();
    store.catch_up(&mut now)?;
    Ok(!notes.is_ahead(&now, name)?)
}

/// Plans what [`materialize()`] would do with the destination now, and changes nothing.
///
/// # Errors
/// As [`materialize()`].
pub fn plan(
    store: &Store,
    pool: &Pool,
    request: &MaterializeRequest,
    progress: &dyn Progress,
) -> Result<Plan> {
    let Some(destination) = &request.destination else {
        return Err(Error::invalid("destination: is needed for a plan"));
    };
    let reader = Reader::new(store)?;
    with_task(&reader, pool, request, progress, |task, replaced| {
        let destination = match absolute_if_there(destination)? {
            Some(destination) => destination,
            None => destination.clone(),
        };
        let mut plan = task.plan(&destination)?;
        plan.report.replaced = replaced;
        Ok(plan)
    })
}

fn with_task<T>(
    reader: &Reader<'_>,
    pool: &Pool,
    request: &MaterializeRequest,
    progress: &dyn Progress,
    work: impl FnOnce(&Task<'_>, Option<Replaced>) -> Result<T>,
) -> Result<T> {
    let store = reader.store();
    pool.sweep()?.into_iter().for_each(|kept| store.warn(kept));
    store
        .format()
        .chunker
        .check()
        .map_err(|error| error.hint(Remedy::GetInstead))?;
    pool.know_chunker(&store.format().chunker)?;
    let found = reader.resolve(&request.spec)?;
    let replaced = guard::guard(reader, pool, request, &found, progress)?;
    announce(&found.node, progress);
    let task = Task {
        store,
        pool,
        request,
        reader,
        found: &found,
        progress,
        outside: Outside::default(),
    };
    work(&task, replaced)
}

fn announce(node: &Node, progress: &dyn Progress) {
    match node {
        Node::File { content, .. } => progress.total(1, content.size),
        Node::Symlink { .. } => progress.total(1, 0),
        Node::Tree { totals, .. } => progress.total(totals.entries, totals.bytes),
    }
}

/// Resolves `path` except for its last name. Makes the directory above if it is missing.
fn absolute(path: &Path) -> Result<PathBuf> {
    let name = name_of(path)?;
    Ok(trust::make_directories(parent(path))?.0.join(name))
}

/// Resolves `path` except for its last name; none, if the directory above is missing.
fn absolute_if_there(path: &Path) -> Result<Option<PathBuf>> {
    let name = name_of(path)?;
    let above = trust::resolve(parent(path))?;
    let is_there = above.missing.as_os_str().is_empty();
    Ok(is_there.then(|| above.found.join(name)))
}

fn name_of(path: &Path) -> Result<&OsStr> {
    path.file_name().ok_or_else(|| {
        Error::invalid(format!(
            "{}: expected a name at the end of the destination",
            path.display()
        ))
    })
}

struct Task<'m> {
    store: &'m Store,
    pool: &'m Pool,
    request: &'m MaterializeRequest,
    reader: &'m Reader<'m>,
    found: &'m Found,
    progress: &'m dyn Progress,
    outside: Outside,
}

/// The name of a tree or file in its room.
const TREE: &str = "tree";

/// How a destination is brought to the wanted tree.
enum Way {
    Build(Option<Goes>),
    /// Change a directory file by file. Without a mark, it is somebody else's.
    Update(Option<Box<Mark>>),
    /// Replace a file that was made before.
    File(Box<Mark>),
}

/// What is at a destination.
enum There {
    Nothing,
    EmptyDirectory,
    /// A directory or a file that this pool's user made there.
    Made(Box<Mark>),
    /// Something that somebody else made there; `force` takes it over.
    Foreign {
        is_directory: bool,
    },
}

impl<'m> Task<'m> {
    /// Makes the tree. One process at a time works on a destination; the next one finds what the first one made.
    fn make(&self, destination: &Path) -> Result<MaterializeReport> {
        let claim = self.claim(destination)?;
        let fence = || match &claim {
            Some(claim) if !claim.is_held() => Err(taken_over(destination)),
            _ => self.store.host().check_stop(),
        };
        let way = self.way(destination)?;
        let gone_back = self.warning(destination, &way);
        let mut report = match way {
            Way::Build(goes) => self.build_for(destination, goes, &fence),
            Way::Update(mark) => self.update(destination, mark.map(|mark| *mark), &fence),
            Way::File(mark) => self.file_again(destination, &mark, &fence),
        }?;
        report.notes.extend(gone_back);
        report.destination = Some(destination.into());
        Ok(report)
    }

    /// Plans what [`Self::make`] would do, by the same decisions.
    fn plan(&self, destination: &Path) -> Result<Plan> {
        let way = self.way(destination)?;
        let gone_back = self.warning(destination, &way);
        let mut plan = match way {
            Way::Build(goes) => {
                let mut made = self.diff_fresh()?;
                made.overruled = goes.map(|goes| goes.lost).unwrap_or_default();
                self.as_plan(made)
            }
            Way::Update(mark) => self.plan_update(destination, mark.as_deref()),
            Way::File(mark) => self.plan_file(destination, &mark),
        }?;
        plan.report.notes.extend(gone_back);
        plan.report.destination = Some(destination.into());
        Ok(plan)
    }

    fn as_plan(&self, made: Made) -> Result<Plan> {
        let mut report = self.report();
        report.count(&made.counts);
        note_kept(&mut report, &made)?;
        Ok(Plan::new(
            report,
            made.plan,
            build::tree_of(&self.found.node).is_none(),
        ))
    }

    fn way(&self, destination: &Path) -> Result<Way> {
        let is_tree = matches!(self.found.node, Node::Tree { .. });
        let there = self.look(destination)?;
        if let There::Made(mark) = &there
            && mark.tree.is_some() != is_tree
            && !self.request.force
        {
            return Err(Error::conflict(format!(
                "{}: is a {}, the ref is none",
                destination.display(),
                if is_tree { "file" } else { "directory" }
            ))
            .hint(self.other_destination(false)));
        }
        guard::check_may_end(self.request, destination, &there)?;
        Ok(match there {
            // Nothing can be renamed over a working directory.
            There::EmptyDirectory if is_tree && Site::of(destination)?.is_fixed()? => {
                Way::Update(None)
            }
            There::Nothing | There::EmptyDirectory => Way::Build(None),
            There::Made(mark) if is_tree && mark.tree.is_some() => Way::Update(Some(mark)),
            There::Foreign { is_directory: true } if is_tree => Way::Update(None),
            There::Made(mark) if !is_tree && mark.tree.is_none() => Way::File(mark),
            There::Made(mark) => Way::Build(Some(Goes {
                lost: self.lost_with(destination, &mark)?,
                is_made: true,
            })),
            There::Foreign { .. } => Way::Build(Some(Goes {
                lost: one_file(destination),
                is_made: false,
            })),
        })
    }

    fn claim(&self, destination: &Path) -> Result<Option<Claim<'m>>> {
        let hash = blake3::hash(destination.as_os_str().as_bytes()).to_hex();
        let name = format!("tree-{hash}");
        let mut watch = Watch::new();
        let mut pause = Duration::from_millis(1);
        loop {
            if let Claimed::Mine(claim) = self.pool.claim(&name)? {
                return Ok(claim);
            }
            self.store.host().check_stop()?;
            if !self.pool.break_claim(&name, &mut watch)? {
                std::thread::sleep(pause);
                pause = (2 * pause).min(Duration::from_millis(100));
            }
        }
    }

    fn look(&self, destination: &Path) -> Result<There> {
        let stat = match fs::statat(CWD, destination, fs::AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(There::Nothing),
            Err(errno) => return Err(disk::failed("look at", destination, errno)),
            Ok(stat) => stat,
        };
        if let Some(mark) = self.pool.mark_of(destination) {
            return Ok(There::Made(Box::new(mark)));
        }
        let is_directory = fs::FileType::from_raw_mode(stat.st_mode) == fs::FileType::Directory;
        if is_directory && disk::names(disk::open_path(destination)?, destination)?.is_empty() {
            return Ok(There::EmptyDirectory);
        }
        if self.request.force {
            return Ok(There::Foreign { is_directory });
        }
        // Nothing is to be tried in vain.
        check_may_be_replaced(&Site::of(destination)?, self.request.is_begun)?;
        Err(Error::conflict(format!(
            "{}: exists, and was not materialized with the pool {}",
            destination.display(),
            self.pool.path().display()
        ))
        .hint(self.other_destination(is_directory)))
    }

    /// Carries out a plan and reports. Returns whether the tree is as planned.
    fn apply(
        &self,
        made: &Made,
        (room, root, is_unseen): (&Room<'_>, OwnedFd, bool),
        fence: Fence<'_>,
        is_begun: &Cell<bool>,
    ) -> Result<(MaterializeReport, bool)> {
        let mut report = self.report();
        report.count(&made.counts);
        note_kept(&mut report, made)?;
        let placer = Placer::new(self.pool, self.request.link_mode, self.access());
        let mut apply = Apply::new(
            (self.reader, self.pool),
            placer,
            self.progress,
            fence,
            (room, root, is_unseen),
            report,
        )?;
        let done = apply.run(&made.plan, &made.counts);
        is_begun.set(apply.is_begun);
        done?;
        Ok((apply.report, !apply.is_overtaken))
    }

    fn options(&self) -> Options {
        Options {
            overrules: self.request.force || self.request.exact,
            exact: self.request.exact,
            is_unknown: false,
            links: matches!(self.request.link_mode, LinkMode::Auto | LinkMode::Hardlink),
            takes_copies: self.request.link_mode != LinkMode::Hardlink,
        }
    }

    /// Whether nobody else may read the tree.
    fn is_private(&self) -> bool {
        self.found.version.private && !self.request.readable
    }

    /// The permission bits that modes may have; the umask reduces them further.
    fn access(&self) -> u32 {
        if self.is_private() { 0o700 } else { 0o777 }
    }

    fn report(&self) -> MaterializeReport {
        let mut report = MaterializeReport::new(self.request.spec.name.clone(), self.found.number);
        let text =
            "only their owner could read the files when they were put: the tree is for you alone";
        let has_tree = self.request.destination.is_some();
        let note = (has_tree && self.is_private()).then(|| Note::with(text, Remedy::LetOthersRead));
        report.notes.extend(note);
        report.notes.extend(self.outside.note());
        report
    }

    fn mark(&self, destination: &Path, at: (std::os::fd::BorrowedFd<'_>, &[u8])) -> Result<Mark> {
        let before = || self.pool.mark_of(destination);
        let mut mark = Mark::new(destination, self.store.format().id, at, before)?;
        mark.source = self.request.spec.to_string();
        mark.version = self.found.number;
        mark.include.clone_from(&self.request.include);
        mark.exclude.clone_from(&self.request.exclude);
        mark.flatten = self.request.flatten;
        mark.private = Some(self.is_private());
        mark.kept = Some(false);
        if self.request.ephemeral {
            mark.held_by = Some(self.pool.hold(at.0, at.1)?);
        }
        Ok(mark)
    }
}

/// The error when the stamp of a directory was changed: claims do not see a process that uses another pool or path.
fn taken_elsewhere(destination: &Path) -> Error {
    Error::conflict(format!(
        "{}: another process took the destination over meanwhile, with another pool or by another path",
        destination.display()
    ))
    .hint("what that one made is there; run it again there, too, if this process may have been in its way")
}

fn taken_over(destination: &Path) -> Error {
    Error::conflict(format!(
        "{}: this process was silent for so long that another one took the destination over",
        destination.display()
    ))
    .hint("run it again: the tree is not settled until a whole run has set it right")
}

/// Adds to a report which paths the plan keeps, and which changes of jobs it overrules.
fn note_kept(report: &mut MaterializeReport, made: &Made) -> Result<()> {
    report.overruled.clone_from(&made.overruled);
    plan::each_op(&made.plan, &mut |path, op| {
        if let diff::Op::Keep(why) = op {
            report.keep(path.to_vec(), *why);
        }
        Ok(())
    })
}

impl std::str::FromStr for LinkMode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "auto" => Ok(Self::Auto),
            "hardlink" => Ok(Self::Hardlink),
            "reflink" => Ok(Self::Reflink),
            "copy" => Ok(Self::Copy),
            _ => Err(Error::invalid(format!(
                "link mode {text:?}: expected auto, hardlink, reflink or copy"
            ))),
        }
    }
}

/// A path for people.
fn shown(path: &[u8]) -> std::path::Display<'_> {
    Path::new(OsStr::from_bytes(path)).display()
}
