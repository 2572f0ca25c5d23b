//! A plan for people and machines: exactly the steps that would be carried out.

use std::fmt;
use std::fs::File;

use serde::Serialize;

use super::MaterializeReport;
use super::diff::{Op, Phase};
use super::list::{ListReader, Thing};
use crate::error::{Error, Result};

/// What [`materialize()`](super::materialize()) would do.
#[derive(Debug)]
pub struct Plan {
    /// What was found; nothing has been done.
    pub report: MaterializeReport,
    steps: File,
    /// The destination itself is what is made, and no tree.
    is_alone: bool,
}

/// A step of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The action: `make`, `replace`, `remove`, `set-time` or `keep`.
    pub verb: &'static str,
    /// Its object: `file`, `symlink`, `directory` or `anything`.
    pub kind: &'static str,
    /// Bytes of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The phase: 1 what is new, 2 what is different, 3 what is gone, 4 times of directories.
    pub phase: u8,
    /// Why the path is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<super::Why>,
}

impl Plan {
    pub(super) fn new(report: MaterializeReport, steps: File, is_alone: bool) -> Self {
        Self {
            report,
            steps,
            is_alone,
        }
    }

    /// Calls `each` with every path below the destination, and its step.
    ///
    /// # Errors
    /// The errors of `each`.
    pub fn each(&self, each: &mut dyn FnMut(&[u8], &Step) -> Result<()>) -> Result<()> {
        each_op(&self.steps, &mut |path, op| match Step::of(op) {
            Some(step) if self.is_alone => each(b"", &step),
            Some(step) => each(path, &step),
            None => Ok(()),
        })
    }
}

/// Calls `each` with every path and the step for it.
pub(super) fn each_op(steps: &File, each: &mut dyn FnMut(&[u8], &Op) -> Result<()>) -> Result<()> {
    let steps = steps.try_clone();
    let steps = steps.map_err(|source| Error::io("read", "plan", source))?;
    let mut steps = ListReader::<Op>::new(steps)?;
    let mut path = Vec::new();
    // The length of each directory's path.
    let mut ends: Vec<usize> = Vec::new();
    while let Some((level, name, op)) = steps.next()? {
        ends.truncate(level.saturating_sub(1));
        path.truncate(ends.last().copied().unwrap_or(0));
        if level > 0 {
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&name);
            ends.push(path.len());
        }
        each(&path, &op)?;
    }
    Ok(())
}

impl Step {
    fn of(op: &Op) -> Option<Self> {
        let (verb, kind, bytes) = match op {
            Op::Enter => return None,
            Op::MakeDir => ("make", "directory", None),
            Op::Make(thing, ..) => ("make", kind(thing), bytes(thing)),
            Op::Replace(thing, _) => ("replace", kind(thing), bytes(thing)),
            Op::Touch(..) => ("set-time", "file", None),
            Op::Remove(..) => ("remove", "file", None),
            Op::RemoveDir(_) => ("remove", "directory", None),
            Op::RemoveAll(_) => ("remove", "anything", None),
            Op::Settle(_) => ("set-time", "directory", None),
            Op::Keep(_) => ("keep", "anything", None),
        };
        let why = match op {
            Op::Keep(why) => Some(*why),
            _ => None,
        };
        let phase = match op.phase() {
            Some(Phase::New) => 1,
            Some(Phase::Replace) => 2,
            Some(Phase::Remove) => 3,
            None => 4,
        };
        Some(Self {
            verb,
            kind,
            bytes,
            phase,
            why,
        })
    }
}

fn kind(thing: &Thing) -> &'static str {
    match thing {
        Thing::Dir { .. } => "directory",
        Thing::File { .. } => "file",
        Thing::Symlink { .. } => "symlink",
        Thing::Left => "anything",
    }
}

fn bytes(thing: &Thing) -> Option<u64> {
    match thing {
        Thing::File { key, .. } => Some(key.content.size),
        _ => None,
    }
}

impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.verb, self.kind)
    }
}
