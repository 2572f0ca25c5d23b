//! Holes in files: ranges of zeros that take no space and need not be read.

use std::fs::File;
use std::io;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// Returns the next range of `file` at or after `offset` that may hold anything except zeros: its first byte, and the
/// byte behind its last. Returns (`len`, `len`) if there is none before `len`, the file's size. On a file system
/// without holes, everything is data. Moves the file's position.
///
/// If the file is truncated meanwhile, it seems to end in a hole: compare its size afterwards.
///
/// # Errors
/// When the system call fails.
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
