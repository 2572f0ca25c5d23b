//! Headers of files of tensors: how they are read, and what is kept of them.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::format::TENSOR_HEADER_BYTES_MAX;

/// How many bytes are read at once.
const READ_BYTES: usize = 64 << 10;

/// Random access to bytes.
pub(crate) trait ReadAt {
    /// Fills `bytes` from `offset` on; fails with kind `UnexpectedEof` if the file ends before that.
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;
}

impl ReadAt for File {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, bytes, offset)
    }
}

impl ReadAt for &[u8] {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(bytes.len());
        match self.get(start..end) {
            Some(found) => bytes.copy_from_slice(found),
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
        Ok(())
    }
}

/// A tensor in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tensor {
    pub(crate) place: Range<u64>,
    pub(crate) name: TensorName,
}

/// Identifies a tensor across files: the hash of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TensorName([u8; 16]);

impl TensorName {
    pub(super) fn of(name: &[u8]) -> Self {
        let mut hash = [0; 16];
        let mut hasher = blake3::Hasher::new();
        hasher.update(name).finalize_xof().fill(&mut hash);
        Self(hash)
    }
}

/// Why parsing a header stopped.
#[derive(Debug)]
pub(super) enum Stop {
    /// The file is not of the format that its beginning suggests.
    Another,
    /// The file cannot be read.
    Failed(io::Error),
}

/// The result of parsing a header.
pub(super) type Look<T> = Result<T, Stop>;

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Another,
            _ => Self::Failed(error),
        }
    }
}

/// A part of a file that is read sequentially.
pub(super) struct Header<'f> {
    file: &'f dyn ReadAt,
    /// The position of the next read, and the end of the part.
    next: u64,
    end: u64,
    bytes: Vec<u8>,
    used: usize,
}

impl<'f> Header<'f> {
    /// Reads from `start` to `end`, up to a limit.
    pub(super) fn new(file: &'f dyn ReadAt, start: u64, end: u64) -> Self {
        let end = end.min(start.saturating_add(TENSOR_HEADER_BYTES_MAX));
        Self {
            file,
            next: start,
            end,
            bytes: Vec::new(),
            used: 0,
        }
    }

    /// Returns the position of the next byte in the file.
    pub(super) fn at(&self) -> u64 {
        self.next - (self.bytes.len() - self.used) as u64
    }

    /// Skips bytes.
    pub(super) fn skip(&mut self, len: u64) -> Look<()> {
        let at = self.at().checked_add(len).filter(|at| *at <= self.end);
        let at = at.ok_or(Stop::Another)?;
        match usize::try_from(len) {
            Ok(len) if len <= self.bytes.len() - self.used => self.used += len,
            _ => (self.next, self.used) = (at, self.bytes.len()),
        }
        Ok(())
    }

    /// Reads the next `N` bytes.
    pub(super) fn array<const N: usize>(&mut self) -> Look<[u8; N]> {
        let mut bytes = [0; N];
        self.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn u16(&mut self) -> Look<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Look<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Look<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

impl Read for Header<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.used == self.bytes.len() {
            let len = usize::try_from(self.end - self.next).unwrap_or(READ_BYTES);
            self.bytes.resize(len.min(READ_BYTES), 0);
            self.file.read_exact_at(&mut self.bytes, self.next)?;
            self.next += self.bytes.len() as u64;
            self.used = 0;
        }
        let rest = self.bytes.get(self.used..).unwrap_or_default();
        let len = rest.len().min(bytes.len());
        if let (Some(to), Some(from)) = (bytes.get_mut(..len), rest.get(..len)) {
            to.copy_from_slice(from);
        }
        self.used += len;
        Ok(len)
    }
}
