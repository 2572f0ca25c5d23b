//! Walks over directory trees: depth first, every directory before its content, names in the order of their bytes. Only
//! names, targets of symlinks and attributes are read.
//!
//! Every step goes from an open directory to a name in it and follows no symlink, so a path whose components are
//! renamed or replaced meanwhile cannot lead elsewhere. Only the root may be a symlink. Anything other than a file,
//! directory or symlink, or that cannot be read or disappears, is an error that names it.
//!
//! Memory depends on the depth and on the names of the directories above, never on the number of files. The walk itself
//! keeps at most 128 directories open. Each item keeps its own directory open, so queues of items must be bounded.

mod dir;
mod globs;
mod names;
mod sparse;
mod stat;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FileType;
use rustix::process::{Resource, getrlimit};

pub use self::dir::Dir;
pub use self::globs::Globs;
use self::names::Names;
pub use self::sparse::next_data;
pub use self::stat::Stat;
use crate::error::{Error, ErrorKind, Result};
use crate::remedy::Remedy;

/// Most directories that a walk keeps open above the current one. Higher ones are closed, and opened again as the
/// parent of the directory below them.
const OPEN_DIRS_MAX: usize = 128;
/// Most excluded paths that a walk keeps.
const EXCLUDED_MAX: usize = 4096;

/// One step of a walk. The item after `Enter` is the first one in that directory.
#[derive(Debug)]
pub enum Item {
    /// A directory, before everything in it. The root's name is empty.
    Enter {
        /// Its name.
        name: Vec<u8>,
        /// The directory itself.
        dir: Arc<Dir>,
        /// Its attributes when it was opened.
        stat: Stat,
    },
    /// A regular file.
    File {
        /// The directory that it is in.
        dir: Arc<Dir>,
        /// Its name there.
        name: Vec<u8>,
        /// Its attributes when it was found.
        stat: Stat,
    },
    /// A symbolic link.
    Symlink {
        /// Its name.
        name: Vec<u8>,
        /// Its target, verbatim.
        target: Vec<u8>,
        /// The attributes of the link itself.
        stat: Stat,
    },
    /// The end of the innermost open directory.
    Leave,
    /// An error that would have ended the walk without [`WalkOptions::skip_unreadable`].
    Skipped {
        /// The path that is missing from the walk, with everything below it.
        path: PathBuf,
        /// Why.
        error: Error,
    },
}

/// Rules that globs cannot express about what a walk skips.
pub trait Filter: fmt::Debug + Send + Sync {
    /// Whether `path`, relative to the root, is left out with everything in it. Called once for each name. `is_empty`
    /// looks whether it is a regular file without bytes.
    fn is_out(&self, path: &[u8], is_dir: bool, is_empty: &dyn Fn() -> bool) -> bool;
}

/// What a walk leaves out.
#[derive(Clone, Debug, Default)]
pub struct WalkOptions {
    /// What these match is silently skipped, directories with everything in them.
    pub exclude: Globs,
    /// What this filter leaves out is skipped as well.
    pub filter: Option<Arc<dyn Filter>>,
    /// Continue after entries that cannot be read, and report them as [`Item::Skipped`].
    pub skip_unreadable: bool,
}

/// A walk in progress; it ends after the first error.
#[derive(Debug)]
pub struct FileWalk {
    options: WalkOptions,
    /// The first item, until it is returned.
    first: Option<Item>,
    stack: Vec<Frame>,
    /// The path of the last item, relative to the root.
    path: Vec<u8>,
    /// How many names were excluded.
    passed_over: u64,
    /// The paths that globs excluded, the first [`EXCLUDED_MAX`] of them.
    excluded: Vec<Vec<u8>>,
    /// Whether it ever followed a symlink: only then can it come to a directory that it is already in.
    was_elsewhere: bool,
    /// Most directories that stay open.
    open_dirs_max: usize,
}

/// A directory that the walk is in.
#[derive(Debug)]
struct Frame {
    /// `None` while it is closed to save descriptors; never for the innermost one.
    dir: Option<Arc<Dir>>,
    /// Device and inode, which identify it.
    identity: (u64, u64),
    names: Names,
    path_len: usize,
    /// Whether it was entered from elsewhere, so that the frame above is not its parent directory.
    is_elsewhere: bool,
}

/// How many files this process may have open.
pub(crate) fn open_max() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(usize::MAX, |most| {
        usize::try_from(most).unwrap_or(usize::MAX)
    })
}

/// Starts a walk of the directory or single file `root`, which may be a symlink to either. A single file is the only
/// item of its walk.
///
/// # Errors
/// When the root cannot be opened, or is neither a directory nor a file.
pub fn walk(root: &Path, options: WalkOptions) -> Result<FileWalk> {
    let mut walk = FileWalk {
        options,
        first: None,
        stack: Vec::new(),
        path: Vec::new(),
        passed_over: 0,
        excluded: Vec::new(),
        was_elsewhere: false,
        open_dirs_max: OPEN_DIRS_MAX.min(open_max() / 8),
    };
    let stat = Stat::of_path(root)?;
    walk.first = Some(match stat.file_type() {
        FileType::Directory => walk.push(Vec::new(), Dir::open(root)?)?,
        FileType::RegularFile => find_file(root)?,
        other => return Err(special(root, other)),
    });
    Ok(walk)
}

impl FileWalk {
    /// The path of the last item relative to the root: names joined by `/`, empty for the root. After [`Item::Leave`],
    /// it is the path of the directory to which the walk has returned.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Device and inode of the root, if that is a directory; before the first item is taken.
    pub fn identity(&self) -> Option<(u64, u64)> {
        self.stack.first().map(|root| root.identity)
    }

    /// How many names globs or the filter have excluded so far.
    pub fn passed_over(&self) -> u64 {
        self.passed_over
    }

    /// The paths that globs have excluded so far, without what is in excluded directories. A walk keeps a limited number.
    pub fn take_excluded(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.excluded)
    }

    /// Enters the directory at `path`, anywhere, in place of the symlink `name` that was the last item. Returns the
    /// item, and the device and inode of the directory.
    ///
    /// # Errors
    /// When it cannot be opened, or the walk is already in it.
    pub fn descend(&mut self, name: Vec<u8>, path: &Path) -> Result<(Item, (u64, u64))> {
        let dir = Dir::open(path)?;
        let stat = dir.own_stat()?;
        let id = (stat.dev, stat.ino);
        self.was_elsewhere = true;
        let item = self.push(name, dir)?;
        if let Some(frame) = self.stack.last_mut() {
            frame.is_elsewhere = true;
        }
        Ok((item, id))
    }

    /// Leaves the directory that was the last item, and skips its content.
    ///
    /// # Errors
    /// When the directory above cannot be opened again.
    pub fn turn_back(&mut self) -> Result<()> {
        self.leave().map(drop)
    }

    fn advance(&mut self) -> Result<Option<Item>> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        loop {
            let Some(frame) = self.stack.last_mut() else {
                return Ok(None);
            };
            let Some((name, kind)) = frame.names.take() else {
                return self.leave().map(Some);
            };
            self.path.truncate(frame.path_len);
            if !self.path.is_empty() {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(&name);
            let Some(dir) = frame.dir.clone() else {
                return Ok(None);
            };
            match self.visit(&dir, name, kind) {
                Ok(Some(item)) => return Ok(Some(item)),
                Ok(None) => self.passed_over += 1,
                Err((name, error))
                    if self.options.skip_unreadable && error.kind() != ErrorKind::Unavailable =>
                {
                    return Ok(Some(Item::Skipped {
                        path: dir.path_of(&name),
                        error,
                    }));
                }
                Err((_, error)) => return Err(error),
            }
        }
    }

    /// Returns the item for one name, or none if it is excluded. An error also returns the name.
    fn visit(
        &mut self,
        dir: &Arc<Dir>,
        name: Vec<u8>,
        kind: FileType,
    ) -> Result<Option<Item>, (Vec<u8>, Error)> {
        match self.look_at(dir, &name, kind) {
            Ok(None) => Ok(None),
            Ok(Some(Found::Dir(child))) => match self.push(name.clone(), child) {
                Ok(item) => Ok(Some(item)),
                Err(error) => Err((name, error)),
            },
            Ok(Some(Found::File(stat))) => Ok(Some(Item::File {
                dir: Arc::clone(dir),
                name,
                stat,
            })),
            Ok(Some(Found::Symlink(target, stat))) => {
                Ok(Some(Item::Symlink { name, target, stat }))
            }
            Err(error) => Err((name, error)),
        }
    }

    /// Finds out what a name is. Some file systems do not store the kind in the directory.
    fn look_at(&mut self, dir: &Arc<Dir>, name: &[u8], kind: FileType) -> Result<Option<Found>> {
        let exclude = &self.options.exclude;
        let mut stat = None;
        let mut kind = kind;
        if kind == FileType::Unknown {
            let found = dir.stat(name)?;
            kind = found.file_type();
            stat = Some(found);
        }
        let is_dir = kind == FileType::Directory;
        let filter = self.options.filter.as_ref();
        let is_empty = || {
            let found = dir.stat(name);
            found.is_ok_and(|found| found.file_type() == FileType::RegularFile && found.size == 0)
        };
        if exclude.is_match(&self.path, is_dir) {
            if self.excluded.len() < EXCLUDED_MAX {
                self.excluded.push(self.path.clone());
            }
            return Ok(None);
        }
        if filter.is_some_and(|filter| filter.is_out(&self.path, is_dir, &is_empty)) {
            return Ok(None);
        }
        if kind == FileType::Directory {
            return dir.open_dir(name).map(|child| Some(Found::Dir(child)));
        }
        let stat = stat.map_or_else(|| dir.stat(name), Ok)?;
        match stat.file_type() {
            FileType::RegularFile => Ok(Some(Found::File(stat))),
            FileType::Symlink => Ok(Some(Found::Symlink(dir.read_link(name)?, stat))),
            // It was something else a moment ago.
            FileType::Directory => dir.open_dir(name).map(|child| Some(Found::Dir(child))),
            other => Err(special(&dir.path_of(name), other)),
        }
    }

    /// Enters `dir`; [`Self::path`] already includes it.
    fn push(&mut self, name: Vec<u8>, dir: Dir) -> Result<Item> {
        let stat = dir.own_stat()?;
        self.check_no_circle(&dir, (stat.dev, stat.ino))?;
        let names = Names::read(&dir)?;
        let dir = Arc::new(dir);
        let identity = (stat.dev, stat.ino);
        let path_len = self.path.len();
        self.stack.push(Frame {
            dir: Some(Arc::clone(&dir)),
            identity,
            names,
            path_len,
            is_elsewhere: false,
        });
        let closed = self.stack.len().checked_sub(self.open_dirs_max + 1);
        // A directory that was left for one elsewhere cannot be found again from there.
        let is_left = closed.and_then(|index| self.stack.get(index + 1));
        if !is_left.is_some_and(|below| below.is_elsewhere)
            && let Some(frame) = closed.and_then(|index| self.stack.get_mut(index))
        {
            frame.dir = None;
        }
        Ok(Item::Enter { name, dir, stat })
    }

    /// Refuses to enter a directory that the walk is already in. Without symlinks that is impossible.
    fn check_no_circle(&self, dir: &Dir, id: (u64, u64)) -> Result<()> {
        if !self.was_elsewhere || !self.stack.iter().any(|frame| frame.identity == id) {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "{}: leads back to a directory that contains it",
            dir.path().display()
        ))
        .hint(Remedy::ExcludeLink))
    }

    /// Goes up. A closed parent is opened again through its child and must be the same directory: a directory that was
    /// moved meanwhile has another parent.
    fn leave(&mut self) -> Result<Item> {
        let left = self.stack.pop();
        let Some(parent) = self.stack.last_mut() else {
            self.path.clear();
            return Ok(Item::Leave);
        };
        self.path.truncate(parent.path_len);
        if let (
            None,
            Some(Frame {
                dir: Some(child), ..
            }),
        ) = (&parent.dir, left)
        {
            let dir = child.open_parent()?;
            let stat = dir.own_stat()?;
            if (stat.dev, stat.ino) != parent.identity {
                let message = format!(
                    "directory {}: it was moved while it was read",
                    child.path().display()
                );
                return Err(
                    Error::conflict(message).hint("try again when nothing moves in that tree")
                );
            }
            parent.dir = Some(Arc::new(dir));
        }
        Ok(Item::Leave)
    }
}

impl Iterator for FileWalk {
    type Item = Result<Item>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.advance();
        if step.is_err() {
            self.stack.clear();
        }
        step.transpose()
    }
}

enum Found {
    Dir(Dir),
    File(Stat),
    Symlink(Vec<u8>, Stat),
}

/// Returns the file that `root` leads to, with its true directory and name: the only item of a walk whose root is a
/// file.
///
/// # Errors
/// When it leads to nothing, or to no regular file.
pub fn find_file(root: &Path) -> Result<Item> {
    let error = |source| Error::io("open", root, source);
    let path = std::fs::canonicalize(root).map_err(error)?;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(special(root, FileType::Directory));
    };
    let dir = Arc::new(Dir::open(parent)?);
    let name = name.as_encoded_bytes().to_vec();
    let stat = dir.stat(&name)?;
    match stat.file_type() {
        FileType::RegularFile => Ok(Item::File { dir, name, stat }),
        other => Err(special(root, other)),
    }
}

fn special(path: &Path, kind: FileType) -> Error {
    let what = match kind {
        FileType::Fifo => "a named pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice => "a character device",
        FileType::BlockDevice => "a block device",
        FileType::Directory => "a directory where a file was",
        FileType::Symlink => "a symlink where a file was",
        _ => "of an unknown kind",
    };
    let message = format!(
        "{}: expected a file, directory or symlink, found {what}",
        path.display()
    );
    Error::invalid(message).hint("exclude it, or skip what cannot be read")
}

/// The order in which a walk visits two paths relative to its root: name by name, by bytes.
pub fn compare_paths(a: &[u8], b: &[u8]) -> Ordering {
    // A name sorts before longer ones that begin with it: the separator is less than any byte of a name.
    let rank = |byte: &u8| {
        if *byte == b'/' {
            0
        } else {
            u16::from(*byte) + 1
        }
    };
    match a.iter().zip(b).find(|(a, b)| a != b) {
        Some((a, b)) => rank(a).cmp(&rank(b)),
        None => a.len().cmp(&b.len()),
    }
}
