//! One step from the existing tree to the wanted one, as it is planned, printed and carried out.

use std::fmt;

use crate::error::Result;
use crate::format::Time;
use crate::host::walk::Stat;
use crate::materialize::list::{Input, Item, Thing, push_number, push_time, wrong};

/// When a step is taken: first what is new, then what is different, last what is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::materialize) enum Phase {
    New,
    Replace,
    Remove,
}

/// What a file or symlink looked like when the step was planned. If it has changed since, it is not touched. The ctime
/// is left out, since every new link to a pool file changes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::materialize) struct Seen {
    ino: u64,
    size: u64,
    mtime: Time,
}

/// Why something stays that differs from the version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// A job added it where the version has nothing.
    Added,
    /// A job changed it.
    Changed,
    /// A job deleted it.
    Deleted,
    /// A job made something else where the version has this path.
    InTheWay,
    /// A job changed it, and the version no longer has it.
    Dropped,
    /// An earlier version or a job made it; nobody knows which.
    Unknown,
}

/// A step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::materialize) enum Op {
    /// A directory above other steps.
    Enter,
    /// Make a directory.
    MakeDir,
    /// Make a file or symlink where nothing is; the last field says that the plan makes the directory, too.
    Make(Thing, Phase, bool),
    /// Make a file or symlink in place of what was seen there.
    Replace(Thing, Seen),
    /// Set the time of a file or symlink.
    Touch(Time, Seen),
    /// Remove a file or symlink.
    Remove(Seen, Phase),
    /// Remove a directory that is empty by then.
    RemoveDir(Phase),
    /// Remove whatever is there, with everything below it.
    RemoveAll(Phase),
    /// Set the time of a directory whose entries are in place.
    Settle(Time),
    /// Leave the path as it is.
    Keep(Why),
}

impl Op {
    /// The phase of the step; `Settle` comes after all phases.
    pub(in crate::materialize) fn phase(&self) -> Option<Phase> {
        match self {
            Self::MakeDir | Self::Touch(..) => Some(Phase::New),
            Self::Replace(..) => Some(Phase::Replace),
            Self::Make(_, phase, _)
            | Self::Remove(_, phase)
            | Self::RemoveDir(phase)
            | Self::RemoveAll(phase) => Some(*phase),
            Self::Enter | Self::Settle(_) | Self::Keep(_) => None,
        }
    }
}

impl Seen {
    pub(in crate::materialize) fn of(stat: &Stat) -> Self {
        Self {
            ino: stat.ino,
            size: stat.size,
            mtime: stat.mtime,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        push_number(out, self.ino);
        push_number(out, self.size);
        push_time(out, self.mtime);
    }

    fn decode(input: &mut Input) -> Result<Self> {
        Ok(Self {
            ino: input.number()?,
            size: input.number()?,
            mtime: input.time()?,
        })
    }
}

impl Phase {
    fn code(self) -> u8 {
        match self {
            Self::New => 0,
            Self::Replace => 1,
            Self::Remove => 2,
        }
    }

    fn of(code: u8) -> Result<Self> {
        match code {
            0 => Ok(Self::New),
            1 => Ok(Self::Replace),
            2 => Ok(Self::Remove),
            _ => Err(wrong("phase")),
        }
    }
}

const WHYS: [Why; 6] = [
    Why::Added,
    Why::Changed,
    Why::Deleted,
    Why::InTheWay,
    Why::Dropped,
    Why::Unknown,
];

impl Why {
    /// Whether the version has, or may have, something else there.
    pub fn is_conflict(self) -> bool {
        self != Self::Added
    }
}

impl fmt::Display for Why {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Added => "a job added it",
            Self::Changed => "a job changed it",
            Self::Deleted => "a job deleted it",
            Self::InTheWay => "a job made something else there",
            Self::Dropped => "a job changed it, and the version does not have it any more",
            Self::Unknown => "of an earlier version, or of a job",
        })
    }
}

impl Item for Op {
    fn inner() -> Self {
        Self::Enter
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Enter => out.push(0),
            Self::MakeDir => out.push(1),
            Self::Make(thing, phase, is_fresh) => {
                out.extend_from_slice(&[2, phase.code(), u8::from(*is_fresh)]);
                thing.encode(out);
            }
            Self::Replace(thing, seen) => {
                out.push(3);
                seen.encode(out);
                thing.encode(out);
            }
            Self::Touch(time, seen) => {
                out.push(4);
                push_time(out, *time);
                seen.encode(out);
            }
            Self::Remove(seen, phase) => {
                out.extend_from_slice(&[5, phase.code()]);
                seen.encode(out);
            }
            Self::RemoveDir(phase) => out.extend_from_slice(&[6, phase.code()]),
            Self::RemoveAll(phase) => out.extend_from_slice(&[7, phase.code()]),
            Self::Settle(time) => {
                out.push(8);
                push_time(out, *time);
            }
            Self::Keep(why) => {
                let code = WHYS.iter().position(|other| other == why);
                out.extend_from_slice(&[9, u8::try_from(code.unwrap_or(0)).unwrap_or(0)]);
            }
        }
    }

    fn decode(input: &mut Input) -> Result<Self> {
        Ok(match input.byte()? {
            0 => Self::Enter,
            1 => Self::MakeDir,
            2 => {
                let phase = Phase::of(input.byte()?)?;
                let is_fresh = input.byte()? != 0;
                Self::Make(Thing::decode(input)?, phase, is_fresh)
            }
            3 => {
                let seen = Seen::decode(input)?;
                Self::Replace(Thing::decode(input)?, seen)
            }
            4 => Self::Touch(input.time()?, Seen::decode(input)?),
            5 => {
                let phase = Phase::of(input.byte()?)?;
                Self::Remove(Seen::decode(input)?, phase)
            }
            6 => Self::RemoveDir(Phase::of(input.byte()?)?),
            7 => Self::RemoveAll(Phase::of(input.byte()?)?),
            8 => Self::Settle(input.time()?),
            9 => {
                let code = usize::from(input.byte()?);
                Self::Keep(*WHYS.get(code).ok_or_else(|| wrong("reason"))?)
            }
            _ => return Err(wrong("step")),
        })
    }
}
