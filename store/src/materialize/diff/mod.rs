//! The difference between what was made, what is wanted and what is on the disk, as a list of steps.
//!
//! ```text
//! records -+
//! wanted --+- one walk over all three, in the order of names -> plan (steps), record (what is made by then)
//! disk ----+
//! ```
//!
//! Nothing is changed here, and the plan depends on nothing but these three, so a plan can be made, printed and thrown
//! away. What a job changed, added or deleted is kept and named, unless the request says otherwise.

mod added;
mod alone;
mod decide;
mod judge;
mod op;

use std::fs::File;

use rustix::fs::FileType;

use super::list::{ADDED, ListWriter, NEVER, Thing};
use super::overruled::Overruled;
use super::records::{Candidates, Records};
use crate::error::Result;
use crate::format::{Content, Time};
use crate::host::pool::PoolKey;
use crate::host::walk::Stat;
use crate::progress::Progress;

pub(super) use alone::{Nothing, alone, kept, nothing};
pub(super) use judge::{Whose, judge};
pub use op::Why;
pub(super) use op::{Op, Phase, Seen};

/// The wanted tree, entry by entry.
pub(super) trait Wants {
    /// Returns the next entry of the directory. At its end, returns none and goes back to the directory above.
    fn next(&mut self) -> Result<Option<(Vec<u8>, Thing)>>;
    /// Enters the directory that was returned last.
    fn enter(&mut self) -> Result<()>;
    /// Skips that directory.
    fn skip(&mut self) -> Result<()>;
    /// Whether a path would be wanted if the version had it.
    fn selects(&self, path: &[u8], is_dir: bool) -> bool;
}

/// What is on the disk.
pub(super) trait Lies {
    /// Enters a directory.
    fn enter(&mut self, name: &[u8]) -> Result<()>;
    /// Leaves a directory.
    fn leave(&mut self);
    /// The names in the directory, sorted.
    fn names(&mut self) -> Result<Vec<Vec<u8>>>;
    /// The attributes of a name; none, if it does not exist.
    fn stat(&mut self, name: &[u8]) -> Result<Option<Stat>>;
    /// The time of the current directory itself.
    fn own_time(&mut self) -> Result<Time>;
    /// The target of a symlink.
    fn target(&mut self, name: &[u8]) -> Result<Vec<u8>>;
    /// Whether the file is the unchanged pool file of this key.
    fn is_pooled(&mut self, key: &PoolKey, found: &Stat) -> Result<bool>;
    /// Whether the file is the inode of a pool file that somebody wrote to.
    fn is_written_through(&mut self, key: &PoolKey, found: &Stat) -> Result<bool>;
    /// Whether the system was restarted since the tree was settled, so that bytes of the file may be lost. If it was made
    /// before the tree was settled, nobody has touched it or moved it since.
    fn may_be_torn(&mut self, found: &Stat, is_settled: bool) -> bool;
    /// Whether nothing has touched the file, or a directory that it is in, since the tree was settled.
    fn is_untouched(&mut self, found: &Stat) -> bool;
    /// Whether the file has exactly these bytes; reads all of them.
    fn has_bytes(&mut self, name: &[u8], content: &Content) -> Result<bool>;
}

/// What the request says about changes of jobs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options {
    /// Replace a job's files by the version's.
    pub(super) overrules: bool,
    /// Remove what the version does not have.
    pub(super) exact: bool,
    /// Nothing is known of what was made there.
    pub(super) is_unknown: bool,
    /// Make links for larger files.
    pub(super) links: bool,
    /// Accept a copy in place of a link.
    pub(super) takes_copies: bool,
}

/// What a walk found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) files: u64,
    pub(super) directories: u64,
    pub(super) symlinks: u64,
    pub(super) bytes: u64,
    pub(super) unchanged: u64,
    /// Numbers of steps: one for each phase, then the times of directories.
    pub(super) steps: [u64; 4],
}

impl Counts {
    /// Whether there is nothing to do.
    pub(super) fn is_done(&self) -> bool {
        self.steps == [0; 4]
    }
}

/// The steps, the record of the tree after them, and the counts.
pub(super) struct Made {
    pub(super) plan: File,
    pub(super) record: File,
    pub(super) record_sum: [u8; 32],
    pub(super) counts: Counts,
    /// What the steps replace or remove of a job's.
    pub(super) overruled: Overruled,
}

/// A walk over all three trees.
pub(super) struct Diff<'d> {
    wants: &'d mut dyn Wants,
    records: Records,
    lies: &'d mut dyn Lies,
    options: Options,
    progress: &'d dyn Progress,
    plan: ListWriter<Op>,
    record: ListWriter<Thing>,
    path: Vec<Vec<u8>>,
    stack: Vec<Level>,
    counts: Counts,
    overruled: Overruled,
}

/// How a directory is walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// It is wanted and exists.
    Shared,
    /// It is wanted and does not exist yet.
    Fresh,
    /// It was made and is not wanted any more.
    Unwanted(Phase),
    /// A planned step removes it whole; what a job changed in it is counted.
    Doomed,
    /// A job deleted it; what was made in it is remembered.
    Deleted,
    /// It is not there, and not wanted; what a job added in it is remembered.
    Gone,
}

/// The next wanted entry of a directory.
enum Ahead {
    Unread,
    Entry(Vec<u8>, Thing),
    End,
}

/// A directory that the walk is in.
struct Level {
    mode: Mode,
    names: std::iter::Peekable<std::vec::IntoIter<Vec<u8>>>,
    wanted: Ahead,
    /// Nothing is known of what was made in it.
    is_unknown: bool,
    time: Time,
    is_changed: bool,
    /// Whether something in it stays, although the directory is not wanted.
    stays: bool,
    /// What replaces the directory.
    then: Option<Thing>,
}

impl Level {
    fn take_wanted(&mut self, name: &[u8]) -> Option<Thing> {
        match std::mem::replace(&mut self.wanted, Ahead::Unread) {
            Ahead::Entry(wanted, thing) if wanted == name => Some(thing),
            other => {
                self.wanted = other;
                None
            }
        }
    }
}

impl<'d> Diff<'d> {
    /// Prepares a walk that writes the plan and the record to two new files.
    pub(super) fn new(
        (wants, records, lies): (&'d mut dyn Wants, Records, &'d mut dyn Lies),
        options: Options,
        progress: &'d dyn Progress,
        (plan, record): (File, File),
    ) -> Result<Self> {
        Ok(Self {
            wants,
            records,
            lies,
            options,
            progress,
            plan: ListWriter::new(plan)?,
            record: ListWriter::new(record)?,
            path: Vec::new(),
            stack: Vec::new(),
            counts: Counts::default(),
            overruled: Overruled::default(),
        })
    }

    /// Walks the whole tree, whose root gets `time`. With `is_fresh`, nothing of it exists yet.
    pub(super) fn run(mut self, time: Time, is_fresh: bool) -> Result<Made> {
        let mode = if is_fresh { Mode::Fresh } else { Mode::Shared };
        self.counts.directories += 1;
        self.progress.advance(1, 0);
        self.push(mode, time)?;
        while let Some(level) = self.stack.last().map(|level| level.mode) {
            match level {
                Mode::Fresh => self.step_fresh()?,
                Mode::Deleted => self.step_deleted()?,
                Mode::Gone => self.step_gone()?,
                Mode::Shared | Mode::Unwanted(_) | Mode::Doomed => self.step_shared()?,
            }
        }
        let (_, plan) = self.plan.finish()?;
        let (record_sum, record) = self.record.finish()?;
        Ok(Made {
            plan,
            record,
            record_sum,
            counts: self.counts,
            overruled: self.overruled,
        })
    }

    fn push(&mut self, mode: Mode, time: Time) -> Result<()> {
        let is_there = matches!(mode, Mode::Shared | Mode::Unwanted(_) | Mode::Doomed);
        let names = if is_there {
            self.lies.names()?
        } else {
            Vec::new()
        };
        let level = Level {
            mode,
            names: names.into_iter().peekable(),
            wanted: match mode {
                Mode::Shared => Ahead::Unread,
                _ => Ahead::End,
            },
            is_unknown: self.options.is_unknown,
            time,
            is_changed: mode == Mode::Fresh,
            stays: false,
            then: None,
        };
        self.stack.push(level);
        Ok(())
    }

    /// Handles an entry of a directory that is still empty.
    fn step_fresh(&mut self) -> Result<()> {
        let Some((name, thing)) = self.wants.next()? else {
            return self.finish_dir();
        };
        self.path.push(name);
        self.count(&thing);
        self.make(thing, Phase::New, true)
    }

    /// Handles what was made in a directory that a job deleted.
    fn step_deleted(&mut self) -> Result<()> {
        let Some(name) = self.records.peek()? else {
            self.records.leave()?;
            self.leave();
            return Ok(());
        };
        let candidates = self.records.take(&name)?;
        self.path.push(name);
        self.remember(&candidates)?;
        if candidates.has_dir() {
            self.records.enter();
            return self.push(Mode::Deleted, Time::default());
        }
        self.path.pop();
        Ok(())
    }

    fn step_shared(&mut self) -> Result<()> {
        let recorded = self.records.peek()?;
        let Some(level) = self.stack.last_mut() else {
            return Ok(());
        };
        if matches!(level.wanted, Ahead::Unread) {
            let next = self.wants.next()?;
            level.wanted = next.map_or(Ahead::End, |(name, thing)| Ahead::Entry(name, thing));
        }
        let wanted = match &level.wanted {
            Ahead::Entry(name, _) => Some(name),
            _ => None,
        };
        let all = [wanted, recorded.as_ref(), level.names.peek()];
        let Some(name) = all.into_iter().flatten().min().cloned() else {
            return self.finish_dir();
        };
        let is_listed = level.names.next_if_eq(&name).is_some();
        let wanted = level.take_wanted(&name);
        let candidates = self.records.take(&name)?;
        let found = match is_listed {
            true => self.lies.stat(&name)?,
            false => None,
        };
        self.path.push(name);
        match (wanted, found) {
            (Some(wanted), found) => {
                self.count(&wanted);
                self.wanted(wanted, found, &candidates)
            }
            (None, found) => self.not_wanted(found, &candidates),
        }
    }

    fn finish_dir(&mut self) -> Result<()> {
        let Some(level) = self.stack.pop() else {
            return Ok(());
        };
        let is_root = self.stack.is_empty();
        if level.mode != Mode::Fresh && !is_root {
            self.records.leave()?;
        }
        match level.mode {
            Mode::Fresh => self.step(&Op::Settle(level.time))?,
            Mode::Shared => {
                if level.is_changed || self.lies.own_time()? != level.time {
                    self.step(&Op::Settle(level.time))?;
                }
                self.leave_disk(is_root);
            }
            Mode::Unwanted(phase) => {
                self.leave_disk(is_root);
                return self.finish_unwanted(level.stays, level.then, phase);
            }
            Mode::Doomed => {
                self.leave_disk(is_root);
                return self.instead(level.then);
            }
            Mode::Deleted | Mode::Gone => {}
        }
        self.path.pop();
        Ok(())
    }

    /// Makes what replaces something that a planned step removes, if anything does.
    fn instead(&mut self, then: Option<Thing>) -> Result<()> {
        if let Some(then) = then {
            return self.make(then, Phase::Replace, false);
        }
        self.path.pop();
        Ok(())
    }

    fn leave_disk(&mut self, is_root: bool) {
        if !is_root {
            self.lies.leave();
        }
    }

    /// Ends an unwanted directory: removes it, unless something in it stays.
    fn finish_unwanted(&mut self, stays: bool, then: Option<Thing>, phase: Phase) -> Result<()> {
        if !stays {
            self.changed();
            self.step(&Op::RemoveDir(phase))?;
            if let Some(then) = then {
                return self.make(then, phase, false);
            }
            self.path.pop();
            return Ok(());
        }
        if then.is_some() {
            self.keep(Why::InTheWay)?;
        } else if let Some(above) = self.stack.last_mut() {
            above.stays = true;
        }
        // The directory is removed once the files of jobs in it are gone.
        if !self.record.has(&self.path) {
            self.record.push(&self.path, &Thing::NEVER_DIR)?;
        }
        self.path.pop();
        Ok(())
    }

    /// Leaves a directory of which nothing exists.
    fn leave(&mut self) {
        self.stack.pop();
        self.path.pop();
    }

    fn changed(&mut self) {
        if let Some(level) = self.stack.last_mut() {
            level.is_changed = true;
        }
    }

    fn keep(&mut self, why: Why) -> Result<()> {
        if let Some(level) = self.stack.last_mut() {
            level.stays = true;
        }
        self.plan.push(&self.path, &Op::Keep(why))
    }

    /// Keeps what was made under the name in the record. Its time means nothing any more.
    fn remember(&mut self, made: &Candidates) -> Result<()> {
        let is_added = self.is_outside(made, made.has_dir());
        let (dirs, others): (Vec<_>, Vec<_>) = made
            .things
            .iter()
            .map(|(thing, _)| thing)
            .partition(|thing| matches!(thing, Thing::Dir { .. }));
        let uncertain = dirs.iter().find(|dir| ***dir == Thing::NEVER_DIR);
        let dir = uncertain.or(dirs.first()).copied();
        let mut last = None;
        for thing in others.into_iter().chain(dir) {
            let thing = match is_added {
                true => thing.clone().at(ADDED),
                false if matches!(thing, Thing::File { .. }) => thing.clone().at(NEVER),
                false => thing.clone(),
            };
            if last.as_ref() != Some(&thing) {
                self.record.push(&self.path, &thing)?;
            }
            last = Some(thing);
        }
        Ok(())
    }

    fn step(&mut self, op: &Op) -> Result<()> {
        let at = match op.phase() {
            Some(Phase::New) => 0,
            Some(Phase::Replace) => 1,
            Some(Phase::Remove) => 2,
            None => 3,
        };
        if let Some(count) = self.counts.steps.get_mut(at) {
            *count += 1;
        }
        self.plan.push(&self.path, op)
    }

    fn count(&mut self, thing: &Thing) {
        match thing {
            Thing::Dir { .. } => self.counts.directories += 1,
            Thing::Symlink { .. } => self.counts.symlinks += 1,
            Thing::File { key, .. } => {
                self.counts.files += 1;
                self.counts.bytes += key.content.size;
            }
            Thing::Left => {}
        }
    }
}

#[cfg(test)]
mod tests;
