//! What can be known of a log: its newest state, and evidence that entries are missing.
//!
//! Listings may show too few keys, never too many. So an entry that a listing shows after the end is evidence of loss,
//! but one that it does not show proves nothing. A reader continues with what is known; a writer or collector must not.

use super::listed::{End, Listed, listing};
use super::{CheckpointPlace, exists, read_entry, read_on};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{
    CHECKPOINTS_PREFIX, EntryText, LogEntry, Newest, State, log_key, parse_checkpoint_key,
};
use crate::id::{EntryId, StoreId};
use crate::remedy::Remedy;
use crate::remote::Read;

/// A state, and whether it certainly is the newest.
#[derive(Debug)]
pub struct Known {
    /// The newest state that can be known.
    pub state: State,
    /// Evidence that the log once had more entries, or that an entry is damaged. A reader may continue; a writer or
    /// collector must not.
    pub damage: Option<Error>,
}

impl Known {
    /// Returns the state, for a writer or a collector.
    ///
    /// # Errors
    /// The damage, if there is any.
    pub fn whole(self) -> Result<State> {
        match self.damage {
            Some(damage) => Err(damage),
            None => Ok(self.state),
        }
    }
}

/// Loads the current state: the newest readable checkpoint and every entry after it. A checkpoint that is damaged,
/// stale or missing from the listing costs only time.
///
/// # Errors
/// Corrupt, naming the key, when an entry is damaged, or missing despite evidence that it existed; unsupported, when a
/// newer program wrote it.
pub fn load(remote: &dyn Read) -> Result<State> {
    load_known(remote, StoreId::default())?.whole()
}

/// Like [`load`], for a reader: returns the newest state that can be known.
///
/// # Errors
/// Unsupported, when a newer program wrote an entry; also when the store does not answer.
pub fn load_known(remote: &dyn Read, store: StoreId) -> Result<Known> {
    load_known_from(CheckpointPlace::new(remote), store)
}

/// Like [`load_known`], but reads checkpoints through `place`.
pub(crate) fn load_known_from(place: CheckpointPlace<'_>, store: StoreId) -> Result<Known> {
    let remote = place.remote;
    let checkpoints = checkpoints(remote)?;
    let mut known = None;
    for &(number, bytes) in &checkpoints {
        if let Some(state) = place.read(number, Some(bytes), store)? {
            match go_on(place, state) {
                // The writer of this checkpoint did not know that an entry before it was given up.
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                gone_on => {
                    known = Some(gone_on?);
                    break;
                }
            }
        }
    }
    let mut known = match known {
        Some(known) => known,
        None => go_on(place, empty(store))?,
    };
    if let Some(&(newest, _)) = checkpoints.first()
        && newest > known.state.number
    {
        let number = known.state.number + 1;
        let error = || missing(number, &format!("checkpoint {newest} exists"));
        known.damage.get_or_insert_with(error);
    }
    Ok(known)
}

/// Loads the state after entry `number`.
///
/// # Errors
/// As for [`load`]; not found, when the log has no such entry.
pub fn load_at(remote: &dyn Read, store: StoreId, number: u64) -> Result<State> {
    load_at_from(CheckpointPlace::new(remote), store, number)
}

/// Like [`load_at`], but reads checkpoints through `place`.
pub(crate) fn load_at_from(
    place: CheckpointPlace<'_>,
    store: StoreId,
    number: u64,
) -> Result<State> {
    load_between(place, store, (number, number))
}

/// Loads the state after entry `number` from earlier checkpoints and the log, without the checkpoint at `number`.
pub(super) fn load_over(place: CheckpointPlace<'_>, store: StoreId, number: u64) -> Result<State> {
    load_between(place, store, (number.saturating_sub(1), number))
}

fn load_between(
    place: CheckpointPlace<'_>,
    store: StoreId,
    (from, number): (u64, u64),
) -> Result<State> {
    let remote = place.remote;
    let mut state = empty(store);
    for (checkpoint, bytes) in checkpoints(remote)? {
        if checkpoint <= from
            && let Some(found) = place.read(checkpoint, Some(bytes), store)?
        {
            state = found;
            break;
        }
    }
    while state.number < number {
        let next = state.number + 1;
        let entry = match read_entry(remote, next) {
            Ok(Some(entry)) => entry,
            Ok(None) => copy_at(remote, next)?.ok_or_else(|| {
                let newest = state.number;
                Error::not_found(format!("{}: there is no such entry", log_key(next)))
                    .hint(format!("the last one that can be read is {newest}"))
            })?,
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                copy_at(remote, next)?.ok_or(error)?
            }
            Err(error) => return Err(error),
        };
        state.apply(&entry)?;
    }
    Ok(state)
}

/// Reads from `state` to the end of the log, or as far as the log can be read.
pub(super) fn go_on(place: CheckpointPlace<'_>, state: State) -> Result<Known> {
    let listed = Listed::ask(place.remote, state.number)?;
    go_on_by(place, state, listed.as_ref())
}

/// Like [`go_on`], with a listing of the entries after `state`.
pub(super) fn go_on_by(
    place: CheckpointPlace<'_>,
    mut state: State,
    listed: Option<&Listed>,
) -> Result<Known> {
    let (remote, began) = (place.remote, state.number);
    let mut damage: Option<Error> = None;
    let mut end = match listed {
        Some(listed) => listed.read(remote, &mut state, place.by_copies)?,
        None => None,
    };
    loop {
        let read = match end {
            Some(_) => Ok(()),
            None => read_on(remote, &mut state, began).map(drop),
        };
        let found = match read {
            Ok(()) => past_the_end(remote, &mut state, began, end.take())?,
            Err(error) if error.kind() == ErrorKind::Corrupt => Some(error),
            Err(error) => return Err(error),
        };
        let Some(found) = found else {
            return Ok(Known { state, damage });
        };
        damage.get_or_insert(found);
        match copy_of(remote, state.number + 1)? {
            Some((entry, text)) if state.apply(&entry).is_ok() => state.newest = Newest(Some(text)),
            _ => return Ok(Known { state, damage }),
        }
    }
}

/// Returns evidence that the log does not end, or once did not end, with `state`; `None` if there is none. Reads
/// entries that were just being written. `known` is where the log ends, if that was already determined.
fn past_the_end(
    remote: &dyn Read,
    state: &mut State,
    began: u64,
    mut known: Option<End>,
) -> Result<Option<Error>> {
    loop {
        let number = state.number;
        match known.take().map_or_else(|| end_of(remote, number), Ok)? {
            End::Here if number == 0 || state.newest.0.is_some() => return Ok(None),
            End::Here => {
                return match newest_of(remote, state)? {
                    Found::Right(text) => {
                        state.newest = Newest(Some(text));
                        Ok(None)
                    }
                    Found::Nothing => Ok(None),
                    Found::Another(error) => Ok(Some(error)),
                };
            }
            End::Before => {
                return Ok(Some(missing(number, "the state after it is known")));
            }
            End::Behind(later) => {
                let next = number + 1;
                match read_on(remote, state, began) {
                    Ok(news) if !news.is_empty() => {}
                    Ok(_) if later == next => return Err(not_yet(next)),
                    Ok(_) => return Ok(Some(missing(next, &format!("entry {later} exists")))),
                    Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(Some(error)),
                    Err(error) => return Err(error),
                }
            }
        }
    }
}

/// Lists the keys from the entry on. A stale listing shows too few, never too many.
pub(super) fn end_of(remote: &dyn Read, number: u64) -> Result<End> {
    let mut is_there = number == 0;
    let mut later: Option<u64> = None;
    for found in listing(remote, number)? {
        is_there |= found == number;
        if found > number {
            later = Some(later.map_or(found, |later| later.min(found)));
        }
    }
    match later {
        Some(later) => Ok(End::Behind(later)),
        None if is_there || exists(remote, &log_key(number))? => Ok(End::Here),
        None => Ok(End::Before),
    }
}

/// What is stored under the key of a state's last entry.
pub(super) enum Found {
    /// The entry that the state ends with.
    Right(EntryText),
    /// No entry or a damaged one; the checkpoint that the state comes from covers it.
    Nothing,
    /// An entry of another history.
    Another(Error),
}

/// Compares the stored entry with the last entry of `state`.
pub(super) fn newest_of(remote: &dyn Read, state: &State) -> Result<Found> {
    let number = state.number;
    let found = remote
        .get(&log_key(number))
        .and_then(|bytes| LogEntry::decode_alone(number, &bytes));
    match found {
        Ok((entry, text)) => match (state.entry, entry.id()?) {
            (Some(own), found) if own != found => Ok(Found::Another(another(number, own, found))),
            _ => Ok(Found::Right(text)),
        },
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corrupt) => {
            Ok(Found::Nothing)
        }
        Err(error) => Err(error),
    }
}

/// Returns entry `number` and its text: from the copy in the next entry, or from its own object if only the copy in
/// that object is damaged.
pub(crate) fn copy_of(remote: &dyn Read, number: u64) -> Result<Option<(LogEntry, EntryText)>> {
    let copied = remote
        .get(&log_key(number + 1))
        .and_then(|bytes| LogEntry::decode_before(number + 1, &bytes));
    if let Some(copy) = unless_gone(copied)?.flatten() {
        return Ok(Some(copy));
    }
    let own = remote
        .get(&log_key(number))
        .and_then(|bytes| LogEntry::decode_alone(number, &bytes));
    unless_gone(own)
}

fn copy_at(remote: &dyn Read, number: u64) -> Result<Option<LogEntry>> {
    Ok(copy_of(remote, number)?.map(|(entry, _)| entry))
}

/// Turns a missing or damaged object into `None`.
fn unless_gone<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corrupt) => Ok(None),
        read => read.map(Some),
    }
}

/// Returns the state of a store without entries.
pub(super) fn empty(store: StoreId) -> State {
    State {
        store,
        ..State::default()
    }
}

/// Whether nothing was written after `state` since it was read.
///
/// # Errors
/// Corrupt, when the log lost entries: adding an entry would begin another history.
pub(super) fn ends_with(remote: &dyn Read, state: &State) -> Result<bool> {
    let number = state.number;
    match end_of(remote, number)? {
        End::Here => Ok(true),
        End::Before => Err(missing(number, "the state after it is known")),
        End::Behind(_) if exists(remote, &log_key(number + 1))? => Ok(false),
        End::Behind(later) if later == number + 1 => Err(not_yet(later)),
        End::Behind(later) => Err(missing(number + 1, &format!("entry {later} exists"))),
    }
}

/// Returns numbers and lengths of the checkpoints in the listing, newest first.
pub(super) fn checkpoints(remote: &dyn Read) -> Result<Vec<(u64, u64)>> {
    let listed = remote.list(CHECKPOINTS_PREFIX)?;
    let mut numbers: Vec<_> = listed
        .iter()
        .filter_map(|info| Some((parse_checkpoint_key(&info.key)?, info.size)))
        .collect();
    numbers.sort_unstable_by(|left, right| right.cmp(left));
    Ok(numbers)
}

/// The error for a missing entry, with the evidence that it existed.
pub(super) fn missing(number: u64, because: &str) -> Error {
    Error::corrupt(format!("{}: missing, although {because}", log_key(number)))
        .hint(Remedy::RestoreLog)
}

/// The error for an entry whose id is not the one that a state recorded.
fn another(number: u64, own: EntryId, found: EntryId) -> Error {
    Error::corrupt(format!(
        "{}: is another entry than the one that the state after it knows: its id is {found}, expected {own}",
        log_key(number)
    ))
    .hint(
        "the log was replaced by that of another history: restore it from a copy of the store; until then what is \
         left can be read, and nothing is put or collected",
    )
}

pub(super) fn not_yet(number: u64) -> Error {
    Error::unavailable(format!(
        "{}: is listed, and cannot be read yet",
        log_key(number)
    ))
    .hint("run it again in a minute: a file system may remember that it was not there")
}
