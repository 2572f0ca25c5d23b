//! Decides about one name, by what is wanted, what was made and what is on the disk.
//!
//! | | nothing there | as it was made | a job's |
//! |---|---|---|---|
//! | wanted | make it, unless a job deleted it | replace it, unless it is as wanted | keep and name it |
//! | not wanted | | remove it | keep it; name it, if it was made once |

use super::*;

impl Diff<'_> {
    pub(super) fn wanted(
        &mut self,
        wanted: Thing,
        found: Option<Stat>,
        made: &Candidates,
    ) -> Result<()> {
        let Some(found) = found else {
            if made.is_certain && !self.options.overrules && !made.has_left() {
                return self.keep_deleted(&wanted, made);
            }
            self.changed();
            return self.make(wanted, Phase::New, false);
        };
        match (&wanted, found.is_dir()) {
            (Thing::Dir { time }, true) => self.shared_dir(*time, made),
            (Thing::Dir { .. }, false) => self.dir_for_file(wanted, &found, made),
            (_, true) => self.file_for_dir(wanted, &found, made),
            (_, false) => self.file(wanted, &found, made),
        }
    }

    /// Enters a directory that is wanted and exists.
    fn shared_dir(&mut self, time: Time, made: &Candidates) -> Result<()> {
        self.counts.unchanged += 1;
        let thing = Thing::Dir { time };
        self.record.push(&self.path, &thing)?;
        self.progress.advance(1, 0);
        self.wants.enter()?;
        self.enter_made()?;
        self.push(Mode::Shared, time)?;
        if let Some(level) = self.stack.last_mut() {
            level.is_unknown |= made.has_left();
        }
        Ok(())
    }

    /// Enters an existing directory, in the records and on the disk.
    pub(super) fn enter_made(&mut self) -> Result<()> {
        self.records.enter();
        let name = self.path.last().cloned().unwrap_or_default();
        self.lies.enter(&name)
    }

    /// Handles a wanted directory where something else is.
    fn dir_for_file(&mut self, wanted: Thing, found: &Stat, made: &Candidates) -> Result<()> {
        if self.whose(found, None, made)? == Whose::Jobs {
            if !self.options.overrules {
                return self.keep_in_the_way(&wanted, made);
            }
            self.overrule(found);
        }
        self.changed();
        self.step(&Op::Remove(Seen::of(found), Phase::New))?;
        self.make(wanted, Phase::New, false)
    }

    /// Handles a wanted file or symlink where a directory is.
    fn file_for_dir(&mut self, wanted: Thing, found: &Stat, made: &Candidates) -> Result<()> {
        if self.options.overrules {
            self.changed();
            self.step(&Op::RemoveAll(Phase::Replace))?;
            return self.doom(found, made, Some(wanted));
        }
        if !made.has_dir() {
            return self.keep_in_the_way(&wanted, made);
        }
        self.enter_made()?;
        self.push(Mode::Unwanted(Phase::Replace), Time::default())?;
        if let Some(level) = self.stack.last_mut() {
            level.then = Some(wanted);
        }
        Ok(())
    }

    /// Handles a wanted file or symlink where one is.
    fn file(&mut self, wanted: Thing, found: &Stat, made: &Candidates) -> Result<()> {
        match self.whose(found, Some(&wanted), made)? {
            Whose::Wanted => self.unchanged(&wanted, found)?,
            Whose::Jobs if !self.options.overrules => {
                return self.keep_in_the_way(&wanted, made);
            }
            whose => {
                if whose == Whose::Jobs {
                    self.overrule(found);
                }
                self.changed();
                self.record.push(&self.path, &wanted)?;
                self.step(&Op::Replace(wanted, Seen::of(found)))?;
            }
        }
        self.path.pop();
        Ok(())
    }

    /// Handles something that a planned step removes: counts what a job changed in it, and names the first paths.
    fn doom(&mut self, found: &Stat, made: &Candidates, then: Option<Thing>) -> Result<()> {
        if found.is_dir() {
            let name = self.path.last().cloned().unwrap_or_default();
            if self.lies.enter(&name).is_ok() {
                self.records.enter();
                self.push(Mode::Doomed, Time::default())?;
                if let Some(level) = self.stack.last_mut() {
                    level.then = then;
                }
                return Ok(());
            }
            // A directory that cannot be opened counts as one path.
            self.overrule(found);
        } else if self.whose(found, None, made)? == Whose::Jobs {
            self.overrule(found);
        }
        self.instead(then)
    }

    /// Counts something of a job that the request allows to remove.
    fn overrule(&mut self, found: &Stat) {
        let bytes = match FileType::from_raw_mode(found.mode) {
            FileType::RegularFile => found.size,
            _ => 0,
        };
        self.overruled.add(self.path.join(&b'/'), bytes);
    }

    fn whose(&mut self, found: &Stat, wanted: Option<&Thing>, made: &Candidates) -> Result<Whose> {
        let name = self.path.last().map_or(&b""[..], Vec::as_slice);
        let options = Options {
            is_unknown: self.is_unknown(),
            ..self.options
        };
        judge(self.lies, &options, (name, found), wanted, made)
    }

    pub(super) fn is_unknown(&self) -> bool {
        self.stack.last().is_some_and(|level| level.is_unknown)
    }

    fn unchanged(&mut self, wanted: &Thing, found: &Stat) -> Result<()> {
        self.counts.unchanged += 1;
        self.record.push(&self.path, wanted)?;
        let (time, size, has_own_time) = match wanted {
            Thing::Symlink { time, .. } => (time, 0, true),
            Thing::File { key, time, .. } => {
                let is_pooled = crate::host::pool::is_intact(key, found);
                (time, key.content.size, !is_pooled)
            }
            Thing::Dir { .. } | Thing::Left => return Ok(()),
        };
        self.progress.advance(1, size);
        if has_own_time && *time != found.mtime {
            self.step(&Op::Touch(*time, Seen::of(found)))?;
        }
        Ok(())
    }

    /// Makes what is wanted, under a name that is free by then.
    pub(super) fn make(&mut self, thing: Thing, phase: Phase, is_fresh: bool) -> Result<()> {
        self.record.push(&self.path, &thing)?;
        if let Thing::Dir { time } = thing {
            self.step(&Op::MakeDir)?;
            self.progress.advance(1, 0);
            self.wants.enter()?;
            return self.push(Mode::Fresh, time);
        }
        self.step(&Op::Make(thing, phase, is_fresh))?;
        self.path.pop();
        Ok(())
    }

    /// Leaves something deleted that a job deleted, and remembers what was made there.
    fn keep_deleted(&mut self, wanted: &Thing, made: &Candidates) -> Result<()> {
        self.keep(Why::Deleted)?;
        self.remember(made)?;
        if matches!(wanted, Thing::Dir { .. }) {
            self.wants.skip()?;
        }
        if made.has_dir() {
            self.records.enter();
            return self.push(Mode::Deleted, Time::default());
        }
        self.path.pop();
        Ok(())
    }

    fn keep_in_the_way(&mut self, wanted: &Thing, made: &Candidates) -> Result<()> {
        let is_unknown = self.is_unknown() || made.has_left();
        let why = match (is_unknown, made.is_empty()) {
            (true, _) => Why::Unknown,
            (_, true) => Why::InTheWay,
            (_, false) => Why::Changed,
        };
        self.keep(why)?;
        self.remember(made)?;
        if is_unknown && made.is_empty() {
            self.record.push(&self.path, &Thing::Left)?;
        }
        if matches!(wanted, Thing::Dir { .. }) {
            self.wants.skip()?;
        }
        if made.has_dir() && matches!(wanted, Thing::Dir { .. }) {
            self.records.enter();
            return self.push(Mode::Deleted, Time::default());
        }
        self.path.pop();
        Ok(())
    }

    /// Handles something that the version does not have.
    pub(super) fn unwanted(&mut self, found: &Stat, made: &Candidates) -> Result<()> {
        let phase = match self.stack.last().map(|level| level.mode) {
            Some(Mode::Doomed) => return self.doom(found, made, None),
            Some(Mode::Unwanted(phase)) => phase,
            _ => Phase::Remove,
        };
        let is_dir = found.is_dir();
        if self.options.exact {
            self.changed();
            self.step(&Op::RemoveAll(phase))?;
            return self.doom(found, made, None);
        }
        if is_dir && made.has_dir() {
            self.enter_made()?;
            return self.push(Mode::Unwanted(phase), Time::default());
        } else if made.has_left() || (self.is_unknown() && made.is_empty()) {
            self.keep(Why::Unknown)?;
            self.record.push(&self.path, &Thing::Left)?;
        } else if made.is_empty() || is_dir {
            self.keep(Why::Added)?;
        } else if self.whose(found, None, made)? == Whose::Jobs {
            self.keep(Why::Dropped)?;
            self.remember(made)?;
        } else {
            self.changed();
            self.step(&Op::Remove(Seen::of(found), phase))?;
        }
        self.path.pop();
        Ok(())
    }
}
