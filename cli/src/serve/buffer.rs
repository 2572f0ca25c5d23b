//! Buffers for the bytes of files. Large buffers are reused, since the system must clear the memory of each new one.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of unused buffers to keep.
const SPARE_MAX: usize = 8;

/// Bytes, a part of which is filled.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    /// Initialized memory; its length has no meaning.
    bytes: Vec<u8>,
    filled: Range<usize>,
}

impl Buffer {
    /// The `len` bytes after the filled part, with any content.
    pub(super) fn room(&mut self, len: usize) -> &mut [u8] {
        let end = self.filled.end + len;
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes.get_mut(self.filled.end..end).unwrap_or_default()
    }

    /// Adds `part` of the bytes from [`Self::room`] to the filled part. Only the first part may begin after 0.
    pub(super) fn fill(&mut self, part: &Range<usize>) {
        if self.filled.is_empty() {
            self.filled.start = self.filled.end + part.start;
        }
        self.filled.end += part.end;
    }

    pub(super) fn filled(&self) -> &[u8] {
        self.bytes.get(self.filled.clone()).unwrap_or_default()
    }

    /// Whether less than half of the memory is filled.
    pub(super) fn is_mostly_empty(&self) -> bool {
        self.filled.len() < self.bytes.capacity() / 2
    }

    /// The filled part only.
    pub(super) fn into_filled(mut self) -> Vec<u8> {
        self.bytes.truncate(self.filled.end);
        self.bytes.drain(..self.filled.start);
        self.bytes
    }
}

/// Large buffers that are not in use.
#[derive(Clone, Debug)]
pub(super) struct Buffers {
    spare: Arc<Mutex<Vec<Vec<u8>>>>,
    /// Buffers of at least this size are reused.
    least: usize,
}

impl Buffers {
    /// Buffers of which those of at least `least` bytes are reused.
    pub(super) fn of(least: usize) -> Self {
        let spare = Arc::default();
        Self { spare, least }
    }

    /// Returns an empty buffer for `len` bytes.
    pub(super) fn take(&self, len: usize) -> Buffer {
        let spare = match len >= self.least {
            true => self.spare(|spare| spare.pop()),
            false => None,
        };
        Buffer {
            bytes: spare.unwrap_or_else(|| Vec::with_capacity(len)),
            filled: 0..0,
        }
    }

    pub(super) fn give_back(&self, buffer: &mut Buffer) {
        let bytes = std::mem::take(&mut buffer.bytes);
        if bytes.capacity() >= self.least {
            self.spare(|spare| {
                if spare.len() < SPARE_MAX {
                    spare.push(bytes);
                }
            });
        }
    }

    fn spare<T>(&self, with: impl FnOnce(&mut Vec<Vec<u8>>) -> T) -> T {
        with(&mut self.spare.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE_BYTES: usize = 1 << 20;

    /// Fills `buffer` with parts of what is read.
    fn read(buffer: &mut Buffer, parts: &[(&[u8], Range<usize>)]) {
        for (bytes, part) in parts {
            buffer.room(bytes.len()).copy_from_slice(bytes);
            buffer.fill(part);
        }
    }

    #[test]
    fn the_first_part_may_begin_and_the_last_may_end_anywhere() {
        let mut buffer = Buffer::default();
        read(
            &mut buffer,
            &[(b"abcdef", 4..6), (b"ghi", 0..3), (b"jkl", 0..1)],
        );
        assert_eq!(buffer.filled(), b"efghij");
        assert_eq!(buffer.into_filled(), b"efghij");
    }

    #[test]
    fn a_buffer_that_is_used_again_shows_nothing_of_what_it_held() {
        let buffers = Buffers::of(LARGE_BYTES);
        let mut first = buffers.take(LARGE_BYTES);
        read(&mut first, &[(&vec![1; LARGE_BYTES], 0..LARGE_BYTES)]);
        let place = first.filled().as_ptr();
        buffers.give_back(&mut first);
        assert!(first.filled().is_empty());

        let mut second = buffers.take(LARGE_BYTES);
        assert!(second.filled().is_empty());
        read(&mut second, &[(b"new", 0..3)]);
        assert_eq!(
            (second.filled(), second.filled().as_ptr()),
            (&b"new"[..], place)
        );
        assert!(buffers.take(10).bytes.capacity() < LARGE_BYTES);
        assert!(second.is_mostly_empty());
        read(
            &mut second,
            &[(&vec![1; LARGE_BYTES - 3], 0..LARGE_BYTES - 3)],
        );
        assert!(!second.is_mostly_empty());
    }
}
