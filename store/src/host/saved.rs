//! The content of a directory when it was last saved, kept on this host as the base of the next save.
//!
//! It is a list of all paths, beside a note that says which directory it is of. A note holds for one inode only, like the
//! mark of a tree, and is in the pool that has the mark: if it were lost alone, the next save would be merged from the
//! version of the mark, and take back what others did since the save. The notes of a directory that no pool made are in
//! the cache directory of the store; so are those of all directories that builds from before 2026-11-24 saved.
//!
//! A program that is killed between the commit and its note would leave the note of the save before. So a draft of the note
//! says before the commit which tree it is about to commit, and counts once a version has that tree. Where it is not known
//! whether there was such a version, nothing may be merged from the note of the save before.

mod draft;
mod listing;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{self, AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::format::{Content, RefName, RefSpec, State};
use crate::host::pool::list::checksum;
use crate::host::pool::{Inode, Known, Mark, Pool, holds_note_at, note_at, settle_note, stamped};
use crate::host::{disk, trust};
use crate::id::StoreId;
use crate::remedy::Remedy;

pub(crate) use draft::{Draft, Last};
pub(crate) use listing::Listing;

/// Most bytes of a note that are read.
const NOTE_BYTES_MAX: u64 = 1 << 20;
/// The pause between two attempts while another process saves the directory.
const PAUSE: Duration = Duration::from_millis(20);
/// The only version of the format.
const NOTE_VERSION: u32 = 1;

/// What a directory was saved as.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
    /// Without such a mark: the name of the record that the directory held. A pool that made a tree in it since has another
    /// base, also when that pool is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stamp: Option<String>,
    /// The time of this note that the directory holds, in nanoseconds since 1970. One in an older copy of its file system has
    /// an earlier one, or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    noted: Option<i64>,
    /// The checksum of the list, which is also in its name.
    list: String,
    /// The checksum of the note without this field. Programs from before 2026-11-27 did not record it.
    #[serde(default)]
    check: Option<String>,
}

/// Tells a materialized tree from its earlier states.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Made {
    pub(crate) record: Option<String>,
    pub(crate) version: u64,
    /// The ref, with its store. Programs from before 2026-11-29 did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<(StoreId, RefName)>,
}

impl Eq for Made {}

impl PartialEq for Made {
    fn eq(&self, other: &Self) -> bool {
        (&self.record, self.version) == (&other.record, other.version)
    }
}

impl Note {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let note: Self = serde_json::from_slice(bytes).ok()?;
        let is_whole = note.check.is_none() || note.check == note.sealed().check;
        (note.note == NOTE_VERSION && is_whole).then_some(note)
    }

    /// The note with its checksum.
    fn sealed(&self) -> Self {
        let check = None;
        let mut note = Self {
            check,
            ..self.clone()
        };
        let text = note.to_text().unwrap_or_default();
        note.check = Some(named(&text));
        note
    }

    /// Whether a pool has made a tree in the directory since, of which this says nothing.
    fn is_of_before(&self, root: &Path) -> bool {
        self.made.is_none() && self.stamp != stamp_of(root)
    }

    /// Whether the directory is from before this note, as far as that is known: an older copy of its file system.
    fn is_of_later(&self, root: &Path) -> bool {
        let is_unheld = |noted| holds_note_at(root, noted) == Some(false);
        self.noted.is_some_and(is_unheld)
    }

    /// Whether it still says what the directory was, which has this mark now. A newer version of the ref that the directory
    /// was made from is another base for saves to that ref, which `is_own` says, and a change like any other for other saves.
    pub(crate) fn is_since(&self, mark: Option<&Mark>, is_own: bool) -> bool {
        let made = mark.map(Made::from);
        self.made == made
            || !is_own
                && match (&self.made, &made) {
                    (Some(then), Some(now)) => then.source.is_some() && then.source == now.source,
                    _ => false,
                }
    }

    fn to_text(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(self)
    }

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
            source: mark
                .source
                .parse::<RefSpec>()
                .ok()
                .map(|spec| (mark.store, spec.name)),
        }
    }
}

/// The error of a directory that is not at its path any more.
pub(crate) fn exchanged(path: &Path) -> Error {
    Error::conflict(format!(
        "{}: is not the directory that it was: another one was put in its place",
        path.display()
    ))
    .hint("nothing was stored: see who may rename in the directory above it")
}

/// The notes of one directory.
#[derive(Clone)]
pub(crate) struct Notes<'p> {
    store: StoreId,
    /// The cache directory of the store.
    cache: Option<PathBuf>,
    /// The pool that made the directory.
    pool: Option<&'p Pool>,
    /// What the names of the files begin with.
    name: String,
    root: PathBuf,
    /// Device and inode of the directory that is meant, whatever is at its path.
    meant: Option<(u64, u64)>,
}

impl<'p> Notes<'p> {
    /// The notes of the directory at the canonical path `root`, which a pool may have made, about saves to one store;
    /// none without a place for them.
    pub(crate) fn of(
        (store, cache): (StoreId, Option<PathBuf>),
        pool: Option<&'p Pool>,
        root: &Path,
    ) -> Option<Self> {
        (cache.is_some() || pool.is_some()).then(|| Self {
            store,
            cache: cache.map(|dir| dir.join("saved")),
            pool,
            name: named(root.as_os_str().as_bytes()),
            root: root.to_owned(),
            meant: None,
        })
    }

    /// Restricts them to the directory with this device and inode, if one is given.
    #[must_use]
    pub(crate) fn of_meant(mut self, identity: Option<(u64, u64)>) -> Self {
        self.meant = identity;
        self
    }

    /// The inode of the directory.
    ///
    /// # Errors
    /// Conflict, if another one is in its place.
    fn inode(&self) -> Result<Inode> {
        let found = Inode::of(CWD, self.root.as_os_str().as_bytes());
        let found = found.map_err(|errno| Error::io("look at", &self.root, errno.into()))?;
        match found.may_be(self.meant) {
            true => Ok(found),
            false => Err(exchanged(&self.root)),
        }
    }

    /// The same for a new note, and its time.
    ///
    /// # Errors
    /// As [`Self::inode`].
    fn inode_to_note(&self) -> Result<(Inode, Option<i64>)> {
        self.inode()?;
        let ends = [NOTE, DRAFT].into_iter();
        let before = ends.filter_map(|end| self.read_file(end)??.noted);
        let before: Vec<i64> = before.collect();
        let root = self.root.as_os_str().as_bytes();
        let noted = note_at(CWD, root, &before);
        self.inode()?;
        let found = Inode::of_noted(CWD, root, noted);
        let found = found.map_err(|errno| Error::io("look at", &self.root, errno.into()))?;
        Ok((found, noted))
    }

    /// Ends the times of earlier notes.
    fn settle(&self, note: &Note) {
        if let Some(noted) = note.noted {
            settle_note(&self.root, noted);
        }
    }

    /// The notes of the same directory for one ref: it may be saved to several.
    fn to(&self, name: &RefName) -> Self {
        let root = self.root.as_os_str().as_bytes();
        Self {
            name: named(&[root, b"\0", name.as_str().as_bytes()].concat()),
            ..self.clone()
        }
    }

    /// The directory to write to.
    fn make_dir(&self) -> Result<OwnedFd> {
        if let Some(pool) = self.pool {
            return pool.make_saved_dir(&self.root, self.store);
        }
        let dir = self.cache.clone().unwrap_or_default();
        let failed = |source| Error::io("create", &dir, source).hint(Remedy::OtherCacheDirectory);
        std::fs::create_dir_all(&dir).map_err(failed)?;
        open(&dir)
    }

    /// Checks that notes can be written.
    ///
    /// # Errors
    /// As from a file system.
    pub(crate) fn check(&self) -> Result<()> {
        let scratch = disk::scratch(self.make_dir()?, &disk::random_name()?);
        let failed = |errno| disk::failed("write down what is saved of", &self.root, errno);
        let failed = |errno| failed(errno).hint(Remedy::OtherCacheDirectory);
        scratch.map(drop).map_err(failed)
    }

    /// The directories to read from, the one that counts first.
    fn dirs(&self) -> impl Iterator<Item = OwnedFd> {
        let pool = self
            .pool
            .and_then(|pool| pool.saved_dir(&self.root, self.store));
        let cache = self.cache.as_ref();
        let cache = cache.and_then(|dir| open(dir).ok());
        pool.into_iter().chain(cache)
    }

    /// The same, where nothing depends on what is unclear.
    ///
    /// # Errors
    /// As [`Self::last`].
    pub(crate) fn read_of(&self, state: &State, name: &RefName) -> Result<Option<Note>> {
        Ok(self.last(state, name)?.note)
    }

    /// Writes back the file system of the directory, unless the newest note says the same of it. Otherwise, after a power
    /// cut, the directory could be older than its note, and the next save would take what was lost for a job's work.
    ///
    /// # Errors
    /// When not all of it can be written.
    pub(crate) fn flush(&self, name: &RefName, root: &Content) -> Result<()> {
        if self.to(name).read().is_some_and(|note| note.root == *root) {
            return Ok(());
        }
        let failed = |errno: Errno| Error::io("write back", &self.root, errno.into());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = fs::open(&self.root, flags, Mode::empty()).map_err(failed)?;
        fs::syncfs(dir).map_err(failed)
    }

    /// Whether the directory was saved to this ref before.
    pub(crate) fn has(&self, name: &RefName) -> bool {
        let notes = self.to(name);
        notes.read_file(NOTE).is_some() || notes.read_file(DRAFT).is_some()
    }

    /// Whether the directory was saved to a ref as a version that `state` does not know yet.
    ///
    /// # Errors
    /// When the state cannot be read.
    pub(crate) fn is_ahead(&self, state: &State, name: &RefName) -> Result<bool> {
        let saved = self.read_of(state, name)?.map_or(0, |note| note.version);
        Ok(saved > state.refs.last(name)?)
    }

    /// The note about the last save of this directory, if it is the same inode.
    pub(crate) fn read(&self) -> Option<Note> {
        self.read_file(NOTE).flatten()
    }

    /// The note in a file, if it is about the same inode; none inside, if there is one that cannot be read.
    fn read_file(&self, end: &str) -> Option<Option<Note>> {
        self.inode().ok()?;
        let is_of_other = |note: &Note| {
            let path = self.root.as_os_str().as_bytes();
            !note.inode.is_at(CWD, path) || note.inode.may_be_new(&self.root)
        };
        let holds = |note: &Note| {
            !is_of_other(note) && !note.is_of_before(&self.root) && !note.is_of_later(&self.root)
        };
        let mut files = self.files(end);
        files.find(|note| note.as_ref().is_none_or(holds))
    }

    /// The notes in the files, whether they hold or not.
    fn files(&self, end: &str) -> impl Iterator<Item = Option<Note>> {
        use std::io::Read;
        let name = self.file(end);
        self.dirs().filter_map(move |dir| {
            let mut bytes = Vec::new();
            let file = open_regular(&dir, &name)?;
            let read = file.take(NOTE_BYTES_MAX).read_to_end(&mut bytes);
            Some(read.ok().and_then(|_| Note::parse(&bytes)))
        })
    }

    /// Whether the directory was saved to this ref before, be it as a newer one than it is now.
    pub(crate) fn was_saved_to(&self, name: &RefName) -> bool {
        let notes = self.to(name);
        let Ok(inode) = self.inode() else {
            return false;
        };
        let mut files = [NOTE, DRAFT].into_iter().flat_map(|end| notes.files(end));
        files.any(|note| note.is_none_or(|note| note.inode.has_identity_of(&inode)))
    }

    /// The list of a note, if its bytes are right.
    pub(crate) fn list(&self, note: &Note) -> Option<File> {
        let name = self.to(&note.name).list_file(note);
        self.dirs().find_map(|dir| {
            let file = open_regular(&dir, &name)?;
            let sum = checksum(&file).ok()??;
            (spelled(&sum) == note.list).then_some(file)
        })
    }

    /// Waits until no other process of this host saves the directory, since the next save must be merged from what that
    /// one records. The turn ends when it is dropped or the process ends. Without locks in the file system, there is no
    /// wait.
    pub(crate) fn turn(&self, check_stop: &dyn Fn() -> Result<()>) -> Result<Option<File>> {
        // Whatever lies there, this never waits.
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let dir = self.make_dir().ok();
        let opened = dir.and_then(|dir| fs::openat(dir, self.file("lock"), flags, MODE).ok());
        // If the disk is full or read-only, there is no lock, and no wait.
        let Some(file) = opened.map(File::from) else {
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

    /// Removes what was noted of saves of this directory to `name` before a pool made a tree in it.
    pub(crate) fn forget(&self, name: &RefName) {
        for dir in self.dirs() {
            for notes in [self, &self.to(name)] {
                let list = notes.read().map(|note| notes.list_file(&note));
                let files = [NOTE, DRAFT].map(|end| notes.file(end)).into_iter();
                for file in files.chain(list) {
                    disk::forgive(fs::unlinkat(&dir, file, AtFlags::empty()));
                }
            }
        }
    }

    fn unwritten(&self, source: std::io::Error) -> Error {
        Error::io("write down what was saved of", &self.root, source)
    }

    fn list_file(&self, note: &Note) -> String {
        self.file(&format!("{}.list", note.list))
    }

    fn file(&self, end: &str) -> String {
        format!("{}.{end}", self.name)
    }
}

/// The name of the record that a directory holds.
fn stamp_of(root: &Path) -> Option<String> {
    stamped(root).map(|stamp| String::from_utf8_lossy(&stamp).into_owned())
}

/// The ends of the names of a note, and of its draft.
const NOTE: &str = "json";
const DRAFT: &str = "draft.json";

/// The mode of the files.
const MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Opens the host's cache directory, wherever symlinks lead to it.
fn open(dir: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = fs::open(dir, flags, Mode::empty());
    opened.map_err(|errno| disk::failed("open directory", dir, errno))
}

/// Opens a regular file of this user for reading.
fn open_regular(dir: &OwnedFd, name: &str) -> Option<File> {
    let file = disk::open_file(dir, name.as_bytes()).ok()?;
    let stat = fs::fstat(&file).ok()?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    (is_file && stat.st_uid == trust::user()).then_some(file)
}

/// Lets `bytes` become the file `name`. It lasts once the directory is synced.
fn replace(dir: &OwnedFd, name: &str, bytes: &mut dyn std::io::Read) -> std::io::Result<()> {
    let temporary = disk::random_name().map_err(std::io::Error::other)?;
    let mut file = disk::create(dir, temporary.as_bytes(), MODE.as_raw_mode())?;
    let written = std::io::copy(bytes, &mut file)
        .and_then(|_| file.sync_all())
        .and_then(|()| Ok(fs::renameat(dir, &temporary, dir, name)?));
    if written.is_err() {
        disk::forgive(fs::unlinkat(dir, &temporary, AtFlags::empty()));
    }
    written
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
            let place = (StoreId([7; 16]), Some(cache.path().to_owned()));
            Notes::of(place, None, Path::new(root)).unwrap()
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
