//! Reads the bytes of source files: small ones whole, large ones block by block, without holes. A file that changes
//! while it is read is an error.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::job::{FileJob, SMALL_BYTES_MAX};
use crate::error::Result;
use crate::host::walk::{Stat, next_data};

/// Bytes of a block of a large file.
const BLOCK_BYTES: usize = 2 << 20;

/// The position in a large file; `offset` is behind the bytes read so far.
pub(super) struct Cursor<'j> {
    pub(super) file: &'j File,
    pub(super) job: &'j FileJob,
    pub(super) is_sparse: bool,
    pub(super) size: u64,
    pub(super) offset: u64,
}

impl Cursor<'_> {
    /// Fills `bytes` up to a block. Returns true at the end of the file.
    pub(super) fn fill(&mut self, bytes: &mut Vec<u8>) -> Result<bool> {
        let mut filled = bytes.len();
        bytes.resize(BLOCK_BYTES.max(filled + 1), 0);
        while let Some(free) = bytes.get_mut(filled..).filter(|free| !free.is_empty()) {
            let read = self
                .file
                .read_at(free, self.offset)
                .map_err(|source| self.job.unreadable(source))?;
            if read == 0 {
                break;
            }
            filled += read;
            self.offset += read as u64;
        }
        let is_end = filled < bytes.len();
        bytes.truncate(filled);
        Ok(is_end)
    }

    /// The length of the hole that begins here.
    pub(super) fn hole(&self) -> Result<u64> {
        if !self.is_sparse || self.offset >= self.size {
            return Ok(0);
        }
        let (data, _) = next_data(self.file, self.offset, self.size)
            .map_err(|source| self.job.unreadable(source))?;
        Ok(data - self.offset)
    }

    /// Unreads a rest that is in a hole, so that the hole can be skipped from there.
    pub(super) fn rewind(&mut self, rest: &mut Vec<u8>) {
        let len = rest.len() as u64;
        if self.is_sparse
            && len > 0
            && rest.iter().all(|byte| *byte == 0)
            && self.offset < self.size
        {
            self.offset -= len;
            rest.clear();
        }
    }
}

/// Reads a file that is the same before and after; tests use `meanwhile` to act in between.
pub(super) fn read_small(
    job: &FileJob,
    file: &File,
    bytes: &mut Vec<u8>,
    meanwhile: &mut dyn FnMut(),
) -> Result<Stat> {
    let path = job.path();
    read_whole(job, file, bytes)?;
    meanwhile();
    let after = Stat::of_file(file, &path)?;
    if is_same(&after, &job.stat) && bytes.len() as u64 == after.size {
        return Ok(after);
    }
    // The file was touched after the walk saw it, which alone is no reason to refuse it.
    let before = after;
    read_whole(job, file, bytes)?;
    meanwhile();
    unchanged(job, &before, Stat::of_file(file, &path)?)
}

fn read_whole(job: &FileJob, file: &File, bytes: &mut Vec<u8>) -> Result<()> {
    let mut filled = 0;
    // One byte more than expected, so that the first read sees the end.
    bytes.resize(usize::try_from(job.stat.size).unwrap_or(0) + 1, 0);
    loop {
        if filled == bytes.len() {
            if filled as u64 > 4 * SMALL_BYTES_MAX {
                return Err(job.changed());
            }
            bytes.resize(2 * filled, 0);
        }
        let free = bytes.get_mut(filled..).unwrap_or_default();
        match file
            .read_at(free, filled as u64)
            .map_err(|source| job.unreadable(source))?
        {
            0 => break,
            read => filled += read,
        }
        if filled as u64 == job.stat.size {
            break;
        }
    }
    bytes.truncate(filled);
    Ok(())
}

pub(super) fn unchanged(job: &FileJob, before: &Stat, after: Stat) -> Result<Stat> {
    if is_same(&after, before) {
        Ok(after)
    } else {
        Err(job.changed())
    }
}

/// Whether nobody has touched a file between two looks at it.
fn is_same(after: &Stat, before: &Stat) -> bool {
    let key = |stat: &Stat| (stat.dev, stat.ino, stat.size, stat.mtime, stat.ctime);
    key(after) == key(before)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use super::*;
    use crate::error::ErrorKind;
    use crate::host::walk::{Item, find_file};

    fn job(path: &std::path::Path) -> FileJob {
        let Ok(Item::File { dir, name, stat }) = find_file(path) else {
            panic!("a file");
        };
        FileJob {
            number: 0,
            dir: Arc::clone(&dir),
            name,
            place: None,
            stat,
            read_began: SystemTime::now(),
            check: None,
            may_execute: true,
            is_suspect: false,
        }
    }

    /// The result of reading while `change` is called after each read, with the number of the read.
    fn read_while(change: &dyn Fn(&std::path::Path, u32)) -> Result<Vec<u8>> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, b"before").unwrap();
        let (job, mut reads) = (job(&path), 0);
        let (file, mut bytes) = (File::open(&path).unwrap(), Vec::new());
        let meanwhile = &mut || {
            reads += 1;
            change(&path, reads);
        };
        read_small(&job, &file, &mut bytes, meanwhile).map(|_| bytes)
    }

    /// Sets a time in another second, so that the resolution of the clock does not matter.
    fn touch(path: &std::path::Path, secs: u64) {
        let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(secs);
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(time).unwrap();
    }

    #[test]
    fn a_small_file_is_read_again_when_it_changed_and_refused_when_it_goes_on() {
        assert_eq!(read_while(&|_, _| ()).unwrap(), b"before");
        let once = read_while(&|path, reads| {
            if reads == 1 {
                std::fs::write(path, b"after it").unwrap();
            }
        });
        assert_eq!(once.unwrap(), b"after it");
        let sizes = read_while(&|path, reads| {
            std::fs::write(path, vec![b'x'; 10 + reads as usize]).unwrap();
        });
        assert_eq!(sizes.unwrap_err().kind(), ErrorKind::Conflict);
        // The size is the same; only the times differ.
        let times = read_while(&|path, reads| touch(path, 1000 + u64::from(reads)));
        assert_eq!(times.unwrap_err().kind(), ErrorKind::Conflict);
        // Only the ctime differs, since somebody set the mtime back.
        let ctime = read_while(&|path, _| {
            touch(path, 1000);
            std::thread::sleep(std::time::Duration::from_millis(20));
            touch(path, 1000);
        });
        assert_eq!(ctime.unwrap_err().kind(), ErrorKind::Conflict);
    }

    #[test]
    fn a_file_that_is_removed_meanwhile_is_a_conflict() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, b"there").unwrap();
        let job = job(&path);
        assert!(job.open().is_ok());
        std::fs::remove_file(&path).unwrap();
        let error = job.open().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
    }

    #[test]
    fn a_file_that_was_small_and_is_large_by_now_is_not_read_as_a_small_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, b"small").unwrap();
        let job = job(&path);
        let large = vec![b'x'; usize::try_from(6 * SMALL_BYTES_MAX).unwrap()];
        std::fs::write(&path, large).unwrap();
        let (file, mut bytes) = (File::open(&path).unwrap(), Vec::new());
        let error = read_small(&job, &file, &mut bytes, &mut || ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
    }
}
