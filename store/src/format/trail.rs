//! What entries a state was folded from, as far as they were read: by it a log is told from another one.

use std::collections::VecDeque;

use super::LogEntry;
use crate::id::EntryId;

/// So many are kept, which is far more than come behind a checkpoint.
const STEPS_MAX: usize = 256;

/// The entries that were folded in last, the oldest first. No part of what a state says: two that differ in it only are
/// equal.
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

    /// Whether it goes back as far as `number`.
    pub fn reaches(&self, number: u64) -> bool {
        self.0.front().is_some_and(|first| first.number <= number)
    }

    /// The entry that lies under `number` in the place of `id`; none where that is the one, or was given up since, or
    /// where it is not known.
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
