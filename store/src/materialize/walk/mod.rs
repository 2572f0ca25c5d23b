//! The walk over the trees of a ref: makes directories and symlinks, places files, and where there is
//! something already, changes only what is another.
//!
//! What the pool lacks is put off and fetched together. In a destination that is in use, new entries come
//! first, then what replaces others (each by rename from the room beside it), removals last.

mod prefetch;
mod remove;
mod settle;
mod side_by_side;
mod steps;
mod symlinks;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{self, AtFlags, CWD, FileType, Mode};
use rustix::io::Errno;

use super::fill::{Wanted, fill};
use super::filter::Filter;
use super::links::{Leads, Links};
use super::old::{Old, OldDir};
use super::place::{Placer, Placing};
use super::{MaterializeReport, MaterializeRequest, Task, shown};
use crate::chunk::Chunker;
use crate::error::{Error, Kind, Result};
use crate::format::{Content, Node, Time, TreeEntry};
use crate::pool::{Look, Pool, PoolKey, Room, content_of, disk};
use crate::progress::Progress;
use crate::read::{Reader, TimesReader};
use crate::walk::Stat;

use steps::{
    extended, is_wanted, join, make_dir, make_symlink, open_dir, reads, set_time, settle_dir, stat,
};

/// Files that are put off before the pool is filled with them.
const WAITING_MAX: usize = 16 << 10;
/// Bytes of such files.
const WAITING_BYTES_MAX: u64 = 1 << 30;
/// How often the pool may lose a file again between filling and linking.
const ATTEMPTS_MAX: u32 = 8;
/// Largest file that is taken for a ref of a hub cache, which some clients rewrite in place.
const HUB_REF_BYTES_MAX: u64 = 256;

/// A walk and what it has put off.
pub(super) struct Walk<'m> {
    reader: &'m Reader<'m>,
    pool: &'m Pool,
    request: &'m MaterializeRequest,
    filter: Filter,
    pub(super) old_filter: Filter,
    /// Copies that look as they were made need not be read: no power was cut since.
    pub(super) trusts_copies: bool,
    times: TimesReader<'m>,
    progress: &'m dyn Progress,
    placer: Placer<'m>,
    /// Symlinks as seen from the destination.
    inside: Links<'m>,
    /// Symlinks as seen from the root of the version, for `--flatten`.
    whole: Links<'m>,
    room: Option<&'m Room<'m>>,
    root: Option<OwnedFd>,
    waiting: Vec<Waiting>,
    waiting_bytes: u64,
    /// Directories whose time is set last, because something is still to come into them.
    unsettled: Vec<(Arc<[u8]>, Time)>,
    replacing: Vec<Waiting>,
    removing: Vec<Removing>,
    pub(super) report: MaterializeReport,
}

/// An entry that is put off.
struct Waiting {
    dir: Arc<[u8]>,
    name: Vec<u8>,
    is_fresh: bool,
    what: What,
}

enum What {
    File(Placing),
    Symlink(Vec<u8>, Time),
}

/// A directory, a name in it, and what of it is removed.
type Removing = (Arc<[u8]>, Vec<u8>, Removal);

/// What is removed under a name.
enum Removal {
    /// What was there in old trees; what a job added below stays.
    Old(OldDir, Option<Node>),
    /// Everything.
    All,
}

/// The directory that the walk is in.
struct Here<'w> {
    fd: BorrowedFd<'w>,
    /// From the destination on.
    path: Arc<[u8]>,
    /// Names from the root of the version on, symlinks resolved.
    canonical: &'w [Vec<u8>],
    depth: usize,
    /// It was made by this walk, so nothing can be in it.
    is_fresh: bool,
    /// Behind a flattened symlink: the time of that link holds for all.
    time: Option<Time>,
}

impl<'m> Walk<'m> {
    pub(super) fn new(
        task: &'m Task<'m>,
        filter: Filter,
        times: TimesReader<'m>,
        room: Option<&'m Room<'m>>,
        report: MaterializeReport,
    ) -> Self {
        Self {
            reader: task.reader,
            pool: task.pool,
            request: task.request,
            old_filter: filter.clone(),
            filter,
            trusts_copies: true,
            times,
            progress: task.progress,
            placer: Placer::new(task.pool, task.request.link_mode),
            inside: Links::new(task.reader, task.found.node.clone()),
            whole: Links::new(task.reader, Node::from(task.found.version.root)),
            room,
            root: None,
            waiting: Vec::new(),
            waiting_bytes: 0,
            unsettled: Vec::new(),
            replacing: Vec::new(),
            removing: Vec::new(),
            report,
        }
    }

    /// Makes the tree under `name` in `dir`, where nothing is.
    pub(super) fn build(&mut self, dir: BorrowedFd<'_>, name: &[u8], node: &Node) -> Result<()> {
        let canonical = self.start();
        let Node::Tree { content, .. } = node else {
            return self.build_alone(dir, name, node);
        };
        let time = self.times.next()?;
        let entries = self.reader.tree(content)?;
        make_dir(dir, name)?;
        let root = open_dir(dir, name)?;
        self.root = Some(
            root.try_clone()
                .map_err(|source| Error::io("open", "destination", source))?,
        );
        let here = Here::root(root.as_fd(), &canonical, true);
        self.directory(&here, entries, &OldDir::none(), time)?;
        self.settle()
    }

    /// Brings the directory at `path` to the tree.
    pub(super) fn update(&mut self, path: &Path, node: &Node, old: Old) -> Result<()> {
        let canonical = self.start();
        let Node::Tree { content, .. } = node else {
            return Err(Error::invalid(format!(
                "{}: is a directory, the ref is none",
                path.display()
            )));
        };
        let time = self.times.next()?;
        let entries = self.reader.tree(content)?;
        let root = open_dir(
            CWD,
            std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()),
        )?;
        self.root = Some(
            root.try_clone()
                .map_err(|source| Error::io("open", path, source))?,
        );
        let here = Here::root(root.as_fd(), &canonical, false);
        let old = self.old_dir(old, content)?;
        self.directory(&here, entries, &old, time)?;
        self.settle()
    }

    /// Names from the root of the version to what is materialized.
    fn start(&self) -> Vec<Vec<u8>> {
        let names = self.request.spec.path.split(|byte| *byte == b'/');
        names
            .filter(|name| !name.is_empty())
            .map(<[u8]>::to_vec)
            .collect()
    }

    /// A file that is the whole destination, under its name in the room.
    fn build_alone(&mut self, dir: BorrowedFd<'_>, name: &[u8], node: &Node) -> Result<()> {
        let time = self.times.next()?;
        self.root = Some(
            dir.try_clone_to_owned()
                .map_err(|source| Error::io("open", "destination", source))?,
        );
        let canonical = self.start();
        let mut here = Here::root(dir, &canonical, true);
        here.time = Some(time);
        let (_, above) = canonical.split_last().unwrap_or((&Vec::new(), &[]));
        here.canonical = above;
        let entry = TreeEntry {
            name: name.to_vec(),
            node: node.clone(),
        };
        self.entry(&here, entry, &OldDir::none(), &mut true)?;
        self.settle()
    }

    fn directory(
        &mut self,
        here: &Here<'_>,
        entries: Vec<TreeEntry>,
        old: &OldDir,
        time: Time,
    ) -> Result<()> {
        self.report.directories += 1;
        if here.depth > disk::DEPTH_MAX {
            return Err(disk::too_deep(Path::new(&shown(&here.path).to_string())));
        }
        let mut is_settled = true;
        if !here.is_fresh {
            is_settled = !self.plan_removals(here, &entries, old)?;
        }
        for entry in entries {
            self.entry(here, entry, old, &mut is_settled)?;
        }
        self.progress.advance(1, 0);
        let time = here.time.unwrap_or(time);
        if !is_settled {
            self.unsettled.push((Arc::clone(&here.path), time));
            return Ok(());
        }
        settle_dir(here.fd, &here.path, time)
    }

    fn entry(
        &mut self,
        here: &Here<'_>,
        entry: TreeEntry,
        old: &OldDir,
        is_settled: &mut bool,
    ) -> Result<()> {
        let time = match here.time {
            Some(time) => time,
            None => self.times.next()?,
        };
        let path = join(&here.path, &entry.name);
        let is_dir = matches!(entry.node, Node::Tree { .. });
        if !self.is_wanted(&path, &entry.node)? {
            return self.pass_over(here, &entry.node);
        }
        match &entry.node {
            Node::Tree { content, .. } if is_dir => {
                let canonical = extended(here.canonical, &entry.name);
                let old = self.old_dir(old.below_new(&entry.name, content), content)?;
                self.below(
                    here,
                    &entry.name,
                    path,
                    (content, time, here.time),
                    &canonical,
                    &old,
                    is_settled,
                )
            }
            Node::Symlink { target } if self.request.flatten => {
                self.flattened(here, &entry.name, path, (target, time), old, is_settled)
            }
            Node::Symlink { target } => {
                self.check_target(here, &path, target)?;
                self.report.symlinks += 1;
                self.progress.advance(1, 0);
                self.symlink(here, &entry.name, target, time, is_settled)
            }
            Node::File {
                content,
                executable,
            } => {
                let key = PoolKey {
                    content: *content,
                    executable: *executable,
                };
                let same = old.has_same(&entry.name, content, *executable);
                self.file(here, &entry.name, key, (time, same), is_settled)
            }
            Node::Tree { .. } => Ok(()),
        }
    }

    /// Times of what is not wanted are read and thrown away.
    fn pass_over(&mut self, here: &Here<'_>, node: &Node) -> Result<()> {
        match node {
            Node::Tree { totals, .. } if here.time.is_none() => self.times.skip(totals.entries),
            _ => Ok(()),
        }
    }

    fn is_wanted(&self, path: &[u8], node: &Node) -> Result<bool> {
        is_wanted(self.reader, &self.filter, path, node)
    }

    /// A directory below `here`: made or opened, and gone through.
    #[expect(
        clippy::too_many_arguments,
        reason = "the one place where all that a directory has comes together"
    )]
    fn below(
        &mut self,
        here: &Here<'_>,
        name: &[u8],
        path: Vec<u8>,
        (content, time, inherited): (&Content, Time, Option<Time>),
        canonical: &[Vec<u8>],
        old: &OldDir,
        is_settled: &mut bool,
    ) -> Result<()> {
        let entries = self.reader.tree(content)?;
        let made = here.is_fresh || self.clear_for_directory(here, name, &path, old)?;
        if made {
            make_dir(here.fd, name)?;
            *is_settled &= here.is_fresh;
        } else {
            self.report.unchanged += 1;
        }
        let fd = open_dir(here.fd, name)?;
        let below = Here {
            fd: fd.as_fd(),
            path: path.into(),
            canonical,
            depth: here.depth + 1,
            is_fresh: made,
            time: inherited,
        };
        self.directory(&below, entries, old, time)
    }

    fn file(
        &mut self,
        here: &Here<'_>,
        name: &[u8],
        key: PoolKey,
        (time, is_same): (Time, bool),
        is_settled: &mut bool,
    ) -> Result<()> {
        self.report.files += 1;
        self.report.bytes += key.content.size;
        let placing = Placing {
            key,
            is_private: self.is_private(&here.path, key.content.size),
            time,
        };
        let mut is_replacing = false;
        if !here.is_fresh {
            match stat(here.fd, name)? {
                Some(found) if self.is_there(&placing, &found, is_same, (here.fd, name))? => {
                    self.report.unchanged += 1;
                    self.progress.advance(1, key.content.size);
                    return Ok(());
                }
                found => is_replacing = found.is_some(),
            }
            *is_settled = false;
        }
        if !is_replacing && self.place(here, &placing, name)? {
            self.progress.advance(1, key.content.size);
            return Ok(());
        }
        *is_settled = false;
        let waiting = Waiting {
            dir: Arc::clone(&here.path),
            name: name.to_vec(),
            is_fresh: here.is_fresh,
            what: What::File(placing),
        };
        if is_replacing {
            self.replacing.push(waiting);
            return Ok(());
        }
        self.put_off(waiting, key.content.size)
    }

    /// Small files are edited in place by tools, and refs of a hub cache are rewritten in place by its clients.
    fn is_private(&self, dir: &[u8], size: u64) -> bool {
        let is_hub_ref = || {
            size <= HUB_REF_BYTES_MAX && dir.split(|byte| *byte == b'/').any(|name| name == b"refs")
        };
        size <= self.request.copy_below_bytes || is_hub_ref()
    }

    /// Whether the file that is there is the one that is wanted.
    fn is_there(
        &self,
        placing: &Placing,
        found: &Stat,
        is_same: bool,
        at: (BorrowedFd<'_>, &[u8]),
    ) -> Result<bool> {
        // The same inode as in the pool, and that one as it was left: no byte has to be read.
        if self.placer.is_linked(placing) && found.nlink > 1 {
            return Ok(matches!(
                self.pool.look(&placing.key)?,
                Look::Intact(pooled) if (pooled.dev, pooled.ino) == (found.dev, found.ino)
            ));
        }
        let is_executable = found.mode & 0o100 != 0;
        let looks_there = is_same
            && self.placer.takes_copies(placing)
            && FileType::from_raw_mode(found.mode) == FileType::RegularFile
            && found.nlink == 1
            && found.size == placing.key.content.size
            && found.mtime == placing.time
            && is_executable == placing.key.executable;
        Ok(looks_there && (self.trusts_copies || self.has_bytes(&placing.key.content, at)?))
    }

    /// Whether the file has these bytes, read from the first to the last.
    fn has_bytes(&self, content: &Content, (dir, name): (BorrowedFd<'_>, &[u8])) -> Result<bool> {
        let file = disk::open_file(dir, name)
            .map_err(|errno| disk::failed("open", Path::new(&shown(name).to_string()), errno))?;
        let chunker = Chunker::new(&self.reader.store().format().chunker)?;
        Ok(content.size == 0 || content_of(file, &chunker)? == *content)
    }

    /// Places a file under a name that is free.
    fn place(&mut self, here: &Here<'_>, placing: &Placing, name: &[u8]) -> Result<bool> {
        if here.is_fresh {
            return self.placer.place(placing, here.fd, name, &mut self.report);
        }
        self.by_rename(here.fd, name, |walk, room, temporary| {
            walk.placer
                .place(placing, room, temporary, &mut walk.report)
        })
    }
}

impl<'w> Here<'w> {
    fn root(fd: BorrowedFd<'w>, canonical: &'w [Vec<u8>], is_fresh: bool) -> Self {
        Self {
            fd,
            path: Arc::from(&b""[..]),
            canonical,
            depth: 0,
            is_fresh,
            time: None,
        }
    }
}
