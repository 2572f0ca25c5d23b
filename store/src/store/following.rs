//! Following the log: bringing states and views up to date.

use std::path::Path;

use super::{Store, View};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{FORMAT_KEY, RefName, State};
use crate::host::pool::{Known, Pool};
use crate::host::saved::Notes;
use crate::log;
use crate::remedy::Remedy;

/// How many states in a row may become outdated while their segments are being opened.
const STATES_MAX: u32 = 64;

impl Store {
    /// Brings `state` up to date with the log, for a reader: as [`Self::readable_state`], if the log is not the one any
    /// more that the state comes from.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn catch_up(&self, state: &mut State) -> Result<()> {
        self.news(state).map(drop)
    }

    /// Does [`State::check_had`], and looks at newer entries if that fails: a save that runs beside this one notes the
    /// version of its directory only after the version is in the log.
    ///
    /// # Errors
    /// As there; conflict, too, when the version was added meanwhile.
    pub(crate) fn check_had(
        &self,
        state: &State,
        name: &RefName,
        known: Known,
        dir: &Path,
    ) -> Result<()> {
        if state.check_had(name, known, dir).is_ok() {
            return Ok(());
        }
        let mut now = state.clone();
        self.catch_up(&mut now)?;
        now.check_had(name, known, dir)?;
        let (dir, number) = (dir.display(), known.version);
        let message = format!("{dir}: was saved as {name}@{number} meanwhile");
        Err(Error::conflict(message).hint("run it again"))
    }

    /// What this host knows of saves of `dir` to this store. `pool` is the one that made `dir`, if one did.
    pub(crate) fn notes<'p>(&self, pool: Option<&'p Pool>, dir: &Path) -> Option<Notes<'p>> {
        Notes::of((self.format().id, self.cache_dir()), pool, dir)
    }

    /// Checks that the store can still be read: an unmounted log looks like one without new entries.
    ///
    /// # Errors
    /// Unavailable, when the store is away.
    pub fn check_there(&self) -> Result<()> {
        match self.remote.get(FORMAT_KEY) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let url = self.remote.url();
                Err(Error::unavailable(format!("{url}: the store is away")).because(error))
            }
            there => there.map(drop),
        }
    }

    /// Brings `view` up to date as [`Self::catch_up`] does, and returns whether anything is new.
    ///
    /// # Errors
    /// When the log or a segment cannot be read.
    pub fn refresh(&self, view: &mut View) -> Result<bool> {
        let is_new = self.news(&mut view.state)?;
        if is_new {
            self.reopen(view)?;
        }
        Ok(is_new)
    }

    /// Brings `view` up to date after a commit, when the view has the new state but not its segments.
    pub(crate) fn follow(&self, view: &mut View) -> Result<()> {
        self.news(&mut view.state)?;
        self.reopen(view)
    }

    /// Reads on in the log, and returns whether `state` is another one now; never for a store that is looked at as it
    /// was.
    fn news(&self, state: &mut State) -> Result<bool> {
        if self.at.is_some() {
            return Ok(false);
        }
        let before = (state.number, state.entry);
        let is_lost = match log::read_after(self.remote.as_ref(), state) {
            Ok(entries) => entries.is_empty() && !self.has_still(state)?,
            // What `state` has was given up, or it cannot be seen what follows it.
            Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Corrupt) => true,
            Err(error) => return Err(error),
        };
        if is_lost {
            self.check_there()?;
            *state = self.readable_state()?;
        }
        Ok((state.number, state.entry) != before)
    }

    /// Whether the log still has the last entry of `state`: a store that was put back from an older copy may not, and goes
    /// on from there. It is not asked over a network, where it would be a request each time.
    fn has_still(&self, state: &State) -> Result<bool> {
        let Some(entry) = state.entry.filter(|_| !self.is_far()) else {
            return Ok(true);
        };
        let remote = self.remote.as_ref();
        Ok(log::another_at(remote, state.number, entry)?.is_none()
            && log::is_there(remote, state.number)?)
    }

    /// Opens the segments of `view.state`. While a segment is missing because a collector was faster, moves on to a
    /// newer state.
    pub(super) fn reopen(&self, view: &mut View) -> Result<()> {
        for _ in 0..STATES_MAX {
            match self.open_index(&view.state, &view.index) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    if !self.news(&mut view.state)? {
                        return Err(match self.at {
                            Some(number) => collected_segment(error, number),
                            None => lost_segment(error),
                        });
                    }
                }
                opened => {
                    view.index = opened?;
                    return Ok(());
                }
            }
        }
        Err(Error::conflict(format!(
            "{}: the segments of {STATES_MAX} states in a row were dropped before they could be opened",
            self.remote.url()
        ))
        .hint(Remedy::LongerGrace))
    }
}

/// A collector deletes what only older states name.
fn collected_segment(error: Error, number: u64) -> Error {
    Error::not_found(format!(
        "{error}: the state after log entry {number} had it, and a collector may have deleted it since"
    ))
    .because(error)
}

/// If the newest state names a missing segment, that is damage, and not the work of a collector.
fn lost_segment(error: Error) -> Error {
    Error::corrupt(format!(
        "{error}: it is missing, and the newest state has it"
    ))
    .hint(Remedy::RepairSegments)
    .because(error)
}
