//! Whether a version vouches for what is below it, so that its chunks need not be looked up one by one.
//!
//! A collector leaves live versions whole. But who finds packs missing or damaged condemns them, and what was in them
//! is offered no longer, whatever live version needs it. So a version vouches only if no entry since its own has
//! condemned packs or dropped segments. Who did it, and whether that version was hit, is not asked: looking up the
//! chunks tells.

use std::collections::HashSet;

use crate::format::{Change, RefName};
use crate::log;
use crate::remote::{Read, of_each};
use crate::session::moves_chunks;
use crate::store::{Store, View};

/// Most log entries that are read to find out that a version is whole without looking up its chunks.
const ENTRIES_READ_MAX: u64 = 32;
/// How many times more entries are read at once than before.
const GROWTH: u64 = 4;

/// The newest entries of the log, read backwards as far as they are needed.
pub(crate) struct Vouchers<'r> {
    remote: &'r dyn Read,
    /// The newest entry that was not read.
    next: u64,
    oldest: u64,
    asked: u64,
    /// The versions that were added since chunks last moved, as far as the entries were read.
    added: HashSet<(RefName, u64)>,
}

impl<'r> Vouchers<'r> {
    pub(crate) fn new(store: &'r Store, view: &View) -> Self {
        let next = view.state.number;
        Self {
            remote: store.remote().as_ref(),
            next,
            oldest: next.saturating_sub(ENTRIES_READ_MAX).max(1),
            asked: 1,
            added: HashSet::new(),
        }
    }

    /// Whether nothing has moved since this version, which is live, was added. A version of long ago does not vouch.
    pub(crate) fn vouch_for(&mut self, name: &RefName, version: u64) -> bool {
        let wanted = (name.clone(), version);
        while !self.added.contains(&wanted) {
            if self.next < self.oldest {
                return false;
            }
            self.read();
        }
        true
    }

    /// Reads some more entries. What cannot be read may have moved chunks.
    fn read(&mut self) {
        let first = (self.next + 1).saturating_sub(self.asked).max(self.oldest);
        let numbers: Vec<u64> = (first..=self.next).rev().collect();
        let read = of_each(self.remote, &numbers, |number| {
            Ok(log::entry(self.remote, *number).ok().flatten())
        });
        self.next = first.saturating_sub(1);
        self.asked *= GROWTH;
        for entry in read.unwrap_or_else(|_| vec![None]) {
            let Some(entry) = entry.filter(|entry| !moves_chunks(entry)) else {
                self.next = 0;
                return;
            };
            self.added.extend(entry.changes.into_iter().filter_map(set));
        }
    }
}

/// The version that a change adds.
fn set(change: Change) -> Option<(RefName, u64)> {
    match change {
        Change::SetRef { name, version, .. } => Some((name, version)),
        _ => None,
    }
}
