//! A step as it was seen: its name, and its last change. Only names and attributes are read.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Mark, nanos_between, options};
use crate::error::{Error, ErrorKind, Result};
use crate::format::Time;
use crate::fs::is_host_local;
use crate::host::walk::{Item, Stat, walk};
use crate::shown::shown;

/// Hex digits of the checksum in a title.
const SUM_DIGITS: usize = 16;
/// Files that every rank of a job writes for itself at any time, even after the marker.
const OF_RANKS: &[u8] = b"rng_state";
/// Files that ranks of transformers may also write after the marker, if they are new.
const LATE: [&[u8]; 3] = [b"optimizer", b"scheduler", b"scaler"];

/// If a file was written longer than this before it last changed, it was copied with its time of writing.
const COPIED_NANOS: i128 = 1_000_000_000;

/// A step as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its path.
    pub path: PathBuf,
    /// Its name, on one line.
    pub name: String,
    /// The name and a checksum of what was seen: the same on any host while nothing in the step changes.
    pub title: String,
    /// The last change in the step by the times of its files, without the marker. A clock that is ahead gives a time in
    /// the future.
    pub newest: Time,
    /// Bytes of its files.
    pub bytes: u64,
    /// When the marker in it was written.
    pub marked: Option<Time>,
    /// The file that changed last.
    pub(super) last: Vec<u8>,
    /// A file that was certainly written after the marker, which is therefore of an earlier time; if there are several,
    /// one that only the marker's writer writes.
    rewritten: Option<Vec<u8>>,
    /// When entries were last added to or removed from its directories, and when anything about its files last changed.
    pub(super) moved: Time,
    pub(super) touched: Time,
    /// Its files and links, in the order of the walk.
    pub(super) files: Vec<Seen>,
    sight: blake3::Hash,
}

/// What was seen of a step so far.
struct Sight {
    /// A hash of what is the same on every host, and a hash of everything.
    lasting: blake3::Hasher,
    here: blake3::Hasher,
    newest: Option<Time>,
    last: Vec<u8>,
    moved: Time,
    touched: Time,
    marked: Time,
    mark: Option<Time>,
    bytes: u64,
    files: Vec<Seen>,
}

/// A file or a link as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Its path, relative to the step.
    name: Vec<u8>,
    /// Whether another rank than the marker's may write it.
    is_of_ranks: bool,
    /// When it was written; anybody can set this time.
    written: Time,
    /// When anything about it changed.
    changed: Time,
    /// A checksum of its path, and one of its path, size, target and write time.
    path: u64,
    sum: u64,
}

/// The files of a step: when the newest was written, when anything last changed, and checksums of all paths and files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Files {
    pub(super) written: Time,
    pub(super) changed: Time,
    pub(super) paths: u64,
    pub(super) sum: u64,
}

impl Step {
    /// Reads a step; none, if it disappears or changes meanwhile.
    pub(super) fn at(path: &Path, mark: Option<&Mark>) -> Result<Option<Self>> {
        let mut sight = Sight {
            lasting: blake3::Hasher::new(),
            here: blake3::Hasher::new(),
            newest: None,
            last: Vec::new(),
            moved: Time::default(),
            touched: Time::default(),
            marked: Time::default(),
            mark: None,
            bytes: 0,
            files: Vec::new(),
        };
        let items = match walk(path, options()) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            items => items,
        };
        let marked = mark.map(Marked::of);
        let mut rewritten = None;
        let mark = mark.and_then(|mark| mark.path.strip_prefix(path).ok());
        let mark = mark.map(|mark| mark.as_os_str().as_encoded_bytes());
        let mut walk = items?;
        while let Some(item) = walk.next() {
            match &item {
                Ok(Item::Enter { stat, .. }) => sight.add(walk.path(), b'd', stat, b""),
                Ok(Item::File { stat, .. }) => sight.add(walk.path(), b'f', stat, b""),
                Ok(Item::Symlink { stat, target, .. }) => {
                    sight.add(walk.path(), b'l', stat, target);
                }
                Ok(Item::Leave) => continue,
                // An entry that disappeared is no error. Whoever puts the step will report entries that no walk
                // accepts.
                Ok(Item::Skipped { error, .. }) if error.kind() == ErrorKind::NotFound => {
                    return Ok(None);
                }
                Ok(Item::Skipped { error, .. }) => {
                    let text = error.to_string();
                    sight.lasting.update(text.as_bytes());
                    sight.here.update(text.as_bytes());
                }
                Err(error) => return Err(Error::new(error.kind(), error.to_string())),
            }
            if let Ok(Item::File { stat, .. } | Item::Symlink { stat, .. }) = &item {
                let place = || path.join(OsStr::from_bytes(walk.path()));
                let others =
                    (marked.as_ref()).map(|marked| marked.others(walk.path(), stat, place));
                let is_beside = others == Some(Others::Late) || is_own(walk.path());
                sight.age(walk.path(), stat, mark, is_beside);
                let is_first = rewritten.is_none() || !is_of_others(walk.path());
                if others == Some(Others::Rewritten) && is_first {
                    rewritten = Some(walk.path().to_vec());
                }
            }
        }
        let name = shown(path.file_name().unwrap_or_default().as_encoded_bytes());
        let mut sum = sight.lasting.finalize().to_hex().to_string();
        sum.truncate(SUM_DIGITS);
        Ok(Some(Self {
            path: path.to_path_buf(),
            title: format!("{name} {sum}"),
            name,
            newest: sight.newest.or(sight.mark).unwrap_or(sight.marked),
            bytes: sight.bytes,
            marked: sight.mark,
            last: sight.last,
            rewritten,
            moved: sight.moved,
            touched: sight.touched,
            files: sight.files,
            sight: sight.here.finalize(),
        }))
    }
}

impl Step {
    /// Describes its files; none, if it has no files.
    pub(super) fn files(&self) -> Option<Files> {
        let written = self.files.iter().map(|file| file.written).max()?;
        let changed = self.files.iter().map(|file| file.changed).max()?;
        Some(Files {
            written,
            changed,
            paths: self.paths(),
            sum: self.sum_of(|_| true).0,
        })
    }

    /// Whether it has no files but its marker.
    pub(super) fn is_marker_alone(&self) -> bool {
        self.marked.is_some() && self.files.len() == 1
    }

    /// Whether it has the files `before`, unchanged, and others. Added files were written later, or, if copied with
    /// their times, changed later.
    pub(super) fn has_more_than(&self, before: &Files) -> bool {
        let all = self.files.len();
        let is_before = |(sum, count): (u64, usize)| sum == before.sum && count < all;
        is_before(self.sum_of(|file| file.written <= before.written))
            || is_before(self.sum_of(|file| file.changed <= before.changed))
    }

    /// Whether it has files of the same names as `before`, and one was written since.
    pub(super) fn is_anew(&self, before: &Files) -> bool {
        self.goes_on_after(before.written) && self.paths() == before.paths
    }

    /// If some of its files are those of `before` and others were written since: one of those that are left.
    pub(super) fn remnant(&self, before: &Files) -> Option<&[u8]> {
        let left = self.files.iter().find(|file| file.is_of(before))?;
        let is_rewritten = self.files.iter().any(|file| !file.is_of(before));
        is_rewritten.then_some(&left.name)
    }

    /// The last change in the files that only the marker's writer writes, if all files were written since `before`.
    pub(super) fn newest_since(&self, before: &Files) -> Option<Time> {
        if self.files.iter().any(|file| file.is_of(before)) {
            return None;
        }
        let own = self.files.iter().filter(|file| !file.is_of_ranks);
        own.map(|file| file.written.min(file.changed)).max()
    }

    /// A file that was written after the marker and shows that the marker is of an earlier time. If `all` files were
    /// written again, so was the marker, and what other ranks write may follow it.
    pub(super) fn rewritten(&self, all: bool) -> Option<&Vec<u8>> {
        let file = self.rewritten.as_ref();
        file.filter(|file| !(all && is_of_others(file)))
    }

    /// Whether a file that only the marker's writer writes came after the marker, which came at `marked`, with an older
    /// time of writing.
    pub(super) fn is_copied_after(
        &self,
        marked: Time,
        is_later: impl Fn(Time, Time) -> bool,
    ) -> bool {
        let mut own = self.files.iter().filter(|file| !file.is_of_ranks);
        own.any(|file| is_later(file.changed, marked) && is_later(file.changed, file.written))
    }

    /// A file that rsync broke off and kept: it sets the seconds of such a file's time to 0.
    pub(super) fn broken_off(&self) -> Option<Vec<u8>> {
        let mut files = self.files.iter();
        let broken_off = files.find(|file| file.written.secs == 0)?;
        Some(broken_off.name.clone())
    }

    /// When anything about it last changed, by the times that nobody can set for its files.
    pub(super) fn changed(&self) -> Time {
        self.touched.max(self.moved)
    }

    fn paths(&self) -> u64 {
        let mut paths = blake3::Hasher::new();
        for file in &self.files {
            paths.update(&file.path.to_le_bytes());
        }
        short(&paths)
    }

    /// A checksum of some of its files, and their number.
    fn sum_of(&self, is_meant: impl Fn(&Seen) -> bool) -> (u64, usize) {
        let mut sum = blake3::Hasher::new();
        let mut count = 0;
        for file in self.files.iter().filter(|file| is_meant(file)) {
            sum.update(&file.sum.to_le_bytes());
            count += 1;
        }
        (short(&sum), count)
    }

    /// Whether a file was written after `marked`, when its writer declared it finished: others still write.
    pub(super) fn goes_on_after(&self, marked: Time) -> bool {
        self.files.iter().any(|file| file.written > marked)
    }
}

impl Seen {
    /// Whether it is a file of `before`. A write time may be set by hand or come from a clock that was ahead, and any
    /// change of its rights is a change.
    fn is_of(&self, before: &Files) -> bool {
        self.written <= before.written.min(before.changed) || self.changed <= before.changed
    }
}

fn short(sum: &blake3::Hasher) -> u64 {
    let mut first = [0; 8];
    sum.finalize_xof().fill(&mut first);
    u64::from_le_bytes(first)
}

/// Whether the name of a file, or of a directory above it, is one of [`LATE`].
fn is_of_ranks(path: &[u8]) -> bool {
    let mut names = path.split(|byte| *byte == b'/');
    names.any(|name| LATE.iter().any(|late| name.starts_with(late)))
}

/// Whether it is a file that every rank writes for itself.
fn is_own(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next();
    name.is_some_and(|name| name.starts_with(OF_RANKS))
}

/// Whether another rank than the marker's may write a file of this name.
fn is_of_others(path: &[u8]) -> bool {
    is_of_ranks(path) || is_own(path)
}

/// Recognizes what a file that is newer than the marker means.
struct Marked {
    /// When the marker was written, and when it was created.
    times: Option<(Time, SystemTime)>,
    is_of_transformers: bool,
    is_named: bool,
    /// Whether one clock gives the times of all files.
    is_here: bool,
}

/// What a file means that was written after the marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Others {
    /// Another rank wrote it, as ranks do.
    Late,
    /// The marker's writer began to write everything again.
    Rewritten,
    /// It may be either, or was written before.
    Unknown,
}

impl Marked {
    fn of(mark: &Mark) -> Self {
        let born = (mark.path.symlink_metadata()).and_then(|found| found.created());
        let marked = Stat::of_path(&mark.path).map(|stat| stat.mtime);
        Self {
            times: (marked.ok().zip(born.ok())).filter(|_| mark.comes_last),
            is_of_transformers: mark.is_of_transformers(),
            is_named: mark.is_named,
            is_here: is_host_local(&mark.path),
        }
    }

    /// What it means that there is this file. If the file system does not record creation times, that is unknown.
    fn others(&self, path: &[u8], stat: &Stat, place: impl FnOnce() -> PathBuf) -> Others {
        let Some((marked, born)) = self.times.filter(|(marked, _)| stat.mtime > *marked) else {
            return Others::Unknown;
        };
        let is_rank = is_own(path) || (self.is_of_transformers && is_of_ranks(path));
        let made = place().symlink_metadata().and_then(|found| found.created());
        if is_rank {
            let is_late = self.is_of_transformers && is_of_ranks(path);
            let is_made_after = made.is_ok_and(|made| made > born);
            return match is_late && is_made_after {
                true => Others::Late,
                false => Others::Unknown,
            };
        }
        // A copy may have any time of writing; a file that was just written has the time of its last change. A time that
        // was set is finer than those of the kernel, and so may be later than its change, and than the marker.
        let is_written = (0..=COPIED_NANOS).contains(&nanos_between(stat.mtime, stat.ctime));
        // A file that was created after the marker is an addition, by a callback of the job for instance.
        let was_there =
            made.is_ok_and(|made| system_time(marked).is_some_and(|marked| made < marked));
        match self.is_here && is_written && (self.is_named || was_there) {
            true => Others::Rewritten,
            false => Others::Unknown,
        }
    }
}

fn system_time(time: Time) -> Option<SystemTime> {
    let since = Duration::new(u64::try_from(time.secs).ok()?, time.nanos);
    UNIX_EPOCH.checked_add(since)
}

impl Sight {
    fn add(&mut self, path: &[u8], kind: u8, stat: &Stat, target: &[u8]) {
        let size = if kind == b'd' { 0 } else { stat.size };
        for hash in [&mut self.lasting, &mut self.here] {
            hash.update(&(path.len() as u64).to_le_bytes());
            hash.update(path);
            hash.update(&[kind]);
            hash.update(&size.to_le_bytes());
            hash.update(&(target.len() as u64).to_le_bytes());
            hash.update(target);
            hash.update(format!("{:?}", stat.mtime).as_bytes());
        }
        let own = format!("{:?} {}", stat.ctime, stat.ino);
        self.here.update(own.as_bytes());
        match kind {
            b'd' => self.moved = self.moved.max(stat.mtime),
            _ => self.touched = self.touched.max(stat.mtime).max(stat.ctime),
        }
        if kind != b'd' {
            let name = path;
            let mut file = blake3::Hasher::new();
            file.update(&(path.len() as u64).to_le_bytes());
            file.update(path);
            let path = short(&file);
            file.update(&[kind]);
            file.update(&size.to_le_bytes());
            file.update(target);
            file.update(format!("{:?}", stat.mtime).as_bytes());
            self.files.push(Seen {
                name: name.to_vec(),
                is_of_ranks: is_of_others(name),
                written: stat.mtime,
                changed: stat.ctime,
                path,
                sum: short(&file),
            });
        }
        if kind == b'f' {
            self.bytes = self.bytes.saturating_add(stat.size);
        }
    }

    /// Takes the time of a file into account; `is_beside` means that it may be written at any time.
    fn age(&mut self, path: &[u8], stat: &Stat, mark: Option<&[u8]>, is_beside: bool) {
        if mark == Some(path) || is_beside {
            self.marked = self.marked.max(stat.mtime);
            if mark == Some(path) {
                self.mark = Some(stat.mtime);
            }
            return;
        }
        // A file is never written after its last change. A later write time was set by hand, or comes from another
        // clock.
        let written = stat.mtime.min(stat.ctime);
        if self.newest.is_none_or(|newest| newest < written) {
            self.newest = Some(written);
            self.last = path.to_vec();
        }
    }
}
