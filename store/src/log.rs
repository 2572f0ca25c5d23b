//! The log: the numbered record of every change of state, and the only part of a store that is added to in place.
//!
//! Put-if-absent alone makes the log safe: it needs no lock, no lease, no clock and no trust in listings. Entries are
//! never changed or deleted. Invariants: entry n + 1 is created only by a writer that has folded entry n and has
//! validated its changes against exactly that state; an entry that [`commit`] acknowledged is in the log once, durably.
//!
//! The tests check these rules as a model (`model`), and check this code in `log/schedules.rs`.

use bytes::Bytes;
use jiff::Timestamp;

use crate::error::{Error, ErrorKind, Result};
use crate::format::{
    Change, EntryText, LOG_ENTRY_BYTES_MAX, LogEntry, Newest, State, Who, log_group_prefix, log_key,
};
use crate::id::{CommitId, EntryId};
use crate::remedy::Remedy;
use crate::remote::{Created, Read, Write};

mod again;
mod checkpoint;
mod filler;
pub mod heal;
mod known;
mod listed;
#[cfg(test)]
mod loss_tests;
mod pieces;
mod remembered;
pub mod reserve;
#[cfg(test)]
mod schedules;
#[cfg(test)]
mod tests;
mod turn;
pub mod witness;

pub(crate) use again::Again;
pub(crate) use checkpoint::{CheckpointPlace, Far, write as write_checkpoint};
pub(crate) use known::copy_of;
pub use known::{Known, load, load_at, load_known};
use known::{ends_with, missing};
pub(crate) use known::{load_at_from, load_known_from};
pub(crate) use remembered::load_remembered;
use turn::Turn;

/// On a file system, a checkpoint follows every entry whose number is a multiple of this.
pub const CHECKPOINT_EVERY: u64 = 64;
/// The same for a remote with slow requests: each entry behind the checkpoint costs every new host one request.
const CHECKPOINT_EVERY_FAR: u64 = 8;
/// A checkpoint follows every entry of at least this many bytes, so that long entries are rarely read again.
const ENTRY_BYTES_DUE: usize = 64 << 10;
/// How many entries are requested at once, after the first requests showed that there are many.
const ENTRIES_AT_ONCE_MAX: u64 = 16;
/// How often a commit tries to find out whether its entry was created.
const CREATE_TRIES: u32 = 8;
/// How many races in a row a commit may lose before it gives up.
const RACES_MAX: u32 = 1000;

/// The result of a commit.
#[derive(Debug)]
pub struct Committed {
    /// The entry, as it is in the log.
    pub entry: LogEntry,
    /// Why the checkpoint could not be written, if one was due. The commit stands nevertheless.
    pub checkpoint: Option<Error>,
}

/// Returns the changes of a commit; see [`commit`].
pub type Prepare<'a> = dyn FnMut(&State, &[LogEntry]) -> Result<Vec<Change>> + 'a;

/// What a commit needs from outside: a clock, randomness, patience.
pub trait Outside {
    /// The time to write into the entry.
    fn now(&mut self) -> Timestamp;

    /// A name that was never used before.
    ///
    /// # Errors
    /// When no randomness is available.
    fn commit_id(&mut self) -> Result<CommitId>;

    /// Waits a random while before the next try. `tries` begins with 1; the wait grows with it.
    fn pause(&mut self, tries: u32);
}

/// The machine's clock and randomness.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

impl Outside for System {
    fn now(&mut self) -> Timestamp {
        Timestamp::now()
    }

    fn commit_id(&mut self) -> Result<CommitId> {
        CommitId::random()
    }

    /// Full jitter up to 1 s (Brooker: Exponential backoff and jitter, 2015).
    fn pause(&mut self, tries: u32) {
        let limit_millis = (5_u64 << tries.min(8)).min(1000);
        let mut dice = [0; 8];
        let known = getrandom::fill(&mut dice).is_ok();
        let millis = if known {
            u64::from_le_bytes(dice) % (limit_millis + 1)
        } else {
            limit_millis
        };
        std::thread::sleep(std::time::Duration::from_millis(millis));
    }
}

/// Folds the entries after `state` into it, up to the first number without an entry, and returns them.
///
/// # Errors
/// As [`load`]; the state then holds the entries before the one that failed. Conflict, when an entry that `state` holds
/// was given up meanwhile.
pub fn read_after(remote: &dyn Read, state: &mut State) -> Result<Vec<LogEntry>> {
    let began = state.number;
    read_on(remote, state, began)
}

/// Does [`read_after`] for a caller that has worked with the entries up to `began` before.
fn read_on(remote: &dyn Read, state: &mut State, began: u64) -> Result<Vec<LogEntry>> {
    let mut entries = Vec::new();
    let mut asked = 1;
    loop {
        let numbers = state.number + 1..=state.number + asked;
        let keys: Vec<_> = numbers.map(log_key).collect();
        let found = match remote.get_run(&keys) {
            // The entries before the damaged one can still be read.
            Err(error) if error.kind() == ErrorKind::Corrupt && asked > 1 => {
                asked = 1;
                continue;
            }
            found => found.map_err(damaged)?,
        };
        let is_last = found.len() < keys.len();
        for bytes in found {
            let number = state.number + 1;
            let (entry, text) = match LogEntry::decode_text(number, &bytes) {
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    let bytes = remote.get(&log_key(number)).map_err(|_| error)?;
                    LogEntry::decode_text(number, &bytes).map_err(damaged)?
                }
                decoded => decoded?,
            };
            if let Some(lost) = entry.lost.filter(|lost| *lost <= began) {
                return Err(given_up(number, lost));
            }
            state.apply(&entry).map_err(damaged)?;
            state.newest = Newest(Some(text));
            entries.push(entry);
        }
        if is_last {
            return Ok(entries);
        }
        asked = (2 * asked).min(ENTRIES_AT_ONCE_MAX);
    }
}

/// Returns the entry with this number, if it exists.
///
/// # Errors
/// As [`load`].
pub fn entry(remote: &dyn Read, number: u64) -> Result<Option<LogEntry>> {
    read_entry(remote, number)
}

/// Adds one entry. `prepare` gets the current state and the entries since its last call (at first: since the given
/// `state`), and returns the changes to make to exactly that state. It is called again after every lost race. If it
/// returns no changes, the commit ends with `None`.
///
/// # Errors
/// The errors of reading and of `prepare`; invalid input, when the changes contradict the state; conflict, when others
/// won every race; unavailable, when it is not known whether the entry exists: running again is safe. After an error,
/// `state` may be newer than what `prepare` has seen: load it again.
pub fn commit(
    remote: &dyn Write,
    state: &mut State,
    who: &Who,
    prepare: &mut Prepare<'_>,
) -> Result<Option<Committed>> {
    commit_with(remote, state, who, &mut System, prepare)
}

/// Does [`commit`] with another clock and randomness.
///
/// # Errors
/// As [`commit`].
pub fn commit_with(
    remote: &dyn Write,
    state: &mut State,
    who: &Who,
    outside: &mut dyn Outside,
    prepare: &mut Prepare<'_>,
) -> Result<Option<Committed>> {
    let commit = outside.commit_id()?;
    let mut is_end_known = false;
    // This only saves work that would be in vain.
    let _turn = Turn::take(remote);
    for races in 1..=RACES_MAX {
        // DESIGN, writer 3: each entry since the last look, one by one.
        let news = read_after(remote, state)?;
        state.features.check_writable(&log_key(state.number))?;
        let changes = prepare(state, &news)?;
        if changes.is_empty() {
            return Ok(None);
        }
        let entry = state.next(commit, outside.now(), who.clone(), changes);
        let number = entry.number;
        state.accepts(&entry).map_err(contradiction)?;
        // DESIGN, writer 4: check once per commit whether the log really ends here.
        if !is_end_known {
            if !ends_with(remote, state)? {
                continue;
            }
            is_end_known = true;
        }
        // DESIGN, writer 6: the entry carries the one before it.
        let before = newest(remote, state)?;
        let bytes = encoded(&entry, before.as_deref())?;
        let mut written = || place(remote, outside, &entry, &bytes);
        match settle_before(remote, number).and_then(|()| written()) {
            Ok(true) => {
                let (entry, text) = LogEntry::decode_text(number, &bytes)?;
                state.apply(&entry)?;
                state.newest = Newest(Some(text));
                // DESIGN, writer 11: the commit stands without the checkpoint.
                let checkpoint = match checkpoint::is_due(remote, state) {
                    true => write_checkpoint(remote, state).err(),
                    false => None,
                };
                return Ok(Some(Committed { entry, checkpoint }));
            }
            Ok(false) => outside.pause(races),
            Err(error) if error.is_full() && entry.changes.iter().any(Change::takes) => {
                reserve::give_up(remote, error)?;
            }
            Err(error) => return Err(error),
        }
    }
    Err(
        Error::conflict(format!("log: lost {RACES_MAX} races for the next entry"))
            .hint("too many writers at once: run it again"),
    )
}

/// The text of the last entry in `state`, which the next entry carries; none if a checkpoint stands in for it.
fn newest(remote: &dyn Read, state: &State) -> Result<Option<EntryText>> {
    if state.newest.0.is_some() || state.number == 0 {
        return Ok(state.newest.0.clone());
    }
    match known::newest_of(remote, state)? {
        known::Found::Right(text) => Ok(Some(text)),
        known::Found::Nothing => Ok(None),
        known::Found::Another(error) => Err(error),
    }
}

/// Makes an entry that was read durable, for a caller that acts on it outside of the log (deletes what it condemns). On
/// a file system the entry's writer may not have synced it yet, and a power cut could undo it.
///
/// # Errors
/// When it cannot be read or made durable; corrupt, when it is missing or not what was written.
pub fn confirm(remote: &dyn Write, number: u64) -> Result<()> {
    let key = log_key(number);
    let bytes = remote.get(&key).map_err(|error| match error.kind() {
        ErrorKind::NotFound => missing(number, "the state after it is known"),
        _ => error,
    })?;
    LogEntry::decode(number, &bytes).map_err(damaged)?;
    remote.create(&key, bytes).map(drop)
}

/// DESIGN, writer 12: entries of one directory become durable in order. The first entry of the next directory must not
/// become durable before them.
fn settle_before(remote: &dyn Write, number: u64) -> Result<()> {
    let before = number.saturating_sub(1);
    if before == 0 || log_group_prefix(before) == log_group_prefix(number) {
        return Ok(());
    }
    confirm(remote, before)
}

/// DESIGN, writer 4 and 5: creates `entry`, and returns whether it is now the entry under its number. An error does not
/// prove that nothing was created, so the request is repeated until it is answered, unless the remote itself has given
/// up retrying. After `Exists`, the entry is read to see whose it is.
fn place(
    remote: &dyn Write,
    outside: &mut dyn Outside,
    entry: &LogEntry,
    bytes: &Bytes,
) -> Result<bool> {
    let key = log_key(entry.number);
    let mut doubt = None;
    for tries in 1..=CREATE_TRIES {
        let failed = match remote.create(&key, bytes.clone()) {
            Ok(Created::Created) => return Ok(true),
            Ok(Created::Exists) => match read_entry(remote, entry.number) {
                Ok(Some(found)) => return Ok(found.commit == entry.commit),
                Ok(None) => Error::unavailable(format!("{key}: exists, and cannot be read")),
                Err(error) if is_final(&error) => return Err(error),
                Err(error) => error,
            },
            Err(error) if doubt.is_none() && had_no_effect(remote, &key, &error) => {
                return Err(error);
            }
            Err(error) => error,
        };
        let is_over = failed.is_given_up();
        doubt = Some(failed);
        if is_over {
            break;
        }
        outside.pause(tries);
    }
    let unknown = Error::unavailable(format!(
        "{key}: it is not known whether the entry was written"
    ))
    .hint("run it again when the store answers: that is safe, and nothing is stored twice");
    Err(match doubt {
        Some(cause) => unknown.because(cause),
        None => unknown,
    })
}

/// Encodes `entry`, and decodes it again before anybody else can read it: an undecodable entry would end the log.
fn encoded(entry: &LogEntry, before: Option<&[u8]>) -> Result<Bytes> {
    let mut bytes = entry.encode_after(before)?;
    if bytes.len() as u64 > LOG_ENTRY_BYTES_MAX {
        bytes = entry.encode()?;
    }
    if bytes.len() as u64 > LOG_ENTRY_BYTES_MAX {
        return Err(Error::invalid(format!(
            "{}: an entry has at most {LOG_ENTRY_BYTES_MAX} bytes, this one would have {}",
            log_key(entry.number),
            bytes.len()
        )));
    }
    match LogEntry::decode(entry.number, &bytes) {
        Ok(found) if found == *entry => Ok(bytes.into()),
        Ok(_) => Err(Error::invalid(format!(
            "{}: the entry does not survive its own text",
            log_key(entry.number)
        ))),
        Err(error) => Err(contradiction(error)),
    }
}

/// Whether another try cannot help.
fn is_final(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Corrupt | ErrorKind::Unsupported | ErrorKind::Denied | ErrorKind::InvalidInput
    )
}

/// Whether a failed create is known to have had no effect: it was refused, or a disk failed. What is not on a disk when
/// the call returns does not appear there later.
fn had_no_effect(remote: &dyn Read, key: &str, error: &Error) -> bool {
    match error.kind() {
        ErrorKind::Denied | ErrorKind::Unsupported | ErrorKind::InvalidInput => true,
        ErrorKind::Io | ErrorKind::NotFound => {
            matches!(remote.size(key), Err(error) if error.kind() == ErrorKind::NotFound)
        }
        _ => false,
    }
}

/// Reads the entry with this number. Damage counts only if two reads find it: the first answer may have been cut short.
fn read_entry(remote: &dyn Read, number: u64) -> Result<Option<LogEntry>> {
    match read_entry_once(remote, number) {
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            read_entry_once(remote, number).map_err(damaged)
        }
        read => read,
    }
}

fn read_entry_once(remote: &dyn Read, number: u64) -> Result<Option<LogEntry>> {
    match remote.get(&log_key(number)) {
        Ok(bytes) => LogEntry::decode(number, &bytes).map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The id of the entry that is under `number` instead of `id`. None if that entry is `id` or stands for it, or if it
/// cannot be read.
///
/// # Errors
/// When the store does not answer.
pub(crate) fn another_at(remote: &dyn Read, number: u64, id: EntryId) -> Result<Option<EntryId>> {
    let there = match read_entry(remote, number) {
        Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported) => None,
        there => there?,
    };
    let Some(there) = there.filter(|there| there.lost.is_none() && !filler::is_one(there)) else {
        return Ok(None);
    };
    let found = there.id()?;
    Ok((found != id && there.stands_for != Some(id)).then_some(found))
}

/// Whether there is an object under the key of entry `number`.
///
/// # Errors
/// When the store does not answer.
pub fn is_there(remote: &dyn Read, number: u64) -> Result<bool> {
    exists(remote, &log_key(number))
}

fn exists(remote: &dyn Read, key: &str) -> Result<bool> {
    match remote.size(key) {
        Ok(_) => Ok(true),
        Err(error) => match error.kind() {
            ErrorKind::NotFound => Ok(false),
            // There is something under the key.
            ErrorKind::Corrupt => Ok(true),
            _ => Err(error),
        },
    }
}

/// Adds the hint for an entry that exists and is not what was written.
fn damaged(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Corrupt => error.hint(Remedy::RepairLog),
        _ => error,
    }
}

fn given_up(number: u64, lost: u64) -> Error {
    Error::conflict(format!(
        "{}: a repair gave up entry {lost} while this program worked with it",
        log_key(number)
    ))
    .hint("run it again")
}

/// Changes that do not apply to the state are the caller's mistake, not damage of the log.
fn contradiction(error: Error) -> Error {
    Error::invalid("commit: the changes contradict the state of the store").because(error)
}
