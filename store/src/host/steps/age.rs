//! How old a published step is: its version says so, whatever became of the directory.

use serde::{Deserialize, Serialize};

use super::Step;
use crate::format::{Extra, Time, Version};

/// The field of a version.
const STEP: &str = "step";

/// When a step was written, by the clock of the host that wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepAge {
    /// When something in it changed last.
    pub newest: Time,
    /// When the file in it that finishes it was written.
    pub marked: Option<Time>,
}

/// That, as a version has it: seconds and nanoseconds.
#[derive(Serialize, Deserialize)]
struct Written {
    newest: (i64, u32),
    #[serde(default, skip_serializing_if = "Option::is_none")]
    marked: Option<(i64, u32)>,
}

impl StepAge {
    /// That of a step.
    pub fn of(step: &Step) -> Self {
        let (newest, marked) = (step.newest, step.marked);
        Self { newest, marked }
    }

    /// What the version of it says.
    pub fn of_version(version: &Version) -> Option<Self> {
        let time = |(secs, nanos)| Time { secs, nanos };
        let written: Written = serde_json::from_value(version.extra.get(STEP)?.clone()).ok()?;
        Some(Self {
            newest: time(written.newest),
            marked: written.marked.map(time),
        })
    }

    /// What a version of it is to say.
    #[must_use]
    pub fn into_extra(self) -> Extra {
        let pair = |time: Time| (time.secs, time.nanos);
        let written = Written {
            newest: pair(self.newest),
            marked: self.marked.map(pair),
        };
        let written = serde_json::to_value(written).ok();
        written
            .map(|written| (STEP.to_owned(), written))
            .into_iter()
            .collect()
    }

    /// Whether nothing in it was written later than in what was published when it was `other`.
    pub fn says_no_more_than(&self, other: &Self) -> bool {
        // The marker alone is as new as it is.
        let newest = other.marked.map_or(other.newest, |at| at.max(other.newest));
        self.newest <= newest && self.marked <= other.marked
    }
}
