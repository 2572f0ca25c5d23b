//! Heal: entries that are gone or damaged are put back as the entry after them says, and what nothing stands in
//! for is given up, where the caller accepts that.
//!
//! Putting back is safe whoever does it how often: the bytes mean what they meant. Giving up is decided by
//! one put-if-absent of the next entry, which says from which entry on; who worked with more than the log has now
//! finds that entry before its own and begins anew. No entry that can be read is ever changed.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::known::{End, checkpoints, copy_of, end_of, go_on, load_at, missing, read_checkpoint};
use super::{Outside, System, read_entry};
use crate::error::{Error, Kind, Result};
use crate::format::{
    Change, Content, LOG_PREFIX, LogEntry, RefName, Root, SegmentInfo, State, Who, checkpoint_key,
    log_key, parse_log_key,
};
use crate::id::CommitId;
use crate::remote::{Created, Read, Write};
use crate::retry::VAIN_MAX;

/// Entries that are asked for at once.
const ENTRIES_AT_ONCE: u64 = 64;

/// What a look at the log, or healing it, came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Healed {
    /// Entries that were put back.
    pub restored: Vec<u64>,
    /// Entries that are given up: what they changed is not known.
    pub lost: Vec<u64>,
    /// Entries that are gone or damaged and are needed no more, since a checkpoint stands in for them.
    pub kept: Vec<u64>,
}

/// What is wrong with a log.
struct Look {
    /// The newest checkpoint that can be read; 0 for none.
    base: u64,
    /// The newest entry that anything is known of.
    newest: u64,
    /// Entries with a copy, that is put back.
    copies: BTreeMap<u64, LogEntry>,
    /// Entries without, that no checkpoint stands in for.
    lost: BTreeSet<u64>,
    kept: BTreeSet<u64>,
    /// The log ends before its checkpoint.
    is_short: bool,
}

/// What [`heal`] would do.
///
/// # Errors
/// Unsupported, when a newer program wrote an entry; when the store does not answer.
pub fn diagnose(remote: &dyn Read) -> Result<Healed> {
    Ok(Look::at(remote)?.told())
}

/// Puts back what can be put back. What nothing stands in for is given up, if `accept_loss` says so.
///
/// # Errors
/// Corrupt, when something would have to be given up and must not, or the entries after it cannot be
/// understood without it: nothing is changed then but for what was put back. As [`diagnose`].
pub fn heal(remote: &dyn Write, who: &Who, accept_loss: bool) -> Result<Healed> {
    let mut done = Healed::default();
    for _ in 0..VAIN_MAX {
        let look = Look::at(remote)?;
        done.kept = look.told().kept;
        for (number, entry) in &look.copies {
            let before = read_entry(remote, number - 1).ok().flatten();
            put_back(remote, entry, before.as_ref())?;
            done.restored.push(*number);
        }
        if look.lost.is_empty() && !look.is_short {
            return Ok(done);
        }
        if !accept_loss {
            return Err(look.refused());
        }
        done.lost.extend(&look.lost);
        if look.is_short {
            // What came behind it left no trace in the log: the state of the checkpoint is the newest there is.
            put_back(remote, &filler(look.base, Vec::new()), None)?;
        } else if !look.give_up(remote, who)? {
            done.lost.clear();
        }
    }
    Err(
        Error::conflict("log: others wrote to it all the time while it was healed")
            .hint("run it again"),
    )
}

impl Look {
    fn at(remote: &dyn Read) -> Result<Self> {
        let base = base(remote)?;
        let listed = remote.keys_after(LOG_PREFIX, LOG_PREFIX)?;
        let listed = listed.iter().filter_map(|key| parse_log_key(key)).max();
        let mut look = Self {
            base,
            newest: base.max(listed.unwrap_or(0)),
            copies: BTreeMap::new(),
            lost: BTreeSet::new(),
            kept: BTreeSet::new(),
            is_short: false,
        };
        // A listing may be late, so that entries may follow; those are asked for.
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

    /// Reads every entry from the first on.
    fn read_all(&mut self, remote: &dyn Read) -> Result<()> {
        let mut next = 1;
        while next <= self.newest {
            let last = self.newest.min(next + ENTRIES_AT_ONCE - 1);
            let keys: Vec<_> = (next..=last).map(log_key).collect();
            let found = match remote.get_run(&keys) {
                Err(error) if error.kind() == Kind::Corrupt => {
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
                    Err(error) if error.kind() == Kind::Corrupt => self.look_again(remote, next)?,
                    read => drop(read?),
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

    fn look_again(&mut self, remote: &dyn Read, number: u64) -> Result<()> {
        match read_entry(remote, number) {
            Ok(Some(_)) => Ok(()),
            Err(error) if error.kind() != Kind::Corrupt => Err(error),
            _ => self.is_bad(remote, number),
        }
    }

    fn is_bad(&mut self, remote: &dyn Read, number: u64) -> Result<()> {
        match copy_of(remote, number)? {
            Some(copy) => drop(self.copies.insert(number, copy)),
            None if number <= self.base => drop(self.kept.insert(number)),
            None => drop(self.lost.insert(number)),
        }
        Ok(())
    }

    fn told(&self) -> Healed {
        Healed {
            restored: self.copies.keys().copied().collect(),
            lost: self.lost.iter().copied().collect(),
            kept: self.kept.iter().copied().collect(),
        }
    }

    fn refused(&self) -> Error {
        let hint = "bring the log back from a copy of the store; or `store repair --accept-loss` goes on without \
                    what is lost: the versions that these entries set, and all that came behind the last entry \
                    that is known";
        let Some(first) = self.lost.first() else {
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

    /// Decides by the next entry that what is lost changed nothing, and fills its places; false when somebody else
    /// wrote that entry first.
    fn give_up(&self, remote: &dyn Write, who: &Who) -> Result<bool> {
        let fillers = self.fillers(remote)?;
        let newest = match fillers.get(&self.newest) {
            Some(filler) => Some(filler.clone()),
            None => read_entry(remote, self.newest)?,
        };
        let mut outside = System;
        let decision = LogEntry {
            number: self.newest + 1,
            commit: outside.commit_id()?,
            time: outside.now(),
            who: who.clone(),
            // Segments of the lost entries are live no more. Like after any condemnation, whoever counts on what was
            // there (writers under way, caches of unchanged files) looks again.
            changes: vec![Change::CondemnPacks { packs: Vec::new() }],
        };
        let bytes = decision.encode_after(newest.as_ref(), self.lost.first().copied())?;
        if remote.create(&log_key(decision.number), bytes.into())? == Created::Exists {
            return Ok(false);
        }
        for filler in fillers.values() {
            put_back(remote, filler, None)?;
        }
        let state = go_on(remote, self.state_before(remote)?)?.whole()?;
        // So that older checkpoints, and programs that know nothing of this, are not asked.
        remote.put(&checkpoint_key(state.number), state.encode()?.into())?;
        Ok(true)
    }

    /// The state before the first lost entry.
    fn state_before(&self, remote: &dyn Read) -> Result<State> {
        let first = self.lost.first().copied().unwrap_or(1);
        load_at(remote, first - 1)
    }

    /// What stands in the places of lost entries: nothing, but for what the entries behind them presuppose.
    fn fillers(&self, remote: &dyn Read) -> Result<BTreeMap<u64, LogEntry>> {
        let Some(first) = self.lost.first().copied() else {
            return Ok(BTreeMap::new());
        };
        let mut state = self.state_before(remote)?;
        let mut behind = Vec::new();
        for number in first..=self.newest {
            if !self.lost.contains(&number) {
                behind.extend(read_entry(remote, number)?);
            }
        }
        let changes = presupposed(&state, &behind)?;
        let mut fillers: BTreeMap<u64, LogEntry> = self
            .lost
            .iter()
            .map(|number| (*number, filler(*number, Vec::new())))
            .collect();
        fillers.insert(first, filler(first, changes));
        let mut behind = behind.iter().peekable();
        for number in first..=self.newest {
            match fillers.get(&number) {
                Some(filler) => state.apply(filler)?,
                None => behind.next().map_or(Ok(()), |entry| state.apply(entry))?,
            }
        }
        Ok(fillers)
    }
}

/// Changes after which `entries` can follow `state`: numbers of versions that are used up, segments that are
/// dropped later. What a lost version held is not known, so one that is still needed cannot be made up.
fn presupposed(state: &State, entries: &[LogEntry]) -> Result<Vec<Change>> {
    let mut last: BTreeMap<&RefName, u64> = BTreeMap::new();
    let mut known: BTreeSet<(&RefName, u64)> = BTreeSet::new();
    let mut segments: BTreeSet<_> = state.segments.keys().copied().collect();
    for (name, found) in &state.refs {
        last.insert(name, found.last);
        known.extend(found.versions.keys().map(|number| (name, *number)));
    }
    let mut changes = Vec::new();
    for entry in entries {
        for change in &entry.changes {
            match change {
                Change::SetRef { name, version, .. } => {
                    let before = last.insert(name, *version).unwrap_or(0);
                    for lost in before + 1..*version {
                        changes.push(empty(name, lost));
                        changes.push(Change::DropRef {
                            name: name.clone(),
                            version: lost,
                        });
                    }
                    known.insert((name, *version));
                }
                Change::DropRef { name, version } | Change::Pin { name, version, .. } => {
                    if !known.contains(&(name, *version)) {
                        return Err(Error::corrupt(format!(
                            "{}: needs {name}@{version}, which a lost entry set",
                            log_key(entry.number)
                        ))
                        .hint("bring the log back from a copy of the store"));
                    }
                }
                Change::AddSegment { segment, .. } => drop(segments.insert(*segment)),
                Change::DropSegment { segment } => {
                    if !segments.remove(segment) {
                        changes.push(Change::AddSegment {
                            segment: *segment,
                            info: SegmentInfo::default(),
                        });
                    }
                }
                Change::CondemnPacks { .. } | Change::Forget { .. } | Change::SetPolicy { .. } => {}
            }
        }
    }
    Ok(changes)
}

fn empty(name: &RefName, version: u64) -> Change {
    Change::SetRef {
        name: name.clone(),
        version,
        root: Root::File {
            content: Content::empty(),
            executable: false,
        },
        times: Content::empty(),
        message: String::new(),
        expires: None,
        origin: None,
        ends: Vec::new(),
        private: false,
    }
}

/// An entry in the place of one that was lost: the same, whoever makes it.
fn filler(number: u64, changes: Vec<Change>) -> LogEntry {
    let hash = blake3::hash(format!("entry {number} was given up").as_bytes());
    let mut commit = [0; 16];
    commit.copy_from_slice(hash.as_bytes().split_at(16).0);
    LogEntry {
        number,
        commit: CommitId(commit),
        time: Timestamp::UNIX_EPOCH,
        who: Who {
            program: "store repair".to_owned(),
            ..Who::default()
        },
        changes,
    }
}

/// Puts `entry` into its place, where nothing lies that can be read.
fn put_back(remote: &dyn Write, entry: &LogEntry, before: Option<&LogEntry>) -> Result<()> {
    let key = log_key(entry.number);
    let bytes = entry.encode_after(before, None)?;
    if remote.create(&key, bytes.clone().into())? == Created::Created {
        return Ok(());
    }
    match read_entry(remote, entry.number) {
        Err(error) if error.kind() == Kind::Corrupt => remote.put(&key, bytes.into()),
        read => read.map(drop),
    }
}

fn base(remote: &dyn Read) -> Result<u64> {
    for number in checkpoints(remote)? {
        if read_checkpoint(remote, number)?.is_some() {
            return Ok(number);
        }
    }
    Ok(0)
}
