//! Opens the live segments of a state. Segments that are already open are reused; the others are opened in parallel.
//!
//! With a bucket, requests take most of the time, so many small segments are fetched at once. Large ones are streamed
//! in large pieces, a few at a time.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;

use super::dropped::forget_dropped;
use super::far::COPIED_BYTES_MAX;
use super::gather::Gather;
use super::segment::How;
use super::{Index, LiveSegment, OpenSegment};
use crate::error::Result;
use crate::format::{SegmentInfo, State};
use crate::id::SegmentId;
use crate::remote::{Read, is_far};

/// How many small segments are fetched at once.
const FETCHED_AT_ONCE: usize = 16;
/// The size up to which a segment is small.
const SMALL_BYTES_MAX: u64 = 1 << 20;

impl Index {
    /// Opens the live segments of `state`. Takes over those that `before` has open, and its choice whether large
    /// segments are read in place. Segments that cannot be mapped in place are copied to `cache_dir`, or into memory
    /// without one.
    ///
    /// # Errors
    /// Corrupt or not found, naming the segment.
    pub fn open(
        remote: &dyn Read,
        cache_dir: Option<&Path>,
        state: &State,
        before: &Self,
    ) -> Result<Self> {
        let known: BTreeMap<SegmentId, &Arc<OpenSegment>> = (before.segments.iter())
            .map(|live| (live.segment.id, &live.segment))
            .collect();
        let new: Vec<(SegmentId, &SegmentInfo)> = (state.segments.iter())
            .filter(|(id, _)| !known.contains_key(id))
            .map(|(id, info)| (*id, info))
            .collect();
        let mapped = known.values().filter(|segment| segment.is_mapped()).count();
        let far = before.far.as_ref();
        let stays = |info: &SegmentInfo| far.is_some() && info.bytes > COPIED_BYTES_MAX;
        let near: Vec<_> = new
            .iter()
            .filter(|(_, info)| !stays(info))
            .copied()
            .collect();
        let gather = Gather::of(remote, cache_dir, &near, mapped);
        let how = How {
            cache_dir,
            gather: &gather,
            far,
        };
        let open = |(id, info): &(&SegmentId, &SegmentInfo)| {
            let segment = match known.get(id) {
                Some(segment) => Arc::clone(segment),
                None => Arc::new(OpenSegment::open(remote, &how, **id, info, state)?),
            };
            let condemned = segment.condemned_in(state)?;
            Ok(LiveSegment { segment, condemned })
        };
        let is_far = is_far(remote);
        let (small, others): (Vec<_>, Vec<_>) = (state.segments.iter()).partition(|(id, info)| {
            is_far && !known.contains_key(id) && (far.is_some() || info.bytes <= SMALL_BYTES_MAX)
        });
        let mut segments: Vec<LiveSegment> = others.par_iter().map(open).collect::<Result<_>>()?;
        segments.extend(at_once(&small, open)?);
        // Copies are made only when segments are opened, so old ones are deleted at the first opening and after new
        // segments.
        let has_new = known.is_empty() || !new.is_empty();
        if let Some(dir) = cache_dir.filter(|_| has_new) {
            forget_dropped(dir, state);
        }
        // Largest first, because they have most chunks.
        segments.sort_by_key(|live| std::cmp::Reverse(live.segment.layout.chunks()));
        let far = before.far.clone();
        Ok(Self::over(segments, cache_dir.map(Path::to_owned), far))
    }
}

/// Calls `open` for each item, on threads that mostly wait for answers.
pub(super) fn at_once<T: Sync, O: Send>(
    segments: &[T],
    open: impl Fn(&T) -> Result<O> + Sync,
) -> Result<Vec<O>> {
    let mut opened = Vec::with_capacity(segments.len());
    for group in segments.chunks(FETCHED_AT_ONCE) {
        if let [only] = group {
            opened.push(open(only)?);
            continue;
        }
        let found: Vec<Result<O>> = std::thread::scope(|scope| {
            let workers: Vec<_> = (group.iter())
                .map(|segment| scope.spawn(|| open(segment)))
                .collect();
            let join = |worker: std::thread::ScopedJoinHandle<'_, _>| {
                worker
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            workers.into_iter().map(join).collect()
        });
        for segment in found {
            opened.push(segment?);
        }
    }
    Ok(opened)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::format::{Change, PackTable, Provenance};
    use crate::pack::SegmentBuilder;
    use crate::remote::Objects;
    use crate::remote::testing::scripted::{Scripted, Step, When};

    #[test]
    fn small_segments_of_a_bucket_are_fetched_side_by_side() {
        let remote = Arc::new(Objects::memory());
        let mut state = State::default();
        for _ in 0..20 {
            let mut builder = SegmentBuilder::default();
            let header = crate::format::PackHeader {
                kind: crate::format::PackKind::Data,
                id: crate::id::PackId::random().unwrap(),
                made: Provenance::default(),
            };
            builder
                .add_table(header, 300, &PackTable::default())
                .unwrap();
            let written = builder.write(&*remote, Provenance::default()).unwrap();
            let (id, Change::AddSegment { info, .. }) = written else {
                panic!("{written:?}");
            };
            state.segments.insert(id, info);
        }
        state.number = 1;
        let now = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
        let count = now.clone();
        let script = move |when, step, _: &str| match (when, step) {
            (When::Before, Step::Read) => {
                let at_once = count.0.fetch_add(1, Ordering::SeqCst) + 1;
                count.1.fetch_max(at_once, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(20));
            }
            (When::After, Step::Read) => {
                count.0.fetch_sub(1, Ordering::SeqCst);
            }
            _ => {}
        };
        let scripted = Scripted::new(remote, script);
        let index = Index::open(&scripted, None, &state, &Index::default()).unwrap();
        assert_eq!(index.segments().count(), 20);
        let most = now.1.load(Ordering::SeqCst);
        assert!((5..=FETCHED_AT_ONCE).contains(&most), "{most} at once");
    }
}
