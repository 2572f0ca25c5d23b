//! A local directory, for which object_store alone is not enough.
//!
//! object_store 0.14.2 with `with_fsync(true)` syncs the staged file before linking or renaming it, then the directory,
//! and directories that the call itself created. This module covers the rest: a directory that another writer created
//! and has not synced yet, an object whose directory is not synced yet (see [`Directory::settle`]), deletes, and the
//! root itself. Reads of object_store first fill buffers with zeros and switch threads; these read directly.
//! object_store hides staged files of dead writers (`name#1`); here they are listed.
//!
//! A symlink of another user below the root is not followed (see [`way`]). What is read, listed, made or deleted here is
//! reached from open directories; what object_store writes has its directory judged before and after. In a store that a
//! group shares, object_store writes nothing (see [`shared`]).

mod shared;
mod way;

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, DirEntry, File};
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use jiff::Timestamp;
use rustix::buffer::spare_capacity;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::ObjectInfo;
use super::key::is_staged;
use crate::format::{bytes_max, is_object_key};
use crate::fs::regular_at;
pub(super) use shared::{Staged, Taken};
pub(super) use way::Planted;
use way::{DIRECTORY, TO_LIST, TO_LOOK, TO_READ, Way};

/// Mode bits of a root that a group shares: it belongs to the group, and all members may write.
const SHARED: u32 = 0o2020;
/// How many entries of a directory are checked for a sign that it is durable.
const LOOKED_AT: usize = 4;

/// A directory that holds objects under their keys.
#[derive(Debug)]
pub(super) struct Directory {
    way: Way,
    /// Device and inode of the root when it was opened.
    inode: (u64, u64),
    /// The root's mode if a group shares it. Everything created below follows this mode, whatever the umask is.
    shared: Option<u32>,
    /// Directories below the root that exist and whose entries in their parents are durable.
    settled: Mutex<HashSet<PathBuf>>,
}

/// The result of reading ranges.
#[derive(Debug)]
pub(super) enum Ranges {
    /// All ranges.
    Whole(Vec<Bytes>),
    /// The object has only this many bytes.
    Short(u64),
}

impl Directory {
    /// Creates the directory and its parents, durably.
    pub(super) fn make(path: &Path) -> io::Result<Self> {
        make_durably(&std::path::absolute(path)?)?;
        Self::existing(path)
    }

    /// Opens an existing directory.
    pub(super) fn existing(path: &Path) -> io::Result<Self> {
        let root = fs::canonicalize(path)?;
        if !root.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let found = fs::metadata(&root)?;
        let mode = found.permissions().mode();
        Ok(Self {
            way: Way {
                root,
                owner: found.uid(),
            },
            inode: (found.dev(), found.ino()),
            shared: (mode & SHARED == SHARED).then_some(mode & 0o7777),
            settled: Mutex::default(),
        })
    }

    pub(super) fn root(&self) -> &Path {
        &self.way.root
    }

    pub(super) fn path(&self, key: &str) -> PathBuf {
        self.way.root.join(key)
    }

    /// Returns the path of an object or a directory, unless another user planted a symlink there or on the way.
    pub(super) fn local_path(&self, key: &str) -> Option<PathBuf> {
        match self.way.open(key, TO_LOOK) {
            Err(error) if Planted::of(&error).is_some() => None,
            _ => Some(self.path(key)),
        }
    }

    /// Checks that no symlink of another user is on the way to `key`. A missing directory is none.
    pub(super) fn judge(&self, key: &str) -> io::Result<()> {
        missing_is_fine(self.way.above(key, DIRECTORY).map(drop))
    }

    pub(super) fn read(&self, key: &str) -> io::Result<Bytes> {
        let file = self.open(key)?;
        let (size, most) = (file.metadata()?.len(), bytes_max(key));
        if size > most {
            let what = format!("expected at most {most} bytes, found {size}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(size).map_err(io::Error::other)?);
        file.take(most).read_to_end(&mut bytes)?;
        Ok(bytes.into())
    }

    /// Reads ranges. Compares them with the file's length before anything is allocated.
    pub(super) fn read_ranges(&self, key: &str, ranges: &[Range<u64>]) -> io::Result<Ranges> {
        let file = self.open(key)?;
        let size = file.metadata()?.len();
        if ranges.iter().any(|range| range.end > size) {
            return Ok(Ranges::Short(size));
        }
        let bytes: io::Result<_> = ranges
            .iter()
            .map(|range| read_range(&file, range))
            .collect();
        bytes.map(Ranges::Whole)
    }

    /// Whether an object certainly exists; false if that cannot be determined.
    pub(super) fn exists(&self, key: &str) -> bool {
        fs::symlink_metadata(self.path(key)).is_ok_and(|metadata| metadata.is_file())
    }

    /// Creates an empty object if there is none, and the directories above it, but never the root.
    pub(super) fn touch(&self, key: &str) -> io::Result<()> {
        let made = match self.shared {
            Some(_) if self.exists(key) => Ok(()),
            Some(mode) => self.stage_with(key, mode).and_then(Staged::show),
            None => match self.create_new(key) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.make_above(key)?;
                    self.create_new(key)
                }
                made => made,
            },
        };
        match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }
    }

    fn create_new(&self, key: &str) -> io::Result<()> {
        let (above, name) = self.way.above(key, DIRECTORY)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let made = rustix::fs::openat(above, name, flags, Mode::from_raw_mode(0o666));
        Ok(made.map(drop)?)
    }

    /// Begins an object of a store that a group shares; none in any other, whose objects object_store writes.
    pub(super) fn stage(&self, key: &str) -> io::Result<Option<Staged>> {
        let staged = self.shared.map(|mode| self.stage_with(key, mode));
        staged.transpose()
    }

    fn stage_with(&self, key: &str, mode: u32) -> io::Result<Staged> {
        let (above, name) = match self.way.above(key, DIRECTORY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.make_above(key)?;
                self.way.above(key, DIRECTORY)?
            }
            opened => opened?,
        };
        Staged::new(above, name, mode)
    }

    pub(super) fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Makes the directories above `key` that are missing, but never the root.
    fn make_above(&self, key: &str) -> io::Result<()> {
        let mut above = PathBuf::new();
        for name in Path::new(key).parent().unwrap_or(Path::new("")) {
            self.make_below(&above, name)?;
            above.push(name);
        }
        Ok(())
    }

    /// Makes the directory `name` in `above`, unless it exists.
    fn make_below(&self, above: &Path, name: &OsStr) -> io::Result<()> {
        let at = self.way.open(above, DIRECTORY)?;
        let made = match self.shared {
            Some(mode) => shared::make_directory(&at, name, mode),
            None => rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o777)),
        };
        match made {
            Err(Errno::EXIST) => match self.way.open(above.join(name), DIRECTORY) {
                Err(error) if is_missing(&error) => Err(Errno::EXIST.into()),
                found => found.map(drop),
            },
            made => Ok(made?),
        }
    }

    pub(super) fn size(&self, key: &str) -> io::Result<u64> {
        Ok(self.regular(key, TO_LOOK)?.metadata()?.len())
    }

    fn open(&self, key: &str) -> io::Result<File> {
        self.regular(key, TO_READ)
    }

    fn regular(&self, key: &str, flags: OFlags) -> io::Result<File> {
        let opened = self.way.open(key, flags).map(File::from);
        regular_at(&self.path(key), opened).map_err(|error| misplaced(key, error))
    }

    /// Checks that the root is still the directory that was opened. If it was moved away, it must not be created again.
    pub(super) fn check_root(&self) -> io::Result<()> {
        let found = fs::metadata(&self.way.root).map(|found| (found.dev(), found.ino()));
        match found {
            Ok(found) if found == self.inode => Ok(()),
            _ => Err(io::Error::new(
                io::ErrorKind::StaleNetworkFileHandle,
                "the directory of the store was moved away, removed or replaced since it was opened",
            )),
        }
    }

    /// Creates the directories above `key` and makes their entries durable, once per directory.
    pub(super) fn ready(&self, key: &str) -> io::Result<()> {
        self.check_root()?;
        let parent = Path::new(key).parent().unwrap_or(Path::new(""));
        if self.settled().contains(parent) {
            return self.judge(key);
        }
        let mut below = PathBuf::new();
        for name in parent {
            let above = below.clone();
            below.push(name);
            if !self.settled().contains(&below) {
                missing_is_fine(self.way.open(&below, DIRECTORY).map(drop))?;
                if !holds_objects(&self.way.root.join(&below)) {
                    self.make_below(&above, name)?;
                    self.sync(&above)?;
                }
                self.settled().insert(below.clone());
            }
        }
        self.judge(key)
    }

    /// Makes the entry of an object durable that another writer linked but may not have synced yet.
    pub(super) fn settle(&self, key: &str) -> io::Result<()> {
        self.sync(Path::new(key).parent().unwrap_or(Path::new("")))
    }

    fn sync(&self, directory: &Path) -> io::Result<()> {
        Ok(rustix::fs::fsync(self.way.open(directory, TO_LIST)?)?)
    }

    /// Deletes files; missing ones are ignored.
    pub(super) fn delete(&self, keys: &[String]) -> io::Result<()> {
        let mut parents = HashSet::new();
        let mut last: Option<(&str, OwnedFd)> = None;
        let deleted = keys.iter().try_for_each(|key| {
            let (parent, name) = key.rsplit_once('/').unwrap_or(("", key));
            let (_, opened) = match last.take() {
                Some(known) if known.0 == parent => last.insert(known),
                _ => match self.way.open(parent, DIRECTORY) {
                    Err(error) if is_missing(&error) => return Ok(()),
                    opened => last.insert((parent, opened?)),
                },
            };
            parents.insert(parent);
            missing_is_fine(remove(opened, name))
        });
        let synced = parents
            .iter()
            .try_for_each(|parent| missing_is_fine(self.sync(Path::new(parent))));
        deleted.and(synced)
    }

    /// Lists the files below `prefix` whose keys are `wanted`, in no order.
    pub(super) fn list(
        &self,
        prefix: &str,
        wanted: fn(&str) -> bool,
    ) -> io::Result<Vec<ObjectInfo>> {
        let mut found = Vec::new();
        let mut pending = vec![prefix.to_owned()];
        while let Some(directory) = pending.pop() {
            let opened = match self.way.open(&directory, TO_LIST) {
                Err(error) if is_missing(&error) => continue,
                opened => opened?,
            };
            for (name, kind) in entries(&opened)? {
                let key = if directory.is_empty() {
                    name.clone()
                } else {
                    format!("{directory}/{name}")
                };
                let stat = match rustix::fs::statat(&opened, &name, AtFlags::empty()) {
                    Err(Errno::NOENT | Errno::NOTDIR) => continue,
                    Err(_) if kind == FileType::Symlink => continue,
                    stat => stat?,
                };
                match FileType::from_raw_mode(stat.st_mode) {
                    // One that a killed writer of a group's store has not named yet: it is empty, and may be closed.
                    FileType::Directory if is_staged(&key) => {}
                    FileType::Directory => pending.push(key),
                    FileType::RegularFile if wanted(&key) => found.push(info(key, &stat)?),
                    _ => {}
                }
            }
        }
        Ok(found)
    }

    /// Lists the keys below `prefix` after `after`, in no order, without inspecting the files.
    pub(super) fn keys_after(&self, prefix: &str, after: &str) -> io::Result<Vec<String>> {
        let mut found = Vec::new();
        let mut pending = vec![prefix.to_owned()];
        while let Some(directory) = pending.pop() {
            let opened = match self.way.open(&directory, TO_LIST) {
                Err(error) if is_missing(&error) => continue,
                opened => opened?,
            };
            for (name, kind) in entries(&opened)? {
                let key = format!("{directory}/{name}");
                let is_before = key.as_str() < after;
                // A directory under the key of an object is listed as well: it shows that something was there.
                if kind == FileType::Directory && !is_object_key(&key) {
                    if is_staged(&key) {
                        continue;
                    }
                    if !is_before || after.starts_with(&key) {
                        pending.push(key);
                    }
                } else if key.as_str() > after {
                    found.push(key);
                }
            }
        }
        Ok(found)
    }

    fn settled(&self) -> std::sync::MutexGuard<'_, HashSet<PathBuf>> {
        self.settled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether this directory, or one of its first subdirectories, holds an object. If so, the object's writer has already
/// made the directories above it durable.
fn holds_objects(path: &Path) -> bool {
    let first = |path: &Path| fs::read_dir(path).map(|entries| entries.take(LOOKED_AT).flatten());
    let is_object = |entry: &DirEntry| entry.file_type().is_ok_and(|kind| kind.is_file());
    let Ok(mut entries) = first(path) else {
        return false;
    };
    entries.any(|entry| {
        is_object(&entry)
            || first(&entry.path()).is_ok_and(|mut inner| inner.any(|entry| is_object(&entry)))
    })
}

/// A directory in place of an object is damage; it does not mean that the object is missing.
fn misplaced(key: &str, error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::IsADirectory if is_object_key(key) => io::Error::new(
            io::ErrorKind::InvalidData,
            "expected a regular file, found a directory",
        ),
        _ => error,
    }
}

/// Deletes the file `name` in an open directory. An empty directory in its place is removed; any other directory is not
/// an object, and is kept.
fn remove(above: impl AsFd, name: &str) -> io::Result<()> {
    let removed = rustix::fs::unlinkat(&above, name, AtFlags::empty());
    let is_directory = || {
        let found = rustix::fs::statat(&above, name, AtFlags::SYMLINK_NOFOLLOW);
        found.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
    };
    if removed.is_ok() || !is_directory() {
        return Ok(removed?);
    }
    match rustix::fs::unlinkat(&above, name, AtFlags::REMOVEDIR) {
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
        removed => Ok(removed?),
    }
}

/// The names in an open directory that are UTF-8, and what each is; a symlink is not followed.
fn entries(directory: &OwnedFd) -> io::Result<Vec<(String, FileType)>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else {
            continue;
        };
        if [".", ".."].contains(&name) {
            continue;
        }
        let kind = match entry.file_type() {
            // Some file systems do not say.
            FileType::Unknown => {
                match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Err(Errno::NOENT) => continue,
                    stat => FileType::from_raw_mode(stat?.st_mode),
                }
            }
            kind => kind,
        };
        found.push((name.to_owned(), kind));
    }
    Ok(found)
}

fn read_range(file: &File, range: &Range<u64>) -> io::Result<Bytes> {
    let wanted =
        usize::try_from(range.end.saturating_sub(range.start)).map_err(io::Error::other)?;
    let mut bytes = Vec::with_capacity(wanted);
    let mut offset = range.start;
    while bytes.len() < wanted {
        match rustix::io::pread(file, spare_capacity(&mut bytes), offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => offset += read as u64,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    bytes.truncate(wanted);
    Ok(bytes.into())
}

fn info(key: String, stat: &Stat) -> io::Result<ObjectInfo> {
    let nanos = i32::try_from(stat.st_mtime_nsec).map_err(io::Error::other)?;
    Ok(ObjectInfo {
        key,
        size: u64::try_from(stat.st_size).map_err(io::Error::other)?,
        modified: Timestamp::new(stat.st_mtime, nanos).map_err(io::Error::other)?,
    })
}

fn make_durably(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        make_durably(parent)?;
        make_one(path)?;
        sync(parent)?;
    }
    Ok(())
}

fn make_one(path: &Path) -> io::Result<()> {
    is_made(path, fs::create_dir(path))
}

/// Ignores that the directory exists: another process may have created it at the same time.
fn is_made(path: &Path, made: io::Result<()>) -> io::Result<()> {
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made,
    }
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

fn missing_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if is_missing(&error) => Ok(()),
        result => result,
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}
