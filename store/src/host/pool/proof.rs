//! Proofs: nonces in directories, which allow processes other than the maker to remove them.
//!
//! A mark or a note in a pool only says where to look. A directory is removed only if it holds the same nonce, which is
//! known only to those who can read the pool. In a room the nonce is a symlink, which has its text as soon as it has
//! its name. In a tree it is an extended attribute, which no job sees, or such a symlink if the file system has no
//! attributes.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, XattrFlags};
use rustix::io::Errno;

use super::{POOL_TIME, disk, trust};
use crate::host::walk::Stat;
use crate::id::CommitId;

/// The attribute of a tree that holds its nonce.
const ATTRIBUTE: &str = "user.store.nonce";
/// The attribute of a tree that names the record of what was made in it.
const RECORD: &str = "user.store.record";
/// The attribute of a tree that was saved since: its record, and the version that the save made or found.
const SAVED: &str = "user.store.saved";
/// The symlink that holds the nonce in a room, and in a tree without attributes.
pub(super) const LINK: &str = ".store-nonce";

/// Stores `nonce` in the open directory as a symlink.
pub(super) fn plant_link(dir: impl AsFd, nonce: &str) -> rustix::io::Result<()> {
    fs::symlinkat(nonce, dir, LINK)
}

/// Whether a symlink is a proof, by its name and its target. It is no user's data.
pub(crate) fn is_proof(name: &[u8], target: &[u8]) -> bool {
    let target = std::str::from_utf8(target).unwrap_or_default();
    name == LINK.as_bytes() && target.parse::<CommitId>().is_ok()
}

/// The name of the proof in an open directory, if it holds one as a symlink.
pub(crate) fn proof_in(dir: impl AsFd) -> Option<&'static [u8]> {
    let said = fs::readlinkat(dir, LINK, Vec::new()).ok()?;
    is_proof(LINK.as_bytes(), said.as_bytes()).then_some(LINK.as_bytes())
}

/// Stores `nonce` in what was built as `name` in `dir`. A file that shares its inode with the pool needs none.
pub(super) fn plant(dir: BorrowedFd<'_>, name: &[u8], nonce: &str) -> rustix::io::Result<()> {
    let built = open(dir, name)?;
    let stat = Stat::from(fs::fstat(&built)?);
    if is_link_of_pool(&stat) {
        return Ok(());
    }
    let set = fs::fsetxattr(&built, ATTRIBUTE, nonce.as_bytes(), XattrFlags::empty());
    if set.is_ok() || !stat.is_dir() {
        return set;
    }
    match plant_link(&built, nonce) {
        Err(Errno::EXIST) => {
            fs::unlinkat(&built, LINK, AtFlags::empty())?;
            plant_link(&built, nonce)
        }
        planted => planted,
    }
}

/// Stores the name of a record in the open directory, and the number of its inode, since programs copy attributes from one
/// directory to another. Returns whether its file system allows that.
pub(super) fn stamp(dir: impl AsFd, record: &str) -> bool {
    let text = fs::fstat(&dir).map(|stat| format!("{record} {}", stat.st_ino));
    text.and_then(|text| fs::fsetxattr(dir, RECORD, text.as_bytes(), XattrFlags::empty()))
        .is_ok()
}

/// Reads the name of the record in the directory at `path`. One that was copied from another directory counts as none.
pub(crate) fn stamped(path: &Path) -> Option<Vec<u8>> {
    let text = record_read_by(|text| fs::getxattr(path, RECORD, text))?;
    own_record(text, || fs::stat(path))
}

/// Reads the same from an open directory.
pub(crate) fn stamped_open(dir: impl AsFd) -> Option<Vec<u8>> {
    let text = record_read_by(|text| fs::fgetxattr(&dir, RECORD, text))?;
    own_record(text, || fs::fstat(&dir))
}

/// The name of the record in the text of a stamp, if that is of the inode. Programs from before 2026-11-28 did not write the
/// number of the inode.
fn own_record(
    mut text: Vec<u8>,
    stat: impl FnOnce() -> rustix::io::Result<fs::Stat>,
) -> Option<Vec<u8>> {
    let Some(end) = text.iter().position(|byte| *byte == b' ') else {
        return Some(text);
    };
    let number = text.get(end + 1..)?;
    let is_own = number == stat().ok()?.st_ino.to_string().as_bytes();
    text.truncate(end);
    is_own.then_some(text)
}

/// Stores in the directory at `path` that it was saved as `version` since `record` was made of it.
pub(super) fn note_saved(path: &Path, record: &str, version: u64) {
    let text = format!("{record} {version}");
    // Without attributes, only the note of the save says it.
    disk::forgive(fs::setxattr(
        path,
        SAVED,
        text.as_bytes(),
        XattrFlags::empty(),
    ));
}

/// Reads that version, if there is one for `record`.
pub(super) fn saved_since(path: &Path, record: &str) -> Option<u64> {
    let text = record_read_by(|text| fs::getxattr(path, SAVED, text))?;
    let (of, version) = std::str::from_utf8(&text).ok()?.split_once(' ')?;
    version.parse().ok().filter(|_| of == record)
}

fn record_read_by(read: impl FnOnce(&mut [u8]) -> rustix::io::Result<usize>) -> Option<Vec<u8>> {
    let mut text = [0; 128];
    let len = read(&mut text).ok()?;
    text.get(..len).map(<[u8]>::to_vec)
}

/// Whether `path` is a tree that was made from a pool, or is inside one, as far as the file system tells.
pub(crate) fn is_in_tree(path: &Path) -> bool {
    let path = path.canonicalize();
    path.is_ok_and(|path| path.ancestors().any(|above| stamped(above).is_some()))
}

/// Whether `name` in `dir` belongs to the caller, and holds `nonce` or is merely a link to a pool file.
pub(super) fn holds(dir: BorrowedFd<'_>, name: &[u8], nonce: &str) -> bool {
    let Ok(found) = open(dir, name) else {
        return false;
    };
    let Ok(stat) = fs::fstat(&found).map(Stat::from) else {
        return false;
    };
    stat.uid == trust::user() && (is_link_of_pool(&stat) || says(&found, nonce))
}

/// Whether the open file or directory holds `nonce`.
fn says(found: impl AsFd, nonce: &str) -> bool {
    let mut text = [0; 64];
    let said = fs::fgetxattr(&found, ATTRIBUTE, &mut text[..]);
    let is_said = said.is_ok_and(|len| text.get(..len) == Some(nonce.as_bytes()));
    !nonce.is_empty() && (is_said || says_by_link(found, nonce))
}

/// Whether the open directory holds `nonce` as a symlink.
pub(super) fn says_by_link(dir: impl AsFd, nonce: &str) -> bool {
    let said = fs::readlinkat(dir, LINK, Vec::new());
    !nonce.is_empty() && said.is_ok_and(|said| said.as_bytes() == nonce.as_bytes())
}

/// Whether removing the name loses no bytes, since the file is a link to a pool file.
fn is_link_of_pool(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.mode) == FileType::RegularFile
        && stat.nlink > 1
        && stat.mtime == POOL_TIME
        && matches!(stat.mode & 0o7777, 0o444 | 0o555)
}

fn open(dir: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<std::os::fd::OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    fs::openat(dir, name, flags, Mode::empty())
}
