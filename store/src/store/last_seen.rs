//! The newest log entry of a store that this host has seen: by it a store that was restored from an older copy is
//! known, before anything is added to it.
//!
//! One small file for each place of a store, beside its caches. It is disposable: without it nothing is known. A log is
//! said to be older only where that is sure.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

use super::Store;
use crate::error::{Error, Kind, Result};
use crate::format::{LOG_PREFIX, State, log_key};
use crate::fs::read_regular;
use crate::id::EntryId;
use crate::log;
use crate::remedy::Remedy;
use crate::remote::is_passing;

/// Digits of a number, an id, another number and their checksum; a space follows the first three, and a newline the last.
const NUMBER_LEN: usize = 20;
const ID_LEN: usize = 64;
const SUM_LEN: usize = 16;
const LEN: usize = 2 * NUMBER_LEN + ID_LEN + SUM_LEN + 4;

/// An entry that was in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    number: u64,
    entry: EntryId,
    /// Up to where entries were given up by then: what is given up later may be this one.
    until: u64,
}

/// A log that lacks what this host has seen in it.
#[derive(Debug)]
pub(crate) struct SetBack {
    /// The key of the first entry that is gone, or of one that is another one now.
    pub(crate) object: String,
    /// What is wrong.
    pub(crate) damage: Error,
    /// Up to where entries are to be given up, so that this one is.
    pub(crate) until: u64,
}

impl Store {
    /// Adds one entry to the log, as [`log::commit`] does, and keeps in mind that it is there.
    ///
    /// # Errors
    /// As there.
    pub fn commit(
        &self,
        state: &mut State,
        prepare: &mut log::Prepare<'_>,
    ) -> Result<Option<log::Committed>> {
        let committed = log::commit(self.remote.as_ref(), state, &self.host.who, prepare)?;
        if committed.is_some() {
            self.keep_in_mind(state);
        }
        Ok(committed)
    }

    /// Whether the log, which was read up to `state`, lacks an entry that this host has seen.
    ///
    /// # Errors
    /// When the store does not answer; unavailable, where its log is no directory.
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
            // Somebody of this host may have added it a moment ago.
            match log::read_after(remote, &mut now) {
                // What is damaged is told for itself.
                Err(error) if error.kind() == Kind::Corrupt => return Ok(None),
                read => drop(read?),
            }
            if seen.is_given_up(&now) {
                return Ok(None);
            }
        }
        if number > now.number {
            // Behind a gap, or where a file system remembers that it was not there: nobody can put another one in its place.
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
            // One that stands for it is told by the trail.
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

    /// That what lies in the place of the log is one: what answers nothing says nothing.
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

    /// What to do about a log that was rolled back.
    pub(crate) fn accept_rollback(&self) -> Remedy {
        let url = self.remote.url().to_owned();
        Remedy::AcceptRollback { url }
    }

    fn told(&self, object: String, damage: Error, seen: Seen) -> SetBack {
        SetBack {
            object,
            damage: damage.hint(self.accept_rollback()),
            // Behind what was given up when it was seen: only then is it given up itself.
            until: seen.number.max(seen.until + 1),
        }
    }

    /// Keeps in mind how far the log goes. Not to do so is no harm.
    pub(super) fn keep_in_mind(&self, state: &State) {
        let Some(entry) = state.entry else { return };
        let (number, until) = (state.number, state.until);
        let is_news = |seen: Seen| seen.number < number || seen.is_given_up(state);
        if self.last_seen().is_none_or(is_news) {
            let seen = Seen {
                number,
                entry,
                until,
            };
            drop(self.write_last_seen(seen));
        }
    }

    fn write_last_seen(&self, seen: Seen) -> std::io::Result<()> {
        let Some(path) = self.path_of_last_seen() else {
            return Ok(());
        };
        if let Some(above) = path.parent() {
            std::fs::create_dir_all(above)?;
        }
        // In place and at once: a commit does not wait for a disk, and what is torn is passed over.
        let mut options = File::options();
        let file = options
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        file.write_all_at(seen.text().as_bytes(), 0)
    }

    fn last_seen(&self) -> Option<Seen> {
        let bytes = read_regular(&self.path_of_last_seen()?, LEN as u64).ok()?;
        Seen::of(std::str::from_utf8(&bytes).ok()?)
    }

    /// Of this store at this place, as this host sees it: a copy elsewhere has a log of its own, and homes are shared.
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
    /// Whether somebody said since that it is lost.
    fn is_given_up(self, state: &State) -> bool {
        self.number <= state.until && self.until < state.until
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
