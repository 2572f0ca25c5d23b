//! Features that a store must list because its live segments need them.

use super::{Finding, Part, VerifyReport};
use crate::format::{DELTA_FRAMES, segment_key};
use crate::store::View;

/// Programs that do not know deltas must refuse the store; without the feature, they would mistake deltas for damage.
pub(super) fn check(view: &View, report: &mut VerifyReport) {
    if view.state.features.has_delta_frames() {
        return;
    }
    // Segments that are about to be added are not in any state yet.
    let live = |id| view.state.segments.contains_key(id);
    let segments = view.index.segments();
    let mut with_deltas = segments.filter(|segment| segment.has_deltas() && live(&segment.id));
    let Some(first) = with_deltas.next() else {
        return;
    };
    let others = match with_deltas.count() {
        0 => String::new(),
        more => format!(", and {more} more like it"),
    };
    report.findings.push(Finding::new(
        Part::Unlearned(first.id),
        segment_key(first.id),
        format!("has deltas, and the store has not learned the feature {DELTA_FRAMES}{others}"),
    ));
}
