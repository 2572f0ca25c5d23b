//! The entries of a cache: their files, and whether they are complete.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use store::{Content, Reader, Result};

use super::pattern::Pattern;
use super::profile::{HEAD_BYTES_MAX, Profile, Shape};
use super::repair::{ROOT, TEXT_BYTES_MAX};
use super::{cut, frame, group};

/// The number of entries that are read at once: each may be a request to a bucket.
const READERS: usize = 16;

/// How closely files are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Headers, and small texts.
    Quick,
    /// Also compressed files, which are decoded to their ends.
    Whole,
}

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
    /// Device and inode of the file, or of what the link leads to. For entries of a directory.
    pub(super) identity: Option<(u64, u64)>,
}

/// One entry.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// The kind of entry: an index into the profile's entries.
    pub(super) shape: usize,
    /// The parts by their paths in the entry. An entry that is a file has itself as a part, with the empty path.
    pub(super) parts: BTreeMap<Vec<u8>, Part>,
    /// The entry's tree in the ref, or its file.
    pub(super) content: Option<Content>,
    /// Whether the store has lost some of it. For entries of a ref.
    pub(super) is_lost: bool,
    /// A temporary file beside the entry shows that it is being written, or that its writer died.
    is_in_the_making: bool,
    /// A link leads nowhere, so that what it stands for cannot leave the host. For entries of a directory.
    is_dangling: bool,
    /// Files that are not whole. For entries of a ref, set only by [`Self::look_into`].
    cut: BTreeSet<Vec<u8>>,
    /// For entries of a ref: the files whose bytes show whether they are whole.
    telling: BTreeMap<Vec<u8>, Content>,
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
    /// A symlink in the directory is on the way to it.
    #[serde(rename = "behind-link")]
    BehindLink,
}

impl State {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Failed => "failed",
            Self::Locked => "locked",
            Self::Incomplete => "incomplete",
            Self::Lost => "lost",
            Self::BehindLink => "behind a symlink",
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
        let all = self.places_beside(path);
        all.filter(|path| path.symlink_metadata().is_ok()).collect()
    }

    /// Where these files are, if they exist.
    pub(super) fn places_beside(&self, path: &Path) -> impl Iterator<Item = PathBuf> {
        let stem = path.file_stem().unwrap_or_default();
        self.beside.iter().map(move |end| {
            let mut name = stem.to_owned();
            name.push(end);
            path.with_file_name(name)
        })
    }

    /// Whether a path may be that of such a file.
    pub(super) fn may_be_beside(&self, path: &[u8]) -> bool {
        let mut ends = self.beside.iter();
        ends.any(|end| path.ends_with(end.as_bytes()))
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

    /// Whether an entry has anything that only such a cache has, or nothing at all.
    pub(super) fn has_own(&self, entry: &Entry) -> bool {
        let needed = self.needs.iter().flat_map(|need| &need.files);
        let all = [&self.failed, &self.locks, &self.volatile, &self.keys];
        let known: Vec<_> = needed.chain(all.into_iter().flatten()).collect();
        let mut files = entry.parts.iter().filter(|(_, part)| !part.is_dir());
        let is_known = |path: &Vec<u8>| known.iter().any(|pattern| pattern.matches(path));
        files.clone().next().is_none()
            || files.any(|(path, _)| is_known(path) || self.is_volatile(path))
    }

    /// Whether a file is a group that counts. Half ones that a killed compiler left under other names do not.
    fn is_group(&self, path: &[u8]) -> bool {
        let is_named = self.groups.iter().any(|pattern| pattern.matches(path));
        is_named && !self.is_volatile(path)
    }

    /// Whether the file at a path of the entry at `entry` is compressed.
    fn is_frame(&self, path: &[u8], entry: &[u8]) -> bool {
        // An entry that is a file has the empty path.
        let own = entry.rsplit(|byte| *byte == b'/').next();
        let path = if path.is_empty() { own } else { Some(path) };
        path.is_some_and(|path| {
            let is_named = self.frames.iter().any(|pattern| pattern.matches(path));
            is_named && !self.is_volatile(path)
        })
    }
}

impl Entry {
    /// The bytes of its files, as far as known.
    pub(super) fn bytes(&self) -> u64 {
        self.parts.values().map(Part::bytes).sum()
    }

    /// Sets the facts that names and sizes do not show.
    pub(super) fn look_closer(&mut self, root: &Path, path: &[u8], profile: &Profile) {
        let full = root.join(OsStr::from_bytes(path));
        let Some(shape) = profile.entry.get(self.shape) else {
            return;
        };
        self.is_in_the_making = !shape.beside(&full).is_empty();
        let is_dangling = |part: &Part| matches!(part.thing, Thing::Link { bytes: None, .. });
        let is_dangling = self.files(shape).any(|(_, part)| is_dangling(part));
        self.is_dangling = is_dangling;
        let files = self.parts.iter().filter(|(_, part)| !part.is_dir());
        let cut = files.filter(|(file, part)| {
            let place = full.join(OsStr::from_bytes(file));
            let is_text = shape.is_group(file) && part.bytes() <= TEXT_BYTES_MAX;
            // Its reader reports an unreadable file.
            let is_torn = || cut::text(&place).is_ok_and(|text| self.is_torn(file, &text));
            let mut lengths = shape.lengths(file);
            lengths.any(|lengths| cut::is_cut(&place, lengths)) || is_text && is_torn()
        });
        self.cut = cut.map(|(file, _)| file.clone()).collect();
    }

    /// Finds compressed files that are not whole, of an entry of a directory. Decodes them.
    pub(super) fn look_through(&mut self, root: &Path, path: &[u8], profile: &Profile) {
        let full = root.join(OsStr::from_bytes(path));
        let Some(shape) = profile.entry.get(self.shape) else {
            return;
        };
        let files = self.parts.iter().filter(|(_, part)| !part.is_dir());
        let broken = files.filter(|(file, _)| {
            let place = match file.is_empty() {
                true => full.clone(),
                false => full.join(OsStr::from_bytes(file)),
            };
            shape.is_frame(file, path) && frame::is_broken(&place)
        });
        let broken: Vec<Vec<u8>> = broken.map(|(file, _)| file.clone()).collect();
        self.cut.extend(broken);
    }

    /// Whether a group file is cut off, or names a file that is not beside it.
    fn is_torn(&self, path: &[u8], text: &[u8]) -> bool {
        let above = path.iter().rposition(|byte| *byte == b'/');
        let above = path.get(..above.map_or(0, |at| at + 1)).unwrap_or_default();
        let is_there = |name: &String| {
            let part = self.parts.get(&[above, name.as_bytes()].concat());
            part.is_some_and(|part| part.bytes() > 0)
        };
        !group::names(text, ROOT).is_some_and(|names| names.iter().all(is_there))
    }

    pub(super) fn state(&self, profile: &Profile) -> State {
        match self.state_here(profile) {
            State::Complete if self.is_dangling => State::Incomplete,
            state => state,
        }
    }

    /// The same for compilers of this host: for them, a link that leads nowhere may be of no use.
    pub(super) fn state_here(&self, profile: &Profile) -> State {
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
            let is_whole = |part: &Part| part.bytes() > 0 && self.cut.is_empty();
            return match self.parts.values().any(is_whole) {
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
        let mut cut = self.cut.iter();
        let is_torn = cut.any(|file| shape.is_group(file) || shape.is_frame(file, &[]));
        if is_complete && !is_torn {
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

    /// Marks an entry of a ref that has a temporary file beside it.
    pub(super) fn mark_in_the_making(&mut self) {
        self.is_in_the_making = true;
    }

    /// Whether a file of the entry is not whole.
    pub(super) fn is_cut(&self) -> bool {
        !self.cut.is_empty()
    }

    /// Finds files that are not whole, of an entry of a ref.
    pub(super) fn look_into(
        &mut self,
        reader: &Reader<'_>,
        (path, profile): (&[u8], &Profile),
        look: Look,
    ) -> Result<()> {
        let Some(shape) = profile.entry.get(self.shape) else {
            return Ok(());
        };
        let mut cut = BTreeSet::new();
        for (file, content) in &self.telling {
            let mut is_cut = false;
            let mut lengths = shape.lengths(file).peekable();
            if lengths.peek().is_some() {
                let begin = cut::beginning(reader, content, HEAD_BYTES_MAX)?;
                is_cut = lengths.any(|lengths| cut::is_cut_in(&begin, content.size, lengths));
            }
            if shape.is_group(file) && content.size <= TEXT_BYTES_MAX {
                let text = cut::beginning(reader, content, TEXT_BYTES_MAX)?;
                is_cut |= self.is_torn(file, &text);
            }
            if look == Look::Whole && shape.is_frame(file, path) {
                is_cut |= frame::is_broken_in(reader, content)?;
            }
            if is_cut {
                cut.insert(file.clone());
            }
        }
        self.cut.append(&mut cut);
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
                let is_repaired = match shape.file {
                    true => !(shape.rebase.is_empty() && shape.scrub.is_empty()),
                    false => shape.is_repaired(path),
                };
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
        content: None,
        is_lost: false,
        is_in_the_making: false,
        is_dangling: false,
        cut: BTreeSet::new(),
        telling: BTreeMap::new(),
    });
    let below = below.join(&b'/');
    let shape = profile.entry.get(number);
    let tells = shape.is_some_and(|shape| {
        let has_lengths = shape.lengths(&below).next().is_some();
        has_lengths || shape.is_group(&below) || shape.is_frame(&below, path)
    });
    if below.is_empty() {
        entry.content.clone_from(&content);
    }
    if !(below.is_empty() && part.is_dir()) {
        let telling = content.filter(|_| tells && !part.is_dir());
        let telling = telling.map(|content| (below.clone(), content));
        entry.telling.extend(telling);
        entry.parts.insert(below, part);
    }
}

/// The number of entries that seem complete.
pub(super) fn complete(entries: &Entries, profile: &Profile) -> u64 {
    let all = entries.values();
    all.filter(|entry| entry.state(profile) == State::Complete)
        .count() as u64
}

/// Calls `each` for the entries that seem complete and that `is_asked` selects, several at once.
pub(super) fn each_asked(
    entries: &mut Entries,
    profile: &Profile,
    is_asked: impl Fn(&[u8], &Entry) -> bool,
    each: impl Fn(&[u8], &mut Entry) -> Result<()> + Sync,
) -> Result<()> {
    let asked = entries.iter_mut();
    let mut asked: Vec<(&Vec<u8>, &mut Entry)> = asked
        .filter(|(path, entry)| entry.state(profile) == State::Complete && is_asked(path, entry))
        .collect();
    let share = asked.len().div_ceil(READERS).max(1);
    let each = &each;
    std::thread::scope(|scope| {
        let parts = asked.chunks_mut(share).map(|part| {
            scope.spawn(move || {
                let mut part = part.iter_mut();
                part.try_for_each(|(path, entry)| each(path, entry))
            })
        });
        let reading: Vec<_> = parts.collect();
        reading.into_iter().try_for_each(|part| {
            part.join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })
}
