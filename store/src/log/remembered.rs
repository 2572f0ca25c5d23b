//! The state of a store that this host saw last, so that opening the store again over a network takes few requests.
//!
//! One disposable file: if it is missing, damaged or of another history, opening only takes longer. It is used only if
//! the store still has the entry with which it ends, which is not the case in a store restored from an older backup.

use std::path::Path;

use crate::error::{ErrorKind, Result};
use crate::format::{Newest, State};
use crate::id::StoreId;
use crate::remote::Read;

use super::checkpoint::{CheckpointPlace, remember};
use super::known::{Found, Known, go_on_by, load_known_from, newest_of};
use super::listed::Listed;

/// The state is written again after this many new entries.
const REMEMBERED_EVERY: u64 = 16;
/// If more entries than this follow the state, reading a checkpoint takes fewer requests.
const BEHIND_MAX: u64 = 16;

/// Like [`load`], but starts from the state in the file `state` in `dir`, if it is of this store.
///
/// # Errors
/// As for [`load`].
pub(crate) fn load_remembered(
    place: CheckpointPlace<'_>,
    store: StoreId,
    dir: &Path,
) -> Result<Known> {
    let (remote, path) = (place.remote, dir.join("state"));
    let remembered = place.remembered(&path).ok();
    let remembered = remembered.filter(|state| state.store == store);
    let before = remembered.as_ref().map_or(0, |state| state.number);
    let mut known = None;
    if let Some(remembered) = remembered
        && let Some((state, listed)) = recent(remote, remembered)?
    {
        known = match go_on_by(place, state, listed.as_ref()) {
            // An entry before the remembered state has been given up since.
            Err(error) if error.kind() == ErrorKind::Conflict => None,
            gone_on => Some(gone_on?),
        };
    }
    let known = match known {
        Some(known) => known,
        None => load_known_from(place, store)?,
    };
    let number = known.state.number;
    if known.damage.is_none() && (number < before || number >= before + REMEMBERED_EVERY) {
        // If the state cannot be stored, the next opening only takes longer.
        drop(remember(&path, &known.state));
    }
    Ok(known)
}

/// Returns the state if it belongs to the history of the store and few entries follow, with a listing of these entries.
fn recent(remote: &dyn Read, mut state: State) -> Result<Option<(State, Option<Listed>)>> {
    if state.number == 0 {
        return Ok(None);
    }
    let listed = Listed::ask(remote, state.number)?;
    if listed
        .as_ref()
        .is_some_and(|listed| listed.behind() > BEHIND_MAX)
    {
        return Ok(None);
    }
    Ok(match newest_of(remote, &state)? {
        Found::Right(text) => {
            state.newest = Newest(Some(text));
            Some((state, listed))
        }
        Found::Nothing | Found::Another(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::format::{Who, log_key};
    use crate::log::heal::heal;
    use crate::log::load;
    use crate::log::tests::filled;
    use crate::remote::testing::faulty::{Faults, Faulty};
    use crate::remote::{Objects, Prune, Write};

    fn state_of(remote: &dyn Read, dir: &Path) -> Result<State> {
        load_remembered(CheckpointPlace::new(remote), StoreId::default(), dir)?.whole()
    }

    /// Copies the objects of `from` to a new remote.
    fn copy(from: &Objects) -> Objects {
        let to = Objects::memory();
        for info in from.list("").unwrap() {
            to.put(&info.key, from.get(&info.key).unwrap()).unwrap();
        }
        to
    }

    #[test]
    fn what_is_remembered_is_continued() {
        let dir = tempfile::tempdir().unwrap();
        let remote = Objects::memory();
        for entries in [0, 1, 15, 16, 17, 40, 63, 64, 65, 200] {
            let state = filled(&remote, entries);
            for _ in 0..2 {
                assert_eq!(state_of(&remote, dir.path()).unwrap(), state);
            }
        }
    }

    #[test]
    fn the_entries_before_are_not_needed_again() {
        let dir = tempfile::tempdir().unwrap();
        let remote = Objects::memory();
        filled(&remote, 20);
        state_of(&remote, dir.path()).unwrap();
        let state = filled(&remote, 30);
        remote.delete(&[log_key(5)]).unwrap();
        assert_eq!(state_of(&remote, dir.path()).unwrap(), state);
        assert!(load(&remote).is_err());
    }

    #[test]
    fn another_history_is_not_mixed_with_the_one_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let backup = Objects::memory();
        filled(&backup, 10);
        let remote = copy(&backup);
        filled(&remote, 30);
        state_of(&remote, dir.path()).unwrap();
        for entries in [10, 20, 30, 40] {
            let restored = copy(&backup);
            let state = filled(&restored, entries);
            assert_eq!(state_of(&restored, dir.path()).unwrap(), state);
        }
    }

    #[test]
    fn a_damaged_file_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let remote = Objects::memory();
        let state = filled(&remote, 20);
        state_of(&remote, dir.path()).unwrap();
        let path = dir.path().join("state");
        let whole = std::fs::read(&path).unwrap();
        for len in [0, 7, 16, whole.len() / 2, whole.len() - 1] {
            std::fs::write(&path, whole.get(..len).unwrap()).unwrap();
            assert_eq!(state_of(&remote, dir.path()).unwrap(), state);
        }
    }

    /// The remembered entry still is the newest, but an entry before it has been given up since.
    #[test]
    fn what_was_given_up_since_is_not_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let remote = Objects::memory();
        let state = filled(&remote, 20);
        for number in 1..=20 {
            let entry = crate::log::entry(&remote, number).unwrap().unwrap();
            let bytes = entry.encode().unwrap();
            remote.put(&log_key(number), bytes.into()).unwrap();
        }
        assert_eq!(state_of(&remote, dir.path()).unwrap(), state);
        remote.put(&log_key(15), bytes::Bytes::new()).unwrap();
        let healed = heal(&remote, StoreId::default(), &Who::default(), true).unwrap();
        assert_eq!(healed.lost, [15]);
        let now = load(&remote).unwrap();
        assert_ne!(now.refs, state.refs);
        assert_eq!(state_of(&remote, dir.path()).unwrap(), now);
    }

    /// Retrying after a timeout would take as long again.
    #[test]
    fn a_store_that_does_not_answer_is_not_asked_again() {
        let dir = tempfile::tempdir().unwrap();
        let inner: Arc<dyn Prune> = Arc::new(Objects::memory());
        filled(inner.as_ref(), 20);
        state_of(inner.as_ref(), dir.path()).unwrap();
        filled(inner.as_ref(), 30);
        let requests = {
            let remote = Faulty::new(inner.clone(), Faults::default());
            state_of(&remote, dir.path()).unwrap();
            remote.counts().requests
        };
        assert!(requests > 3, "{requests}");
        for at in 1..=requests {
            let faults = Faults {
                before: 1000,
                only_at: Some(at),
                ..Faults::default()
            };
            let remote = Faulty::new(inner.clone(), faults);
            let error = state_of(&remote, dir.path()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "request {at}");
            assert_eq!(remote.counts().requests, at);
        }
    }

    #[test]
    fn a_gap_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let remote = Objects::memory();
        filled(&remote, 20);
        state_of(&remote, dir.path()).unwrap();
        filled(&remote, 25);
        remote.delete(&[log_key(22)]).unwrap();
        let error = state_of(&remote, dir.path()).unwrap_err();
        let expected = "log/000000/00000022: missing, although entry 23 exists";
        assert_eq!(error.to_string(), expected);
    }
}
