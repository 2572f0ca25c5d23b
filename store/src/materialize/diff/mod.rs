//! The difference between what was made, what is wanted and what lies on the disk, as a list of steps.
//!
//! ```text
//! records -+
//! wanted --+- one walk over all three, in the order of names -> plan (steps), record (what is made by then)
//! disk ----+
//! ```
//!
//! Nothing is changed here, and nothing is asked but the three: a plan can be made, printed and thrown away.
//! What a job changed, added or deleted is kept and named, unless the request says otherwise.

mod alone;
mod decide;
mod judge;
mod op;

use std::fs::File;

use rustix::fs::FileType;

use super::list::{ListWriter, NEVER, Thing};
use super::records::{Candidates, Records};
use super::report::Overruled;
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
    /// The next entry of the directory; at its end none, and the walk is in the directory above again.
    fn next(&mut self) -> Result<Option<(Vec<u8>, Thing)>>;
    /// Into the directory that was told last.
    fn enter(&mut self) -> Result<()>;
    /// Past it.
    fn skip(&mut self) -> Result<()>;
}

/// What lies on the disk.
pub(super) trait Lies {
    /// Into a directory.
    fn enter(&mut self, name: &[u8]) -> Result<()>;
    /// Out of it.
    fn leave(&mut self);
    /// The names in the directory, sorted.
    fn names(&mut self) -> Result<Vec<Vec<u8>>>;
    /// What is under a name.
    fn stat(&mut self, name: &[u8]) -> Result<Option<Stat>>;
    /// Of the directory itself.
    fn own_time(&mut self) -> Result<Time>;
    /// The target of a symlink.
    fn target(&mut self, name: &[u8]) -> Result<Vec<u8>>;
    /// Whether it is the pool's file of this key, as that was left.
    fn is_pooled(&mut self, key: &PoolKey, found: &Stat) -> Result<bool>;
    /// Whether it is the inode of a pool file that somebody wrote to.
    fn is_written_through(&mut self, key: &PoolKey, found: &Stat) -> Result<bool>;
    /// Whether the system was restarted since the tree was settled: bytes may be lost.
    fn may_be_torn(&mut self) -> bool;
    /// Whether nothing has touched it since the tree was settled.
    fn is_untouched(&mut self, found: &Stat) -> bool;
    /// Whether its bytes, read from the first to the last, are these.
    fn has_bytes(&mut self, name: &[u8], content: &Content) -> Result<bool>;
}

/// What the request says of what a job did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options {
    /// The version's files come in place of a job's.
    pub(super) overrules: bool,
    /// What the version does not have goes.
    pub(super) exact: bool,
    /// Nothing is known of what was made there.
    pub(super) is_unknown: bool,
    /// Larger files are links.
    pub(super) links: bool,
    /// A copy may stand where a link would.
    pub(super) takes_copies: bool,
}

/// What a walk saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) files: u64,
    pub(super) directories: u64,
    pub(super) symlinks: u64,
    pub(super) bytes: u64,
    pub(super) unchanged: u64,
    /// Steps of each phase, those of times last.
    pub(super) steps: [u64; 4],
}

impl Counts {
    /// Whether there is anything to do.
    pub(super) fn is_done(&self) -> bool {
        self.steps == [0; 4]
    }
}

/// Steps, the record of the tree after them, and what was counted on the way.
pub(super) struct Made {
    pub(super) plan: File,
    pub(super) record: File,
    pub(super) record_sum: [u8; 32],
    pub(super) counts: Counts,
    /// What of a job's the steps replace or remove.
    pub(super) overruled: Overruled,
}

/// A walk over all three.
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

/// How a directory is gone through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// It is wanted and there.
    Shared,
    /// It is wanted and not there yet.
    Fresh,
    /// It was made and is not wanted any more.
    Unwanted(Phase),
    /// It goes whole, by a step that is planned: what in it is a job's is counted.
    Doomed,
    /// A job deleted it: what was made in it is remembered.
    Deleted,
}

/// What is wanted next in a directory.
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
    /// Something in it stays, although it is not wanted.
    stays: bool,
    /// What comes in its place.
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
    /// A walk that writes plan and record to two new files.
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

    /// Goes through the whole tree, whose root is wanted with `time`; nothing of it is there yet, where `is_fresh`.
    pub(super) fn run(mut self, time: Time, is_fresh: bool) -> Result<Made> {
        let mode = if is_fresh { Mode::Fresh } else { Mode::Shared };
        self.counts.directories += 1;
        self.progress.advance(1, 0);
        self.push(mode, time)?;
        while let Some(level) = self.stack.last().map(|level| level.mode) {
            match level {
                Mode::Fresh => self.step_fresh()?,
                Mode::Deleted => self.step_deleted()?,
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

    /// An entry of a directory in which nothing is yet.
    fn step_fresh(&mut self) -> Result<()> {
        let Some((name, thing)) = self.wants.next()? else {
            return self.finish_dir();
        };
        self.path.push(name);
        self.count(&thing);
        self.make(thing, Phase::New, true)
    }

    /// What was made in a directory that a job deleted.
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
            (None, Some(found)) if candidates.is_added => {
                self.unwanted(&found, &Candidates::default())
            }
            (None, Some(found)) => self.unwanted(&found, &candidates),
            (None, None) => {
                self.path.pop();
                Ok(())
            }
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
            Mode::Deleted => {}
        }
        self.path.pop();
        Ok(())
    }

    /// What comes in place of what a planned step replaces or removes, if anything.
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

    /// A directory that is not wanted has been gone through: it goes, unless something in it stays.
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
        // It goes when what a job has in it is gone.
        if !self.record.has(&self.path) {
            self.record.push(&self.path, &Thing::Dir { time: NEVER })?;
        }
        self.path.pop();
        Ok(())
    }

    /// Out of a directory of which nothing is there.
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

    /// What was made there may still be asked about; its time says nothing any more.
    fn remember(&mut self, made: &Candidates) -> Result<()> {
        let (dirs, others): (Vec<_>, Vec<_>) = made
            .things
            .iter()
            .map(|(thing, _)| thing)
            .partition(|thing| matches!(thing, Thing::Dir { .. }));
        let mut last = None;
        for thing in others.into_iter().chain(dirs.first().copied()) {
            let thing = match thing.clone() {
                Thing::File {
                    key, is_private, ..
                } => Thing::File {
                    key,
                    is_private,
                    time: NEVER,
                },
                thing => thing,
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
