//! The newest log entry of a store that this host has seen. It shows that a store was restored from an older copy
//! before anything is added to that.
//!
//! This is one small file for each location of a store, beside its caches. The file is disposable: without it nothing
//! is known. A log is called older only if that is certain.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

use super::Store;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{LOG_PREFIX, State, log_key};
use crate::fs::{open_regular_with, read_regular};
use crate::id::{EntryId, PackId};
use crate::index::Index;
use crate::log;
use crate::remedy::Remedy;
use crate::remote::is_passing;

/// Digits of a number, an id, another number and a checksum. A space follows each of the first three, a newline the
/// last.
const NUMBER_LEN: usize = 20;
const ID_LEN: usize = 64;
const SUM_LEN: usize = 16;
/// In larger stores packs are not listed to look for lost log entries; collectors list them in any case.
const PACKS_LOOKED_MAX: u64 = 10_000;
const LEN: usize = 2 * NUMBER_LEN + ID_LEN + SUM_LEN + 4;

/// An entry that was in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    number: u64,
    entry: EntryId,
    /// The number up to which entries had been given up by then. What is given up later may include this entry.
    until: u64,
}

/// A log without an entry that this host has seen in it.
#[derive(Debug)]
pub(crate) struct SetBack {
    /// The key of the first entry that is missing, or of one that was replaced by another.
    pub(crate) object: String,
    /// What is wrong.
    pub(crate) damage: Error,
    /// The number up to which a repair has to give up entries, so that this one is among them.
    pub(crate) until: u64,
}

impl Store {
    /// Adds one entry to the log, as [`log::commit`] does, and remembers it.
    ///
    /// # Errors
    /// As there.
    pub fn commit(
        &self,
        state: &mut State,
        prepare: &mut log::Prepare<'_>,
    ) -> Result<Option<log::Committed>> {
        let committed = log::commit(self.remote.as_ref(), state, &self.host.who, prepare)?;
        match &committed {
            // The entry is durable, and so are those before it.
            Some(_) => self.keep_in_mind(state),
            None => self.settle(state)?,
        }
        Ok(committed)
    }

    /// Makes the newest entry of `state` durable, and remembers it. The process that added it may have been killed
    /// before it did that, and who relies on the entry says that it is there.
    ///
    /// # Errors
    /// When the directory of the log cannot be synced.
    pub(crate) fn settle(&self, state: &State) -> Result<()> {
        if !self.is_news(state) {
            return Ok(());
        }
        if let Some(entry) = self.remote.local_path(&log_key(state.number)) {
            // The directory of the entry, and the one that holds it.
            for directory in entry.ancestors().skip(1).take(2) {
                File::open(directory)
                    .and_then(|directory| directory.sync_all())
                    .map_err(|source| Error::io("sync", directory, source))?;
            }
        }
        self.keep_in_mind(state);
        Ok(())
    }

    /// Whether the log, which was read up to `state`, lacks an entry that this host has seen.
    ///
    /// # Errors
    /// When the store does not answer; unavailable, when the log is no directory.
    pub(crate) fn set_back(&self, state: &State) -> Result<Option<SetBack>> {
        let Some(seen) = self.last_seen() else {
            return Ok(None);
        };
        let Seen { number, entry, .. } = seen;
        if seen.is_given_up(state) {
            return Ok(None);
        }
        let remote = self.remote.as_ref();
        let mut now = state.clone();
        if number > now.number {
            // Another process of this host may have added the entry a moment ago.
            match log::read_after(remote, &mut now) {
                // Damage is reported elsewhere.
                Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(None),
                read => drop(read?),
            }
            if seen.is_given_up(&now) {
                return Ok(None);
            }
        }
        if number > now.number {
            // The entry exists behind a gap, or a file system has cached that it did not. No other entry can take its
            // number.
            if log::is_there(remote, number)? {
                return Ok(None);
            }
            self.check_there()?;
            self.check_log_is_there()?;
            let object = log_key(now.number + 1);
            let damage = Error::corrupt(format!(
                "{object}: missing, although this host has seen entry {number}: the store was restored from an older copy"
            ));
            return Ok(Some(self.told(object, damage, seen)));
        }
        let last = now.entry.filter(|_| number == now.number);
        let another = match last {
            Some(last) if last == entry => None,
            // The trail knows the entries that stand for others.
            _ if now.trail.reaches(number) => now.trail.another(number, entry),
            _ => log::another_at(remote, number, entry)?,
        };
        Ok(another.map(|found| {
            let object = log_key(number);
            let damage = Error::corrupt(format!(
                "{object}: is another entry than this host has seen there: its id is {found}, expected {entry}: the store was restored from an older copy, and added to since"
            ));
            self.told(object, damage, seen)
        }))
    }

    /// Checks that the log is a directory: if it is not, its absence says nothing about entries.
    fn check_log_is_there(&self) -> Result<()> {
        let path = self.remote.local_path(LOG_PREFIX);
        match path.filter(|path| path.exists() && !path.is_dir()) {
            None => Ok(()),
            Some(path) => Err(Error::unavailable(format!(
                "{}: is no directory, and the log was there",
                path.display()
            ))),
        }
    }

    /// The remedy for a log that was rolled back.
    pub(crate) fn accept_rollback(&self) -> Remedy {
        let url = self.remote.url().to_owned();
        Remedy::AcceptRollback { url }
    }

    fn told(&self, object: String, damage: Error, seen: Seen) -> SetBack {
        SetBack {
            object,
            damage: damage.hint(self.accept_rollback()),
            // Beyond what had been given up when the entry was seen: only then does giving up include this entry.
            until: seen.number.max(seen.until + 1),
        }
    }

    /// Whether this host sees the store for the first time, and the store is a directory, where listing packs is cheap. If
    /// segments were restored together with the log, only packs show that entries are lost.
    pub(super) fn is_new_here(&self) -> bool {
        !self.is_far() && self.path_of_last_seen().is_some() && self.last_seen().is_none()
    }

    /// The packs that the segments of `state` name; none, if there are too many, or if a segment cannot be read, which
    /// is reported elsewhere.
    pub(super) fn named_packs(&self, state: &State) -> Option<HashSet<PackId>> {
        let packs = state.segments.values().map(|info| u64::from(info.packs));
        if packs.sum::<u64>() > PACKS_LOOKED_MAX {
            return None;
        }
        let index = self.open_index(state, &Index::default()).ok()?;
        Some(index.packs().map(|pack| pack.id).collect())
    }

    /// Remembers a state that was read, if this host remembers anything. If it cannot be made durable, who relies on it
    /// is told.
    pub(super) fn remember(&self, state: &State) {
        if self.path_of_last_seen().is_some() {
            drop(self.settle(state));
        }
    }

    /// Whether this host has not seen the newest entry of `state` yet, as far as it knows.
    fn is_news(&self, state: &State) -> bool {
        let is_news = |seen: Seen| seen.number < state.number || seen.is_given_up(state);
        state.entry.is_some() && self.last_seen().is_none_or(is_news)
    }

    /// Remembers how far the log goes, which must be durable: a log without it counts as restored from an older copy. A
    /// failure does no harm.
    fn keep_in_mind(&self, state: &State) {
        let Some(entry) = state.entry.filter(|_| self.is_news(state)) else {
            return;
        };
        drop(self.write_last_seen(Seen {
            number: state.number,
            entry,
            until: state.until,
        }));
    }

    fn write_last_seen(&self, seen: Seen) -> std::io::Result<()> {
        let Some(path) = self.path_of_last_seen() else {
            return Ok(());
        };
        if let Some(above) = path.parent() {
            std::fs::create_dir_all(above)?;
        }
        // Written in place and without a sync: a commit does not wait for a disk, and a torn file is ignored.
        let mut options = File::options();
        let options = options.write(true).create(true).truncate(false).mode(0o600);
        open_regular_with(options, &path)?.write_all_at(seen.text().as_bytes(), 0)
    }

    fn last_seen(&self) -> Option<Seen> {
        let bytes = read_regular(&self.path_of_last_seen()?, LEN as u64).ok()?;
        Seen::of(std::str::from_utf8(&bytes).ok()?)
    }

    /// The file for this store at this place, as this host sees it: a copy elsewhere has its own log, and hosts share
    /// home directories.
    fn path_of_last_seen(&self) -> Option<PathBuf> {
        let url = self.remote.url();
        if is_passing(&url) {
            return None;
        }
        let place = [self.host.who.host.as_bytes(), b"\0", url.as_bytes()].concat();
        let name = blake3::hash(&place).to_hex();
        Some(self.cache_dir()?.join(format!("log-{}", name.get(..16)?)))
    }
}

impl Seen {
    /// Whether the entry was given up after it was seen. Who gave up put an entry in the log that was not in it then: at
    /// most one behind `until`, so it came in the place of this entry or of an earlier one, which this one follows.
    fn is_given_up(self, state: &State) -> bool {
        self.until < state.until
    }

    fn text(self) -> String {
        let (number, entry, until) = (self.number, self.entry, self.until);
        let said = format!("{number:0NUMBER_LEN$} {entry} {until:0NUMBER_LEN$}");
        format!("{said} {}\n", sum(&said))
    }

    fn of(text: &str) -> Option<Self> {
        let (said, found) = text.strip_suffix('\n')?.rsplit_once(' ')?;
        let (number, rest) = said.split_once(' ')?;
        let (entry, until) = rest.split_once(' ')?;
        let seen = Self {
            number: number.parse().ok()?,
            entry: entry.parse().ok()?,
            until: until.parse().ok()?,
        };
        (sum(said) == found).then_some(seen)
    }
}

fn sum(text: &str) -> String {
    let mut sum = blake3::hash(text.as_bytes()).to_hex().to_string();
    sum.truncate(SUM_LEN);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_torn_is_passed_over() {
        let seen = Seen {
            number: 12,
            entry: EntryId([7; 32]),
            until: 9,
        };
        let text = seen.text();
        assert_eq!((text.len(), Seen::of(&text)), (LEN, Some(seen)));
        for torn in [&text[1..], &text[..LEN - 1], &text.replace("12", "13"), ""] {
            assert_eq!(Seen::of(torn), None, "{torn:?}");
        }
    }
}
