//! Usage: how much of each pack and segment is marked.
//!
//! Only segments are read, never a pack. A pack that several segments name is counted once.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU16, Ordering};

use jiff::{SignedDuration, Timestamp};
use rayon::prelude::*;
use store::format::{
    PACKS_PREFIX, PackKind, SEGMENTS_PREFIX, SegmentPack, State, parse_pack_key, parse_segment_key,
};
use store::index::{OpenSegment, Position};
use store::remote::{ObjectInfo, Prune};
use store::{PackId, Result, SegmentId};

use crate::mark::Marker;
use crate::nameless::Nameless;

/// Most packs that are listed with a single listing.
const PACKS_OF_ONE_LISTING: u64 = 16_000;
/// Most concurrent listings.
const LISTINGS_AT_ONCE: usize = 16;

/// How much of a pack is live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackUse {
    /// Its id.
    pub pack: PackId,
    /// Whether it holds data, metadata, or both.
    pub kind: PackKind,
    /// Its size in bytes.
    pub bytes: u64,
    /// Stored bytes of all its frames.
    pub stored_bytes: u64,
    /// The share of its marked chunks in them.
    pub live_stored_bytes: u64,
    /// The number of its marked chunks.
    pub live_chunks: u64,
}

/// What a segment names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentUse {
    /// Its id.
    pub segment: SegmentId,
    /// Its size in bytes.
    pub bytes: u64,
    /// The number of its chunks.
    pub chunks: u64,
    /// The number of its frames, which a merge keeps in memory.
    pub frames: u64,
    /// The packs that it names, with the number of chunks in each.
    pub packs: Vec<(PackId, u64)>,
}

/// Everything about one state on which a plan depends.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    /// Packs that live segments name and that are not condemned, in the order of segments and of writing.
    pub packs: Vec<PackUse>,
    /// Live segments.
    pub segments: Vec<SegmentUse>,
    /// Objects below `packs`.
    pub pack_objects: Vec<Listed<PackId>>,
    /// Objects below `segments`.
    pub segment_objects: Vec<Listed<SegmentId>>,
    /// What no entry names.
    pub nameless: Nameless,
    /// How far the clock of the plan is ahead of the clock of the store's server.
    pub ahead: SignedDuration,
    /// Bytes after which writers finish a pack.
    pub whole_pack_bytes: u64,
}

/// One object of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed<Id> {
    /// Its id.
    pub id: Id,
    /// Its size in bytes.
    pub bytes: u64,
    /// When it was written, by the clock of the store's server.
    pub modified: Timestamp,
}

/// Sizes of listed objects, to report what a deletion freed.
#[derive(Debug, Default)]
pub(crate) struct Sizes {
    packs: Vec<Listed<PackId>>,
    segments: Vec<Listed<SegmentId>>,
}

impl Sizes {
    /// The size of the object with this key, if it was listed.
    pub(crate) fn of(&self, key: &str) -> Option<u64> {
        match parse_pack_key(key) {
            Some(pack) => bytes_of(&self.packs, pack),
            None => bytes_of(&self.segments, parse_segment_key(key)?),
        }
    }
}

fn bytes_of<Id: Ord + Copy>(listed: &[Listed<Id>], id: Id) -> Option<u64> {
    let at = listed.binary_search_by_key(&id, |object| object.id).ok()?;
    Some(listed.get(at)?.bytes)
}

impl PackUse {
    /// Stored bytes that no live chunk needs.
    pub fn unused_bytes(&self) -> u64 {
        let dead = self.stored_bytes.saturating_sub(self.live_stored_bytes);
        let all = u128::from(self.stored_bytes.max(1));
        let share = u128::from(self.bytes) * u128::from(dead) / all;
        u64::try_from(share).unwrap_or(self.bytes)
    }
}

impl Usage {
    /// Converts `now` from the clock of the plan to the clock of the store's server.
    pub fn by_store_clock(&self, now: Timestamp) -> Timestamp {
        now.checked_sub(self.ahead).unwrap_or(now)
    }

    /// Objects of packs that the log does not know.
    pub(crate) fn strange_packs<'u>(
        &'u self,
        state: &'u State,
    ) -> impl Iterator<Item = &'u Listed<PackId>> {
        let segments = self.segments.iter();
        let named: HashSet<PackId> = (segments.flat_map(|segment| &segment.packs))
            .map(|(pack, _)| *pack)
            .collect();
        self.pack_objects.iter().filter(move |object| {
            !named.contains(&object.id) && !state.condemned.contains_key(&object.id)
        })
    }

    /// Objects of segments that the log does not know.
    pub(crate) fn strange_segments<'u>(
        &'u self,
        state: &'u State,
    ) -> impl Iterator<Item = &'u Listed<SegmentId>> {
        self.segment_objects.iter().filter(|object| {
            !state.segments.contains_key(&object.id) && !state.dropped.contains_key(&object.id)
        })
    }

    /// Keeps only the sizes of what was listed.
    pub(crate) fn into_sizes(mut self) -> Sizes {
        self.pack_objects.sort_unstable_by_key(|object| object.id);
        self.segment_objects
            .sort_unstable_by_key(|object| object.id);
        Sizes {
            packs: self.pack_objects,
            segments: self.segment_objects,
        }
    }

    /// Counts what `marker` has marked.
    ///
    /// # Errors
    /// When a segment points outside of itself.
    pub fn count(&mut self, marker: &Marker<'_>, state: &State) -> Result<()> {
        let counted: Vec<Counted> = marker
            .index()
            .segments()
            .enumerate()
            .collect::<Vec<_>>()
            .into_par_iter()
            .map(|(number, segment)| Counted::of(marker, number, segment))
            .collect::<Result<_>>()?;
        let mut known: HashMap<PackId, usize> = HashMap::new();
        for (segment, counted) in marker.index().segments().zip(counted) {
            self.segments.push(SegmentUse {
                segment: segment.id,
                bytes: segment.bytes().len() as u64,
                chunks: segment.layout().chunks(),
                frames: segment.layout().frames().into(),
                packs: counted
                    .packs
                    .iter()
                    .map(|pack| (pack.pack.id, pack.chunks))
                    .collect(),
            });
            for pack in counted.packs {
                if state.condemned.contains_key(&pack.pack.id) {
                    continue;
                }
                let at = *known.entry(pack.pack.id).or_insert_with(|| {
                    self.packs.push(pack.empty_use());
                    self.packs.len() - 1
                });
                if let Some(usage) = self.packs.get_mut(at) {
                    usage.live_stored_bytes += pack.live_stored_bytes;
                    usage.live_chunks += pack.live_chunks;
                }
            }
        }
        Ok(())
    }

    /// Lists the objects of a store at `state`. A listing may be outdated: an object that it lacks is looked up by
    /// name, or waits for the next run.
    ///
    /// # Errors
    /// When it cannot be listed.
    pub fn list(prune: &dyn Prune, state: &State) -> Result<Self> {
        let mut nameless = Nameless::list(prune)?;
        let packs = state.segments.values().map(|info| u64::from(info.packs));
        let pack_objects = pack_objects(prune, packs.sum())?;
        let segment_objects = listed(prune.list(SEGMENTS_PREFIX)?, parse_segment_key);
        nameless.find_dead(prune);
        Ok(Self {
            pack_objects,
            segment_objects,
            nameless,
            ..Self::default()
        })
    }
}

/// The objects below `packs`, of which there are about `expected`. A large number is listed by directory, several at
/// once: a bucket returns a thousand keys per response, and a listing that fails has to start again.
pub(crate) fn pack_objects(prune: &dyn Prune, expected: u64) -> Result<Vec<Listed<PackId>>> {
    if expected <= PACKS_OF_ONE_LISTING {
        return Ok(listed(prune.list(PACKS_PREFIX)?, parse_pack_key));
    }
    let directories = AtomicU16::new(0);
    let list_some = || {
        let mut objects = Vec::new();
        while let Ok(directory) = u8::try_from(directories.fetch_add(1, Ordering::Relaxed)) {
            let inside = prune.list(&format!("{PACKS_PREFIX}/{directory:02x}"))?;
            objects.extend(listed(inside, parse_pack_key));
        }
        Ok(objects)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..LISTINGS_AT_ONCE)
            .map(|_| scope.spawn(list_some))
            .collect();
        let mut all = Vec::new();
        for thread in threads {
            let objects = thread.join();
            all.append(&mut objects.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        all.sort_unstable_by_key(|object| object.id);
        Ok(all)
    })
}

fn listed<Id>(objects: Vec<ObjectInfo>, parse: fn(&str) -> Option<Id>) -> Vec<Listed<Id>> {
    let known = |info: ObjectInfo| {
        Some(Listed {
            id: parse(&info.key)?,
            bytes: info.size,
            modified: info.modified,
        })
    };
    objects.into_iter().filter_map(known).collect()
}

/// The counts of one segment.
struct Counted {
    packs: Vec<CountedPack>,
}

struct CountedPack {
    pack: SegmentPack,
    stored_bytes: u64,
    chunks: u64,
    live_stored_bytes: u64,
    live_chunks: u64,
}

impl Counted {
    fn of(marker: &Marker<'_>, number: usize, segment: &OpenSegment) -> Result<Self> {
        let (layout, bytes) = (segment.layout(), segment.bytes());
        let mut packs = Vec::new();
        for position in 0..layout.packs() {
            packs.push(CountedPack::new(layout.pack(bytes, position)?));
        }
        let mut counted = Self { packs };
        for position in 0..layout.frames() {
            let frame = layout.frame(bytes, position)?;
            if let Some(pack) = counted.pack(frame.pack) {
                pack.stored_bytes += u64::from(frame.stored_len);
            }
        }
        for entry in 0..layout.chunks() {
            let is_live = marker.has(Position {
                segment: number,
                entry,
            });
            let entry = layout.entry(bytes, entry)?;
            // Looked up in the segment, since a table would be too large: a billion chunks have sixty million frames.
            let frame = layout.raw_frame(bytes, entry.frame)?;
            if let Some(pack) = counted.pack(frame.pack) {
                pack.chunks += 1;
                if is_live {
                    pack.live_chunks += 1;
                    pack.live_stored_bytes += frame.share_of(entry.len);
                }
            }
        }
        Ok(counted)
    }

    fn pack(&mut self, position: u32) -> Option<&mut CountedPack> {
        self.packs.get_mut(position as usize)
    }
}

impl CountedPack {
    fn new(pack: SegmentPack) -> Self {
        Self {
            pack,
            stored_bytes: 0,
            chunks: 0,
            live_stored_bytes: 0,
            live_chunks: 0,
        }
    }

    fn empty_use(&self) -> PackUse {
        PackUse {
            pack: self.pack.id,
            kind: self.pack.kind,
            bytes: self.pack.len.into(),
            stored_bytes: self.stored_bytes,
            live_stored_bytes: 0,
            live_chunks: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use store::format::pack_key;
    use store::remote::testing::faulty::Faults;
    use store::remote::{Faulty, Objects, Write};

    use super::*;

    #[test]
    fn many_packs_are_listed_directory_by_directory_to_the_same_end() {
        let remote = Arc::new(Faulty::new(Arc::new(Objects::memory()), Faults::default()));
        let packs: Vec<PackId> = (0..=u8::MAX)
            .step_by(5)
            .flat_map(|first| [[0; 15], [255; 15]].map(|rest| (first, rest)))
            .map(|(first, rest)| {
                let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o] = rest;
                PackId([first, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o])
            })
            .collect();
        for pack in &packs {
            remote.put(&pack_key(*pack), vec![0; 7].into()).unwrap();
        }
        let ids = |expected| {
            let before = remote.counts().requests;
            let objects = pack_objects(remote.as_ref(), expected).unwrap();
            assert!(objects.iter().all(|object| object.bytes == 7));
            let ids: Vec<PackId> = objects.iter().map(|object| object.id).collect();
            (ids, remote.counts().requests - before)
        };
        assert_eq!(ids(PACKS_OF_ONE_LISTING), (packs.clone(), 1));
        assert_eq!(ids(PACKS_OF_ONE_LISTING + 1), (packs, 256));
        remote.set(Faults {
            before: 50,
            ..Faults::default()
        });
        pack_objects(remote.as_ref(), u64::MAX).unwrap_err();
    }
}
