//! Reads the entries after a state when requests are slow: a listing tells which exist, and all are requested at once.
//!
//! A reader takes every second entry from the copy in the next one. The chain of ids verifies a copy just like an
//! entry; the listing shows that the entry itself exists. Writers and collectors read each entry. If anything is
//! unexpected, the caller falls back to reading entry by entry, which can tell what is wrong.

use std::collections::BTreeSet;

use super::{ENTRIES_AT_ONCE_MAX, given_up};
use crate::error::{ErrorKind, Result};
use crate::format::{EntryText, LOG_PREFIX, LogEntry, Newest, State, log_key, parse_log_key};
use crate::remote::{Read, is_far};

/// Entry numbers in a listing.
#[derive(Debug)]
pub(super) struct Listed {
    from: u64,
    numbers: BTreeSet<u64>,
}

impl Listed {
    /// Lists the entries from `from` on, if the remote is far.
    pub(super) fn ask(remote: &dyn Read, from: u64) -> Result<Option<Self>> {
        if !is_far(remote) {
            return Ok(None);
        }
        let numbers = listing(remote, from)?.into_iter().collect();
        Ok(Some(Self { from, numbers }))
    }

    /// Returns how many consecutive entries follow the first.
    pub(super) fn behind(&self) -> u64 {
        let is_next = |number: &u64| self.numbers.contains(number);
        (self.from + 1..).take_while(is_next).count() as u64
    }

    /// Folds the listed entries into `state`, which ends where the listing begins, as long as they are valid. Returns
    /// where the log ends, if that is known afterwards.
    ///
    /// # Errors
    /// When the store does not answer; conflict, when an entry before `state` has been given up.
    pub(super) fn read(
        &self,
        remote: &dyn Read,
        state: &mut State,
        by_copies: bool,
    ) -> Result<Option<End>> {
        let began = state.number;
        let last = began + self.behind();
        let is_asked = |number: &u64| !by_copies || (last - number).is_multiple_of(2);
        let mut asked: Vec<u64> = (began + 1..=last).filter(is_asked).collect();
        // The listing may lack the newest entry.
        asked.push(last + 1);
        let at_once = usize::try_from(ENTRIES_AT_ONCE_MAX).unwrap_or(1);
        for numbers in asked.chunks(at_once) {
            let keys: Vec<_> = numbers.iter().map(|number| log_key(*number)).collect();
            let found = match remote.get_run(&keys) {
                Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(None),
                found => found?,
            };
            for (number, bytes) in numbers.iter().zip(&found) {
                let Some(entries) = entries_in(*number, bytes, state.number)? else {
                    return Ok(None);
                };
                for (entry, text) in entries {
                    if !take(state, &entry, text, began)? {
                        return Ok(None);
                    }
                }
            }
            if found.len() < keys.len() {
                break;
            }
        }
        let is_first_there = began == 0 || last > began || self.numbers.contains(&began);
        let is_end = self.numbers.last().is_none_or(|newest| *newest <= last);
        Ok((state.number == last && is_first_there && is_end).then_some(End::Here))
    }
}

/// Where the log ends, relative to one entry.
pub(super) enum End {
    /// With this entry.
    Here,
    /// Before this entry, which is missing.
    Before,
    /// After this entry; names the first later entry in a listing.
    Behind(u64),
}

/// Returns the numbers of the entries in a listing, from `number` on.
pub(super) fn listing(remote: &dyn Read, number: u64) -> Result<Vec<u64>> {
    let keys = remote.keys_after(LOG_PREFIX, &log_key(number.saturating_sub(1)))?;
    let numbers = keys.iter().filter_map(|key| parse_log_key(key));
    Ok(numbers.filter(|found| *found >= number).collect())
}

/// Returns the entry under `number`, preceded by the copy of the previous entry if `state` needs it. Returns `None` if
/// the copy is missing or damaged.
fn entries_in(number: u64, bytes: &[u8], state: u64) -> Result<Option<Vec<(LogEntry, EntryText)>>> {
    let mut entries = Vec::new();
    if number == state + 2 {
        let Some(copy) = unless_damaged(LogEntry::decode_before(number, bytes))?.flatten() else {
            return Ok(None);
        };
        entries.push(copy);
    }
    let Some(own) = unless_damaged(LogEntry::decode_text(number, bytes))? else {
        return Ok(None);
    };
    entries.push(own);
    Ok(Some(entries))
}

fn unless_damaged<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(None),
        read => read.map(Some),
    }
}

/// Folds `entry` into the state; returns false if it does not follow.
fn take(state: &mut State, entry: &LogEntry, text: EntryText, began: u64) -> Result<bool> {
    if let Some(lost) = entry.lost.filter(|lost| *lost <= began) {
        return Err(given_up(entry.number, lost));
    }
    match state.apply(entry) {
        Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(false),
        applied => applied?,
    }
    state.newest = Newest(Some(text));
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::format::checkpoint_key;
    use crate::id::StoreId;
    use crate::log::known::Known;
    use crate::log::tests::filled;
    use crate::log::{CheckpointPlace, load_known_from};
    use crate::remote::testing::faulty::{Faults, Faulty};
    use crate::remote::{Objects, Prune};

    /// A directory that claims to be far, like a bucket.
    fn bucket() -> (tempfile::TempDir, Arc<dyn Prune>) {
        let dir = tempfile::tempdir().unwrap();
        let objects = Objects::directory(dir.path()).unwrap();
        (
            dir,
            Arc::new(Faulty::new(Arc::new(objects), Faults::default())),
        )
    }

    /// Loads a bucket as a new host would; returns what is known and the number of requests.
    fn loaded(remote: &Arc<dyn Prune>, by_copies: bool) -> (Known, u64) {
        let counting = Faulty::new(Arc::clone(remote), Faults::default());
        let place = CheckpointPlace {
            by_copies,
            ..CheckpointPlace::new(&counting)
        };
        let known = load_known_from(place, StoreId::default()).unwrap();
        (known, counting.counts().requests)
    }

    #[test]
    fn a_fresh_host_opens_a_bucket_in_few_requests_wherever_its_log_ends() {
        let (_dir, remote) = bucket();
        let mut most = [0, 0];
        for entries in 1..=70 {
            let state = filled(remote.as_ref(), entries);
            for (by_copies, most) in [true, false].into_iter().zip(&mut most) {
                let (known, requests) = loaded(&remote, by_copies);
                assert!(known.damage.is_none(), "{entries}: {known:?}");
                assert_eq!(known.state, state);
                *most = requests.max(*most);
            }
        }
        // First for readers, then for writers. Reading `format` takes one more request.
        assert_eq!(most, [8, 11]);
    }

    /// Entries without copies, as older programs wrote them, 63 after a checkpoint.
    #[test]
    fn what_lies_far_behind_a_checkpoint_is_read_in_pairs() {
        let remote: Arc<dyn Prune> = Arc::new(Objects::memory());
        let state = filled(remote.as_ref(), 127);
        assert!(remote.size(&checkpoint_key(64)).is_ok());
        for (by_copies, most) in [(true, 40), (false, 70)] {
            let (known, requests) = loaded(&remote, by_copies);
            assert_eq!(known.state, state);
            assert!(requests <= most, "{by_copies}: {requests}");
        }
    }

    /// A copy proves the contents of an entry, not that the entry exists.
    #[test]
    fn an_entry_that_is_missing_is_evidence_for_who_reads_its_copy() {
        for missing in 1..7 {
            let remote: Arc<dyn Prune> = Arc::new(Objects::memory());
            let state = filled(remote.as_ref(), 7);
            remote.delete(&[log_key(missing)]).unwrap();
            for by_copies in [true, false] {
                let (known, _) = loaded(&remote, by_copies);
                assert_eq!(known.state, state, "{missing}");
                let damage = known.damage.unwrap().to_string();
                let later = missing + 1;
                assert_eq!(
                    damage,
                    format!(
                        "{}: missing, although entry {later} exists",
                        log_key(missing)
                    )
                );
            }
        }
    }

    #[test]
    fn who_adds_or_deletes_finds_each_damaged_entry() {
        for damaged in 1..=7 {
            let remote: Arc<dyn Prune> = Arc::new(Objects::memory());
            let state = filled(remote.as_ref(), 7);
            remote
                .put(&log_key(damaged), Bytes::from_static(b"damaged"))
                .unwrap();
            let (known, _) = loaded(&remote, false);
            let damage = known.damage.unwrap().to_string();
            assert!(damage.starts_with(&log_key(damaged)), "{damage}");
            let (known, _) = loaded(&remote, true);
            let expected = if damaged == 7 { 6 } else { 7 };
            assert_eq!(known.state.number, expected);
            assert!(damaged == 7 || known.state == state);
        }
    }

    /// A missing copy, or a copy of another entry, does not count.
    #[test]
    fn without_a_copy_the_entry_itself_is_read() {
        for (at, wrong) in (2..=7).flat_map(|at| [(at, false), (at, true)]) {
            let remote: Arc<dyn Prune> = Arc::new(Objects::memory());
            let state = filled(remote.as_ref(), 7);
            let bytes = remote.get(&log_key(at)).unwrap();
            let (_, own) = LogEntry::decode_alone(at, &bytes).unwrap();
            let behind: &[u8] = if wrong { &own } else { &[] };
            let bytes = [&own[..], behind].concat();
            remote.put(&log_key(at), bytes.into()).unwrap();
            let (known, _) = loaded(&remote, true);
            assert_eq!(known.state, state, "{at}");
            // A wrong copy is damage if it was read; a missing copy may never have been written.
            let is_damage = wrong && at % 2 == 1;
            assert_eq!(
                known.damage.is_some(),
                is_damage,
                "{at}: {:?}",
                known.damage
            );
        }
    }
}
