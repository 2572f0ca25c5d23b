//! Folding: if a commit finds many small segments, it merges some of them into its own.
//!
//! So even without a collector, a store has few segments, however many versions are put. Segments of about one size
//! wait until there are enough of them to make one of the next size: each byte is written once for each size, which is
//! O(log n) times. The entry that adds the new segment drops the folded ones; a collector deletes them.

use std::collections::HashSet;

use super::{Session, Written};
use crate::error::{ErrorKind, Result};
use crate::format::{Change, State};
use crate::id::SegmentId;
use crate::index::{OpenSegment, merge};
use crate::log;

/// Most bytes of a segment of the smallest size.
const FIRST_BYTES: u64 = 4 << 10;
/// The ratio of one size to the one before.
const RATIO: u64 = 8;
/// Most segments that one commit folds. The rest waits for the next commit.
const SEGMENTS_MAX: usize = 256;
/// Most bytes that one commit folds. Larger segments are left to collectors.
const BYTES_MAX: u64 = 64 << 20;
/// The same if segments must be fetched first.
const FAR_BYTES_MAX: u64 = 8 << 20;

/// A segment that is uploaded, and the changes that make it live.
pub(super) struct Uploaded {
    pub(super) segment: SegmentId,
    pub(super) changes: Vec<Change>,
    /// Whether some of its frames, or of the folded segments' frames, are deltas.
    pub(super) has_deltas: bool,
}

impl Uploaded {
    pub(super) fn plain((segment, add): (SegmentId, Change), has_deltas: bool) -> Self {
        Self {
            segment,
            changes: vec![add],
            has_deltas,
        }
    }

    /// Whether other segments are folded into it.
    pub(super) fn is_fold(&self) -> bool {
        self.changes.len() > 1
    }
}

impl Session<'_> {
    /// Selects the live segments that the next commit folds. If there are any, reads the newest state first, since
    /// other writers fold them as well.
    pub(super) fn due(&self, written: &mut Written) -> Result<HashSet<SegmentId>> {
        if self.due_now(written).is_empty() {
            return Ok(HashSet::new());
        }
        let entries = log::read_after(self.store.remote().as_ref(), &mut written.view.state)?;
        written.moved.note(&entries);
        self.reopen(written)?;
        Ok(self.due_now(written))
    }

    fn due_now(&self, written: &Written) -> HashSet<SegmentId> {
        if written.packs.is_empty() {
            return HashSet::new();
        }
        let own = written.packs.segment_bytes();
        let (enough, is_far) = (self.store.portions().fold, self.store.is_far());
        let due = due(&written.view.state, own, enough, is_far);
        due.into_iter().collect()
    }

    /// Uploads a segment over the packs that are in none yet, and everything that the segments `folded` offer. If a
    /// segment cannot be folded, the commit continues without a fold.
    pub(super) fn fold(
        &self,
        written: &mut Written,
        folded: &HashSet<SegmentId>,
    ) -> Result<Option<Uploaded>> {
        if folded.is_empty() || written.packs.is_empty() {
            return Ok(None);
        }
        let (remote, made) = (self.store.remote().as_ref(), self.store.provenance());
        let (_, _, bytes) = written.packs.build(made)?;
        let own = OpenSegment::from_bytes(bytes.into())?;
        let open: Vec<_> = (written.view.index.segments())
            .filter(|segment| folded.contains(&segment.id))
            .cloned()
            .collect();
        let others = (1..).zip(open.iter().map(AsRef::as_ref));
        let from: Vec<(usize, &OpenSegment)> = [(0, &own)].into_iter().chain(others).collect();
        let state = &written.view.state;
        let add = match merge(remote, made, state, &from, &|_| false) {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                self.store.warn(error);
                return Ok(None);
            }
            Err(_) => return Ok(None),
            Ok(add) => add,
        };
        let Change::AddSegment { segment, .. } = add else {
            return Ok(None);
        };
        let mut changes = vec![add];
        changes.extend(open.iter().map(|old| Change::DropSegment {
            segment: old.id,
            into: Some(segment),
        }));
        Ok(Some(Uploaded {
            segment,
            changes,
            has_deltas: from.iter().any(|(_, segment)| segment.has_deltas()),
        }))
    }
}

/// The live segments to fold into a commit's segment of `own` bytes: enough of one size to make one of the next.
pub(super) fn due(state: &State, own: u64, enough: usize, is_far: bool) -> Vec<SegmentId> {
    // Segments of unfinished passes are left alone, since collectors spare them as such.
    let ended = state
        .segments
        .iter()
        .filter(|(_, info)| info.pass.is_none());
    let mut left: Vec<(u64, SegmentId)> = ended.map(|(id, info)| (info.bytes, *id)).collect();
    left.sort_unstable();
    let most = if is_far { FAR_BYTES_MAX } else { BYTES_MAX };
    let (mut folded, mut bytes, mut limit) = (Vec::new(), 0, FIRST_BYTES);
    let mut left = left.into_iter().peekable();
    while left.peek().is_some() {
        let mut group: Vec<(u64, SegmentId)> = Vec::new();
        while let Some(small) = left.next_if(|(bytes, _)| *bytes < limit) {
            group.push(small);
        }
        // The new segment counts among the segments of its size.
        let is_one_more =
            own + bytes < limit && (limit == FIRST_BYTES || own + bytes >= limit / RATIO);
        if !group.is_empty() && group.len() + usize::from(is_one_more) >= enough {
            for (more, id) in group {
                if folded.len() >= SEGMENTS_MAX || bytes + more > most {
                    return folded;
                }
                bytes += more;
                folded.push(id);
            }
        }
        limit = limit.saturating_mul(RATIO);
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::SegmentInfo;
    use crate::id::PassId;

    const OWN: u64 = 700;
    const ENOUGH: usize = 8;

    fn put(state: &mut State, bytes: u64) -> u64 {
        let info = SegmentInfo {
            bytes,
            ..SegmentInfo::default()
        };
        state.segments.insert(SegmentId::random().unwrap(), info);
        bytes
    }

    /// Simulates a put with folding, and returns the bytes that it writes.
    fn folding_put(state: &mut State, bytes: u64) -> u64 {
        let folded = due(state, bytes, ENOUGH, false);
        let old = folded.iter().filter_map(|id| state.segments.remove(id));
        let bytes = bytes + old.map(|info| info.bytes).sum::<u64>();
        put(state, bytes)
    }

    #[test]
    fn a_hundred_thousand_puts_leave_few_segments_and_write_each_byte_a_few_times() {
        let mut state = State::default();
        let (mut written, mut most) = (0, 0);
        let puts = 100_000;
        for _ in 0..puts {
            written += folding_put(&mut state, OWN);
            most = most.max(state.segments.len());
        }
        assert!(most < 50, "{most} segments at once");
        let times = written / (puts * OWN);
        assert!(times <= 10, "each byte was written {times} times");
        let kept: u64 = state.segments.values().map(|info| info.bytes).sum();
        assert_eq!(kept, puts * OWN);
    }

    #[test]
    fn however_many_there_are_one_commit_folds_a_bounded_part() {
        let mut state = State::default();
        for _ in 0..20_000 {
            put(&mut state, OWN);
        }
        assert_eq!(due(&state, OWN, ENOUGH, false).len(), SEGMENTS_MAX);
        let mut puts = 0;
        while state.segments.len() >= 50 {
            folding_put(&mut state, OWN);
            puts += 1;
        }
        assert!(puts < 120, "{puts} puts");
    }

    #[test]
    fn large_segments_and_those_of_passes_under_way_stay() {
        let mut state = State::default();
        for _ in 0..20 {
            put(&mut state, BYTES_MAX / 4);
        }
        assert_eq!(due(&state, OWN, ENOUGH, false).len(), 4);
        assert!(due(&state, OWN, ENOUGH, true).is_empty(), "too far away");
        for info in state.segments.values_mut() {
            (info.bytes, info.pass) = (OWN, Some(PassId([1; 16])));
        }
        assert!(due(&state, OWN, ENOUGH, false).is_empty());
    }

    #[test]
    fn fewer_than_enough_of_one_size_wait() {
        let mut state = State::default();
        for _ in 0..ENOUGH - 2 {
            put(&mut state, OWN);
        }
        for _ in 0..ENOUGH - 1 {
            put(&mut state, OWN * 10);
        }
        assert!(due(&state, OWN, ENOUGH, false).is_empty());
        put(&mut state, OWN);
        // With one more of the first size, the result is the last one that the second size needs.
        assert_eq!(due(&state, OWN, ENOUGH, false).len(), 2 * ENOUGH - 2);
    }
}
