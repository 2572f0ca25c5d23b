//! Two states of one log, as programs of different age have written them down.

use std::collections::BTreeMap;

use super::{RefState, State};
use crate::format::{RefName, SegmentInfo};
use crate::id::SegmentId;

impl State {
    /// Whether both say the same of everything that older programs know of: those leave out when a segment
    /// was added, which pass added it, and that a version is private.
    pub fn agrees_with(&self, other: &Self) -> bool {
        let Self {
            number,
            segments,
            dropped,
            condemned,
            refs,
            policy,
            newest: _,
        } = self;
        let totals = |segments: &BTreeMap<SegmentId, SegmentInfo>| -> Vec<_> {
            let totals = |(id, info): (&SegmentId, &SegmentInfo)| (*id, info.totals());
            segments.iter().map(totals).collect()
        };
        let public = |refs: &BTreeMap<RefName, RefState>| -> BTreeMap<RefName, RefState> {
            let mut refs = refs.clone();
            let versions = refs.values_mut().flat_map(|of| of.versions.values_mut());
            versions.for_each(|version| version.private = false);
            refs
        };
        (number, dropped, condemned) == (&other.number, &other.dropped, &other.condemned)
            && policy == &other.policy
            && public(refs) == public(&other.refs)
            && totals(segments) == totals(&other.segments)
    }
}
