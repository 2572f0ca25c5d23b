//! Heal: restores missing or damaged entries from the copies in later entries. Entries without a copy are given up if
//! the caller accepts that.
//!
//! Restoring is always safe, no matter how often and by whom it is done, because the meaning of the entry stays the
//! same. Giving up is decided by one put-if-absent of the next entry, which names the first entry that is given up. A
//! writer that relied on lost entries finds that entry before its own and starts again. No readable entry of the same
//! history is ever changed.

use std::collections::{BTreeMap, BTreeSet};

use super::filler::{Gap, Presupposed, filler};
use super::known::{checkpoints, copy_of, end_of, go_on, load_at, missing};
use super::listed::End;
use super::{CheckpointPlace, Outside, System, read_entry, write_checkpoint};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{
    Change, EntryText, LOG_PREFIX, LogEntry, ReadAs, State, Who, log_key, parse_log_key,
};
use crate::id::{EntryId, StoreId};
use crate::remedy::Remedy;
use crate::remote::{Created, Read, Write};
use crate::retry::VAIN_MAX;

/// How many entries are requested at once.
const ENTRIES_AT_ONCE: u64 = 64;

/// The result of examining or healing the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Healed {
    /// Entries that were restored.
    pub restored: Vec<u64>,
    /// Entries that were given up: their changes are unknown.
    pub lost: Vec<u64>,
    /// Entries that are missing or damaged but not needed, because a checkpoint covers them.
    pub kept: Vec<u64>,
}

/// The defects of a log.
struct Look {
    store: StoreId,
    /// The newest checkpoint that can be read; 0 if there is none.
    base: u64,
    /// The id of the last entry in that checkpoint.
    base_entry: Option<EntryId>,
    /// The newest entry of which there is any sign.
    newest: u64,
    /// Bad entries of which there is a copy, to be restored.
    copies: BTreeMap<u64, (LogEntry, EntryText)>,
    /// Bad entries without a copy that no checkpoint covers, and the known ids around them.
    lost: BTreeMap<u64, Gap>,
    kept: BTreeSet<u64>,
    /// Whether the log ends before its newest checkpoint.
    is_short: bool,
    /// The id of the entry that was examined last, if known.
    last: Option<EntryId>,
}

/// Returns what [`heal`] would do.
///
/// # Errors
/// Unsupported, when a newer program wrote an entry; also when the store does not answer.
pub fn diagnose(remote: &dyn Read, store: StoreId) -> Result<Healed> {
    Ok(Look::at(remote, store)?.told())
}

/// Restores all entries that can be restored. If `accept_loss` is set, gives up the others.
///
/// # Errors
/// Corrupt, when an entry would have to be given up without permission, or later entries make no sense without it; in
/// that case, only restored entries have changed. Also as for [`diagnose`].
pub fn heal(remote: &dyn Write, store: StoreId, who: &Who, accept_loss: bool) -> Result<Healed> {
    let mut done = Healed::default();
    for _ in 0..VAIN_MAX {
        let look = Look::at(remote, store)?;
        done.kept = look.told().kept;
        for (number, (entry, text)) in &look.copies {
            put_back(remote, entry, text)?;
            done.restored.push(*number);
        }
        if look.lost.is_empty() && !look.is_short {
            return Ok(done);
        }
        if !accept_loss {
            return Err(look.refused());
        }
        done.lost.extend(look.lost.keys());
        if look.is_short {
            // No entry after the checkpoint left a trace, so the state of the checkpoint is the newest.
            let gap = Gap {
                prev: None,
                named: look.base_entry,
            };
            let filler = filler(store, look.base, gap, Vec::new());
            put_back(remote, &filler, &filler.encode()?)?;
        } else if !look.give_up(remote, who)? {
            done.lost.clear();
        }
    }
    Err(
        Error::conflict("log: others wrote to it all the time while it was healed")
            .hint("run it again"),
    )
}

/// Continues a log that was rolled back: gives up the entries from the next one to `until`, which writers of objects in
/// the store had seen. Returns the number of the entry that records this.
///
/// # Errors
/// Conflict, when somebody else wrote the next entry; also when the store does not answer.
pub fn give_up_until(remote: &dyn Write, state: &State, who: &Who, until: u64) -> Result<u64> {
    let mut outside = System;
    let changes = vec![Change::CondemnPacks { packs: Vec::new() }];
    let (commit, now) = (outside.commit_id()?, outside.now());
    let mut entry = state.next(commit, now, who.clone(), changes);
    (entry.lost, entry.until) = (Some(entry.number), Some(until));
    let bytes = entry.encode_after(super::newest(remote, state)?.as_deref())?;
    match remote.create(&log_key(entry.number), bytes.into())? {
        Created::Created => Ok(entry.number),
        Created::Exists => Err(Error::conflict(format!(
            "{}: somebody else wrote it",
            log_key(entry.number)
        ))
        .hint("run it again")),
    }
}

impl Look {
    fn at(remote: &dyn Read, store: StoreId) -> Result<Self> {
        let (base, base_entry) = base(remote, store)?;
        let listed = remote.keys_after(LOG_PREFIX, LOG_PREFIX)?;
        let listed = listed.iter().filter_map(|key| parse_log_key(key)).max();
        let mut look = Self {
            store,
            base,
            base_entry,
            newest: base.max(listed.unwrap_or(0)),
            copies: BTreeMap::new(),
            lost: BTreeMap::new(),
            kept: BTreeSet::new(),
            is_short: false,
            last: None,
        };
        // The listing may be stale, so later entries are requested directly.
        while read_entry(remote, look.newest + 1).is_ok_and(|entry| entry.is_some()) {
            look.newest += 1;
        }
        look.read_all(remote)?;
        look.is_short = base > 0
            && base == look.newest
            && !look.copies.contains_key(&base)
            && matches!(end_of(remote, base)?, End::Before);
        Ok(look)
    }

    /// Reads all entries from the first on.
    fn read_all(&mut self, remote: &dyn Read) -> Result<()> {
        let mut next = 1;
        while next <= self.newest {
            let last = self.newest.min(next + ENTRIES_AT_ONCE - 1);
            let keys: Vec<_> = (next..=last).map(log_key).collect();
            let found = match remote.get_run(&keys) {
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    for number in next..=last {
                        self.look_again(remote, number)?;
                    }
                    next = last + 1;
                    continue;
                }
                found => found?,
            };
            let is_one_missing = found.len() < keys.len();
            for bytes in found {
                match LogEntry::decode(next, &bytes) {
                    Ok(entry) if self.takes(&entry)? => {}
                    Err(error) if error.kind() != ErrorKind::Corrupt => return Err(error),
                    _ => self.look_again(remote, next)?,
                }
                next += 1;
            }
            if is_one_missing {
                self.look_again(remote, next)?;
                next += 1;
            }
        }
        Ok(())
    }

    /// Whether `entry` is of this store and follows the entry examined before it. If so, it becomes the last examined
    /// one.
    fn takes(&mut self, entry: &LogEntry) -> Result<bool> {
        let number = entry.number;
        let is_of_this = !self.store.is_known() || entry.store == self.store;
        let follows = match (self.last, entry.prev) {
            (Some(last), Some(prev)) => last == prev,
            (Some(_), None) => entry.stands_for.is_some(),
            (None, _) => true,
        };
        if !is_of_this || !follows {
            return Ok(false);
        }
        if let Some(gap) = number.checked_sub(1).and_then(|at| self.lost.get_mut(&at)) {
            gap.named = entry.prev;
        }
        self.last = Some(entry.id()?);
        Ok(true)
    }

    fn look_again(&mut self, remote: &dyn Read, number: u64) -> Result<()> {
        match read_entry(remote, number) {
            Ok(Some(entry)) if self.takes(&entry)? => Ok(()),
            Err(error) if error.kind() != ErrorKind::Corrupt => Err(error),
            _ => self.is_bad(remote, number),
        }
    }

    fn is_bad(&mut self, remote: &dyn Read, number: u64) -> Result<()> {
        if let Some(copy) = copy_of(remote, number)?
            && self.takes(&copy.0)?
        {
            self.copies.insert(number, copy);
            return Ok(());
        }
        let prev = self.last.take();
        if number > self.base {
            self.lost.insert(number, Gap { prev, named: None });
            return Ok(());
        }
        self.kept.insert(number);
        if number == self.base {
            self.last = self.base_entry;
        }
        Ok(())
    }

    fn told(&self) -> Healed {
        Healed {
            restored: self.copies.keys().copied().collect(),
            lost: self.lost.keys().copied().collect(),
            kept: self.kept.iter().copied().collect(),
        }
    }

    fn refused(&self) -> Error {
        let hint = Remedy::AcceptLoss;
        let Some(first) = self.lost.keys().next() else {
            return missing(self.base, &format!("checkpoint {} exists", self.base)).hint(hint);
        };
        let others = match self.lost.len() - 1 {
            0 => String::new(),
            1 => ", and 1 more".to_owned(),
            more => format!(", and {more} more"),
        };
        Error::corrupt(format!(
            "{}: is lost{others}: nothing in the store says what it changed",
            log_key(*first)
        ))
        .hint(hint)
    }

    /// Gives up the lost entries by writing the next entry, and then writes their replacements. Returns false when
    /// somebody else wrote that entry first.
    fn give_up(&self, remote: &dyn Write, who: &Who) -> Result<bool> {
        let (fillers, made_up) = self.fillers(remote)?;
        let (newest, text) = match fillers.get(&self.newest) {
            Some(filler) => (filler.clone(), filler.encode()?.into()),
            None => match remote.get(&log_key(self.newest)) {
                Ok(bytes) => LogEntry::decode_text(self.newest, &bytes)?,
                Err(error) => return Err(error),
            },
        };
        // Segments that lost entries added are no longer live. As after any condemnation, writers in progress and stat
        // caches must validate again what they rely on.
        let mut changes = vec![Change::CondemnPacks { packs: Vec::new() }];
        changes.extend(made_up);
        let mut outside = System;
        let decision = LogEntry {
            prev: Some(newest.id()?),
            lost: self.lost.keys().next().copied(),
            changes,
            number: self.newest + 1,
            store: newest.store,
            stands_for: None,
            commit: outside.commit_id()?,
            time: outside.now(),
            who: who.clone(),
            until: None,
            read_as: ReadAs::default(),
        };
        let bytes = decision.encode_after(Some(&text))?;
        if remote.create(&log_key(decision.number), bytes.into())? == Created::Exists {
            return Ok(false);
        }
        for filler in fillers.values() {
            put_back(remote, filler, &filler.encode()?)?;
        }
        let state = go_on(CheckpointPlace::new(remote), self.state_before(remote)?)?.whole()?;
        // With this checkpoint, no program has to use older checkpoints or understand replacements.
        write_checkpoint(remote, &state)?;
        Ok(true)
    }

    /// Returns the state before the first lost entry.
    fn state_before(&self, remote: &dyn Read) -> Result<State> {
        let first = self.lost.keys().next().copied().unwrap_or(1);
        load_at(remote, self.store, first - 1)
    }

    /// Returns the replacements of lost entries, which contain only what later entries presuppose, and the changes that
    /// remove made-up things that are still live after the last entry.
    fn fillers(&self, remote: &dyn Read) -> Result<(BTreeMap<u64, LogEntry>, Vec<Change>)> {
        let Some(first) = self.lost.keys().next().copied() else {
            return Ok(<_>::default());
        };
        let mut state = self.state_before(remote)?;
        let mut behind = Vec::new();
        for number in first..=self.newest {
            if !self.lost.contains_key(&number) {
                behind.extend(read_entry(remote, number)?);
            }
        }
        let mut presupposed = Presupposed::by(&state, &self.lost, &behind)?;
        let mut fillers: BTreeMap<u64, LogEntry> = BTreeMap::new();
        for (number, gap) in &self.lost {
            let before = number.checked_sub(1).and_then(|at| fillers.get(&at));
            let prev = before.map_or(Ok(gap.prev), |before| before.id().map(Some))?;
            let gap = Gap { prev, ..*gap };
            let changes = presupposed.take(*number);
            fillers.insert(*number, filler(state.store, *number, gap, changes));
        }
        let mut behind = behind.iter().peekable();
        for number in first..=self.newest {
            match fillers.get(&number) {
                Some(filler) => state.apply(filler)?,
                None => behind.next().map_or(Ok(()), |entry| state.apply(entry))?,
            }
        }
        Ok((fillers, presupposed.left_in(&state)?))
    }
}

/// Writes `entry` to its place, unless a readable entry there follows the previous one.
fn put_back(remote: &dyn Write, entry: &LogEntry, text: &[u8]) -> Result<()> {
    let key = log_key(entry.number);
    let mut bytes = text.to_vec();
    if let Some((before, text)) = before(remote, entry.number)?
        && entry.prev == Some(before.id()?)
    {
        bytes.extend_from_slice(&text);
    }
    if remote.create(&key, bytes.clone().into())? == Created::Created {
        return Ok(());
    }
    match read_entry(remote, entry.number) {
        Err(error) if error.kind() == ErrorKind::Corrupt => remote.put(&key, bytes.into()),
        Ok(Some(found)) if (found.store, found.prev) != (entry.store, entry.prev) => {
            remote.put(&key, bytes.into())
        }
        read => read.map(drop),
    }
}

/// Returns the entry before `number`, if it can be read.
fn before(remote: &dyn Read, number: u64) -> Result<Option<(LogEntry, EntryText)>> {
    let before = number.saturating_sub(1);
    match remote.get(&log_key(before)) {
        Ok(bytes) => Ok(LogEntry::decode_text(before, &bytes).ok()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the newest readable checkpoint, and the id of its last entry.
fn base(remote: &dyn Read, store: StoreId) -> Result<(u64, Option<EntryId>)> {
    for (number, bytes) in checkpoints(remote)? {
        if let Some(state) = CheckpointPlace::new(remote).read(number, Some(bytes), store)? {
            return Ok((number, state.entry));
        }
    }
    Ok((0, None))
}
