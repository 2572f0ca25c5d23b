//! Following the log: states and views that are brought to newer ones.

use std::path::Path;

use super::{Store, View};
use crate::error::{Error, Kind, Result};
use crate::format::{FORMAT_KEY, LogEntry, RefName, State};
use crate::host::saved::{Known, Notes};
use crate::log;
use crate::remedy::Remedy;

/// How many states in a row may be outdated before their segments are open.
const STATES_MAX: u32 = 64;

impl Store {
    /// Brings `state` to the newest one by what was added to the log since.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn catch_up(&self, state: &mut State) -> Result<()> {
        self.news(state).map(drop)
    }

    /// [`State::check_had`], also of what was added since: who saves a directory beside this one writes down as which version
    /// only when that is in the log.
    ///
    /// # Errors
    /// As there; conflict, too, when it has come since.
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

    /// Whether `dir` was saved to a ref as a version that `state` does not know yet, by what this host wrote down.
    ///
    /// # Errors
    /// When the state cannot be read.
    pub(crate) fn is_behind(&self, state: &State, dir: &Path, name: &RefName) -> Result<bool> {
        let saved = Notes::version_of(self.cache_dir(), dir, name);
        Ok(saved.unwrap_or(0) > state.refs.last(name)?)
    }

    /// That the store can still be read: a log that cannot be seen looks like one to which nothing was added.
    ///
    /// # Errors
    /// Unavailable, when it is away.
    pub fn check_there(&self) -> Result<()> {
        match self.remote.get(FORMAT_KEY) {
            Err(error) if error.kind() == Kind::NotFound => {
                let url = self.remote.url();
                Err(Error::unavailable(format!("{url}: the store is away")).because(error))
            }
            there => there.map(drop),
        }
    }

    /// Brings `view` to the newest state and returns the entries in between.
    ///
    /// # Errors
    /// When the log or a segment cannot be read.
    pub fn refresh(&self, view: &mut View) -> Result<Vec<LogEntry>> {
        let mut entries = self.news(&mut view.state)?;
        if !entries.is_empty() {
            entries.extend(self.reopen(view)?);
        }
        Ok(entries)
    }

    /// Brings `view` to the newest state after a commit whose state it has, but not its segments.
    pub(crate) fn follow(&self, view: &mut View) -> Result<()> {
        self.news(&mut view.state)?;
        self.reopen(view).map(drop)
    }

    /// What was added to the log since; nothing for a store as it was.
    fn news(&self, state: &mut State) -> Result<Vec<LogEntry>> {
        match self.at {
            Some(_) => Ok(Vec::new()),
            None => log::read_after(self.remote.as_ref(), state),
        }
    }

    /// Opens the segments of `view.state`; while one of them is missing because a collector was quicker,
    /// moves on to a newer state. Returns the entries that this took.
    pub(super) fn reopen(&self, view: &mut View) -> Result<Vec<LogEntry>> {
        let mut entries = Vec::new();
        for _ in 0..STATES_MAX {
            match self.open_index(&view.state, &view.index) {
                Err(error) if error.kind() == Kind::NotFound => {
                    let news = self.news(&mut view.state)?;
                    if news.is_empty() {
                        return Err(lost_segment(error));
                    }
                    entries.extend(news);
                }
                opened => {
                    view.index = opened?;
                    return Ok(entries);
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

/// A segment that is missing while the newest state has it is damage, and not somebody's work.
fn lost_segment(error: Error) -> Error {
    Error::corrupt(format!(
        "{error}: it is missing, and the newest state has it"
    ))
    .hint(Remedy::RepairSegments)
    .because(error)
}
