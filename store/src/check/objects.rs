//! Log, checkpoints and segments: whole, and in agreement with each other.
//!
//! Every entry is read and folded, from the first on; every checkpoint is compared with the fold; every
//! live segment is read whole and compared with its totals in the log.

use std::collections::BTreeSet;

use rayon::prelude::*;

use super::{Finding, Part, VerifyReport, is_damage};
use crate::error::{Error, Kind, Result};
use crate::format::{
    CHECKPOINTS_PREFIX, LOG_PREFIX, LogEntry, SegmentInfo, SegmentLayout, State, checkpoint_key,
    log_key, parse_checkpoint_key, parse_log_key, segment_key,
};
use crate::id::SegmentId;
use crate::log;
use crate::remote::Read;

/// Log entries that are fetched at once.
const ENTRIES_AT_ONCE: u64 = 64;

/// Reads the whole log and every checkpoint. Returns the state, when it can be known.
pub(super) fn check_log(remote: &dyn Read, report: &mut VerifyReport) -> Result<Option<State>> {
    let (newest, known) = match log::load(remote) {
        Ok(state) => (state.number, Some(state)),
        Err(error) if is_damage(&error) => (newest_entry(remote)?, None),
        Err(error) => return Err(error),
    };
    let mut checkpoints = listed_checkpoints(remote)?;
    report.checkpoints = checkpoints.len() as u64;
    let mut folded = Some(State::default());
    let mut first = 1;
    while first <= newest {
        let last = newest.min(first + ENTRIES_AT_ONCE - 1);
        let numbers: Vec<u64> = (first..=last).collect();
        let entries: Vec<_> = numbers
            .into_par_iter()
            .map(|number| (number, read_entry(remote, number)))
            .collect();
        for (number, entry) in entries {
            report.entries += 1;
            if let Err(error) = fold(&mut folded, entry) {
                if !is_damage(&error) {
                    return Err(error);
                }
                report.find(Part::Log(number), log_key(number), &error);
                folded = None;
            }
            if checkpoints.remove(&number) {
                check_checkpoint(remote, number, folded.as_ref(), report)?;
            }
        }
        first = last + 1;
    }
    for number in checkpoints {
        let what = format!("is of entry {number}, the log ends at {newest}");
        report.findings.push(Finding::new(
            Part::Checkpoint(number),
            checkpoint_key(number),
            what,
        ));
    }
    Ok(folded.or(known))
}

fn fold(folded: &mut Option<State>, entry: Result<LogEntry>) -> Result<()> {
    let entry = entry?;
    match folded {
        Some(state) => state.apply(&entry),
        None => Ok(()),
    }
}

fn read_entry(remote: &dyn Read, number: u64) -> Result<LogEntry> {
    let key = log_key(number);
    let bytes = remote.get(&key).map_err(|error| match error.kind() {
        Kind::NotFound => Error::corrupt(format!("{key}: is missing")),
        _ => error,
    })?;
    LogEntry::decode(number, &bytes)
}

fn newest_entry(remote: &dyn Read) -> Result<u64> {
    let listed = remote.list(LOG_PREFIX)?;
    let numbers = listed.iter().filter_map(|info| parse_log_key(&info.key));
    Ok(numbers.max().unwrap_or(0))
}

fn listed_checkpoints(remote: &dyn Read) -> Result<BTreeSet<u64>> {
    let listed = remote.list(CHECKPOINTS_PREFIX)?;
    Ok(listed
        .iter()
        .filter_map(|info| parse_checkpoint_key(&info.key))
        .collect())
}

fn check_checkpoint(
    remote: &dyn Read,
    number: u64,
    folded: Option<&State>,
    report: &mut VerifyReport,
) -> Result<()> {
    let key = checkpoint_key(number);
    let decoded = remote
        .get(&key)
        .and_then(|bytes| State::decode(&key, &bytes));
    let defect = match decoded {
        Ok(state) if folded.is_some_and(|folded| !folded.agrees_with(&state)) => {
            Error::corrupt(format!("{key}: is not the fold of the log up to its entry"))
        }
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == Kind::NotFound => return Ok(()),
        Err(error) if is_damage(&error) => error,
        Err(error) => return Err(error),
    };
    report.find(Part::Checkpoint(number), key, &defect);
    Ok(())
}

/// Reads every live segment; takes those out of `state` that cannot be relied on.
pub(super) fn check_segments(
    remote: &dyn Read,
    state: &mut State,
    report: &mut VerifyReport,
) -> Result<()> {
    for (id, info) in state.segments.clone() {
        report.segments += 1;
        match check_segment(remote, id, &info) {
            Ok(()) => {}
            Err(error) if is_damage(&error) => {
                report.find(Part::Segment(id), segment_key(id), &error);
                state.segments.remove(&id);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn check_segment(remote: &dyn Read, id: SegmentId, info: &SegmentInfo) -> Result<()> {
    let key = segment_key(id);
    let bytes = remote.get(&key).map_err(|error| match error.kind() {
        Kind::NotFound => Error::corrupt(format!("{key}: is missing")),
        _ => error,
    })?;
    let layout = SegmentLayout::parse(&key, &bytes)?;
    if layout.id() != id {
        let found = layout.id();
        return Err(Error::corrupt(format!(
            "{key}: names itself segment {found}"
        )));
    }
    layout.verify(&bytes)?;
    let mut found = SegmentInfo {
        chunks: layout.chunks(),
        packs: layout.packs(),
        bytes: bytes.len() as u64,
        ..SegmentInfo::default()
    };
    for position in 0..layout.packs() {
        found.pack_bytes += u64::from(layout.pack(&bytes, position)?.len);
    }
    for position in 0..layout.chunks() {
        found.raw_bytes += u64::from(layout.entry(&bytes, position)?.len);
    }
    if found == info.totals() {
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "{key}: its totals are {found:?}, the log says {:?}",
        info.totals()
    )))
}
