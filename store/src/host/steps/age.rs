//! The age of a published step. Its version records it, whatever became of the directory.

use serde::{Deserialize, Serialize};

use super::Step;
use super::step::Files;
use crate::format::{Extra, Time, Version};

/// The name of the field in a version.
const STEP: &str = "step";

/// When a step was written, by the clock of the host that wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepAge {
    /// The last change in the step.
    pub newest: Time,
    /// When the marker in it was written.
    pub marked: Option<Time>,
    /// What its files were.
    pub files: Option<Files>,
}

/// The form in a version: times are seconds and nanoseconds.
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
    /// The age of a step.
    pub fn of(step: &Step) -> Self {
        let (newest, marked) = (step.newest, step.marked);
        let files = step.files();
        Self {
            newest,
            marked,
            files,
        }
    }

    /// The age that a version records.
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

    /// The field to record in a version.
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

    /// Whether `step` has all files that were published with this age, unchanged, and others.
    pub fn is_within(&self, step: &Step) -> bool {
        self.files.is_some_and(|files| step.has_more_than(&files))
    }

    /// Whether `step` has exactly the files that were published with this age.
    pub fn is_of(&self, step: &Step) -> bool {
        let sum = |files: Files| files.sum;
        self.files.is_some() && self.files.map(sum) == step.files().map(sum)
    }

    /// Whether `step` has files of the same names as were published with this age, and one was written since.
    pub fn is_before(&self, step: &Step) -> bool {
        self.files.is_some_and(|files| step.is_anew(&files))
    }

    /// If `step` has files that were published with this age and others that were written since: one of the former.
    pub(super) fn remnant<'s>(&self, step: &'s Step) -> Option<&'s [u8]> {
        step.remnant(self.files.as_ref()?)
    }

    /// The last change in `step` without what other ranks write, if all of its files were written since.
    pub(super) fn newest_since(&self, step: &Step) -> Option<Time> {
        step.newest_since(self.files.as_ref()?)
    }

    /// Whether nothing in the step was written later than in the one that was published with the age `other`.
    pub fn says_no_more_than(&self, other: &Self) -> bool {
        // The other step may be as new as its marker.
        let newest = other.marked.map_or(other.newest, |at| at.max(other.newest));
        self.newest <= newest && self.marked <= other.marked
    }
}
