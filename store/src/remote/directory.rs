//! A local directory, for which object_store alone is not enough.
//!
//! object_store 0.14.2 with `with_fsync(true)` syncs the staged file before linking or renaming it, then the directory,
//! and directories that the call itself created. This module covers the rest: a directory that another writer created
//! and has not synced yet, an object whose directory is not synced yet (see [`Directory::settle`]), deletes, and the
//! root itself. Reads of object_store first fill buffers with zeros and switch threads; these read directly.
//! object_store hides staged files of dead writers (`name#1`); here they are listed.

use std::collections::HashSet;
use std::fs::{self, DirEntry, File, Metadata, Permissions};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use jiff::Timestamp;
use rustix::buffer::spare_capacity;

use super::ObjectInfo;
use crate::format::{bytes_max, is_object_key};
use crate::fs::{open_regular, stat_regular};

/// Mode bits of a root that a group shares: it belongs to the group, and all members may write.
const SHARED: u32 = 0o2020;
/// How many entries of a directory are checked for a sign that it is durable.
const LOOKED_AT: usize = 4;

/// A directory that holds objects under their keys.
#[derive(Debug)]
pub(super) struct Directory {
    root: PathBuf,
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
            root,
            inode: (found.dev(), found.ino()),
            shared: (mode & SHARED == SHARED).then_some(mode & 0o7777),
            settled: Mutex::default(),
        })
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn path(&self, key: &str) -> PathBuf {
        self.root.join(key)
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
        let path = self.path(key);
        let make = || match File::create_new(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made.map(drop),
        };
        match make() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut above = self.root.clone();
                for name in Path::new(key).parent().unwrap_or(Path::new("")) {
                    above.push(name);
                    self.make_below(&above)?;
                }
                make()
            }
            made => made,
        }
    }

    /// Gives read access to an object that this process has just written to exactly those who can read the store's
    /// root, whatever the umask is. Objects never change, so nobody needs write access.
    pub(super) fn share(&self, key: &str) -> io::Result<()> {
        let Some(root) = self.shared else {
            return Ok(());
        };
        let path = self.path(key);
        let mode = fs::metadata(&path)?.permissions().mode();
        let wanted = (mode & 0o7770) | 0o040 | (root & 0o004);
        match mode & 0o7777 == wanted {
            false => fs::set_permissions(&path, Permissions::from_mode(wanted)),
            true => Ok(()),
        }
    }

    fn make_below(&self, path: &Path) -> io::Result<()> {
        let made = fs::create_dir(path);
        match (&made, self.shared) {
            (Ok(()), Some(mode)) => fs::set_permissions(path, Permissions::from_mode(mode)),
            _ => is_made(path, made),
        }
    }

    pub(super) fn size(&self, key: &str) -> io::Result<u64> {
        stat_regular(&self.path(key))
            .map(|metadata| metadata.len())
            .map_err(|error| misplaced(key, error))
    }

    fn open(&self, key: &str) -> io::Result<File> {
        open_regular(&self.path(key)).map_err(|error| misplaced(key, error))
    }

    /// Checks that the root is still the directory that was opened. If it was moved away, it must not be created again.
    pub(super) fn check_root(&self) -> io::Result<()> {
        let found = fs::metadata(&self.root).map(|found| (found.dev(), found.ino()));
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
            return Ok(());
        }
        let mut below = PathBuf::new();
        for name in parent {
            let above = self.root.join(&below);
            below.push(name);
            if !self.settled().contains(&below) {
                let path = self.root.join(&below);
                if !holds_objects(&path) {
                    self.make_below(&path)?;
                    sync(&above)?;
                }
                self.settled().insert(below.clone());
            }
        }
        Ok(())
    }

    /// Makes the entry of an object durable that another writer linked but may not have synced yet.
    pub(super) fn settle(&self, key: &str) -> io::Result<()> {
        self.path(key).parent().map_or(Ok(()), sync)
    }

    /// Deletes files; missing ones are ignored.
    pub(super) fn delete(&self, keys: &[String]) -> io::Result<()> {
        let mut parents = HashSet::new();
        let deleted = keys.iter().try_for_each(|key| {
            let path = self.path(key);
            missing_is_fine(remove(&path))?;
            parents.extend(path.parent().map(Path::to_owned));
            Ok(())
        });
        let synced = parents
            .iter()
            .try_for_each(|parent| missing_is_fine(sync(parent)));
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
            let entries = match fs::read_dir(self.path(&directory)) {
                Err(error) if is_missing(&error) => continue,
                entries => entries?,
            };
            for entry in entries {
                let entry = entry?;
                let Ok(name) = entry.file_name().into_string() else {
                    continue;
                };
                let key = if directory.is_empty() {
                    name
                } else {
                    format!("{directory}/{name}")
                };
                match fs::metadata(entry.path()) {
                    Err(error) if is_missing(&error) || entry.file_type()?.is_symlink() => {}
                    Err(error) => return Err(error),
                    Ok(metadata) if metadata.is_dir() => pending.push(key),
                    Ok(metadata) if metadata.is_file() && wanted(&key) => {
                        found.push(info(key, &metadata)?)
                    }
                    Ok(_) => {}
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
            let entries = match fs::read_dir(self.path(&directory)) {
                Err(error) if is_missing(&error) => continue,
                entries => entries?,
            };
            for entry in entries {
                let entry = entry?;
                let Ok(name) = entry.file_name().into_string() else {
                    continue;
                };
                let key = format!("{directory}/{name}");
                let is_before = key.as_str() < after;
                // A directory under the key of an object is listed as well: it shows that something was there.
                if entry.file_type()?.is_dir() && !is_object_key(&key) {
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

/// Deletes a file. An empty directory in its place is removed; any other directory is not an object, and is kept.
fn remove(path: &Path) -> io::Result<()> {
    let removed = fs::remove_file(path);
    if removed.is_ok() || !fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir()) {
        return removed;
    }
    match fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        removed => removed,
    }
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

fn info(key: String, metadata: &Metadata) -> io::Result<ObjectInfo> {
    let modified = Timestamp::try_from(metadata.modified()?).map_err(io::Error::other)?;
    Ok(ObjectInfo {
        key,
        size: metadata.len(),
        modified,
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
