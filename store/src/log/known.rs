//! What can be known of a log: its newest state, and the evidence that there was more.
//!
//! Listings may show too little, never too much: what one shows behind the end is evidence, what it does not
//! show is none. Who reads goes on with what is known; who adds or deletes must not.

use super::{exists, read_entry, read_on};
use crate::error::{Error, Kind, Result};
use crate::format::{
    CHECKPOINTS_PREFIX, LOG_PREFIX, LogEntry, State, checkpoint_key, log_key, parse_checkpoint_key,
    parse_log_key,
};
use crate::remote::Read;

/// A state, and whether it is sure to be the newest.
#[derive(Debug)]
pub struct Known {
    /// The newest state that can be known.
    pub state: State,
    /// What says that more was there, or that an entry on the way is damaged. Who reads may go on; who writes or
    /// deletes must not.
    pub damage: Option<Error>,
}

impl Known {
    /// The state, for who writes or deletes.
    ///
    /// # Errors
    /// The damage, when there is any.
    pub fn whole(self) -> Result<State> {
        match self.damage {
            Some(damage) => Err(damage),
            None => Ok(self.state),
        }
    }
}

/// The state now: the newest readable checkpoint, and every entry after it. A checkpoint that is
/// missing from the listing, stale or broken costs time, nothing else.
///
/// # Errors
/// Corrupt, naming the key, when an entry is damaged, or missing although something says that it was there;
/// unsupported, when a newer program wrote it.
pub fn load(remote: &dyn Read) -> Result<State> {
    load_known(remote)?.whole()
}

/// [`load`] for who only reads: the newest state that can be known.
///
/// # Errors
/// Unsupported, when a newer program wrote an entry; when the store does not answer.
pub fn load_known(remote: &dyn Read) -> Result<Known> {
    let checkpoints = checkpoints(remote)?;
    let mut known = None;
    for &number in &checkpoints {
        if let Some(state) = read_checkpoint(remote, number)? {
            match go_on(remote, state) {
                // It was written by who did not know yet that an entry before it was given up.
                Err(error) if error.kind() == Kind::Conflict => {}
                gone_on => {
                    known = Some(gone_on?);
                    break;
                }
            }
        }
    }
    let mut known = match known {
        Some(known) => known,
        None => go_on(remote, State::default())?,
    };
    if let Some(&newest) = checkpoints.first()
        && newest > known.state.number
    {
        let number = known.state.number + 1;
        let error = || missing(number, &format!("checkpoint {newest} exists"));
        known.damage.get_or_insert_with(error);
    }
    Ok(known)
}

/// The state after entry `number`.
///
/// # Errors
/// As [`load`]; not found, when the log does not reach so far.
pub fn load_at(remote: &dyn Read, number: u64) -> Result<State> {
    let mut state = State::default();
    for checkpoint in checkpoints(remote)? {
        if checkpoint <= number
            && let Some(found) = read_checkpoint(remote, checkpoint)?
        {
            state = found;
            break;
        }
    }
    while state.number < number {
        let next = state.number + 1;
        let entry = match read_entry(remote, next) {
            Ok(Some(entry)) => entry,
            Ok(None) => copy_of(remote, next)?.ok_or_else(|| {
                let newest = state.number;
                Error::not_found(format!("{}: there is no such entry", log_key(next)))
                    .hint(format!("the last one that can be read is {newest}"))
            })?,
            Err(error) if error.kind() == Kind::Corrupt => copy_of(remote, next)?.ok_or(error)?,
            Err(error) => return Err(error),
        };
        state.apply(&entry)?;
    }
    Ok(state)
}

/// Reads on from `state` to the end of the log, or to where it can be known no more.
pub(super) fn go_on(remote: &dyn Read, mut state: State) -> Result<Known> {
    let began = state.number;
    let mut damage: Option<Error> = None;
    loop {
        let found = match read_on(remote, &mut state, began) {
            Ok(_) => past_the_end(remote, &mut state, began)?,
            Err(error) if error.kind() == Kind::Corrupt => Some(error),
            Err(error) => return Err(error),
        };
        let Some(found) = found else {
            return Ok(Known { state, damage });
        };
        damage.get_or_insert(found);
        let copy = copy_of(remote, state.number + 1)?;
        if copy.is_none_or(|entry| state.apply(&entry).is_err()) {
            return Ok(Known { state, damage });
        }
    }
}

/// Evidence that the log does not end with `state`, or did not end there once; none when it does. What was only
/// being written is read.
fn past_the_end(remote: &dyn Read, state: &mut State, began: u64) -> Result<Option<Error>> {
    loop {
        let number = state.number;
        match end_of(remote, number)? {
            End::Here => return Ok(None),
            End::Before => {
                return Ok(Some(missing(number, "the state after it is known")));
            }
            End::Behind(later) => {
                let next = number + 1;
                match read_on(remote, state, began) {
                    Ok(news) if !news.is_empty() => {}
                    Ok(_) if later == next => return Err(not_yet(next)),
                    Ok(_) => return Ok(Some(missing(next, &format!("entry {later} exists")))),
                    Err(error) if error.kind() == Kind::Corrupt => return Ok(Some(error)),
                    Err(error) => return Err(error),
                }
            }
        }
    }
}

/// Where the log ends, seen from one entry.
pub(super) enum End {
    /// With it.
    Here,
    /// Before it: it is gone.
    Before,
    /// Behind it: this is the first entry that a listing shows there.
    Behind(u64),
}

/// Asks for a listing of the entry and what is behind it; one that comes late shows less, never more.
pub(super) fn end_of(remote: &dyn Read, number: u64) -> Result<End> {
    let keys = remote.keys_after(LOG_PREFIX, &log_key(number.saturating_sub(1)))?;
    let mut is_there = number == 0;
    let mut later: Option<u64> = None;
    for found in keys.iter().filter_map(|key| parse_log_key(key)) {
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

/// What entry `number` was, as the entry after it says.
pub(crate) fn copy_of(remote: &dyn Read, number: u64) -> Result<Option<LogEntry>> {
    match remote.get(&log_key(number + 1)) {
        Ok(bytes) => match LogEntry::decode_before(number + 1, &bytes) {
            Err(error) if error.kind() == Kind::Corrupt => Ok(None),
            found => found,
        },
        // What is no object, or far too large for one, says nothing either.
        Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Corrupt) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether nothing was written behind `state` since it was read.
///
/// # Errors
/// Corrupt, when the log lost entries: to add one now would be to begin another history.
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

/// Numbers of the checkpoints that the listing shows, the newest first.
pub(super) fn checkpoints(remote: &dyn Read) -> Result<Vec<u64>> {
    let listed = remote.list(CHECKPOINTS_PREFIX)?;
    let mut numbers: Vec<_> = listed
        .iter()
        .filter_map(|info| parse_checkpoint_key(&info.key))
        .collect();
    numbers.sort_unstable_by(|left, right| right.cmp(left));
    Ok(numbers)
}

/// The checkpoint at `number`, if it is there and whole.
pub(crate) fn read_checkpoint(remote: &dyn Read, number: u64) -> Result<Option<State>> {
    let key = checkpoint_key(number);
    match remote
        .get(&key)
        .and_then(|bytes| State::decode(&key, &bytes))
    {
        Ok(state) => Ok(Some(state)),
        Err(error) => match error.kind() {
            Kind::NotFound | Kind::Corrupt | Kind::Unsupported => Ok(None),
            _ => Err(error),
        },
    }
}

/// An entry that is gone, and what says that it was there.
pub(super) fn missing(number: u64, because: &str) -> Error {
    Error::corrupt(format!("{}: missing, although {because}", log_key(number))).hint(
        "bring the log back from a copy of the store, or see what `store repair` says; until then what is left can \
         be read, and nothing is put or collected",
    )
}

fn not_yet(number: u64) -> Error {
    Error::unavailable(format!(
        "{}: is listed, and cannot be read yet",
        log_key(number)
    ))
    .hint("run it again in a minute: a file system may remember that it was not there")
}
