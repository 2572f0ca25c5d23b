//! Records uses of versions through the door, so that versions in use are not the first to be evicted.
//!
//! A use is recorded once per day and version, after the answer; nobody waits for it.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use store::{RefName, Store};

const DAY_SECS: i64 = 24 * 60 * 60;

/// The uses recorded today.
#[derive(Default)]
pub(super) struct Used(Mutex<(i64, HashSet<(RefName, u64)>)>);

impl Used {
    /// Records that a version is read.
    pub(super) fn note(&self, store: &'static Store, name: &RefName, number: u64) {
        if self.is_new(Timestamp::now().as_second() / DAY_SECS, name, number) {
            let name = name.clone();
            // A failure is harmless.
            drop(tokio::task::spawn_blocking(move || {
                store::leave_use(store, &name, number);
            }));
        }
    }

    fn is_new(&self, day: i64, name: &RefName, number: u64) -> bool {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.0 != day {
            *noted = (day, HashSet::new());
        }
        noted.1.insert((name.clone(), number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_noted_once_a_day() {
        let used = Used::default();
        let name: RefName = "project/demo/data".parse().unwrap();
        let days = [(1, 1), (1, 1), (1, 2), (2, 1), (2, 1)];
        let new = days.map(|(day, number)| used.is_new(day, &name, number));
        assert_eq!(new, [true, false, true, true, false]);
    }
}
