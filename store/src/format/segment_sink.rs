//! Writes a segment in large pieces, hashes them, and appends the trailer.

use std::io::Write;

use crate::error::{Error, Result};
use crate::id::SegmentId;

/// The first bytes of a segment's trailer.
pub const SEGMENT_TRAILER_MAGIC: [u8; 8] = *b"STORESGE";
/// Bytes of the trailer: magic, checksum.
pub const SEGMENT_TRAILER_LEN: u64 = 8 + 32;

const _: () = assert!(SEGMENT_TRAILER_LEN == 40);

/// Bytes that are hashed and written together.
const WRITE_BYTES: usize = 64 << 10;

/// Hashes what it writes, in large pieces.
pub(super) struct Sink<'a, W> {
    out: &'a mut W,
    id: SegmentId,
    buffer: Vec<u8>,
    hasher: blake3::Hasher,
    written: u64,
}

impl<'a, W: Write> Sink<'a, W> {
    pub(super) fn new(out: &'a mut W, id: SegmentId) -> Self {
        Self {
            out,
            id,
            buffer: Vec::with_capacity(WRITE_BYTES),
            hasher: blake3::Hasher::new(),
            written: 0,
        }
    }

    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<()> {
        if self.buffer.len() + bytes.len() > WRITE_BYTES {
            self.flush()?;
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.hasher.update(&self.buffer);
        self.write()
    }

    fn write(&mut self) -> Result<()> {
        let failed = |source| Error::io("write segment", self.id.to_string(), source);
        self.out.write_all(&self.buffer).map_err(failed)?;
        self.written += u64::try_from(self.buffer.len()).unwrap_or(0);
        self.buffer.clear();
        Ok(())
    }

    /// Writes the trailer, and returns the length of the whole segment.
    pub(super) fn finish(mut self) -> Result<u64> {
        self.flush()?;
        self.buffer.extend_from_slice(&SEGMENT_TRAILER_MAGIC);
        let checksum = self.hasher.finalize();
        self.buffer.extend_from_slice(checksum.as_bytes());
        self.write()?;
        Ok(self.written)
    }
}
