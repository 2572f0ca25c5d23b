//! materialize: a tree of links into the pool, in the time that it takes to make links.
//!
//! ```text
//! resolve -> walk the trees -> link what the pool has -> fill the pool with the rest -> link it
//! ```
//!
//! A new destination is built beside it and renamed into place: whole or not at all. One that was made
//! before is brought to the new tree file by file, each by rename: first what is new, then what is
//! another, last what is gone. What a job added stays. No symlink is followed while writing.

mod fill;
mod filter;
mod guard;
pub(crate) mod links;
mod old;
mod place;
mod walk;

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{self, CWD, RenameFlags};
use rustix::io::Errno;

use crate::destination::{Precious, Replaced};
use crate::error::{Error, Result};
use crate::format::{Content, Node, RefName, RefSpec};
use crate::pool::{Claim, Claimed, Damage, Mark, Pool, Room, Watch, disk, parent};
use crate::progress::Progress;
use crate::read::{Found, Reader, TimesReader};
use crate::store::Store;
use crate::uses;

use filter::Filter;
pub use guard::check_destination;
use old::Old;
use walk::Walk;

/// Files up to this size are copied by default, because tools edit such files in place.
pub const COPY_BELOW_BYTES: u64 = 16 << 10;

/// How a file gets from the pool into a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkMode {
    /// A hard link where the system makes one, else a reflink, else a copy.
    #[default]
    Auto,
    /// A hard link: shares everything, and is read-only.
    Hardlink,
    /// A copy that shares its blocks until one side writes (XFS, btrfs).
    Reflink,
    /// A copy.
    Copy,
}

/// What to materialize, where and how.
#[derive(Clone, Debug)]
pub struct MaterializeRequest {
    /// The ref, a version of it, a path inside it.
    pub spec: RefSpec,
    /// Where; none: fill the pool only.
    pub destination: Option<PathBuf>,
    /// How large files get there.
    pub link_mode: LinkMode,
    /// Files up to this size become private, writable copies.
    pub copy_below_bytes: u64,
    /// Globs of what is wanted; none: everything.
    pub include: Vec<String>,
    /// Globs of what is not wanted.
    pub exclude: Vec<String>,
    /// Remove what the tree does not have.
    pub exact: bool,
    /// Take over a destination that was not made here.
    pub force: bool,
    /// Put what symlinks lead to in their place.
    pub flatten: bool,
    /// The tree ends with this process: [`Pool::remove_made`], or a sweep after its death.
    pub ephemeral: bool,
    /// Write also symlinks that lead out of the destination.
    pub allow_outside_symlinks: bool,
    /// What no tree may be made onto, into or around.
    pub precious: Precious,
}

/// What a materialization found and did.
#[derive(Clone, Debug)]
pub struct MaterializeReport {
    /// The ref.
    pub name: RefName,
    /// Its version.
    pub version: u64,
    /// Where the tree is; none after a prefetch.
    pub destination: Option<PathBuf>,
    /// Regular files of the tree.
    pub files: u64,
    /// Directories, the root included.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Files that were linked.
    pub linked: u64,
    /// Files that were reflinked.
    pub reflinked: u64,
    /// Files that were copied.
    pub copied: u64,
    /// Files, symlinks and directories that were there already.
    pub unchanged: u64,
    /// Files, symlinks and directories that were removed.
    pub removed: u64,
    /// Pool files that this process built.
    pub fetched: u64,
    /// Bytes that it read from the store for them.
    pub fetched_bytes: u64,
    /// Bytes that linking and reflinking did not have to copy.
    pub shared_bytes: u64,
    /// What was at the destination when it was taken over.
    pub replaced: Option<Replaced>,
    /// Pool files that somebody had written to.
    pub damaged: Vec<Damage>,
    /// What should be known: why files were not linked as they might have been.
    pub notes: Vec<String>,
}

/// Makes a tree, or brings one that was made before to what the ref is now.
///
/// # Errors
/// Conflict, when the destination was not made here; denied, when links are wanted that the system does
/// not make; corrupt, not found and unavailable as [`Reader`] has them.
pub fn materialize(
    store: &Store,
    pool: &Pool,
    request: &MaterializeRequest,
    progress: &dyn Progress,
) -> Result<MaterializeReport> {
    pool.sweep()?;
    pool.know_chunker(&store.format().chunker)?;
    let reader = Reader::new(store)?;
    let found = reader.resolve(&request.spec)?;
    let replaced = guard::guard(&reader, pool, request, &found, progress)?;
    announce(&found.node, progress);
    let task = Task {
        store,
        pool,
        request,
        reader: &reader,
        found: &found,
        progress,
    };
    let mut done = match &request.destination {
        None => task.prefetch()?,
        Some(destination) => task.make(&absolute(destination)?)?,
    };
    done.replaced = replaced;
    uses::leave(store, &done.name, done.version);
    Ok(done)
}

fn announce(node: &Node, progress: &dyn Progress) {
    match node {
        Node::File { content, .. } => progress.total(1, content.size),
        Node::Symlink { .. } => progress.total(1, 0),
        Node::Tree { totals, .. } => progress.total(totals.entries, totals.bytes),
    }
}

/// The directory of `path` made if it is missing and resolved, its last name as it is.
fn absolute(path: &Path) -> Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| {
        Error::invalid(format!(
            "{}: expected a name at the end of the destination",
            path.display()
        ))
    })?;
    let above = parent(path);
    std::fs::create_dir_all(above).map_err(|source| Error::io("create", above, source))?;
    let above = above
        .canonicalize()
        .map_err(|source| Error::io("look at", above, source))?;
    Ok(above.join(name))
}

struct Task<'m> {
    store: &'m Store,
    pool: &'m Pool,
    request: &'m MaterializeRequest,
    reader: &'m Reader<'m>,
    found: &'m Found,
    progress: &'m dyn Progress,
}

/// What is at a destination.
enum There {
    Nothing,
    EmptyDirectory,
    /// What this pool's user made there, a directory or a file.
    Made(Box<Mark>),
    /// What somebody else made there, and `--force` says to take it.
    Foreign {
        is_directory: bool,
    },
}

impl<'m> Task<'m> {
    fn prefetch(&self) -> Result<MaterializeReport> {
        let mut walk = self.walk(Filter::new(self.request)?, None)?;
        walk.prefetch(&self.found.node)?;
        Ok(walk.report)
    }

    /// One process at a time works on a destination; the next one finds what this one made.
    fn make(&self, destination: &Path) -> Result<MaterializeReport> {
        let _claim = self.claim(destination)?;
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
            .hint("name another destination, or replace this one with --force"));
        }
        let mut report = match there {
            There::Nothing | There::EmptyDirectory => self.build(destination, false),
            There::Made(mark) if is_tree && mark.tree.is_some() => {
                self.update(destination, Some(*mark))
            }
            There::Foreign { is_directory: true } if is_tree => self.update(destination, None),
            There::Made(_) | There::Foreign { .. } => self.build(destination, true),
        }?;
        report.destination = Some(destination.into());
        Ok(report)
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
        Err(Error::conflict(format!(
            "{}: exists, and was not made by `store materialize` with the pool {}",
            destination.display(),
            self.pool.path().display()
        ))
        .hint("name another destination, or take this one over with --force"))
    }

    /// Builds beside the destination and renames into place.
    fn build(&self, destination: &Path, replaces: bool) -> Result<MaterializeReport> {
        let room = self.pool.room(parent(destination))?;
        let filter = Filter::new(self.request)?;
        let inside = disk::open_path(room.path())?;
        let mut walk = self.walk(filter, Some(&room))?;
        // The mark is for the inode, which a rename keeps: there is no moment at which the tree is there
        // and the mark is not. A new tree is marked first, while there is nothing else to be synced.
        let is_marked_first = !replaces && tree_of(&self.found.node).is_some();
        if is_marked_first {
            fs::mkdirat(&inside, "tree", fs::Mode::from_raw_mode(0o777))
                .map_err(|errno| disk::failed("create directory in", room.path(), errno))?;
            self.write_mark(destination, inside.as_fd())?;
        }
        walk.build(inside.as_fd(), b"tree", &self.found.node)?;
        if !is_marked_first {
            self.write_mark(destination, inside.as_fd())?;
        }
        move_in(&room, destination, replaces)?;
        Ok(walk.report)
    }

    /// Marks what is built in a room.
    fn write_mark(&self, destination: &Path, room: std::os::fd::BorrowedFd<'_>) -> Result<()> {
        let mut mark = self.mark(destination, (room, b"tree"))?;
        mark.tree = tree_of(&self.found.node);
        self.pool.write_mark(&mark)
    }

    /// Brings a directory to the new tree.
    fn update(&self, destination: &Path, old: Option<Mark>) -> Result<MaterializeReport> {
        let new = tree_of(&self.found.node);
        let mut mark = self.mark(destination, (CWD, destination.as_os_str().as_bytes()))?;
        mark.tree = new;
        let is_same = old.as_ref().is_some_and(|old| old.is_like(&mark));
        if !is_same {
            let mut started = old.clone().unwrap_or_else(|| mark.clone());
            started.tree = old.as_ref().and_then(|old| old.tree);
            started.next = new;
            started.held_by = mark.held_by.clone();
            self.pool.write_mark(&started)?;
        }
        let room = self.pool.room(parent(destination))?;
        let (old_trees, old_filter) = match &old {
            Some(old) if old.store == mark.store && old.flatten == mark.flatten => {
                (Old::of(old), Filter::of(&old.include, &old.exclude)?)
            }
            _ => (Old::unknown(), Filter::new(self.request)?),
        };
        let mut walk = self.walk(Filter::new(self.request)?, Some(&room))?;
        walk.old_filter = old_filter;
        walk.trusts_copies = old.as_ref().is_none_or(Mark::is_of_this_boot);
        walk.update(destination, &self.found.node, old_trees)?;
        if !is_same {
            self.pool.write_mark(&mark)?;
        }
        Ok(walk.report)
    }

    fn walk<'w>(&'w self, filter: Filter, room: Option<&'w Room<'m>>) -> Result<Walk<'w>> {
        let mut times = TimesReader::new(self.reader, &self.found.version.times)?;
        times.skip(self.found.entries_before)?;
        let report = MaterializeReport::new(self.request.spec.name.clone(), self.found.number);
        Ok(Walk::new(self, filter, times, room, report))
    }

    fn mark(&self, destination: &Path, at: (std::os::fd::BorrowedFd<'_>, &[u8])) -> Result<Mark> {
        let mut mark = Mark::new(destination, self.store.format().id, at)?;
        mark.source = self.request.spec.to_string();
        mark.version = self.found.number;
        mark.include.clone_from(&self.request.include);
        mark.exclude.clone_from(&self.request.exclude);
        mark.flatten = self.request.flatten;
        if self.request.ephemeral {
            mark.held_by = Some(self.pool.hold(at.0, at.1)?);
        }
        Ok(mark)
    }
}

fn tree_of(node: &Node) -> Option<Content> {
    match node {
        Node::Tree { content, .. } => Some(*content),
        _ => None,
    }
}

fn move_in(room: &Room<'_>, destination: &Path, replaces: bool) -> Result<()> {
    let built = room.path().join("tree");
    let failed = |errno| disk::failed("rename into place", destination, errno);
    if replaces {
        // What was there goes with the room.
        return fs::renameat_with(CWD, &built, CWD, destination, RenameFlags::EXCHANGE)
            .map_err(failed);
    }
    match fs::renameat_with(CWD, &built, CWD, destination, RenameFlags::NOREPLACE) {
        // An empty directory is replaced; one that has got an entry meanwhile makes the rename fail.
        Err(Errno::EXIST) if built.is_dir() => fs::rename(&built, destination).map_err(failed),
        Err(Errno::EXIST) if destination.is_dir() => fs::rmdir(destination)
            .and_then(|()| fs::renameat_with(CWD, &built, CWD, destination, RenameFlags::NOREPLACE))
            .map_err(failed),
        renamed => renamed.map_err(failed),
    }
}

impl MaterializeReport {
    fn new(name: RefName, version: u64) -> Self {
        Self {
            name,
            version,
            destination: None,
            files: 0,
            directories: 0,
            symlinks: 0,
            bytes: 0,
            linked: 0,
            reflinked: 0,
            copied: 0,
            unchanged: 0,
            removed: 0,
            fetched: 0,
            fetched_bytes: 0,
            shared_bytes: 0,
            replaced: None,
            damaged: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Adds what another thread has placed.
    fn add(&mut self, part: Self) {
        self.linked += part.linked;
        self.reflinked += part.reflinked;
        self.copied += part.copied;
        self.shared_bytes += part.shared_bytes;
        self.damaged.extend(part.damaged);
        for note in part.notes {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
    }
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
