//! Detects truncated files: their header states their length, and they are shorter, because a compiler or a copy was
//! interrupted.
//!
//! Only the header is read.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use store::{Content, Reader, Result};

use super::repair::TEXT_BYTES_MAX;

const NOATIME: i32 = OFlags::NOATIME.bits().cast_signed();
/// A link may lead to a FIFO by now, which would wait for a writer.
const NONBLOCK: i32 = OFlags::NONBLOCK.bits().cast_signed();

/// Whether a file is shorter than the lengths that it states at these offsets. Returns false for an unreadable file;
/// its reader reports the error.
pub(super) fn is_cut(path: &Path, lengths: &[u64]) -> bool {
    let Ok(file) = open_unseen(path) else {
        return false;
    };
    let read = |bytes: &mut [u8], at: u64| match file.read_exact_at(bytes, at) {
        Ok(()) => Some(true),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Some(false),
        Err(_) => None,
    };
    let size = file.metadata().map_or(u64::MAX, |found| found.len());
    is_shorter(size, lengths, read)
}

/// Opens a file without changing its access time, if that is allowed: access times show what a job has read.
pub(super) fn open_unseen(path: &Path) -> std::io::Result<File> {
    let open = |flags| File::options().read(true).custom_flags(flags).open(path);
    match open(NOATIME | NONBLOCK) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => open(NONBLOCK),
        opened => opened,
    }
}

/// The bytes of a small file.
pub(super) fn text(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_unseen(path)?
        .take(TEXT_BYTES_MAX)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The same for a file of `size` bytes whose first bytes are `begin`.
pub(super) fn is_cut_in(begin: &[u8], size: u64, lengths: &[u64]) -> bool {
    is_shorter(size, lengths, |bytes, at| {
        let from = usize::try_from(at).unwrap_or(usize::MAX);
        let there = begin.get(from..).and_then(|rest| rest.get(..bytes.len()));
        if let Some(there) = there {
            bytes.copy_from_slice(there);
        }
        Some(there.is_some())
    })
}

/// Reads at least the first `bytes` of a file of a ref; all of it, if it is shorter.
pub(super) fn beginning(reader: &Reader<'_>, content: &Content, bytes: u64) -> Result<Vec<u8>> {
    let mut begin = Vec::new();
    let wanted = 0..content.size.min(bytes);
    reader.chunks_in(content, &wanted, &mut |id, _, _| {
        begin.extend_from_slice(&reader.meta_chunk(&id)?);
        Ok(())
    })?;
    Ok(begin)
}

/// Whether the lengths add up to more than `size`. `read` fills the bytes at an offset; `None` if it cannot.
fn is_shorter(size: u64, lengths: &[u64], read: impl Fn(&mut [u8], u64) -> Option<bool>) -> bool {
    let mut all: u64 = 0;
    for at in lengths {
        let mut bytes = [0; 8];
        match read(&mut bytes, *at) {
            Some(true) => {}
            Some(false) => return true,
            None => return false,
        }
        let length = u64::from_le_bytes(bytes);
        all = all.saturating_add(length);
        if length == 0 {
            return true;
        }
    }
    all > size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_as_long_as_it_says_or_cut() {
        let lengths = |head: u64, data: u64| {
            let fields = [2_u64, head, data].map(u64::to_le_bytes);
            fields.concat()
        };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let places: &[u64] = &[8, 16];
        for (head, data, size, cut) in [
            (24, 10, 34, false),
            (24, 10, 40, false),
            (24, 10, 33, true),
            (24, 0, 40, true),
            (0, 40, 40, true),
            (u64::MAX, u64::MAX, 40, true),
            (24, 10, 23, true),
            (24, 10, 0, true),
        ] {
            let mut bytes = lengths(head, data);
            bytes.resize(size, 7);
            std::fs::write(&path, &bytes).unwrap();
            let what = format!("{head}, {data}, {size}");
            assert_eq!(is_cut(&path, places), cut, "{what}");
            assert_eq!(is_cut_in(&bytes, size as u64, places), cut, "{what}");
        }
        assert!(!is_cut(&dir.path().join("none"), places));
    }
}
