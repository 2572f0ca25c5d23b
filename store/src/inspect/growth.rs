//! growth: how a namespace came to take what it takes, version after version, in the order of time.
//!
//! What is gone is not told: this is the history of what is there. A chunk counts where it was needed first.

use jiff::Timestamp;

use crate::error::Result;
use crate::format::{Namespace, RefName, State};
use crate::graph::reach::Reach;
use crate::inspect::Usage;
use crate::inspect::usage::by_namespace;
use crate::read::Reader;

/// Steps that are told of a namespace.
const STEPS_MAX: usize = 400;
/// Refs that are told of a namespace.
const PARTS_MAX: usize = 200;

/// What a namespace takes, and how that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grown {
    /// What it takes.
    pub usage: Usage,
    /// From its oldest version to its newest.
    pub steps: Vec<Step>,
    /// What its refs brought, those that brought most, the largest first.
    pub parts: Vec<Part>,
}

/// What there was at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// When.
    pub time: Timestamp,
    /// Stored bytes of all chunks that versions up to then need.
    pub stored_bytes: u64,
    /// Bytes of these versions, as if each were stored whole.
    pub version_bytes: u64,
}

/// What a ref brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which one.
    pub name: RefName,
    /// Stored bytes that no older version of the namespace needs.
    pub stored_bytes: u64,
}

/// What each namespace takes and how that came, by name. The versions of each are walked once, the oldest first.
///
/// # Errors
/// Not found and corrupt as [`Reader`] has them; interrupted on request.
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

/// Only times and numbers of all versions are held at once.
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

/// At most so many steps, the last one of each stretch of time; the newest is among them.
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
