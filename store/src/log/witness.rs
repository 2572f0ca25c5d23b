//! Witnesses: objects that the log does not name, and whose writers knew more entries than the log has now.
//!
//! A log that was rolled back together with its checkpoints looks intact. But objects that were written later are still
//! there, and record which entry their writer had seen. This module deletes nothing, and reads no object that the log
//! names.

use std::collections::HashSet;

use super::known::{end_of, missing, not_yet};
use super::listed::End;
use super::{exists, read_after};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{
    PACKS_PREFIX, PackHeader, Provenance, SEGMENT_HEADER_LEN, SEGMENTS_PREFIX, SegmentLayout,
    State, log_key, pack_key, parse_pack_key, parse_segment_key,
};
use crate::id::{PackId, SegmentId};
use crate::remote::{Read, of_each};

/// What unnamed objects prove about the log.
#[derive(Debug)]
pub struct Witness {
    /// The key of the problem: a missing log entry, or an object of another store.
    pub object: String,
    /// What is wrong.
    pub damage: Error,
    /// The newest entry that a writer has known; `None` if an object belongs to another store or the log has a gap.
    pub until: Option<u64>,
}

/// Examines the segments that `state` does not know.
///
/// # Errors
/// When the store does not answer.
pub fn of_segments(remote: &dyn Read, state: &State) -> Result<Option<Witness>> {
    ask(remote, state, &segments(remote, state)?)
}

/// Examines the segments that `state` does not know, and the packs that neither `state` nor its segments know; `named`
/// are the packs of its segments.
///
/// # Errors
/// When the store does not answer.
pub fn of_all(
    remote: &dyn Read,
    state: &State,
    named: &HashSet<PackId>,
) -> Result<Option<Witness>> {
    let is_strange = |id: &PackId| !named.contains(id) && !state.condemned.contains_key(id);
    let packs = remote.keys_after(PACKS_PREFIX, PACKS_PREFIX)?;
    let packs = packs.iter().filter_map(|key| parse_pack_key(key));
    let mut strange: Vec<String> = packs.filter(is_strange).map(pack_key).collect();
    strange.extend(segments(remote, state)?);
    ask(remote, state, &strange)
}

fn segments(remote: &dyn Read, state: &State) -> Result<Vec<String>> {
    let listed = remote.keys_after(SEGMENTS_PREFIX, SEGMENTS_PREFIX)?;
    let is_known =
        |id: SegmentId| state.segments.contains_key(&id) || state.dropped.contains_key(&id);
    let is_strange = |key: &String| parse_segment_key(key).is_some_and(|id| !is_known(id));
    Ok(listed.into_iter().filter(is_strange).collect())
}

/// Examines the packs and segments under `keys`, which `state` does not know; writers at work may have written some of
/// them. An object that is missing or cannot be read proves nothing.
///
/// # Errors
/// When the store does not answer.
pub fn ask(remote: &dyn Read, state: &State, keys: &[String]) -> Result<Option<Witness>> {
    let made = of_each(remote, keys, |key| provenance(remote, key))?;
    let mut newest: Option<(&String, u64)> = None;
    for (key, made) in keys.iter().zip(made) {
        let Some(made) = made else { continue };
        if let Err(damage) = made.check_store(key, state.store) {
            return Ok(Some(Witness {
                object: key.clone(),
                damage,
                until: None,
            }));
        }
        if newest.is_none_or(|(_, began)| began < made.began) {
            newest = Some((key, made.began));
        }
    }
    let is_ahead = |state: &State, began: u64| began > state.number.max(state.until);
    let Some((key, began)) = newest.filter(|(_, began)| is_ahead(state, *began)) else {
        return Ok(None);
    };
    // The object may be a moment old. Then the entries that its writer knew can be read by now.
    let mut now = state.clone();
    let read = read_after(remote, &mut now);
    let next = now.number + 1;
    let gap = |damage| {
        Ok(Some(Witness {
            object: log_key(next),
            damage,
            until: None,
        }))
    };
    match read {
        Err(error) if error.kind() == ErrorKind::Corrupt => return gap(error),
        read => drop(read?),
    }
    if !is_ahead(&now, began) {
        return Ok(None);
    }
    match end_of(remote, now.number)? {
        // Entries before an existing entry must have existed.
        End::Behind(later) if later > next && exists(remote, &log_key(later))? => {
            return gap(missing(next, &format!("entry {later} exists")));
        }
        // A file system may cache that an entry did not exist.
        End::Behind(later) => return Err(not_yet(later)),
        End::Here | End::Before => {}
    }
    let because = format!("who wrote {key} has known entry {began}: the log was rolled back");
    Ok(Some(Witness {
        object: log_key(now.number + 1),
        damage: missing(now.number + 1, &because),
        until: Some(began),
    }))
}

/// Reads the provenance of an object.
fn provenance(remote: &dyn Read, key: &str) -> Result<Option<Provenance>> {
    let read = |len: u64| -> Result<_> {
        let header = remote.get_ranges(key, std::slice::from_ref(&(0..len)))?;
        Ok(header.into_iter().next().unwrap_or_default())
    };
    let made = if parse_segment_key(key).is_some() {
        read(SEGMENT_HEADER_LEN).and_then(|header| SegmentLayout::made_of(key, &header))
    } else if parse_pack_key(key).is_some() {
        let made = |header: PackHeader| header.made;
        read(PackHeader::LEN.into()).and_then(|bytes| PackHeader::decode(key, &bytes).map(made))
    } else {
        return Ok(None);
    };
    match made {
        Err(error) => match error.kind() {
            ErrorKind::NotFound | ErrorKind::Corrupt | ErrorKind::Unsupported => Ok(None),
            _ => Err(error),
        },
        made => made.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::format::PackKind;
    use crate::log::tests::filled;
    use crate::remote::testing::faulty::{Faults, Faulty};
    use crate::remote::{Objects, Write};

    #[test]
    fn a_store_that_does_not_answer_has_lost_nothing() {
        let inner = Objects::memory();
        let state = filled(&inner, 3);
        let header = PackHeader {
            kind: PackKind::Data,
            id: PackId::random().unwrap(),
            made: Provenance {
                store: state.store,
                began: 99,
            },
        };
        let keys = [pack_key(header.id)];
        inner.put(&keys[0], header.encode().into()).unwrap();
        let asked = |faults| {
            let remote = Faulty::new(Arc::new(inner.clone()), faults);
            (ask(&remote, &state, &keys), remote.counts().requests)
        };
        let (found, requests) = asked(Faults::default());
        assert_eq!(found.unwrap().unwrap().until, Some(99));
        for at in 1..=requests {
            let faults = Faults {
                before: 1000,
                only_at: Some(at),
                ..Faults::default()
            };
            let error = asked(faults).0.unwrap_err();
            assert_eq!(
                error.kind(),
                ErrorKind::Unavailable,
                "request {at}: {error}"
            );
        }
    }
}
