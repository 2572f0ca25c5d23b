//! Neighbours: the locations of a pack's chunks, from the pack's own table.
//!
//! A lookup in a segment of a bucket takes requests, and chunks that were put together are stored together. So when a
//! second lookup leads to the same pack, its table is read, and its chunks need no lookup any more.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::id::{ChunkId, PackId};
use crate::index::Location;
use crate::pack::reader::OpenPack;
use crate::store::Store;

/// Most locations that are kept. Beyond that, all are forgotten and looked up again.
const KNOWN_MAX: usize = 1 << 20;

/// Locations from the tables of packs.
#[derive(Debug, Default)]
pub(super) struct Neighbours(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    places: HashMap<ChunkId, Location>,
    /// Packs that a lookup led to, and packs whose tables were requested.
    seen: HashSet<PackId>,
    read: HashSet<PackId>,
}

impl Neighbours {
    pub(super) fn find(&self, id: &ChunkId) -> Option<Location> {
        self.known().places.get(id).copied()
    }

    /// Records that a lookup led to `at`. A table that cannot be read is ignored.
    pub(super) fn led_to(&self, store: &Store, at: &Location) {
        let mut known = self.known();
        if known.seen.insert(at.pack) || !known.read.insert(at.pack) {
            return;
        }
        drop(known);
        let remote = store.remote().as_ref();
        let Ok(pack) = OpenPack::read(remote, store.format().id, at.pack, at.pack_len.into())
        else {
            return;
        };
        let mut known = self.known();
        // Chunks in deltas are left out: they may also be in a plain frame elsewhere, which is preferred.
        for frame in (pack.rows().into_iter()).filter(|frame| frame.bases.is_empty()) {
            let place = |(id, offset, len)| {
                let location = Location {
                    pack: at.pack,
                    kind: frame.kind,
                    pack_len: at.pack_len,
                    frame_offset: frame.offset,
                    stored_len: frame.stored_len,
                    raw_len: frame.raw_len,
                    offset,
                    len,
                    is_delta: false,
                };
                (id, location)
            };
            if known.places.len() >= KNOWN_MAX {
                *known = Known::default();
            }
            known.places.extend(frame.chunks.iter().copied().map(place));
        }
    }

    /// Forgets all locations, since packs may be gone.
    pub(super) fn forget(&self) {
        *self.known() = Known::default();
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
