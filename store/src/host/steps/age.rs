//! How old a published step is: its version says so, whatever became of the directory.

use serde::{Deserialize, Serialize};

use super::Step;
use super::step::Files;
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
    /// What its files were.
    pub files: Option<Files>,
}

/// That, as a version has it: seconds and nanoseconds.
#[derive(Serialize, Deserialize)]
struct Written {
    newest: (i64, u32),
    #[serde(default, skip_serializing_if = "Option::is_none")]
    marked: Option<(i64, u32)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    files: Option<WrittenFiles>,
}

#[derive(Serialize, Deserialize)]
struct WrittenFiles {
    written: (i64, u32),
    changed: (i64, u32),
    paths: String,
    sum: String,
}

impl StepAge {
    /// That of a step.
    pub fn of(step: &Step) -> Self {
        let (newest, marked) = (step.newest, step.marked);
        let files = step.files();
        Self {
            newest,
            marked,
            files,
        }
    }

    /// What the version of it says.
    pub fn of_version(version: &Version) -> Option<Self> {
        let time = |(secs, nanos)| Time { secs, nanos };
        let written: Written = serde_json::from_value(version.extra.get(STEP)?.clone()).ok()?;
        Some(Self {
            newest: time(written.newest),
            marked: written.marked.map(time),
            files: written.files.and_then(|files| {
                let sum = |text: &str| u64::from_str_radix(text, 16).ok();
                Some(Files {
                    written: time(files.written),
                    changed: time(files.changed),
                    paths: sum(&files.paths)?,
                    sum: sum(&files.sum)?,
                })
            }),
        })
    }

    /// What a version of it is to say.
    #[must_use]
    pub fn into_extra(self) -> Extra {
        let pair = |time: Time| (time.secs, time.nanos);
        let written = Written {
            newest: pair(self.newest),
            marked: self.marked.map(pair),
            files: self.files.map(|files| WrittenFiles {
                written: pair(files.written),
                changed: pair(files.changed),
                paths: format!("{:016x}", files.paths),
                sum: format!("{:016x}", files.sum),
            }),
        };
        let written = serde_json::to_value(written).ok();
        written
            .map(|written| (STEP.to_owned(), written))
            .into_iter()
            .collect()
    }

    /// Whether `step` has all files of what was published when it was this one, as they were, and others.
    pub fn is_within(&self, step: &Step) -> bool {
        self.files.is_some_and(|files| step.has_more_than(&files))
    }

    /// Whether `step` has the files of what was published when it was this one, and no others.
    pub fn is_of(&self, step: &Step) -> bool {
        let sum = |files: Files| files.sum;
        self.files.is_some() && self.files.map(sum) == step.files().map(sum)
    }

    /// Whether `step` has files of the same names as what was published when it was this one, and one was written since.
    pub fn is_before(&self, step: &Step) -> bool {
        self.files.is_some_and(|files| step.is_anew(&files))
    }

    /// Whether nothing in it was written later than in what was published when it was `other`.
    pub fn says_no_more_than(&self, other: &Self) -> bool {
        // The marker alone is as new as it is.
        let newest = other.marked.map_or(other.newest, |at| at.max(other.newest));
        self.newest <= newest && self.marked <= other.marked
    }
}
