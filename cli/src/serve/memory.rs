//! The memory for bytes that wait to be sent, and the shares of it.

use std::sync::Arc;

use bytes::Bytes;
use store::{Error, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::serve::buffer::{Buffer, Buffers};

/// The unit in which memory is counted.
const UNIT_BYTES: u64 = 8 << 10;
/// How much longer a piece may be if there is memory: it then ends with a chunk, so that no chunk is read twice.
pub(super) const CHUNK_BYTES_MAX: u64 = 256 << 10;
/// How much is read at once where that takes a thread.
pub(super) const PIECE_BYTES: u64 = 1 << 20;
/// Maximum bytes that wait for clients, however much memory there is: more are not faster.
const WAITING_BYTES_MAX: u64 = 16 << 20;

/// How much one answer may send at a time when the memory of all is taken: it never waits for the clients of others.
const OWN_BYTES: u64 = 16 << 10;

/// How much of a file to read at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Portion {
    pub(super) wanted: u64,
    /// How much longer the piece may be.
    pub(super) more: u64,
}

/// The memory for bytes that wait to be sent.
#[derive(Clone)]
pub(super) struct Memory {
    left: Arc<Semaphore>,
    units: u64,
}

/// A share of the memory for bytes that wait to be sent.
pub(crate) struct Share(pub(super) OwnedSemaphorePermit);

impl Share {
    /// Bytes that keep the share until they are sent.
    pub(super) fn with(self, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(Shared {
            bytes,
            _share: self.0,
        })
    }

    /// The bytes in `buffer`, which keep the share until they are sent.
    pub(super) fn with_buffer(self, mut buffer: Buffer, buffers: Buffers) -> Bytes {
        if buffer.is_mostly_empty() {
            // Only the small part waits for the client; the buffer goes back.
            let part = buffer.filled().to_vec();
            buffers.give_back(&mut buffer);
            return self.with(part);
        }
        Bytes::from_owner(Shared {
            bytes: Lent { buffer, buffers },
            _share: self.0,
        })
    }
}

/// The memory of one answer alone, for one piece at a time.
#[derive(Clone)]
pub(super) struct Own(Arc<Semaphore>);

impl Own {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

/// Bytes that keep their share of the memory until they are sent.
struct Shared<B> {
    bytes: B,
    _share: OwnedSemaphorePermit,
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for Shared<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

/// A buffer that is given back for reuse after it is sent.
struct Lent {
    buffer: Buffer,
    buffers: Buffers,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.buffer.filled()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.buffers.give_back(&mut self.buffer);
    }
}

impl Memory {
    pub(super) fn new(bytes: u64) -> Self {
        let units = bytes.min(WAITING_BYTES_MAX) / UNIT_BYTES;
        let units = units.max(16);
        Self {
            left: Arc::new(Semaphore::new(usize::try_from(units).unwrap_or(16))),
            units,
        }
    }

    fn left(&self) -> u64 {
        self.left.available_permits() as u64
    }

    /// Whether at least half of it is left.
    pub(super) fn is_mostly_left(&self) -> bool {
        self.left() * 2 > self.units
    }

    /// The portion to read next.
    pub(super) fn portion(&self) -> Portion {
        Portion::of(self.units, self.left())
    }

    /// A share for the bytes from `at` to `last`. If there is not enough for all, one for fewer of the answer's own memory,
    /// as soon as its client took what it was sent. Returns it with the end of its bytes.
    pub(super) async fn share(&self, own: &Own, at: u64, last: u64) -> Result<(Share, u64)> {
        if let Some(share) = self.share_at_once(last - at) {
            return Ok((share, last));
        }
        let share = Arc::clone(&own.0).acquire_owned().await;
        let share = share.map_err(|_| Error::interrupted("the server stops"))?;
        Ok((Share(share), last.min(at.saturating_add(OWN_BYTES))))
    }

    /// The same, if it need not wait.
    pub(super) fn share_soon(&self, own: &Own, at: u64, last: u64) -> Option<(Share, u64)> {
        if let Some(share) = self.share_at_once(last - at) {
            return Some((share, last));
        }
        let share = Arc::clone(&own.0).try_acquire_owned().ok()?;
        Some((Share(share), last.min(at.saturating_add(OWN_BYTES))))
    }

    /// A share of the memory for all, as long as half of it is left. Does not wait.
    pub(super) fn share_now(&self, bytes: u64) -> Option<Share> {
        let units = bytes.div_ceil(UNIT_BYTES);
        if self.left() < units + self.units / 2 {
            return None;
        }
        self.share_at_once(bytes)
    }

    fn share_at_once(&self, bytes: u64) -> Option<Share> {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).ok()?;
        let share = Arc::clone(&self.left).try_acquire_many_owned(units);
        Some(Share(share.ok()?))
    }
}

impl Portion {
    /// The portion shrinks with the memory that is left, so that slow clients do not take it from others.
    fn of(units: u64, left: u64) -> Self {
        let is_left = |part: u64| left * part > units;
        let (wanted, more) = match () {
            () if is_left(2) => (PIECE_BYTES, CHUNK_BYTES_MAX),
            () if is_left(4) => (CHUNK_BYTES_MAX, CHUNK_BYTES_MAX),
            () if is_left(8) => (8 * UNIT_BYTES, 0),
            () => (UNIT_BYTES, 0),
        };
        Self { wanted, more }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portions_follow_the_memory_that_is_left() {
        let wanted = |left| Portion::of(4096, left).wanted;
        let expected = [1 << 20, CHUNK_BYTES_MAX, 64 << 10, UNIT_BYTES, UNIT_BYTES];
        assert_eq!([4096, 2048, 1024, 512, 0].map(wanted), expected);
        assert_eq!(Portion::of(4096, 0).more, 0);
    }
}
