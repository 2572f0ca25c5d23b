//! Holes in files: ranges of zeros that take no room and need not be read.

use std::fs::File;
use std::io;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// The next range of `file` at or behind `offset` that may hold something else than zeros, as its first
/// byte and the byte behind its last; (`len`, `len`) when there is none before `len`, the file's size. Where
/// the file system knows nothing about holes, all is data. Moves the file's position.
///
/// A file that is truncated meanwhile looks as if it ended in a hole: compare its size afterwards.
///
/// # Errors
/// When the system fails to look.
pub fn next_data(file: &File, offset: u64, len: u64) -> io::Result<(u64, u64)> {
    let start = match seek(file, SeekFrom::Data(offset)) {
        Ok(start) => start.min(len),
        Err(Errno::NXIO) => len,
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok((offset.min(len), len)),
        Err(errno) => return Err(errno.into()),
    };
    if start == len {
        return Ok((len, len));
    }
    match seek(file, SeekFrom::Hole(start)) {
        Ok(end) => Ok((start, end.min(len))),
        Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP) => Ok((start, len)),
        Err(errno) => Err(errno.into()),
    }
}
