//! A step as it is seen: what it is called, and when something in it changed last. Only names and stats are looked at.

use std::path::{Path, PathBuf};

use super::{Mark, options};
use crate::error::{Error, Kind, Result};
use crate::format::Time;
use crate::host::walk::{Item, Stat, walk};
use crate::shown::shown;

/// Hex digits of what a step was seen as.
const SUM_DIGITS: usize = 16;
/// What every rank of a job writes for itself when it likes, also after the marker.
const OF_RANKS: &[u8] = b"rng_state";

/// A step as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Where it is.
    pub path: PathBuf,
    /// What it is called, on one line.
    pub name: String,
    /// That, and as what it was seen: the same again where nothing was changed in it, on any host.
    pub title: String,
    /// When something in it changed last, as its files say; what finishes it says nothing of its age. By a clock that is
    /// ahead, this is in the future.
    pub newest: Time,
    /// Bytes of its files.
    pub bytes: u64,
    /// When the file in it that finishes it was written.
    pub marked: Option<Time>,
    /// The file that changed last.
    pub(super) last: Vec<u8>,
    /// When entries of its directories came or went last, and when anything about a file of it changed.
    pub(super) moved: Time,
    pub(super) touched: Time,
    sight: blake3::Hash,
}

/// What is seen of a step on the way.
struct Sight {
    /// Of what is the same on every host, and of all of it.
    lasting: blake3::Hasher,
    here: blake3::Hasher,
    newest: Option<Time>,
    last: Vec<u8>,
    moved: Time,
    touched: Time,
    marked: Time,
    mark: Option<Time>,
    bytes: u64,
}

impl Step {
    /// As it is now; nothing where it goes or changes meanwhile.
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
        };
        let items = match walk(path, options()) {
            Err(error) if error.kind() == Kind::NotFound => return Ok(None),
            items => items,
        };
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
                // What went meanwhile is no error of its own; what no walk takes, whoever puts it will name.
                Ok(Item::Skipped { error, .. }) if error.kind() == Kind::NotFound => {
                    return Ok(None);
                }
                Ok(Item::Skipped { error, .. }) => {
                    let text = error.to_string();
                    sight.lasting.update(text.as_bytes());
                    sight.here.update(text.as_bytes());
                }
                Err(error) => return Err(Error::new(error.kind(), error.to_string())),
            }
            if let Ok(Item::File { stat, name, .. } | Item::Symlink { stat, name, .. }) = &item {
                sight.age(walk.path(), name, stat, mark);
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
            moved: sight.moved,
            touched: sight.touched,
            sight: sight.here.finalize(),
        }))
    }
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
        if kind == b'f' {
            self.bytes = self.bytes.saturating_add(stat.size);
        }
    }

    fn age(&mut self, path: &[u8], name: &[u8], stat: &Stat, mark: Option<&[u8]>) {
        if mark == Some(path) || name.starts_with(OF_RANKS) {
            self.marked = self.marked.max(stat.mtime);
            if mark == Some(path) {
                self.mark = Some(stat.mtime);
            }
            return;
        }
        // Nothing is written after it was changed last: a time behind that was set, or is of another clock.
        let written = stat.mtime.min(stat.ctime);
        if self.newest.is_none_or(|newest| newest < written) {
            self.newest = Some(written);
            self.last = path.to_vec();
        }
    }
}
