//! Plan (pure): computes from a state and its usage what a collection does, in order.
//!
//! A dry run prints exactly the value that is carried out. Dead packs go first, since that needs no space. Sparse packs
//! are copied only until the share of unused bytes is below the limit. A plan is valid for the state it was made on.

use std::collections::{BTreeSet, HashSet};

use jiff::Timestamp;
use serde::Serialize;
use store::format::{Condemned, State};
use store::{PackId, Result, SegmentId};

use crate::nameless::{Doomed, NamelessPlan};
use crate::policy::Drop;
use crate::request::{Options, after};
use crate::small::small;
use crate::spared::spared;
use crate::usage::{PackUse, SegmentUse, Usage};

pub use crate::held::{Held, Wait};

/// More live segments than this are merged, since each is one more lookup for every chunk.
pub const SEGMENTS_MAX: usize = 64;
/// How many segments a merge leaves.
const SEGMENTS_LEFT: usize = 32;
/// A segment is rewritten if at least one in this many of its chunks is in condemned packs.
const DEAD_SHARE: u64 = 4;
/// Memory per frame while segments are merged.
const MERGE_FRAME_BYTES: u64 = 28;

/// The steps of one collection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// The number of the log entry for whose state the plan is.
    pub base: u64,
    /// Objects whose grace is over: deleted first, since that makes room.
    pub delete: Vec<Doomed>,
    /// What no entry names, deleted in the same step.
    #[serde(flatten)]
    pub nameless: NamelessPlan,
    /// Versions to drop.
    pub drop: Vec<Drop>,
    /// Packs to condemn without copying anything.
    pub condemn: Vec<PlannedPack>,
    /// Segments that then name only condemned packs.
    pub drop_segments: Vec<SegmentId>,
    /// Segments that were never committed, with their bytes.
    pub orphan_segments: Vec<(SegmentId, u64)>,
    /// Packs whose live chunks are copied before they are condemned.
    pub repack: Vec<PlannedPack>,
    /// Segments to merge into one.
    pub merge: Vec<SegmentId>,
    /// What stays, and why.
    pub held: Held,
}

/// A pack to remove.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlannedPack {
    /// Its id.
    pub pack: PackId,
    /// Its size in bytes.
    pub bytes: u64,
    /// Bytes of it that no live chunk needs.
    pub unused_bytes: u64,
    /// Why it is removed.
    pub why: PackFate,
}

/// Why a pack is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PackFate {
    /// Nothing in it is live.
    Dead,
    /// It was uploaded and never committed.
    Orphan,
    /// Little in it is live.
    Sparse,
    /// It is far below the usual size, and is joined with similar ones.
    Small,
}

impl Plan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.nameless.is_empty()
            && *self
                == Self {
                    base: self.base,
                    nameless: self.nameless.clone(),
                    held: self.held,
                    ..Self::default()
                }
    }

    /// The packs that the first entry condemns.
    pub fn condemned(&self) -> impl Iterator<Item = PackId> {
        self.condemn.iter().map(|planned| planned.pack)
    }
}

/// What a run knows of uploads from its earlier plans.
#[derive(Clone, Debug, Default)]
pub struct Uploads {
    /// Keys of objects that nobody will commit.
    pub abandoned: HashSet<String>,
    /// Keys of unnamed objects that existed when the run began. Later ones never count as old, whatever minimum age is
    /// requested: beside busy writers, every plan would become void.
    pub first: Option<HashSet<String>>,
}

/// Makes a plan for `state`.
///
/// # Errors
/// When the state cannot be read.
pub fn plan(
    state: &State,
    usage: &Usage,
    drop: &BTreeSet<Drop>,
    uploads: &Uploads,
    options: &Options,
    now: Timestamp,
) -> Result<Plan> {
    let mut plan = Plan {
        base: state.number,
        drop: drop.iter().cloned().collect(),
        ..Plan::default()
    };
    delete(&mut plan, state, usage, options, now);
    let clocks = (now, usage.by_store_clock(now));
    plan.nameless = (usage.nameless).plan(state, options, clocks, &mut plan.held)?;
    let spared = spared(state, usage, options, now);
    let (spared_packs, rest): (Vec<_>, Vec<_>) =
        (usage.packs.iter()).partition(|pack| spared.packs.contains_key(&pack.pack));
    for pack in spared_packs {
        if let Some(until) = spared.packs.get(&pack.pack) {
            plan.held.by_age.add(pack.unused_bytes(), *until);
        }
        plan.held.kept_bytes += pack.bytes;
    }
    let (dead, live): (Vec<&PackUse>, Vec<&PackUse>) =
        rest.into_iter().partition(|pack| pack.live_chunks == 0);
    let planned = |pack: &PackUse, why| PlannedPack {
        pack: pack.pack,
        bytes: pack.bytes,
        unused_bytes: pack.unused_bytes(),
        why,
    };
    plan.condemn = dead
        .iter()
        .map(|pack| planned(pack, PackFate::Dead))
        .collect();
    orphans(&mut plan, state, usage, uploads, options, now);
    let sparse = sparse(&live, options);
    let small = joined(&live, &sparse, usage, options);
    plan.repack = live
        .iter()
        .filter_map(|pack| match pack.pack {
            id if sparse.contains(&id) => Some(planned(pack, PackFate::Sparse)),
            id if small.contains(&id) => Some(planned(pack, PackFate::Small)),
            _ => None,
        })
        .collect();
    let stays = |pack: &PackUse| !sparse.contains(&pack.pack) && !small.contains(&pack.pack);
    let staying = || live.iter().filter(|pack| stays(pack));
    plan.held.unused_bytes = staying().map(|pack| pack.unused_bytes()).sum();
    plan.held.kept_bytes += staying().map(|pack| pack.bytes).sum::<u64>();
    segments(&mut plan, state, usage, &spared.segments, options);
    Ok(plan)
}

/// Whether the grace of what an entry condemned is over.
pub fn is_due(condemned: &Condemned, grace_secs: u64, now: Timestamp) -> bool {
    grace_secs == 0 || after(condemned.time, grace_secs) <= now
}

fn delete(plan: &mut Plan, state: &State, usage: &Usage, options: &Options, now: Timestamp) {
    let mut doom = |key: String, bytes, condemned: &Condemned| {
        if is_due(condemned, options.grace_secs, now) {
            plan.delete.push(Doomed { key, bytes });
        } else {
            let until = after(condemned.time, options.grace_secs);
            plan.held.by_grace.add(bytes, until);
        }
    };
    for object in &usage.pack_objects {
        if let Some(condemned) = state.condemned.get(&object.id) {
            doom(store::format::pack_key(object.id), object.bytes, condemned);
        }
    }
    for object in &usage.segment_objects {
        if let Some(dropped) = state.dropped.get(&object.id) {
            doom(store::format::segment_key(object.id), object.bytes, dropped);
        }
    }
}

/// Adds packs and segments that exist without any entry in the log.
fn orphans(
    plan: &mut Plan,
    state: &State,
    usage: &Usage,
    uploads: &Uploads,
    options: &Options,
    now: Timestamp,
) {
    let now = usage.by_store_clock(now);
    let old = |modified: Timestamp, key: &str| {
        let was_there = uploads
            .first
            .as_ref()
            .is_none_or(|first| first.contains(key));
        let is_old = options.min_age_secs == 0 || after(modified, options.min_age_secs) <= now;
        (is_old && was_there) || uploads.abandoned.contains(key)
    };
    for object in usage.strange_packs(state) {
        let key = store::format::pack_key(object.id);
        if old(object.modified, &key) {
            plan.condemn.push(PlannedPack {
                pack: object.id,
                bytes: object.bytes,
                unused_bytes: object.bytes,
                why: PackFate::Orphan,
            });
        } else {
            let until = after(object.modified, options.min_age_secs);
            plan.held.by_age.add(object.bytes, until);
        }
    }
    for object in usage.strange_segments(state) {
        let key = store::format::segment_key(object.id);
        if old(object.modified, &key) {
            plan.orphan_segments.push((object.id, object.bytes));
        } else {
            let until = after(object.modified, options.min_age_secs);
            plan.held.by_age.add(object.bytes, until);
        }
    }
}

/// The most wasteful packs, until the others together waste less than the limit.
fn sparse(live: &[&PackUse], options: &Options) -> HashSet<PackId> {
    let mut by_waste = live.to_vec();
    let waste = |pack: &PackUse| {
        u128::from(pack.unused_bytes()) * 1_000_000 / u128::from(pack.bytes.max(1))
    };
    by_waste.sort_by_key(|pack| (std::cmp::Reverse(waste(pack)), pack.pack));
    let mut unused: u64 = live.iter().map(|pack| pack.unused_bytes()).sum();
    let mut bytes: u64 = live.iter().map(|pack| pack.bytes).sum();
    let mut budget = options.max_repack_bytes.unwrap_or(u64::MAX);
    let mut sparse = HashSet::new();
    for pack in by_waste.into_iter().filter(|_| options.repack) {
        let is_enough = u128::from(unused) * 1_000_000
            <= u128::from(bytes) * u128::from(options.max_unused_ppm);
        if is_enough || pack.unused_bytes() == 0 {
            break;
        }
        if pack.bytes > budget {
            continue;
        }
        budget -= pack.bytes;
        unused -= pack.unused_bytes();
        bytes = bytes.saturating_sub(pack.unused_bytes());
        sparse.insert(pack.pack);
    }
    sparse
}

/// The small packs to copy together, among those that are not copied anyway.
fn joined(
    live: &[&PackUse],
    sparse: &HashSet<PackId>,
    usage: &Usage,
    options: &Options,
) -> HashSet<PackId> {
    if !options.repack {
        return HashSet::new();
    }
    let (copied, left): (Vec<&PackUse>, Vec<&PackUse>) =
        (live.iter()).partition(|pack| sparse.contains(&pack.pack));
    let copied: u64 = copied.iter().map(|pack| pack.bytes).sum();
    let budget = options.max_repack_bytes.unwrap_or(u64::MAX);
    small(&left, usage.whole_pack_bytes, budget.saturating_sub(copied))
}

/// Selects the segments to drop and to merge.
fn segments(
    plan: &mut Plan,
    state: &State,
    usage: &Usage,
    spared: &HashSet<SegmentId>,
    options: &Options,
) {
    let condemned: HashSet<PackId> = plan
        .condemned()
        .chain(state.condemned.keys().copied())
        .collect();
    let (empty, mut left): (Vec<_>, Vec<_>) = usage
        .segments
        .iter()
        .partition(|segment| segment.names_only(&condemned));
    // A merged segment belongs to no pass any more, so segments of unfinished passes are left alone.
    left.retain(|segment| !spared.contains(&segment.segment));
    plan.drop_segments = empty.iter().map(|segment| segment.segment).collect();
    let copied: HashSet<PackId> = plan.repack.iter().map(|planned| planned.pack).collect();
    let gone: HashSet<PackId> = condemned.union(&copied).copied().collect();
    plan.merge = merge(&left, &gone, options);
}

/// Segments with many dead chunks, and the smallest ones if there are too many.
fn merge(segments: &[&SegmentUse], gone: &HashSet<PackId>, options: &Options) -> Vec<SegmentId> {
    let mut left: Vec<&SegmentUse> = segments
        .iter()
        .filter(|segment| !segment.names_only(gone))
        .copied()
        .collect();
    left.sort_by_key(|segment| (segment.chunks, segment.segment));
    let too_many = match left.len() > SEGMENTS_MAX {
        true => left.len() - SEGMENTS_LEFT + 1,
        false => 0,
    };
    let mut frames = options.memory_bytes / 2 / MERGE_FRAME_BYTES;
    let mut merge = Vec::new();
    for (rank, segment) in left.into_iter().enumerate() {
        let is_wanted =
            rank < too_many || segment.dead_chunks(gone) * DEAD_SHARE >= segment.chunks.max(1);
        if is_wanted && segment.frames <= frames {
            frames -= segment.frames;
            merge.push(segment.segment);
        }
    }
    merge
}

impl SegmentUse {
    /// Whether all packs that it names are in `packs`.
    fn names_only(&self, packs: &HashSet<PackId>) -> bool {
        self.packs.iter().all(|(pack, _)| packs.contains(pack))
    }

    fn dead_chunks(&self, gone: &HashSet<PackId>) -> u64 {
        self.packs
            .iter()
            .filter(|(pack, _)| gone.contains(pack))
            .map(|(_, chunks)| chunks)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::Listed;
    use store::PassId;
    use store::format::{PackKind, pack_key};
    use store::remote::ObjectInfo;

    const HOUR: i64 = 3600;
    const OPTIONS: Options = Options::AT_ONCE;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_second(secs).unwrap()
    }

    fn id(number: u8) -> PackId {
        PackId([number; 16])
    }

    /// Pack `number` of 1000 bytes, `live` of which are in use.
    fn pack(number: u8, live: u64) -> PackUse {
        PackUse {
            pack: id(number),
            kind: PackKind::Data,
            bytes: 1000,
            stored_bytes: 900,
            live_stored_bytes: 900 * live / 1000,
            live_chunks: live,
        }
    }

    fn segment(number: u8, chunks: u64, packs: &[(u8, u64)]) -> SegmentUse {
        SegmentUse {
            segment: SegmentId([number; 16]),
            bytes: 100,
            chunks,
            frames: 10,
            packs: packs
                .iter()
                .map(|(pack, chunks)| (id(*pack), *chunks))
                .collect(),
        }
    }

    fn object<Id>(id: Id, modified: i64) -> Listed<Id> {
        Listed {
            id,
            bytes: 1000,
            modified: at(modified),
        }
    }

    fn made(state: &State, usage: &Usage, options: &Options, now: i64) -> Plan {
        plan(
            state,
            usage,
            &BTreeSet::new(),
            &Uploads::default(),
            options,
            at(now),
        )
        .unwrap()
    }

    fn packs(planned: &[PlannedPack]) -> Vec<u8> {
        planned.iter().map(|planned| planned.pack.0[0]).collect()
    }

    fn condemned(entry: u64, secs: i64) -> Condemned {
        Condemned {
            entry,
            time: at(secs),
        }
    }

    #[test]
    fn dead_packs_go_as_they_are_and_the_most_wasteful_are_copied_until_it_is_enough() {
        let lives = [1000, 0, 500, 990, 100];
        let usage = Usage {
            packs: (1..)
                .zip(lives)
                .map(|(number, live)| pack(number, live))
                .collect(),
            ..Usage::default()
        };
        let state = State::default();
        let cases = [
            (OPTIONS, vec![3, 5], 10),
            (
                Options {
                    max_unused_ppm: 0,
                    ..OPTIONS
                },
                vec![3, 4, 5],
                0,
            ),
            (
                Options {
                    max_unused_ppm: 200_000,
                    ..OPTIONS
                },
                vec![5],
                510,
            ),
            (
                Options {
                    max_repack_bytes: Some(1500),
                    ..OPTIONS
                },
                vec![5],
                510,
            ),
            (
                Options {
                    repack: false,
                    ..OPTIONS
                },
                vec![],
                1410,
            ),
        ];
        for (options, copied, unused_bytes) in cases {
            let plan = made(&state, &usage, &options, 0);
            assert_eq!(packs(&plan.condemn), [2], "{options:?}");
            assert_eq!(packs(&plan.repack), copied, "{options:?}");
            assert_eq!(plan.held.unused_bytes, unused_bytes, "{options:?}");
        }
    }

    #[test]
    fn objects_that_the_log_condemned_wait_for_their_grace() {
        let mut state = State::default();
        state.condemned.insert(id(1), condemned(5, 0));
        state.condemned.insert(id(2), condemned(6, HOUR));
        state
            .dropped
            .insert(SegmentId([3; 16]), condemned(6, 2 * HOUR));
        let usage = Usage {
            pack_objects: vec![object(id(1), 0), object(id(2), 0)],
            segment_objects: vec![object(SegmentId([3; 16]), 0)],
            ..Usage::default()
        };
        let grace = Options {
            grace_secs: 3600,
            ..OPTIONS
        };
        let plan = made(&state, &usage, &grace, 2 * HOUR - 1);
        assert_eq!(
            plan.delete,
            [Doomed {
                key: pack_key(id(1)),
                bytes: 1000
            }]
        );
        let wait = Wait {
            bytes: 2000,
            until: Some(at(3 * HOUR)),
        };
        assert_eq!(plan.held.by_grace, wait);
        assert_eq!(made(&state, &usage, &grace, 3 * HOUR).delete.len(), 3);
        assert_eq!(made(&state, &usage, &OPTIONS, 0).delete.len(), 3);
    }

    #[test]
    fn an_orphan_is_old_in_no_segment_and_not_condemned() {
        let mut state = State::default();
        state.condemned.insert(id(1), condemned(5, 0));
        let usage = Usage {
            packs: vec![pack(2, 1000)],
            segments: vec![segment(1, 10, &[(2, 10)])],
            pack_objects: (1..=4)
                .map(|number| object(id(number), i64::from(number)))
                .collect(),
            segment_objects: vec![object(SegmentId([9; 16]), 3)],
            ..Usage::default()
        };
        let aged = Options {
            min_age_secs: 100,
            grace_secs: 1000,
            ..OPTIONS
        };
        let plan = made(&state, &usage, &aged, 103);
        assert_eq!(packs(&plan.condemn), [3]);
        assert!(
            plan.condemn
                .iter()
                .all(|planned| planned.why == PackFate::Orphan)
        );
        assert_eq!(plan.orphan_segments, [(SegmentId([9; 16]), 1000)]);
        let wait = Wait {
            bytes: 1000,
            until: Some(at(104)),
        };
        assert_eq!(plan.held.by_age, wait);
        // Objects that this run itself abandoned need no age.
        let mut uploads = Uploads {
            abandoned: HashSet::from([pack_key(id(4))]),
            first: None,
        };
        let plan = super::plan(&state, &usage, &BTreeSet::new(), &uploads, &aged, at(0)).unwrap();
        assert_eq!(packs(&plan.condemn), [4]);
        // An object that appeared after the run began is never old, unless the run itself abandoned it.
        uploads.first = Some(HashSet::from([pack_key(id(3))]));
        let usage = Usage {
            pack_objects: (3..=5).map(|number| object(id(number), 0)).collect(),
            ..Usage::default()
        };
        let none = BTreeSet::new();
        let plan = super::plan(&state, &usage, &none, &uploads, &OPTIONS, at(0)).unwrap();
        assert_eq!(packs(&plan.condemn), [3, 4]);
    }

    /// Three segments: of a pass that goes on, of no pass, and of a pass that ended long ago.
    fn passes() -> (State, Usage) {
        let mut state = State::default();
        for (number, pass) in [(1, Some(1)), (2, None), (3, Some(3)), (4, Some(1))] {
            let info = store::format::SegmentInfo {
                pass: pass.map(|number: u8| PassId([number; 16])),
                ..store::format::SegmentInfo::default()
            };
            state.segments.insert(SegmentId([number; 16]), info);
        }
        let usage = Usage {
            packs: vec![pack(1, 0), pack(2, 0), pack(3, 0), pack(4, 100)],
            segments: (1..=4)
                .map(|number| segment(number, 10, &[(number, 10)]))
                .collect(),
            segment_objects: (1..=4)
                .zip([0, 0, 0, 500])
                .map(|(number, time)| object(SegmentId([number; 16]), time))
                .collect(),
            ..Usage::default()
        };
        (state, usage)
    }

    #[test]
    fn what_a_pass_committed_is_spared_while_the_newest_of_it_is_young() {
        let (state, usage) = passes();
        let aged = Options {
            min_age_secs: 1000,
            ..OPTIONS
        };
        // The pass began long ago and has committed something since: everything in it stays, even sparse packs.
        let plan = made(&state, &usage, &aged, 1499);
        assert_eq!(packs(&plan.condemn), [2, 3]);
        assert!(plan.repack.is_empty() && plan.merge.is_empty());
        assert_eq!(
            plan.drop_segments,
            [2, 3].map(|number| SegmentId([number; 16]))
        );
        let wait = Wait {
            bytes: 1900,
            until: Some(at(1500)),
        };
        assert_eq!(plan.held.by_age, wait);
        let plan = made(&state, &usage, &aged, 1500);
        assert_eq!(
            (packs(&plan.condemn), packs(&plan.repack)),
            (vec![1, 2, 3], vec![4])
        );
        let plan = made(&state, &usage, &OPTIONS, 0);
        assert_eq!(packs(&plan.condemn), [1, 2, 3]);
        // A segment that the listing lacks has only just been written.
        let mut late = usage;
        late.segment_objects.retain(|object| object.id.0[0] == 1);
        let plan = made(&state, &late, &aged, 99_000);
        assert_eq!(packs(&plan.condemn), [2]);
    }

    #[test]
    fn ages_are_by_the_clock_of_whoever_keeps_the_objects() {
        let (state, mut usage) = passes();
        usage.pack_objects = vec![object(id(9), 0)];
        usage.segment_objects.push(object(SegmentId([9; 16]), 0));
        usage.nameless.uploads = vec![ObjectInfo {
            key: "packs/ab/x#1".to_owned(),
            size: 7,
            modified: at(0),
        }];
        let aged = Options {
            min_age_secs: 7200,
            ..OPTIONS
        };
        // This host's clock is two days ahead, and only an hour has passed.
        usage.ahead = jiff::SignedDuration::from_hours(48);
        let plan = made(&state, &usage, &aged, 49 * HOUR);
        assert_eq!(packs(&plan.condemn), [2]);
        assert!(plan.orphan_segments.is_empty() && plan.nameless.stale_uploads.is_empty());
        usage.ahead = jiff::SignedDuration::ZERO;
        let plan = made(&state, &usage, &aged, 49 * HOUR);
        assert_eq!(packs(&plan.condemn), [1, 2, 3, 9]);
        assert_eq!(
            (
                plan.orphan_segments.len(),
                plan.nameless.stale_uploads.len()
            ),
            (1, 1)
        );
    }

    #[test]
    fn segments_of_nothing_are_dropped_and_those_of_much_that_is_dead_are_merged() {
        let usage = Usage {
            packs: vec![pack(1, 1000), pack(2, 0)],
            segments: vec![
                segment(1, 100, &[(1, 80), (2, 20)]),
                segment(2, 100, &[(1, 75), (2, 25)]),
                segment(3, 100, &[(2, 100)]),
            ],
            ..Usage::default()
        };
        let plan = made(&State::default(), &usage, &OPTIONS, 0);
        assert_eq!(plan.drop_segments, [SegmentId([3; 16])]);
        assert_eq!(plan.merge, [SegmentId([2; 16])]);
    }

    #[test]
    fn the_smallest_of_too_many_segments_are_merged_as_far_as_memory_goes() {
        let count = u8::try_from(SEGMENTS_MAX).unwrap() + 1;
        let segments = |count: u8| {
            let of = |number: u8| segment(number, u64::from(number) + 1, &[(1, 1)]);
            (0..count).map(of).collect()
        };
        let usage = |count| Usage {
            packs: vec![pack(1, 1000)],
            segments: segments(count),
            ..Usage::default()
        };
        let merged = |count, options: &Options| {
            let plan = made(&State::default(), &usage(count), options, 0);
            plan.merge.len()
        };
        assert_eq!(merged(count - 1, &OPTIONS), 0);
        assert_eq!(
            merged(count, &OPTIONS),
            usize::from(count) - SEGMENTS_LEFT + 1
        );
        let little = Options {
            memory_bytes: 2 * MERGE_FRAME_BYTES * 10 * 5,
            ..OPTIONS
        };
        assert_eq!(merged(count, &little), 5);
    }
}
