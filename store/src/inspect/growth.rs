//! growth: how a namespace came to take the space that it takes, version by version, in the order of time.
//!
//! Covers only live versions. Each chunk counts for the oldest version that needs it.

use jiff::Timestamp;

use crate::error::Result;
use crate::format::{Namespace, RefName, State};
use crate::graph::reach::Reach;
use crate::inspect::Usage;
use crate::inspect::usage::by_namespace;
use crate::read::Reader;

/// The most steps reported for a namespace.
const STEPS_MAX: usize = 400;
/// The most refs reported for a namespace.
const PARTS_MAX: usize = 200;

/// The usage of a namespace, and its history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grown {
    /// The current usage.
    pub usage: Usage,
    /// From the oldest version to the newest.
    pub steps: Vec<Step>,
    /// The refs that added most, largest first.
    pub parts: Vec<Part>,
}

/// The size of a namespace at a point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The time.
    pub time: Timestamp,
    /// Stored bytes of all chunks needed by versions up to that time.
    pub stored_bytes: u64,
    /// Bytes of these versions, as if each were stored whole.
    pub version_bytes: u64,
}

/// What a ref added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The ref.
    pub name: RefName,
    /// Stored bytes that no older version of the namespace needs.
    pub stored_bytes: u64,
}

/// Returns usage and history of each namespace, by name. Walks the versions of each once, oldest first.
///
/// # Errors
/// Not found and corrupt as for [`Reader`]; interrupted on request.
pub fn growth(reader: &Reader<'_>) -> Result<Vec<Grown>> {
    let walked = by_namespace(reader, walk)?;
    let grown = walked.into_iter().map(|(usage, (steps, parts))| Grown {
        usage,
        steps,
        parts,
    });
    Ok(grown.collect())
}

type History = (Vec<Step>, Vec<Part>);

/// Holds only times and numbers of all versions at once.
fn walk(reach: &Reach<'_>, namespace: &Namespace, state: &State) -> Result<(u64, History)> {
    let (mut parts, mut order) = (Vec::new(), Vec::new());
    for found in state.refs.within(Some(namespace)) {
        let (name, known) = found?;
        let versions = known.versions.iter();
        order.extend(versions.map(|(number, version)| (version.time, parts.len(), *number)));
        parts.push(Part {
            name,
            stored_bytes: 0,
        });
    }
    order.sort_unstable();
    let (mut steps, mut version_bytes) = (Vec::with_capacity(order.len()), 0u64);
    for (time, place, number) in order {
        let Some(part) = parts.get_mut(place) else {
            continue;
        };
        let Some(version) = state.refs.version(&part.name, number)? else {
            continue;
        };
        let before = reach.walked_bytes();
        reach.version(&version)?;
        let stored_bytes = reach.walked_bytes();
        part.stored_bytes += stored_bytes - before;
        version_bytes = version_bytes.saturating_add(version.root.bytes());
        steps.push(Step {
            time,
            stored_bytes,
            version_bytes,
        });
    }
    parts.retain(|part| part.stored_bytes > 0);
    parts.sort_by_key(|part| std::cmp::Reverse(part.stored_bytes));
    parts.truncate(PARTS_MAX);
    Ok((version_bytes, (thinned(&steps, STEPS_MAX), parts)))
}

/// Reduces the steps to at most `most`: the last one of each period of time, so that the newest stays.
fn thinned(steps: &[Step], most: usize) -> Vec<Step> {
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else {
        return Vec::new();
    };
    let micros = |step: &Step| i128::from(step.time.as_microsecond());
    let span = (micros(last) - micros(first)).max(1);
    let stretch = |step: &Step| (micros(step) - micros(first)) * most.max(2) as i128 / (span + 1);
    let mut kept: Vec<Step> = Vec::new();
    for step in steps {
        match kept.last_mut() {
            Some(newest) if stretch(newest) == stretch(step) => *newest = *step,
            _ => kept.push(*step),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(secs: i64, stored_bytes: u64) -> Step {
        Step {
            time: Timestamp::from_second(secs).unwrap(),
            stored_bytes,
            version_bytes: 0,
        }
    }

    #[test]
    fn few_steps_stay_and_many_are_thinned_by_time() {
        assert_eq!(thinned(&[], 4), []);
        let few = [step(0, 1), step(100, 2)];
        assert_eq!(thinned(&few, 4), few);
        let many: Vec<Step> = (0..1000)
            .map(|secs| step(secs, secs.unsigned_abs()))
            .collect();
        let kept = thinned(&many, 10);
        let stored: Vec<u64> = kept.iter().map(|step| step.stored_bytes).collect();
        assert_eq!(stored, [99, 199, 299, 399, 499, 599, 699, 799, 899, 999]);
        let at_once = [step(5, 1), step(5, 2)];
        assert_eq!(thinned(&at_once, 10), [step(5, 2)]);
    }
}
