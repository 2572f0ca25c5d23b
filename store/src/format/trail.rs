//! The entries that a state was folded from, if they were read. They tell whether a log is still the same log.

use std::collections::VecDeque;

use super::LogEntry;
use crate::id::EntryId;

/// How many entries are kept; far more than usually follow a checkpoint.
const STEPS_MAX: usize = 256;

/// The entries that were folded last, oldest first. The trail is ignored when states are compared.
#[derive(Clone, Debug, Default)]
pub struct Trail(VecDeque<Step>);

#[derive(Clone, Copy, Debug)]
struct Step {
    number: u64,
    id: EntryId,
    stands_for: Option<EntryId>,
    lost: Option<u64>,
}

impl PartialEq for Trail {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Trail {}

impl Trail {
    pub(super) fn add(&mut self, entry: &LogEntry, id: EntryId) {
        if self.0.len() >= STEPS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Step {
            number: entry.number,
            id,
            stands_for: entry.stands_for,
            lost: entry.lost,
        });
    }

    /// Whether it goes back to entry `number`.
    pub fn reaches(&self, number: u64) -> bool {
        self.0.front().is_some_and(|first| first.number <= number)
    }

    /// Returns the id of the entry under `number` if it is not `id`. Returns `None` if it is `id`, if entry `number`
    /// has been given up, or if its id is unknown.
    pub fn another(&self, number: u64, id: EntryId) -> Option<EntryId> {
        let is_given_up = |step: &Step| step.lost.is_some_and(|lost| lost <= number);
        if self.0.iter().any(is_given_up) {
            return None;
        }
        let step = self.0.iter().find(|step| step.number == number)?;
        let is_it = step.id == id || step.stands_for == Some(id);
        (!is_it).then_some(step.id)
    }
}
