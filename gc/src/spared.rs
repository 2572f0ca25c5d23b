//! Spared: what unfinished passes have committed. They may continue, or another pass may continue their work.
//!
//! This only saves work: a writer notices what was condemned in any case, and stores it again.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use store::format::State;
use store::{PackId, PassId, SegmentId};

use crate::request::{Options, after};
use crate::usage::Usage;

/// Segments and packs that unfinished passes have committed, and that are left alone.
#[derive(Default)]
pub(crate) struct Spared {
    pub(crate) segments: HashSet<SegmentId>,
    /// Each pack with the time until which it is left alone.
    pub(crate) packs: HashMap<PackId, Timestamp>,
}

/// A pass is as old as the newest of its segments, by the clock of the store's server. A segment that the listing lacks
/// has only just been written.
pub(crate) fn spared(state: &State, usage: &Usage, options: &Options, now: Timestamp) -> Spared {
    let mut spared = Spared::default();
    // DESIGN, collector 7.
    if options.min_age_secs == 0 {
        return spared;
    }
    let now = usage.by_store_clock(now);
    let written: HashMap<SegmentId, Timestamp> = (usage.segment_objects.iter())
        .map(|object| (object.id, object.modified))
        .collect();
    let mut newest: HashMap<PassId, Timestamp> = HashMap::new();
    let passes = || (state.segments.iter()).filter_map(|(id, info)| Some((*id, info.pass?)));
    for (segment, pass) in passes() {
        let time = written.get(&segment).copied().unwrap_or(now);
        let newest = newest.entry(pass).or_insert(time);
        *newest = time.max(*newest);
    }
    for segment in &usage.segments {
        let pass = state
            .segments
            .get(&segment.segment)
            .and_then(|info| info.pass);
        let time = pass.and_then(|pass| newest.get(&pass));
        let until = time.map(|time| after(*time, options.min_age_secs));
        if let Some(until) = until.filter(|until| *until > now) {
            spared.segments.insert(segment.segment);
            let packs = segment.packs.iter().map(|(pack, _)| (*pack, until));
            spared.packs.extend(packs);
        }
    }
    spared
}
