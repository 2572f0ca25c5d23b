//! What a job added to a part of a version, outside of it, and saved. The version has it, and it is not wanted here.
//!
//! It stays where it is, and in the record: the next save must know that it was saved, to tell what the job does to it
//! from what others do. A job that deleted it since is remembered, too. `--exact` removes it.

use super::*;

impl Diff<'_> {
    /// Handles something that is not wanted.
    pub(super) fn not_wanted(&mut self, found: Option<Stat>, made: &Candidates) -> Result<()> {
        match found {
            None => self.missing(made),
            // If it is selected, somebody removed it from the version since.
            Some(found) if !self.is_outside(made, found.is_dir()) => self.unwanted(&found, made),
            Some(found) => self.added(&found, made),
        }
    }

    /// Whether a job added it, and the version may have it nevertheless, since it is not selected.
    pub(super) fn is_outside(&self, made: &Candidates, is_dir: bool) -> bool {
        made.is_added && !self.wants.selects(&self.path.join(&b'/'), is_dir)
    }

    fn added(&mut self, found: &Stat, made: &Candidates) -> Result<()> {
        let phase = match self.stack.last().map(|level| level.mode) {
            Some(Mode::Doomed) => return self.unwanted(found, &Candidates::default()),
            _ if self.options.exact => return self.unwanted(found, &Candidates::default()),
            Some(Mode::Unwanted(phase)) => phase,
            _ => Phase::Remove,
        };
        if found.is_dir() && made.has_dir() {
            self.enter_made()?;
            self.push(Mode::Unwanted(phase), Time::default())?;
            self.stay();
            return Ok(());
        }
        self.keep(Why::Added)?;
        self.remember(made)?;
        if made.has_dir() {
            self.records.enter();
            return self.push(Mode::Deleted, Time::default());
        }
        self.path.pop();
        Ok(())
    }

    /// Handles a name that is neither wanted nor there.
    fn missing(&mut self, made: &Candidates) -> Result<()> {
        let is_replaced = |level: &Level| level.then.is_some() || level.mode == Mode::Doomed;
        if !self.stack.iter().any(is_replaced) {
            if self.is_outside(made, made.has_dir()) && !made.is_dir() {
                self.stay();
                self.remember(made)?;
            }
            if made.has_dir() {
                self.records.enter();
                return self.push(Mode::Gone, Time::default());
            }
        }
        self.path.pop();
        Ok(())
    }

    /// Handles what is recorded of a directory that is neither wanted nor there.
    pub(super) fn step_gone(&mut self) -> Result<()> {
        let Some(name) = self.records.peek()? else {
            self.records.leave()?;
            let stays = self.stack.last().is_some_and(|level| level.stays);
            self.leave();
            if stays {
                self.stay();
            }
            return Ok(());
        };
        let made = self.records.take(&name)?;
        self.path.push(name);
        self.missing(&made)
    }

    /// Makes the current directory stay, although it is not wanted.
    fn stay(&mut self) {
        if let Some(level) = self.stack.last_mut() {
            level.stays = true;
        }
    }
}
