//! The entries of a directory: what they are, and whether they are complete.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use store::{Error, Result};

use super::entries::{self, Entries, Entry, Look, Part, State, Thing};
use super::profile::Profile;

/// Reads the entries of a directory; none if it is missing.
pub(super) fn read(root: &Path, profile: &Profile) -> Result<Entries> {
    let mut entries = Entries::new();
    walk(root, &mut Vec::new(), profile, &mut entries)?;
    // This runs after the walk: an entry that was unfinished during the walk is finished by now, or still has its
    // temporary file beside it.
    for (path, entry) in &mut entries {
        entry.look_closer(root, path, profile);
    }
    Ok(entries)
}

/// Looks through the entries of a directory that seem complete and that `is_asked` selects. Returns how many of them are
/// not.
pub(super) fn look_through(
    entries: &mut Entries,
    root: &Path,
    profile: &Profile,
    is_asked: impl Fn(&[u8], &Entry) -> bool,
) -> Result<u64> {
    let has_frames = |entry: &Entry| {
        let shape = profile.entry.get(entry.shape);
        shape.is_some_and(|shape| !shape.frames.is_empty())
    };
    let before = entries::complete(entries, profile);
    let is_asked = |path: &[u8], entry: &Entry| has_frames(entry) && is_asked(path, entry);
    entries::each_asked(entries, profile, is_asked, |path, entry| {
        entry.look_through(root, path, profile);
        Ok(())
    })?;
    Ok(before - entries::complete(entries, profile))
}

/// Reads one entry of a directory again.
pub(super) fn one(root: &Path, path: &[u8], profile: &Profile, how: Look) -> Result<Option<Entry>> {
    let mut entries = Entries::new();
    let full = root.join(OsStr::from_bytes(path));
    match std::fs::symlink_metadata(&full) {
        Err(error) if is_gone(&error) => return Ok(None),
        Err(source) => return Err(Error::io("look at", &full, source)),
        Ok(found) => look(root, path, &found, profile, &mut entries)?,
    }
    let mut entry = entries.remove(path);
    if let Some(entry) = &mut entry {
        entry.look_closer(root, path, profile);
        if how == Look::Whole && entry.state(profile) == State::Complete {
            entry.look_through(root, path, profile);
        }
    }
    Ok(entry)
}

fn walk(root: &Path, at: &mut Vec<u8>, profile: &Profile, found: &mut Entries) -> Result<()> {
    let dir = root.join(OsStr::from_bytes(at));
    let listed = match std::fs::read_dir(&dir) {
        Ok(listed) => listed,
        // Another process may clean the cache meanwhile.
        Err(error) if is_gone(&error) => return Ok(()),
        Err(source) => return Err(Error::io("read the directory", &dir, source)),
    };
    let length = at.len();
    for file in listed {
        let file = file.map_err(|source| Error::io("read the directory", &dir, source))?;
        if !at.is_empty() {
            at.push(b'/');
        }
        at.extend_from_slice(&file.file_name().into_vec());
        let names: Vec<&[u8]> = at.split(|byte| *byte == b'/').collect();
        if profile.may_lead_to(&names) {
            match std::fs::symlink_metadata(file.path()) {
                Err(error) if is_gone(&error) => {}
                Err(source) => return Err(Error::io("look at", file.path(), source)),
                Ok(stat) => look(root, &at.clone(), &stat, profile, found)?,
            }
        }
        at.truncate(length);
    }
    Ok(())
}

fn look(
    root: &Path,
    path: &[u8],
    stat: &Metadata,
    profile: &Profile,
    found: &mut Entries,
) -> Result<()> {
    let full = root.join(OsStr::from_bytes(path));
    let time = |stat: &Metadata| Some((stat.mtime(), stat.mtime_nsec()));
    let identity = |stat: &Metadata| Some((stat.dev(), stat.ino()));
    let part = if stat.is_dir() {
        Part {
            thing: Thing::Dir,
            time: time(stat),
            identity: identity(stat),
        }
    } else if stat.is_symlink() {
        let target = std::fs::read_link(&full).map(PathBuf::into_os_string);
        let behind = std::fs::metadata(&full).ok().filter(Metadata::is_file);
        Part {
            thing: Thing::Link {
                target: target.unwrap_or_default().into_vec(),
                bytes: behind.as_ref().map(Metadata::len),
            },
            time: behind.as_ref().and_then(time).or(Some((0, 0))),
            identity: behind.as_ref().and_then(identity),
        }
    } else if stat.is_file() {
        Part {
            thing: Thing::File { bytes: stat.len() },
            time: time(stat),
            identity: identity(stat),
        }
    } else {
        return Ok(());
    };
    let is_dir = part.is_dir();
    entries::add(found, profile, path, part, None);
    match is_dir {
        true => walk(root, &mut path.to_vec(), profile, found),
        false => Ok(()),
    }
}

pub(super) fn is_gone(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
    )
}
