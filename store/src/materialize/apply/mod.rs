//! Carries out a plan: first what is new, then what is different, last what is gone, and the times of directories.
//!
//! Nothing is decided here. Each step first checks the claim, which another process may have taken over while this one
//! was suspended, and what it replaces or removes, which a job may have changed since the plan was made. Files that the
//! pool lacks are postponed and fetched together.

mod place;
mod side_by_side;
mod step;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::MaterializeReport;
use super::diff::{Counts, Op, Phase};
use super::list::{ListReader, Thing};
use super::place::{Placer, Placing};
use super::trail::Trail;
use crate::error::Result;
use crate::host::disk;
use crate::host::pool::{Pool, Room};
use crate::progress::Progress;
use crate::read::Reader;

/// Most files that are postponed before the pool is filled with them.
const WAITING_MAX: usize = 16 << 10;
/// Most bytes of such files.
const WAITING_BYTES_MAX: u64 = 1 << 30;
/// Most bytes of their paths.
const WAITING_PATHS_MAX: usize = 16 << 20;

/// Fails when another process has taken over the tree.
pub(super) type Fence<'f> = &'f (dyn Fn() -> Result<()> + Sync);

/// Carries out plans in one destination.
pub(super) struct Apply<'m> {
    reader: &'m Reader<'m>,
    pool: &'m Pool,
    progress: &'m dyn Progress,
    fence: Fence<'m>,
    placer: Placer<'m>,
    /// The directory in which things are made before they are renamed into place.
    room: OwnedFd,
    /// Whether nobody sees the tree before it is whole. Otherwise, no file may ever be half written under its name: if
    /// this process is killed, it would pass for a job's.
    is_unseen: bool,
    trail: Trail,
    waiting: Vec<Waiting>,
    waiting_bytes: u64,
    waiting_paths: usize,
    /// Whether any step that changes the tree was taken or tried.
    pub(super) is_begun: bool,
    /// Whether a job changed something first, so that the tree differs from the plan.
    pub(super) is_overtaken: bool,
    pub(super) report: MaterializeReport,
}

/// The names that lead to a directory; entries of one directory share them.
type Dir = Arc<Vec<Vec<u8>>>;

/// A postponed step.
struct Waiting {
    dir: Dir,
    name: Vec<u8>,
    op: Op,
}

impl<'m> Apply<'m> {
    pub(super) fn new(
        (reader, pool): (&'m Reader<'m>, &'m Pool),
        placer: Placer<'m>,
        progress: &'m dyn Progress,
        fence: Fence<'m>,
        (room, root, is_unseen): (&Room<'_>, OwnedFd, bool),
        report: MaterializeReport,
    ) -> Result<Self> {
        Ok(Self {
            reader,
            pool,
            progress,
            fence,
            placer,
            room: room
                .dir()
                .try_clone_to_owned()
                .map_err(|source| crate::error::Error::io("open", room.path(), source))?,
            is_unseen,
            trail: Trail::new(root),
            waiting: Vec::new(),
            waiting_bytes: 0,
            waiting_paths: 0,
            is_begun: false,
            is_overtaken: false,
            report,
        })
    }

    /// Carries out a plan.
    pub(super) fn run(&mut self, plan: &std::fs::File, counts: &Counts) -> Result<()> {
        let [new, replace, remove, settle] = counts.steps;
        for (phase, steps) in [
            (Phase::New, new),
            (Phase::Replace, replace),
            (Phase::Remove, remove),
        ] {
            if steps > 0 {
                self.phase(plan, phase)?;
                self.place_waiting()?;
            }
        }
        if settle > 0 {
            self.each(plan, &mut |apply, way, op| match op {
                Op::Settle(time) => apply.settle(&way.names, time),
                _ => Ok(()),
            })?;
        }
        Ok(())
    }

    fn phase(&mut self, plan: &std::fs::File, phase: Phase) -> Result<()> {
        self.each(plan, &mut |apply, way, op| {
            if op.phase() != Some(phase) {
                return Ok(());
            }
            // A step that replaces something is postponed together with the steps that make room for it.
            if phase == Phase::Replace {
                return apply.put_off(way, op);
            }
            match op {
                Op::Make(..) => apply.make_or_put_off(way, op),
                op => {
                    let (dir, name) = way.dir_and_name();
                    apply.step(dir, name, &op)
                }
            }
        })
    }

    /// Calls `each` with the path and the step of every entry of the plan.
    fn each(
        &mut self,
        plan: &std::fs::File,
        each: &mut dyn FnMut(&mut Self, &mut Way, Op) -> Result<()>,
    ) -> Result<()> {
        let plan = plan
            .try_clone()
            .map_err(|source| crate::error::Error::io("read", "plan", source))?;
        let mut steps = ListReader::<Op>::new(plan)?;
        let mut way = Way::default();
        while let Some((level, name, op)) = steps.next()? {
            way.go(level, name);
            each(self, &mut way, op)?;
        }
        Ok(())
    }

    /// Makes a file or symlink where nothing is: now, or once the pool has the file.
    fn make_or_put_off(&mut self, way: &mut Way, op: Op) -> Result<()> {
        let bytes = match &op {
            Op::Make(thing, ..) => size(thing),
            _ => 0,
        };
        let (dir, name) = way.dir_and_name();
        if self.place_one(dir, name, &op)? {
            self.progress.advance(1, bytes);
            return Ok(());
        }
        self.put_off(way, op)
    }

    fn put_off(&mut self, way: &mut Way, op: Op) -> Result<()> {
        let dir = way.shared();
        let (_, name) = way.dir_and_name();
        self.waiting_bytes += match &op {
            Op::Make(thing, ..) | Op::Replace(thing, _) => size(thing),
            _ => 0,
        };
        let is_neighbour = self
            .waiting
            .last()
            .is_some_and(|last| Arc::ptr_eq(&last.dir, &dir));
        if !is_neighbour {
            self.waiting_paths += dir.iter().map(|name| name.len() + 24).sum::<usize>();
        }
        self.waiting.push(Waiting {
            dir,
            name: name.to_vec(),
            op,
        });
        let is_full = self.waiting.len() >= WAITING_MAX
            || self.waiting_bytes >= WAITING_BYTES_MAX
            || self.waiting_paths >= WAITING_PATHS_MAX;
        if is_full {
            self.place_waiting()
        } else {
            Ok(())
        }
    }
}

fn size(thing: &Thing) -> u64 {
    match thing {
        Thing::File { key, .. } => key.content.size,
        _ => 0,
    }
}

fn placing(thing: &Thing) -> Option<Placing> {
    match thing {
        Thing::File {
            key,
            time,
            is_private,
        } => Some(Placing {
            key: *key,
            is_private: *is_private,
            time: *time,
        }),
        _ => None,
    }
}

/// The path of an entry; entries of one directory share its names.
#[derive(Default)]
struct Way {
    names: Vec<Vec<u8>>,
    dir: Option<Dir>,
}

impl Way {
    fn go(&mut self, level: usize, name: Vec<u8>) {
        if level != self.names.len() {
            self.dir = None;
        }
        self.names.truncate(level.saturating_sub(1));
        if level > 0 {
            self.names.push(name);
        }
    }

    /// Splits the path; the root has an empty name.
    fn dir_and_name(&self) -> (&[Vec<u8>], &[u8]) {
        match self.names.split_last() {
            Some((name, above)) => (above, name),
            None => (&[], &[]),
        }
    }

    fn shared(&mut self) -> Dir {
        let (above, _) = self.names.split_at(self.names.len().saturating_sub(1));
        Arc::clone(self.dir.get_or_insert_with(|| Arc::new(above.to_vec())))
    }
}
