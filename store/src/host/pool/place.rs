//! From the pool into a tree: places one pool file by hard link, reflink or copy under a name in an open directory.

use std::fs::File;
use std::io::Read;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{self, AtFlags};
use rustix::io::Errno;

use super::{Pool, PoolKey, disk, is_intact};
use crate::error::{Error, Result};
use crate::id::ChunkId;

/// Bytes that one step of a copy moves.
const COPY_BYTES: usize = 1 << 20;

/// The result of placing a pool file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placed {
    /// The file is in place.
    Done,
    /// The pool lacks the file, or has a changed one.
    Missing,
    /// The system does not make this kind of link between the two places.
    Refused(Errno),
}

impl Pool {
    /// Links the file to `name` in `dir`, which must not exist.
    ///
    /// The link is made before the file is inspected: then one look is enough, and it is at the inode that was linked.
    pub(crate) fn link(&self, key: &PoolKey, dir: BorrowedFd<'_>, name: &[u8]) -> Result<Placed> {
        let Some(shard) = self.shard(key.shard())? else {
            return Ok(Placed::Missing);
        };
        if self.is_verifying() && !matches!(self.look(key)?, super::Look::Intact(_)) {
            return Ok(Placed::Missing);
        }
        match fs::linkat(&shard, key.name(), dir, name, AtFlags::empty()) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(Placed::Missing),
            Err(Errno::MLINK) => return self.refresh(key, dir, name),
            Err(
                errno @ (Errno::XDEV
                | Errno::PERM
                | Errno::OPNOTSUPP
                | Errno::NOSYS
                | Errno::ACCESS),
            ) => return Ok(Placed::Refused(errno)),
            Err(errno) => return Err(disk::failed("link pool file", &self.path_of(key), errno)),
        }
        let stat = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|errno| {
            disk::failed("look at a link to pool file", &self.path_of(key), errno)
        })?;
        if is_intact(key, &stat.into()) {
            return Ok(Placed::Done);
        }
        fs::unlinkat(dir, name, AtFlags::empty()).map_err(|errno| {
            disk::failed("unlink a changed pool file", &self.path_of(key), errno)
        })?;
        Ok(Placed::Missing)
    }

    /// Replaces a pool file whose inode has the maximum number of links by a copy, and links that.
    fn refresh(&self, key: &PoolKey, dir: BorrowedFd<'_>, name: &[u8]) -> Result<Placed> {
        let Some(source) = self.open_file(key)? else {
            return Ok(Placed::Missing);
        };
        let (draft, file) = self.draft(*key, false)?;
        if fs::ioctl_ficlone(&file, &source).is_err()
            && !copy_verified(&source, &file, key)
                .map_err(|source| Error::io("copy pool file", self.path_of(key), source))?
        {
            return Ok(Placed::Missing);
        }
        draft.seal(&file)?;
        self.publish(vec![draft])?;
        // A second refusal would mean that the file system allows no links at all.
        let Some(shard) = self.shard(key.shard())? else {
            return Ok(Placed::Missing);
        };
        match fs::linkat(&shard, key.name(), dir, name, AtFlags::empty()) {
            Ok(()) => Ok(Placed::Done),
            Err(Errno::NOENT) => Ok(Placed::Missing),
            Err(errno) => Ok(Placed::Refused(errno)),
        }
    }
}

/// Makes the empty file `to` share the blocks of a pool file.
pub(crate) fn reflink(from: &File, to: &File) -> Placed {
    match fs::ioctl_ficlone(to, from) {
        Ok(()) => Placed::Done,
        Err(errno) => Placed::Refused(errno),
    }
}

/// Copies the file of `key` to the empty file `to`. Returns false when the bytes do not match the key. Only small files
/// are checked, see [`PoolKey::is_verified_when_copied`].
pub(crate) fn copy_verified(from: &File, to: &File, key: &PoolKey) -> std::io::Result<bool> {
    if !key.is_verified_when_copied() {
        return copy_bytes(from, to, key.content.size).map(|()| true);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(key.content.size).unwrap_or_default());
    from.take(key.content.size).read_to_end(&mut bytes)?;
    if ChunkId::of(&bytes) != key.content.root {
        return Ok(false);
    }
    to.write_all_at(&bytes, 0)?;
    Ok(true)
}

/// Copies `size` bytes to the empty file `to`; holes stay holes.
fn copy_bytes(from: &File, to: &File, size: u64) -> std::io::Result<()> {
    to.set_len(size)?;
    let mut at = 0;
    while at < size {
        let start = match fs::seek(from, fs::SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            Err(_) => at,
        };
        let end = fs::seek(from, fs::SeekFrom::Hole(start)).unwrap_or(size);
        copy_range(from, to, start, end.min(size))?;
        at = end.max(start + 1);
    }
    Ok(())
}

fn copy_range(from: &File, to: &File, start: u64, end: u64) -> std::io::Result<()> {
    let (mut read, mut write) = (start, start);
    while read < end {
        let len = usize::try_from(end - read)
            .unwrap_or(usize::MAX)
            .min(64 * COPY_BYTES);
        match fs::copy_file_range(from, Some(&mut read), to, Some(&mut write), len) {
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(_) => return copy_by_hand(from, to, read, end),
        }
    }
    Ok(())
}

fn copy_by_hand(from: &File, to: &File, mut at: u64, end: u64) -> std::io::Result<()> {
    let mut buffer = vec![0; COPY_BYTES];
    while at < end {
        let len = usize::try_from(end - at)
            .unwrap_or(usize::MAX)
            .min(COPY_BYTES);
        let piece = buffer.get_mut(..len).unwrap_or_default();
        from.read_exact_at(piece, at)?;
        to.write_all_at(piece, at)?;
        at += len as u64;
    }
    Ok(())
}

impl Pool {
    /// Whether pool files can be linked into the directory `dir`. Found out by trying: device numbers do not tell,
    /// since two mounts of one file system refuse links between them.
    ///
    /// # Errors
    /// When the pool cannot be written.
    pub fn can_link_to(&self, dir: &std::path::Path) -> Result<bool> {
        // In a room, which a sweep removes if this process is killed in between.
        let Ok(room) = self.room(dir) else {
            return Ok(false);
        };
        let owner = self.owner()?;
        let linked = fs::linkat(self.fd(), owner.file(), room.dir(), "try", AtFlags::empty());
        Ok(linked.is_ok())
    }
}
