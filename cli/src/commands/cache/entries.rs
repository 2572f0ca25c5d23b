//! The entries of a cache: their files, and whether they are complete. Reads those of a directory.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use store::{Content, Error, Reader, Result};

use super::cut;
use super::pattern::Pattern;
use super::profile::{Profile, Shape};

/// What is at a path of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Thing {
    Dir,
    File {
        bytes: u64,
    },
    /// A symlink, and the size of its target if known.
    Link {
        target: Vec<u8>,
        bytes: Option<u64>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) thing: Thing,
    /// Modification time: seconds and nanoseconds.
    pub(super) time: Option<(i64, i64)>,
}

/// One entry.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// The kind of entry: an index into the profile's entries.
    pub(super) shape: usize,
    /// The parts by their paths in the entry. An entry that is a file has itself as a part, with the empty path.
    pub(super) parts: BTreeMap<Vec<u8>, Part>,
    /// The entry's tree in the ref.
    pub(super) tree: Option<Content>,
    /// Whether the store has lost some of it. For entries of a ref.
    pub(super) is_lost: bool,
    /// A temporary file beside the entry shows that it is being written, or that its writer died.
    is_in_the_making: bool,
    /// Truncated files. For entries of a ref, set only by [`Self::look_into`].
    cut: BTreeSet<Vec<u8>>,
    /// For entries of a ref: the files that state their lengths.
    heads: BTreeMap<Vec<u8>, Content>,
}

/// Entries by their paths in the cache.
pub(super) type Entries = BTreeMap<Vec<u8>, Entry>;

/// The state of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    Complete,
    /// A compile failed, and its traces keep other processes from trying again.
    Failed,
    /// A process works on the entry, or died while it did.
    Locked,
    Incomplete,
    /// The store has lost its bytes.
    Lost,
}

impl State {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Failed => "failed",
            Self::Locked => "locked",
            Self::Incomplete => "incomplete",
            Self::Lost => "lost",
        }
    }
}

impl Part {
    fn bytes(&self) -> u64 {
        match self.thing {
            Thing::Dir => 0,
            Thing::File { bytes } => bytes,
            Thing::Link { bytes, .. } => bytes.unwrap_or(0),
        }
    }

    pub(super) fn is_dir(&self) -> bool {
        self.thing == Thing::Dir
    }
}

impl Shape {
    pub(super) fn is_volatile(&self, path: &[u8]) -> bool {
        // A path is volatile if a directory above it is.
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let mut ends = slashes.map(|(at, _)| at).chain([path.len()]);
        ends.any(|end| {
            let above = path.get(..end).unwrap_or_default();
            self.volatile.iter().any(|pattern| pattern.matches(above))
        })
    }

    /// Temporary files beside the entry at `path`, which exist only while the entry is written.
    pub(super) fn beside(&self, path: &Path) -> Vec<PathBuf> {
        let stem = path.file_stem().unwrap_or_default();
        let named = |end: &String| {
            let mut name = stem.to_owned();
            name.push(end);
            path.with_file_name(name)
        };
        let all = self.beside.iter().map(named);
        all.filter(|path| path.symlink_metadata().is_ok()).collect()
    }

    /// For each needed file that `path` matches: the offsets at which it states its lengths.
    pub(super) fn lengths(&self, path: &[u8]) -> impl Iterator<Item = &[u64]> {
        let needs = self.needs.iter().filter(|need| !need.lengths.is_empty());
        let own = needs.filter(move |need| need.files.iter().any(|file| file.matches(path)));
        own.map(|need| need.lengths.as_slice())
    }

    pub(super) fn is_lock(&self, path: &[u8]) -> bool {
        self.locks.iter().any(|pattern| pattern.matches(path))
    }
}

impl Entry {
    /// The bytes of its files, as far as known.
    pub(super) fn bytes(&self) -> u64 {
        self.parts.values().map(Part::bytes).sum()
    }

    /// Sets the facts that names and sizes do not show.
    fn look_closer(&mut self, root: &Path, path: &[u8], profile: &Profile) {
        let full = root.join(OsStr::from_bytes(path));
        let Some(shape) = profile.entry.get(self.shape) else {
            return;
        };
        self.is_in_the_making = !shape.beside(&full).is_empty();
        let files = self.parts.keys();
        let cut = files.filter(|file| {
            let place = full.join(OsStr::from_bytes(file));
            shape
                .lengths(file)
                .any(|lengths| cut::is_cut(&place, lengths))
        });
        self.cut = cut.cloned().collect();
    }

    pub(super) fn state(&self, profile: &Profile) -> State {
        let Some(shape) = profile.entry.get(self.shape) else {
            return State::Incomplete;
        };
        if self.is_lost {
            return State::Lost;
        }
        if self.is_in_the_making {
            return State::Incomplete;
        }
        if shape.file {
            return match self.parts.values().any(|part| part.bytes() > 0) {
                true => State::Complete,
                false => State::Incomplete,
            };
        }
        let mut files = self.parts.iter().filter(|(_, part)| !part.is_dir());
        if files.clone().any(|(path, _)| shape.is_lock(path)) {
            return State::Locked;
        }
        let has = |pattern: &Pattern, bytes: u64| {
            let mut files = files.clone();
            files.any(|(path, part)| {
                pattern.matches(path) && part.bytes() >= bytes && !self.cut.contains(path)
            })
        };
        let mut needs = shape.needs.iter();
        let is_complete = match shape.needs.is_empty() {
            true => files
                .clone()
                .any(|(path, part)| part.bytes() > 0 && !shape.is_volatile(path)),
            false => needs.all(|need| need.files.iter().any(|file| has(file, need.bytes))),
        };
        if is_complete {
            return State::Complete;
        }
        let has_failed = |path: &Vec<u8>| shape.failed.iter().any(|failed| failed.matches(path));
        match files.any(|(path, _)| has_failed(path)) {
            true => State::Failed,
            false => State::Incomplete,
        }
    }

    /// The files that may leave the host.
    pub(super) fn files<'e>(
        &'e self,
        shape: &'e Shape,
    ) -> impl Iterator<Item = (&'e Vec<u8>, &'e Part)> {
        let parts = self.parts.iter();
        parts.filter(|(path, part)| !part.is_dir() && !shape.is_volatile(path))
    }

    /// Whether a link of the entry leads nowhere, so that what it stands for cannot leave the host. For those of a directory.
    pub(super) fn has_dangling(&self, shape: &Shape) -> bool {
        let mut files = self.files(shape);
        files.any(|(_, part)| matches!(part.thing, Thing::Link { bytes: None, .. }))
    }

    /// Whether a file of the entry is truncated.
    pub(super) fn is_cut(&self) -> bool {
        !self.cut.is_empty()
    }

    /// Finds truncated files of an entry of a ref. Reads the headers of the files that state their lengths.
    pub(super) fn look_into(&mut self, reader: &Reader<'_>, profile: &Profile) -> Result<()> {
        let Some(shape) = profile.entry.get(self.shape) else {
            return Ok(());
        };
        for (path, content) in &self.heads {
            let begin = cut::beginning(reader, content)?;
            let mut all = shape.lengths(path);
            if all.any(|lengths| cut::is_cut_in(&begin, content.size, lengths)) {
                self.cut.insert(path.clone());
            }
        }
        Ok(())
    }

    /// Whether the entry has the same files as `before`, with the same sizes and times.
    pub(super) fn is_as_it_was(&self, before: &Self, shape: &Shape) -> bool {
        let files = |entry: &Self| -> Vec<(Vec<u8>, Part)> {
            let files = entry.files(shape);
            files
                .map(|(path, part)| (path.clone(), part.clone()))
                .collect()
        };
        files(self) == files(before)
    }

    /// Whether both have the same files by size and time. Files that a copy repairs are compared by time alone.
    pub(super) fn looks_like(&self, other: &Self, shape: &Shape) -> bool {
        let look = |entry: &Self| {
            let files = entry.files(shape);
            let files = files.map(|(path, part)| {
                let is_repaired = shape.is_repaired(path);
                let bytes = (!is_repaired).then(|| part.bytes());
                (path.clone(), bytes, part.time)
            });
            files.collect::<Vec<_>>()
        };
        let ours = look(self);
        ours.iter().all(|(_, _, time)| time.is_some()) && ours == look(other)
    }
}

/// Adds a path to its entry, if it belongs to one. `content` is known of a ref.
pub(super) fn add(
    found: &mut Entries,
    profile: &Profile,
    path: &[u8],
    part: Part,
    content: Option<Content>,
) {
    let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    let Some(number) = profile.shape_of(&names, part.is_dir()) else {
        return;
    };
    let depth = profile
        .entry
        .get(number)
        .map_or(0, |shape| shape.path.depth());
    let (own, below) = names.split_at_checked(depth).unwrap_or((&names, &[]));
    let entry = found.entry(own.join(&b'/')).or_insert_with(|| Entry {
        shape: number,
        parts: BTreeMap::new(),
        tree: None,
        is_lost: false,
        is_in_the_making: false,
        cut: BTreeSet::new(),
        heads: BTreeMap::new(),
    });
    let below = below.join(&b'/');
    let shape = profile.entry.get(number);
    let tells = shape.is_some_and(|shape| shape.lengths(&below).next().is_some());
    match (below.is_empty(), part.is_dir()) {
        (true, true) => entry.tree = content,
        _ => {
            let head = content.filter(|_| tells);
            entry.heads.extend(head.map(|head| (below.clone(), head)));
            entry.parts.insert(below, part);
        }
    }
}

/// Reads the entries of a directory; none if it is missing.
pub(super) fn of_dir(root: &Path, profile: &Profile) -> Result<Entries> {
    let mut entries = Entries::new();
    walk(root, &mut Vec::new(), profile, &mut entries)?;
    // This runs after the walk: an entry that was unfinished during the walk is finished by now, or still has its
    // temporary file beside it.
    for (path, entry) in &mut entries {
        entry.look_closer(root, path, profile);
    }
    Ok(entries)
}

/// Reads one entry of a directory again.
pub(super) fn one(root: &Path, path: &[u8], profile: &Profile) -> Result<Option<Entry>> {
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
    let part = if stat.is_dir() {
        Part {
            thing: Thing::Dir,
            time: time(stat),
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
        }
    } else if stat.is_file() {
        Part {
            thing: Thing::File { bytes: stat.len() },
            time: time(stat),
        }
    } else {
        return Ok(());
    };
    let is_dir = part.is_dir();
    add(found, profile, path, part, None);
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
