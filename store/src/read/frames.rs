//! What a reader keeps: decoded frames, and stored bytes that were read ahead over a network.
//!
//! Reading ahead begins when one read follows another, and doubles from there. So a walk of all metadata takes few
//! requests, and a look at one path reads only the frames that it needs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::id::PackId;
use crate::index::Location;

/// Most bytes of decoded frames that a reader keeps.
const FRAMES_KEPT_BYTES_MAX: usize = 16 << 20;
/// Most stored bytes of one read, unless a single frame is larger.
const AHEAD_BYTES_MAX: u32 = 4 << 20;
/// Most reads that are remembered: a walk may read several packs, or several places of one.
const RUNS_MAX: usize = 4;
/// Most parts of packs that are read concurrently.
const GATES: usize = 32;

/// Frames and stored bytes, the most recently used last.
#[derive(Debug, Default)]
pub(super) struct FrameCache {
    frames: Vec<(FrameKey, Arc<Vec<u8>>)>,
    bytes: usize,
    runs: Vec<Run>,
}

/// Lets only one read at a time pass to each part of a pack, so that threads that want the same bytes over a network
/// read them once.
#[derive(Debug, Default)]
pub(super) struct Gates([Mutex<()>; GATES]);

impl Gates {
    /// Waits until no other thread reads near `location`.
    pub(super) fn enter(&self, location: &Location) -> MutexGuard<'_, ()> {
        let [low, high, ..] = location.pack.0;
        let part = (location.frame_offset / AHEAD_BYTES_MAX) as usize;
        let at = usize::from(u16::from_le_bytes([low, high])).wrapping_add(part) % GATES;
        let [first, ..] = &self.0;
        let gate = self.0.get(at).unwrap_or(first);
        gate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A frame's pack, and its offset there.
type FrameKey = (PackId, u32);

/// The stored bytes of the last read of a run.
#[derive(Debug)]
struct Run {
    pack: PackId,
    offset: u32,
    bytes: Bytes,
}

impl FrameCache {
    /// Returns the decoded frame, if it is kept.
    pub(super) fn take(&mut self, location: &Location) -> Option<Arc<Vec<u8>>> {
        let key = (location.pack, location.frame_offset);
        let at = self.frames.iter().rposition(|(kept, _)| *kept == key)?;
        let hit = self.frames.remove(at);
        let frame = Arc::clone(&hit.1);
        self.frames.push(hit);
        Some(frame)
    }

    pub(super) fn keep(&mut self, location: &Location, frame: &Arc<Vec<u8>>) {
        self.bytes += frame.len();
        let key = (location.pack, location.frame_offset);
        self.frames.push((key, Arc::clone(frame)));
        while self.bytes > FRAMES_KEPT_BYTES_MAX && self.frames.len() > 1 {
            let (_, oldest) = self.frames.remove(0);
            self.bytes -= oldest.len();
        }
    }

    /// Forgets a frame, and what was read ahead of its pack.
    pub(super) fn forget(&mut self, location: &Location) {
        let key = (location.pack, location.frame_offset);
        self.frames.retain(|(kept, _)| *kept != key);
        self.bytes = self.frames.iter().map(|(_, frame)| frame.len()).sum();
        self.runs.retain(|run| run.pack != location.pack);
    }

    /// Returns the stored bytes of a frame, if they were read ahead.
    pub(super) fn ahead(&self, location: &Location) -> Option<Bytes> {
        self.runs.iter().find_map(|run| {
            let start = location.frame_offset.checked_sub(run.offset)? as usize;
            let end = start + location.stored_len as usize;
            (run.pack == location.pack && end <= run.bytes.len())
                .then(|| run.bytes.slice(start..end))
        })
    }

    /// How many bytes to read for a frame that was not read ahead.
    pub(super) fn ahead_len(&self, location: &Location) -> u32 {
        let follows = |run: &&Run| run.leads_to(location.pack, location.frame_offset);
        let last = self.runs.iter().rev().find(follows);
        let wanted = last.map_or(0, |run| run.len().saturating_mul(2).min(AHEAD_BYTES_MAX));
        let left = location.pack_len.saturating_sub(location.frame_offset);
        wanted.min(left).max(location.stored_len)
    }

    pub(super) fn keep_ahead(&mut self, pack: PackId, offset: u32, bytes: Bytes) {
        let run = Run {
            pack,
            offset,
            bytes,
        };
        let before = self.runs.iter().rposition(|run| run.leads_to(pack, offset));
        match before {
            Some(at) => drop(self.runs.remove(at)),
            None if self.runs.len() >= RUNS_MAX => drop(self.runs.remove(0)),
            None => {}
        }
        self.runs.push(run);
    }
}

impl Run {
    fn len(&self) -> u32 {
        u32::try_from(self.bytes.len()).unwrap_or(u32::MAX)
    }

    /// Whether a read at `offset` continues where this one ended, or a little behind.
    fn leads_to(&self, pack: PackId, offset: u32) -> bool {
        let gap = offset.checked_sub(self.offset.saturating_add(self.len()));
        self.pack == pack && gap.is_some_and(|gap| gap <= self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::FrameKind;

    const PACK: PackId = PackId([7; 16]);

    fn at(frame_offset: u32) -> Location {
        Location {
            pack: PACK,
            kind: FrameKind::Meta,
            pack_len: 10_000,
            frame_offset,
            stored_len: 100,
            raw_len: 100,
            offset: 0,
            len: 100,
            is_delta: false,
        }
    }

    /// Reads as a reader does, and returns how many bytes that took; 0, if they were kept.
    fn read(cache: &mut FrameCache, offset: u32) -> u32 {
        if let Some(stored) = cache.ahead(&at(offset)) {
            assert_eq!(stored.len(), 100);
            return 0;
        }
        let len = cache.ahead_len(&at(offset));
        cache.keep_ahead(PACK, offset, Bytes::from(vec![0; len as usize]));
        len
    }

    #[test]
    fn reads_in_order_take_twice_as_much_each_time_and_others_just_their_frame() {
        let mut cache = FrameCache::default();
        let taken = |cache: &mut FrameCache, offsets: &[u32]| {
            let reads = offsets.iter().map(|offset| read(cache, *offset));
            reads.collect::<Vec<_>>()
        };
        assert_eq!(taken(&mut cache, &[9000, 5000, 7000]), [100, 100, 100]);
        assert_eq!(
            taken(&mut cache, &[0, 100, 200, 300, 400, 700, 800]),
            [100, 200, 0, 400, 0, 800, 0]
        );
        assert_eq!(taken(&mut cache, &[9150]), [200]);
    }

    #[test]
    fn no_read_goes_beyond_the_pack() {
        let mut cache = FrameCache::default();
        let bytes = Bytes::from(vec![0; 3000]);
        cache.keep_ahead(PACK, 5000, bytes);
        assert_eq!(read(&mut cache, 8000), 2000);
    }

    #[test]
    fn walks_in_several_packs_do_not_disturb_each_other() {
        let mut cache = FrameCache::default();
        for offset in [0, 2000, 4000, 6000] {
            assert_eq!(read(&mut cache, offset), 100);
        }
        for offset in [100, 2100, 4100, 6100] {
            assert_eq!(read(&mut cache, offset), 200);
        }
    }
}
