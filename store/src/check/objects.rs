//! Checks that log, checkpoints and segments are intact and agree with each other.
//!
//! Every entry is read and folded, beginning with the first; every checkpoint is compared with the fold; every live
//! segment is read completely and compared with its totals in the log.

use std::collections::BTreeSet;

use rayon::prelude::*;

use super::{Finding, Part, VerifyReport};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{
    CHECKPOINTS_PREFIX, CLAIMS_PREFIX, ClaimPart, Claimed, EntryText, LOG_ENTRY_BYTES_MAX,
    LOG_PREFIX, LogEntry, SegmentInfo, SegmentLayout, State, checkpoint_key, log_key,
    parse_checkpoint_key, parse_claim_key, parse_log_key, segment_key,
};
use crate::id::{ClaimId, SegmentId, StoreId};
use crate::index::forget_copies;
use crate::log;
use crate::remote::{Read, Write};
use crate::store::Store;

/// How many log entries are fetched at once.
const ENTRIES_AT_ONCE: u64 = 64;

/// Reads the whole log and every checkpoint. Returns the newest state that can be known.
pub(super) fn check_log(
    remote: &dyn Read,
    store: StoreId,
    report: &mut VerifyReport,
) -> Result<State> {
    let known = log::load_known(remote, store)?;
    let mut checkpoints = listed_checkpoints(remote)?;
    report.checkpoints = checkpoints.len() as u64;
    let newest = known.state.number.max(newest_entry(remote)?);
    let base = newest_readable(remote, store, &checkpoints)?.unwrap_or(0);
    let mut folded = Some(State {
        store,
        ..State::default()
    });
    let (mut kept, mut bare) = (Vec::new(), Bare::default());
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
            bare.look(number, entry.as_ref().ok().map(|(_, extent)| *extent));
            if let Err(error) = fold(&mut folded, entry.map(|(entry, _)| entry)) {
                match log::copy_of(remote, number)? {
                    // An entry of a newer program is not damaged, but this program cannot judge it.
                    _ if !error.is_damage() || error.kind() == ErrorKind::Unsupported => {
                        return Err(error);
                    }
                    None if number <= base => {
                        kept.push(error);
                        folded = None;
                    }
                    copy => folded = passed_over(number, copy, folded, &error, report),
                }
            }
            if checkpoints.remove(&number) {
                check_checkpoint(remote, number, &mut folded, report)?;
            }
        }
        first = last + 1;
    }
    note_kept(&kept, base, report);
    report.notes.extend(bare.note());
    for number in checkpoints {
        let what = format!("is of entry {number}, the log ends at {newest}");
        report.findings.push(Finding::new(
            Part::Checkpoint(number),
            checkpoint_key(number),
            what,
        ));
    }
    if let Some(damage) = known.damage {
        let number = known.state.number + 1;
        let is_said = |finding: &Finding| matches!(finding.part, Part::Log(_));
        if !report.findings.iter().any(is_said) {
            report.find(Part::Log(number), log_key(number), &damage);
        }
    }
    Ok(undamaged(known.state, folded, report))
}

/// Checks the objects on which no version depends.
pub(super) fn check_rest(store: &Store, report: &mut VerifyReport) -> Result<()> {
    check_claims(store.remote().as_ref(), report)
}

/// Notes objects that are not valid claims. They do no harm, except that they delay processes that wait for them.
fn check_claims(remote: &dyn Read, report: &mut VerifyReport) -> Result<()> {
    for info in remote.list(CLAIMS_PREFIX)? {
        let Some((id, ClaimPart::Claim(_))) = parse_claim_key(&info.key) else {
            continue;
        };
        let claimed = match remote.get(&info.key) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            read => Claimed::decode(&read?),
        };
        if claimed.is_none_or(|claimed| ClaimId::of(&claimed.key) != id) {
            report.notes.push(format!(
                "{}: is no claim; nothing depends on it, and a collector takes it away",
                info.key
            ));
        }
    }
    Ok(())
}

/// Returns the state to continue with. If a checkpoint is damaged, uses the fold of the log, because parts of the known
/// state might be read from that checkpoint later.
fn undamaged(known: State, folded: Option<State>, report: &VerifyReport) -> State {
    let is_checkpoint = |finding: &Finding| matches!(finding.part, Part::Checkpoint(_));
    match folded.filter(|folded| folded.number == known.number) {
        Some(folded) if report.findings.iter().any(is_checkpoint) => State {
            newest: known.newest,
            cut: known.cut,
            ..folded
        },
        _ => known,
    }
}

fn fold(folded: &mut Option<State>, entry: Result<LogEntry>) -> Result<()> {
    let entry = entry?;
    match folded {
        Some(state) => state.apply(&entry),
        None => Ok(()),
    }
}

/// Returns the state after an entry that cannot be folded, if the next entry has a copy of it.
fn passed_over(
    number: u64,
    copy: Option<(LogEntry, EntryText)>,
    folded: Option<State>,
    error: &Error,
    report: &mut VerifyReport,
) -> Option<State> {
    report.find(Part::Log(number), log_key(number), error);
    let (copy, _) = copy?;
    let mut state = folded?;
    state.apply(&copy).ok()?;
    if let Some(finding) = report.findings.last_mut() {
        let next = number + 1;
        finding
            .what
            .push_str(&format!("; entry {next} says what it was"));
    }
    Some(state)
}

/// Notes bad entries that a checkpoint covers; nothing is lost.
fn note_kept(kept: &[Error], base: u64, report: &mut VerifyReport) {
    let Some(first) = kept.first() else {
        return;
    };
    let others = match kept.len() - 1 {
        0 => String::new(),
        1 => ", and 1 more".to_owned(),
        more => format!(", and {more} more"),
    };
    report.notes.push(format!(
        "{first}{others}; nothing is lost: kept by checkpoint {base}"
    ));
}

/// The length of an entry's own text, and whether nothing follows it.
type Extent = (u64, bool);

/// Entries without a copy of the previous entry. Whether there ever was a copy cannot be known.
#[derive(Default)]
struct Bare {
    /// The length of the previous entry's text, if it could be read.
    before: Option<u64>,
    first: Option<u64>,
    others: u64,
}

impl Bare {
    /// Examines the next entry; `extent` is absent if the entry could not be read.
    fn look(&mut self, number: u64, extent: Option<Extent>) {
        let before = std::mem::replace(&mut self.before, extent.map(|(own, _)| own));
        // If both texts together exceed the limit, the copy is left out.
        let has_room = |own: u64| before.is_some_and(|before| before + own <= LOG_ENTRY_BYTES_MAX);
        if !extent.is_some_and(|(own, is_bare)| is_bare && has_room(own)) {
            return;
        }
        match self.first {
            Some(_) => self.others += 1,
            None => self.first = Some(number),
        }
    }

    fn note(&self) -> Option<String> {
        let first = self.first?;
        let others = match self.others {
            0 => String::new(),
            more => format!(", and {more} more like it"),
        };
        Some(format!(
            "{}: ends behind its own text, without the copy of entry {} that it should carry{others}: it was cut there, or \
             that entry could not be read when this one was written; nothing is lost by that",
            log_key(first),
            first - 1
        ))
    }
}

fn read_entry(remote: &dyn Read, number: u64) -> Result<(LogEntry, Extent)> {
    let key = log_key(number);
    let bytes = remote.get(&key).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::corrupt(format!("{key}: is missing")),
        _ => error,
    })?;
    let entry = LogEntry::decode(number, &bytes)?;
    let extent = entry.extent(&bytes);
    Ok((entry, extent))
}

fn newest_entry(remote: &dyn Read) -> Result<u64> {
    let listed = remote.keys_after(LOG_PREFIX, LOG_PREFIX)?;
    let numbers = listed.iter().filter_map(|key| parse_log_key(key));
    Ok(numbers.max().unwrap_or(0))
}

fn newest_readable(
    remote: &dyn Read,
    store: StoreId,
    listed: &BTreeSet<u64>,
) -> Result<Option<u64>> {
    for number in listed.iter().rev() {
        if log::CheckpointPlace::new(remote)
            .read(*number, None, store)?
            .is_some()
        {
            return Ok(Some(*number));
        }
    }
    Ok(None)
}

fn listed_checkpoints(remote: &dyn Read) -> Result<BTreeSet<u64>> {
    // By key: listings of objects leave out anything that is not a file.
    let listed = remote.keys_after(CHECKPOINTS_PREFIX, CHECKPOINTS_PREFIX)?;
    let numbers = listed.iter().filter_map(|key| parse_checkpoint_key(key));
    Ok(numbers.collect())
}

fn check_checkpoint(
    remote: &dyn Read,
    number: u64,
    folded: &mut Option<State>,
    report: &mut VerifyReport,
) -> Result<()> {
    let key = checkpoint_key(number);
    let opened = log::CheckpointPlace::new(remote).open(number, None);
    let decoded = opened.and_then(|state| state.check(&key).map(|()| state));
    let defect = match decoded {
        Ok(state) => match folded {
            Some(folded) if *folded != state => {
                Error::corrupt(format!("{key}: is not the fold of the log up to its entry"))
            }
            Some(_) => return Ok(()),
            // The checkpoint replaces the entries that could not be folded.
            None => {
                *folded = Some(state);
                return Ok(());
            }
        },
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) if error.is_damage() => error,
        Err(error) => return Err(error),
    };
    report.find(Part::Checkpoint(number), key, &defect);
    Ok(())
}

/// Rewrites damaged checkpoints from the log, as far as the log is intact.
pub(super) fn rewrite_checkpoints(remote: &dyn Write, findings: &[Finding]) -> Result<Vec<u64>> {
    let numbers: BTreeSet<u64> = findings
        .iter()
        .filter_map(|finding| match finding.part {
            Part::Checkpoint(number) => Some(number),
            _ => None,
        })
        .collect();
    let newest = numbers.last().copied().unwrap_or(0);
    let mut written = Vec::new();
    let mut state = State::default();
    while state.number < newest {
        let number = state.number + 1;
        match log::entry(remote, number) {
            Ok(Some(entry)) => state.apply(&entry)?,
            Ok(None) => break,
            Err(error) if error.kind() == ErrorKind::Corrupt => break,
            Err(error) => return Err(error),
        }
        if numbers.contains(&number) {
            log::write_checkpoint(remote, &state)?;
            written.push(number);
        }
    }
    Ok(written)
}

/// Reads every live segment, and removes damaged ones from `state`, and their copies from this host.
pub(super) fn check_segments(
    store: &Store,
    state: &mut State,
    report: &mut VerifyReport,
) -> Result<()> {
    let remote = store.remote().as_ref();
    let (id_of_store, number) = (state.store, state.number);
    let mut damaged = Vec::new();
    for (id, info) in state.segments.clone() {
        report.segments += 1;
        match check_segment(remote, id, &info, id_of_store, number) {
            Ok(()) => {}
            Err(error) if error.is_damage() => {
                report.find(Part::Segment(id), segment_key(id), &error);
                state.segments.remove(&id);
                damaged.push(id);
            }
            Err(error) => return Err(error),
        }
    }
    if let Some(dir) = store.cache_dir().filter(|_| !damaged.is_empty()) {
        forget_copies(&dir, &damaged);
    }
    Ok(())
}

fn check_segment(
    remote: &dyn Read,
    id: SegmentId,
    info: &SegmentInfo,
    store: StoreId,
    number: u64,
) -> Result<()> {
    let key = segment_key(id);
    let missing = |error: Error| match error.kind() {
        ErrorKind::NotFound => Error::corrupt(format!("{key}: is missing")),
        _ => error,
    };
    // A segment of the wrong size is not read.
    let size = remote.size(&key).map_err(missing)?;
    if size != info.bytes {
        let expected = info.bytes;
        return Err(Error::corrupt(format!(
            "{key}: has {size} bytes, the log says {expected}"
        )));
    }
    let bytes = remote.get(&key).map_err(missing)?;
    let layout = SegmentLayout::parse(&key, &bytes)?;
    if layout.id() != id {
        let found = layout.id();
        return Err(Error::corrupt(format!(
            "{key}: names itself segment {found}"
        )));
    }
    layout.verify(&bytes)?;
    (layout.made()).check(&key, store, info.named_behind(number))?;
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
