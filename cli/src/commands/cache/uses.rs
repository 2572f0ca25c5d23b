//! Finds out which entries a command reads: it sets access times back before the command begins, and compares
//! afterwards.
//!
//! The result is unknown on file systems without access times, and for files that other trees share. Only the files
//! that make an entry complete are looked at, since a process that searches for a key may read the others.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{File, FileTimes};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::entries::{Entries, Entry, Thing};
use super::place::STAGE;
use super::profile::Profile;

/// How far access times are set back. Setting a time changes the file's ctime, and so the next access updates the
/// access time even with `relatime`. One hour is too short to make a cleaner of unused files delete them.
const BACK: Duration = Duration::from_secs(60 * 60);

/// Entries whose access times were set back.
pub(super) struct Uses {
    /// Files that have not been read as far as known: entry, path and access time.
    unread: Vec<(Vec<u8>, PathBuf, Stamp)>,
    read: BTreeSet<Vec<u8>>,
}

/// An access time: seconds and nanoseconds.
type Stamp = (i64, i64);

impl Uses {
    /// Sets the access times back; `None` if reads cannot be observed.
    pub(super) fn new(root: &Path, entries: &Entries, profile: &Profile) -> Option<Self> {
        let mut unread = Vec::new();
        for (path, entry) in entries {
            let files = telling(entry, profile);
            let full = root.join(OsStr::from_bytes(path));
            let before = unread.len();
            for part in files {
                // An entry that is a file has the empty path.
                let file = match part.is_empty() {
                    true => full.clone(),
                    false => full.join(OsStr::from_bytes(part)),
                };
                let stamp = set_back(&file)?;
                unread.push((path.clone(), file, stamp));
            }
            if unread.len() == before {
                return None;
            }
        }
        let is_told = unread.is_empty() || tells(root).unwrap_or(false);
        is_told.then_some(Self {
            unread,
            read: BTreeSet::new(),
        })
    }

    /// Records which files were read so far.
    pub(super) fn gather(&mut self) {
        let (unread, read) = self.unread.drain(..).partition(|(_, file, stamp)| {
            // A removed file counts as unread.
            stamp_of(file).is_none_or(|found| found == *stamp)
        });
        self.unread = unread;
        let read: Vec<(Vec<u8>, PathBuf, Stamp)> = read;
        self.read.extend(read.into_iter().map(|(path, ..)| path));
    }

    /// Ignores reads since the last [`Self::gather`], which were this program's own.
    pub(super) fn forget(&mut self) {
        for (_, file, stamp) in &mut self.unread {
            if stamp_of(file).is_some_and(|found| found != *stamp) {
                *stamp = set_back(file).unwrap_or(*stamp);
            }
        }
    }

    /// All entries that were read.
    pub(super) fn read(mut self) -> BTreeSet<Vec<u8>> {
        self.gather();
        self.read
    }
}

/// The files that make an entry complete.
fn telling<'e>(entry: &'e Entry, profile: &'e Profile) -> Vec<&'e Vec<u8>> {
    let Some(shape) = profile.entry.get(entry.shape) else {
        return Vec::new();
    };
    let is_needed = |path: &[u8]| {
        let mut needs = shape.needs.iter().filter(|need| need.bytes > 0);
        shape.needs.is_empty() || needs.any(|need| need.files.iter().any(|file| file.matches(path)))
    };
    let files = entry.files(shape);
    let files = files.filter(|(_, part)| matches!(part.thing, Thing::File { bytes } if bytes > 0));
    let files = files.map(|(path, _)| path);
    files.filter(|path| is_needed(path)).collect()
}

/// Sets the access time back; `None` for a file with several hard links, which others may read elsewhere.
fn set_back(path: &Path) -> Option<Stamp> {
    let found = path.symlink_metadata().ok()?;
    if !found.is_file() || found.nlink() > 1 {
        return None;
    }
    let time = SystemTime::now().checked_sub(BACK)?;
    // Opened only to set its times; nothing is written.
    let file = File::options().append(true).open(path).ok()?;
    file.set_times(FileTimes::new().set_accessed(time)).ok()?;
    stamp_of(path)
}

fn stamp_of(path: &Path) -> Option<Stamp> {
    let found = path.symlink_metadata().ok()?;
    Some((found.atime(), found.atime_nsec()))
}

/// Whether the file system updates access times.
fn tells(root: &Path) -> Option<bool> {
    let mut probe = tempfile::Builder::new()
        .prefix(STAGE)
        .tempfile_in(root)
        .ok()?;
    probe.write_all(b"x").ok()?;
    let before = set_back(probe.path())?;
    File::open(probe.path())
        .and_then(|mut file| file.read(&mut [0]))
        .ok()?;
    Some(stamp_of(probe.path())? != before)
}
