//! The content of a directory when it was last saved, kept on this host as the base of the next save.
//!
//! It is a list of all paths, beside a note that says which directory it is of. If they are lost, the next save is
//! merged from an older base. A note holds for one inode only, like the mark of a tree.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::format::{Content, RefName, Time};
use crate::fs::{build_atomically, open_regular, read_regular, write_atomically};
use crate::host::pool::list::{ListWriter, Thing, checksum};
use crate::host::pool::{Inode, Known, Mark, PoolKey};

/// Most bytes of a note that are read.
const NOTE_BYTES_MAX: u64 = 1 << 20;
/// The pause between two attempts while another process saves the directory.
const PAUSE: Duration = Duration::from_millis(20);
/// The only version of the format.
const NOTE_VERSION: u32 = 1;

/// What a directory was saved as.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Note {
    note: u32,
    /// The inode of the directory.
    inode: Inode,
    /// The ref, and the version that the save made or found.
    pub(crate) name: RefName,
    pub(crate) version: u64,
    /// The tree of that version. Programs from before 2026-11-23 did not record it.
    #[serde(default)]
    tree: Option<Content>,
    /// The content of the directory itself.
    pub(crate) root: Content,
    /// The mark of the directory at that time. A tree that was made again since has another base.
    pub(crate) made: Option<Made>,
    /// The checksum of the list, which is also in its name.
    list: String,
}

/// Tells a materialized tree from its earlier states.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Made {
    pub(crate) record: Option<String>,
    pub(crate) version: u64,
}

impl Note {
    /// The version that the directory is of.
    pub(crate) fn known(&self) -> Known {
        Known {
            version: self.version,
            tree: self.tree,
        }
    }
}

impl From<&Mark> for Made {
    fn from(mark: &Mark) -> Self {
        Self {
            record: mark.record.clone(),
            version: mark.version,
        }
    }
}

/// The notes of one directory.
pub(crate) struct Notes {
    dir: PathBuf,
    name: String,
    root: PathBuf,
}

/// A list in progress of what a directory is.
pub(crate) struct Listing {
    list: ListWriter<Thing>,
    path: Vec<Vec<u8>>,
}

impl Notes {
    /// The notes of the directory at the canonical path `root`, in the cache directory of a store; none without one.
    pub(crate) fn of(cache_dir: Option<PathBuf>, root: &Path) -> Option<Self> {
        Some(Self {
            dir: cache_dir?.join("saved"),
            name: named(root.as_os_str().as_bytes()),
            root: root.to_owned(),
        })
    }

    /// The notes of the same directory for one ref: it may be saved to several.
    fn to(&self, name: &RefName) -> Self {
        let root = self.root.as_os_str().as_bytes();
        Self {
            dir: self.dir.clone(),
            name: named(&[root, b"\0", name.as_str().as_bytes()].concat()),
            root: self.root.clone(),
        }
    }

    /// The note about the last save of this directory to this ref, if it is the same inode.
    pub(crate) fn read_of(&self, name: &RefName) -> Option<Note> {
        self.to(name).read().filter(|note| note.name == *name)
    }

    /// The version of a ref as which `dir` was last saved, according to the notes below `cache_dir`.
    pub(crate) fn version_of(
        cache_dir: Option<PathBuf>,
        dir: &Path,
        name: &RefName,
    ) -> Option<u64> {
        let note = Self::of(cache_dir, dir)?.read_of(name)?;
        Some(note.version)
    }

    /// The note about the last save of this directory, if it is the same inode.
    pub(crate) fn read(&self) -> Option<Note> {
        let bytes = read_regular(&self.path("json"), NOTE_BYTES_MAX).ok()?;
        let note: Note = serde_json::from_slice(&bytes).ok()?;
        let inode = Inode::of(CWD, self.root.as_os_str().as_bytes()).ok()?;
        (note.note == NOTE_VERSION && note.inode == inode).then_some(note)
    }

    /// The list of a note, if its bytes are right.
    pub(crate) fn list(&self, note: &Note) -> Option<File> {
        let notes = self.to(&note.name);
        let file = open_regular(&notes.path(&format!("{}.list", note.list))).ok()?;
        let sum = checksum(&file).ok()??;
        (spelled(&sum) == note.list).then_some(file)
    }

    /// Waits until no other process of this host saves the directory, since the next save must be merged from what that
    /// one records. The turn ends when it is dropped or the process ends. Without locks in the file system, there is no
    /// wait.
    pub(crate) fn turn(&self, check_stop: &dyn Fn() -> Result<()>) -> Result<Option<File>> {
        let path = self.path("lock");
        let mut options = File::options();
        let options = options.write(true).create(true).truncate(false);
        let opened = std::fs::create_dir_all(&self.dir).and_then(|()| options.open(&path));
        // If the disk is full or read-only, there is no lock, and no wait.
        let Ok(file) = opened else {
            return Ok(None);
        };
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Some(file)),
                Err(Errno::WOULDBLOCK) => check_stop()?,
                Err(_) => return Ok(None),
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Begins a list.
    pub(crate) fn begin(&self) -> Result<Listing> {
        let failed = |source| Error::io("create a list in", &self.dir, source);
        std::fs::create_dir_all(&self.dir).map_err(failed)?;
        let file = tempfile::tempfile_in(&self.dir).map_err(failed)?;
        Ok(Listing {
            list: ListWriter::new(file)?,
            path: Vec::new(),
        })
    }

    /// Records what was saved, and replaces the earlier record for the same ref.
    pub(crate) fn write(
        &self,
        listing: Listing,
        (name, version, tree): (&RefName, u64, Content),
        (root, made): (Content, Option<Made>),
    ) -> Result<()> {
        let inode = Inode::of(CWD, self.root.as_os_str().as_bytes());
        let inode = inode.map_err(|errno| Error::io("look at", &self.root, errno.into()))?;
        let notes = self.to(name);
        let before = notes.read();
        let (sum, mut file) = listing.list.finish()?;
        let note = Note {
            note: NOTE_VERSION,
            inode,
            name: name.clone(),
            version,
            tree: Some(tree),
            root,
            made,
            list: spelled(&sum),
        };
        let path = notes.path(&format!("{}.list", note.list));
        build_atomically(&path, |out| {
            use std::io::Seek;
            let copied = file.rewind().and_then(|()| std::io::copy(&mut file, out));
            copied
                .map(drop)
                .map_err(|source| Error::io("write", &path, source))
        })?;
        let text = serde_json::to_vec(&note)
            .map_err(|source| Error::invalid("note of a save").because(source))?;
        write_atomically(&notes.path("json"), &text)?;
        // Records which ref that was. If this is lost, the user has to name the ref.
        write_atomically(&self.path("json"), &text)?;
        if let Some(before) = before.filter(|before| before.list != note.list) {
            // A list that stays takes a little space.
            drop(std::fs::remove_file(
                notes.path(&format!("{}.list", before.list)),
            ));
        }
        Ok(())
    }

    fn path(&self, end: &str) -> PathBuf {
        self.dir.join(format!("{}.{end}", self.name))
    }
}

impl Listing {
    /// Enters a directory; the root has no name.
    pub(crate) fn enter(&mut self, name: &[u8], time: Time) -> Result<()> {
        if name.is_empty() {
            return Ok(());
        }
        self.path.push(name.to_vec());
        self.list.push(&self.path, &Thing::Dir { time })
    }

    /// Leaves a directory.
    pub(crate) fn leave(&mut self) {
        self.path.pop();
    }

    pub(crate) fn file(&mut self, name: &[u8], key: PoolKey, time: Time) -> Result<()> {
        let is_private = false;
        self.leaf(
            name,
            &Thing::File {
                key,
                time,
                is_private,
            },
        )
    }

    pub(crate) fn symlink(&mut self, name: &[u8], target: &[u8], time: Time) -> Result<()> {
        let target = target.to_vec();
        self.leaf(name, &Thing::Symlink { target, time })
    }

    fn leaf(&mut self, name: &[u8], thing: &Thing) -> Result<()> {
        self.path.push(name.to_vec());
        let pushed = self.list.push(&self.path, thing);
        self.path.pop();
        pushed
    }
}

fn named(key: &[u8]) -> String {
    let mut name = blake3::hash(key).to_hex().to_string();
    name.truncate(32);
    name
}

fn spelled(sum: &[u8; 32]) -> String {
    let mut text = blake3::Hash::from_bytes(*sum).to_hex().to_string();
    text.truncate(32);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_directory_has_one_turn_at_a_time() {
        let cache = tempfile::tempdir().unwrap();
        let notes = |root: &str| {
            let root = Path::new(root);
            Notes::of(Some(cache.path().to_owned()), root).unwrap()
        };
        let at_once = || Err(Error::interrupted("it waits"));
        let turn = notes("/job").turn(&at_once).unwrap();
        assert!(turn.is_some());
        assert!(notes("/job").turn(&at_once).is_err());
        assert!(notes("/other").turn(&at_once).unwrap().is_some());
        drop(turn);
        assert!(notes("/job").turn(&at_once).unwrap().is_some());
    }
}
