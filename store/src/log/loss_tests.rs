//! Evidence of loss: gaps, cut logs and damaged entries, and how they are restored.

use super::tests::*;
use super::*;
use crate::format::{ReadAs, SegmentInfo, checkpoint_key, parse_log_key};
use crate::id::{EntryId, SegmentId, StoreId};
use crate::remedy::Remedy;
use crate::remote::{Objects, Prune};

/// Lists all keys, to check that nothing was written.
fn keys(remote: &Objects) -> Vec<String> {
    let listed = remote.list("").unwrap().into_iter();
    listed.map(|info| info.key).collect()
}

/// Checks that nothing can be added or deleted, because the log lost entries.
fn assert_stopped(remote: &Objects, expected: &str) {
    let before = keys(remote);
    assert_eq!(load(remote).unwrap_err().kind(), ErrorKind::Corrupt);
    let mut known = load_known(remote, StoreId::default()).unwrap();
    let damage = known.damage.unwrap();
    assert!(damage.to_string().starts_with(expected), "{damage}");
    let error = add(remote, &mut known.state, 9, &name(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
    assert_eq!(keys(remote), before);
}

#[test]
fn any_number_of_missing_entries_is_damage() {
    for (gone, expected, readable) in [
        (vec![3, 4], "log/000000/00000003: missing", 2),
        (vec![3, 4, 5], "log/000000/00000003: missing", 2),
        (vec![1, 2], "log/000000/00000001: missing", 0),
        // The next entry has a copy, so nothing is lost; the gap is evidence all the same.
        (vec![3], "log/000000/00000003: missing", 6),
    ] {
        let remote = Objects::memory();
        filled(&remote, 6);
        let keys: Vec<_> = gone.iter().map(|number| log_key(*number)).collect();
        remote.delete(&keys).unwrap();
        let known = load_known(&remote, StoreId::default()).unwrap();
        assert_eq!(known.state.number, readable, "{gone:?}");
        assert!(load(&remote).unwrap_err().to_string().starts_with(expected));
        let mut old = load_at(&remote, StoreId::default(), gone[0] - 1).unwrap();
        let error = add(&remote, &mut old, 9, &name(1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{gone:?}: {error:?}");
    }
}

#[test]
fn a_log_that_ends_before_its_checkpoint_is_damage() {
    let remote = Objects::memory();
    let whole = filled(&remote, 70);
    let at_checkpoint = load_at(&remote, StoreId::default(), 64).unwrap();
    let entries: Vec<_> = (1..=70).map(log_key).collect();
    remote.delete(&entries).unwrap();
    assert_eq!(
        load_known(&remote, StoreId::default()).unwrap().state,
        at_checkpoint
    );
    assert_stopped(&remote, "log/000000/00000064: missing");
    // The same for a writer that knew a newer state.
    let error = add(&remote, &mut whole.clone(), 9, &name(1)).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("log/000000/00000070: missing"),
        "{error}"
    );
    let error = heal::heal(&remote, StoreId::default(), &Who::default(), false).unwrap_err();
    assert_eq!(error.remedy(), Some(&Remedy::AcceptLoss), "{error:?}");
    heal::heal(&remote, StoreId::default(), &Who::default(), true).unwrap();
    let mut state = load(&remote).unwrap();
    assert_eq!(state, at_checkpoint);
    assert_eq!(
        add(&remote, &mut state, 9, &name(1)).unwrap().entry.number,
        65
    );
}

#[test]
fn an_entry_that_is_damaged_or_missing_is_put_back_as_the_next_one_says() {
    for damaged in [None, Some(""), Some("half"), Some("{}\nblake3 0\n")] {
        let remote = Objects::memory();
        let state = filled(&remote, 70);
        let original = remote.get(&log_key(67)).unwrap();
        match damaged {
            None => remote.delete(&[log_key(67)]).unwrap(),
            Some(text) => remote.put(&log_key(67), text.into()).unwrap(),
        }
        assert_eq!(
            load_known(&remote, StoreId::default()).unwrap().state,
            state
        );
        assert_eq!(load_at(&remote, StoreId::default(), 70).unwrap(), state);
        let mut known = load_known(&remote, StoreId::default()).unwrap();
        assert!(
            known
                .damage
                .take()
                .unwrap()
                .to_string()
                .contains("00000067")
        );
        assert_eq!(load(&remote).unwrap_err().kind(), ErrorKind::Corrupt);
        let healed = heal::heal(&remote, StoreId::default(), &Who::default(), false).unwrap();
        assert_eq!((healed.restored, healed.lost), (vec![67], vec![]));
        assert_eq!(remote.get(&log_key(67)).unwrap(), original);
        assert_eq!(load(&remote).unwrap(), state);
    }
}

#[test]
fn a_checkpoint_that_cannot_be_read_says_all_the_same_that_the_log_went_on() {
    let remote = Objects::memory();
    filled(&remote, 70);
    remote.put(&checkpoint_key(128), Bytes::new()).unwrap();
    let known = load_known(&remote, StoreId::default()).unwrap();
    assert_eq!(known.state.number, 70);
    let expected = "log/000000/00000071: missing, although checkpoint 128 exists";
    assert_eq!(known.damage.unwrap().to_string(), expected);
}

#[test]
fn the_newest_entry_costs_its_own_changes_and_only_on_request() {
    let remote = Objects::memory();
    let mut real = filled(&remote, 6);
    remote.put(&log_key(6), Bytes::new()).unwrap();
    assert_eq!(
        load_known(&remote, StoreId::default())
            .unwrap()
            .state
            .number,
        5
    );
    assert_stopped(&remote, "log/000000/00000006");
    heal::heal(&remote, StoreId::default(), &Who::default(), false).unwrap_err();
    assert_stopped(&remote, "log/000000/00000006");
    let healed = heal::heal(&remote, StoreId::default(), &Who::default(), true).unwrap();
    assert_eq!(healed.lost, [6]);
    let mut state = load(&remote).unwrap();
    assert_eq!(state.number, 7);
    // A writer that relied on the entry that was given up starts again.
    let error = add(&remote, &mut real, 9, &name(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
    assert_eq!(
        add(&remote, &mut state, 9, &name(1)).unwrap().entry.number,
        8
    );
    // A checkpoint of a writer that knew the lost entry is ignored.
    let mut wrong = load_at(&remote, StoreId::default(), 5).unwrap();
    wrong.number = 6;
    wrong.refs = crate::format::Refs::default();
    remote
        .put(&checkpoint_key(6), wrong.encode().unwrap().into())
        .unwrap();
    remote.delete(&[checkpoint_key(7)]).unwrap();
    assert_eq!(load(&remote).unwrap(), state);
}

#[test]
fn a_damaged_entry_of_a_log_without_copies_costs_what_it_changed() {
    let remote = Objects::memory();
    filled(&remote, 12);
    without_copies(&remote, 12);
    // Entry 3 set the first version of ref-2; entries 8 and 13 (which does not exist) the next ones.
    remote.put(&log_key(3), Bytes::new()).unwrap();
    assert_eq!(
        load_known(&remote, StoreId::default())
            .unwrap()
            .state
            .number,
        2
    );
    let healed = heal::heal(&remote, StoreId::default(), &Who::default(), true).unwrap();
    assert_eq!((healed.restored, healed.lost), (vec![], vec![3]));
    let state = load(&remote).unwrap();
    assert_eq!(state.number, 13);
    assert_eq!(versions(&state, 2), [2]);
    assert_eq!(versions(&state, 1), [1, 2, 3]);
}

/// Rewrites entries as programs do that add no copy of the previous entry.
fn without_copies(remote: &Objects, until: u64) {
    for number in 1..=until {
        let entry = entry(remote, number).unwrap().unwrap();
        remote
            .put(&log_key(number), entry.encode().unwrap().into())
            .unwrap();
    }
}

fn versions(state: &State, number: u64) -> Vec<u64> {
    let found = &state.refs.all().unwrap()[&name(number)];
    found.versions.keys().copied().collect()
}

fn change(remote: &Objects, state: &mut State, change: Change) {
    let mut outside = Counting {
        seed: 8,
        count: state.number,
    };
    let mut prepare = |_: &State, _: &[LogEntry]| Ok(vec![change.clone()]);
    commit_with(remote, state, &Who::default(), &mut outside, &mut prepare).unwrap();
}

/// A segment that a lost entry added and a later one drops is made up; a segment that a later entry adds is not.
#[test]
fn a_lost_segment_that_later_entries_drop_is_given_up_all_the_same() {
    let remote = Objects::memory();
    let mut state = filled(&remote, 1);
    let [lost, other] = [1, 2].map(|id| SegmentId([id; 16]));
    let add_segment = |segment| Change::AddSegment {
        segment,
        info: SegmentInfo::default(),
    };
    let drop_segment = |segment| Change::DropSegment {
        segment,
        into: None,
    };
    change(&remote, &mut state, add_segment(lost));
    change(&remote, &mut state, add_segment(other));
    change(&remote, &mut state, drop_segment(lost));
    change(&remote, &mut state, drop_segment(other));
    without_copies(&remote, 5);
    remote.put(&log_key(2), Bytes::new()).unwrap();
    let healed = heal::heal(&remote, StoreId::default(), &Who::default(), true).unwrap();
    assert_eq!((healed.restored, healed.lost), (vec![], vec![2]));
    let made_up = entry(&remote, 2).unwrap().unwrap();
    assert_eq!(made_up.changes, [add_segment(lost)]);
    assert_eq!(made_up.who.program, "store repair");
    let state = load(&remote).unwrap();
    assert!(state.segments.is_empty(), "{:?}", state.segments);
}

#[test]
fn a_lost_version_that_later_entries_pin_or_drop_is_given_up_all_the_same() {
    let pin = |pinned| Change::Pin {
        name: name(2),
        version: 1,
        pinned,
    };
    let dropped = Change::DropRef {
        name: name(2),
        version: 1,
    };
    for (later, others) in [
        (vec![dropped.clone()], 0),
        (vec![dropped.clone()], 5),
        (vec![pin(true)], 0),
        (vec![pin(true)], 5),
        (vec![pin(true), pin(false), dropped], 5),
    ] {
        let remote = Objects::memory();
        // Entry 3 sets the first version of ref-2, and entry 8, if it exists, the second.
        let mut state = filled(&remote, 3 + others);
        for later in &later {
            change(&remote, &mut state, later.clone());
        }
        let newest = state.number;
        without_copies(&remote, newest);
        remote.put(&log_key(3), Bytes::new()).unwrap();
        let healed = heal::heal(&remote, StoreId::default(), &Who::default(), true).unwrap();
        assert_eq!(healed.lost, [3], "{later:?}");
        let mut state = load(&remote).unwrap();
        assert_eq!(state.number, newest + 1);
        let expected: &[u64] = if others > 0 { &[2] } else { &[] };
        assert_eq!(versions(&state, 2), expected, "{later:?}");
        let mut folded = State::default();
        read_after(&remote, &mut folded).unwrap();
        assert_eq!(folded, state);
        let healed = heal::heal(&remote, StoreId::default(), &Who::default(), true).unwrap();
        assert_eq!(healed, heal::Healed::default());
        add(&remote, &mut state, 9, &name(2)).unwrap();
        assert_eq!(state.refs.all().unwrap()[&name(2)].last, 2 + others / 5);
    }
}

#[test]
fn what_is_made_up_stands_right_before_what_needs_it() {
    let remote = Objects::memory();
    filled(&remote, 13);
    without_copies(&remote, 13);
    // Loses the first version of ref-0 and the second of ref-2; entry 3 between them sets the first of ref-2.
    for lost in [1, 8] {
        remote.put(&log_key(lost), Bytes::new()).unwrap();
    }
    let healed = heal::heal(&remote, StoreId::default(), &Who::default(), true).unwrap();
    assert_eq!(healed.lost, [1, 8]);
    let state = load(&remote).unwrap();
    assert_eq!(versions(&state, 0), [2, 3]);
    assert_eq!(versions(&state, 2), [1, 3]);
}

#[test]
fn what_a_checkpoint_stands_in_for_is_needed_no_more() {
    let remote = Objects::memory();
    let state = filled(&remote, 70);
    remote.delete(&[log_key(10), log_key(11)]).unwrap();
    assert_eq!(load(&remote).unwrap(), state);
    let healed = heal::heal(&remote, StoreId::default(), &Who::default(), false).unwrap();
    assert_eq!(
        (healed.restored, healed.lost, healed.kept),
        (vec![11], vec![], vec![10])
    );
    assert_eq!(load(&remote).unwrap(), state);
}

#[test]
fn what_is_deleted_for_an_entry_must_be_readable() {
    let remote = Objects::memory();
    filled(&remote, 3);
    confirm(&remote, 3).unwrap();
    remote.put(&log_key(3), "torn".into()).unwrap();
    assert_eq!(confirm(&remote, 3).unwrap_err().kind(), ErrorKind::Corrupt);
    remote.delete(&[log_key(3)]).unwrap();
    assert_eq!(confirm(&remote, 3).unwrap_err().kind(), ErrorKind::Corrupt);
}

/// Creates another history of the same store, which differs from entry `number` on.
fn other_history(from: &Objects, number: u64, entries: u64) -> Objects {
    let other = Objects::memory();
    for info in from.list("").unwrap() {
        if parse_log_key(&info.key).is_some_and(|found| found < number) {
            other.put(&info.key, from.get(&info.key).unwrap()).unwrap();
        }
    }
    let mut state = load(&other).unwrap();
    while state.number < entries {
        add(&other, &mut state, 5, &name(7)).unwrap();
    }
    other
}

#[test]
fn entries_of_two_histories_do_not_follow_each_other() {
    let remote = Objects::memory();
    let whole = filled(&remote, 8);
    let other = other_history(&remote, 5, 8);
    // The end of one history after the beginning of another, as left by a restored backup and a late copy.
    for number in [5, 6] {
        let key = log_key(number);
        remote.put(&key, other.get(&key).unwrap()).unwrap();
    }
    assert_stopped(
        &remote,
        "log/000000/00000007: follows another entry 6 than the one that is there: prev is ",
    );
    assert_eq!(
        load_known(&remote, StoreId::default())
            .unwrap()
            .state
            .number,
        6
    );
    heal::heal(&remote, StoreId::default(), &Who::default(), false).unwrap_err();
    assert_stopped(&remote, "log/000000/00000007");
    let healed = heal::heal(&remote, StoreId::default(), &Who::default(), true).unwrap();
    assert_eq!((healed.restored, healed.lost), (vec![], vec![7]));
    let mut state = load(&remote).unwrap();
    assert_eq!(state.number, 9);
    assert_ne!(state, whole);
    let mut folded = State::default();
    assert_eq!(read_after(&remote, &mut folded).unwrap().len(), 9);
    assert_eq!(folded, state);
    add(&remote, &mut state, 9, &name(1)).unwrap();
}

#[test]
fn one_entry_of_another_history_is_put_right_by_the_one_after_it() {
    for number in [5, 7] {
        let remote = Objects::memory();
        let state = filled(&remote, 8);
        let original = remote.get(&log_key(number)).unwrap();
        let mut other = entry(&remote, number).unwrap().unwrap();
        (other.prev, other.read_as) = (Some(EntryId([3; 32])), ReadAs::default());
        let bytes = other.encode().unwrap();
        remote.put(&log_key(number), bytes.into()).unwrap();
        let known = load_known(&remote, StoreId::default()).unwrap();
        assert_eq!(known.state, state);
        let damage = known.damage.unwrap();
        assert!(
            damage.to_string().contains("follows another entry"),
            "{damage}"
        );
        assert!(damage.to_string().starts_with(&log_key(number)), "{damage}");
        let healed = heal::heal(&remote, StoreId::default(), &Who::default(), false).unwrap();
        assert_eq!((healed.restored, healed.lost), (vec![number], vec![]));
        assert_eq!(remote.get(&log_key(number)).unwrap(), original);
        assert_eq!(load(&remote).unwrap(), state);
    }
}

#[test]
fn an_entry_of_another_store_is_damage() {
    let remote = Objects::memory();
    let mut state = State {
        store: StoreId([1; 16]),
        ..State::default()
    };
    for _ in 0..3 {
        add(&remote, &mut state, 1, &name(1)).unwrap();
    }
    let known = load_known(&remote, StoreId([2; 16])).unwrap();
    let (own, other) = (StoreId([2; 16]), StoreId([1; 16]));
    assert_eq!(known.state.number, 0);
    assert_eq!(
        known.damage.unwrap().to_string(),
        format!("log/000000/00000001: is of store {other}, this is store {own}")
    );
    assert_eq!(load_known(&remote, other).unwrap().whole().unwrap(), state);
}

#[test]
fn a_checkpoint_of_another_store_is_passed_over() {
    let remote = Objects::memory();
    let state = filled(&remote, 70);
    let mut other = load_at(&remote, StoreId::default(), 64).unwrap();
    other.store = StoreId([2; 16]);
    other.number = 128;
    let bytes = other.encode().unwrap();
    remote.put(&checkpoint_key(128), bytes.into()).unwrap();
    // A caller that does not know its store accepts the checkpoint.
    assert_eq!(load(&remote).unwrap_err().kind(), ErrorKind::Corrupt);
    let checkpoint = CheckpointPlace::new(&remote)
        .read(128, None, StoreId([1; 16]))
        .unwrap();
    assert!(checkpoint.is_none());
    remote.delete(&[checkpoint_key(128)]).unwrap();
    assert_eq!(load(&remote).unwrap(), state);
}

/// The log has another history than its checkpoint, which is detected even if the log ends at the checkpoint.
#[test]
fn a_checkpoint_and_the_entry_that_it_ends_with_are_of_one_history() {
    for entries in [64, 66] {
        let remote = Objects::memory();
        filled(&remote, 64);
        let at_checkpoint = load(&remote).unwrap();
        let other = other_history(&remote, 50, entries);
        for number in 50..=entries {
            let key = log_key(number);
            remote.put(&key, other.get(&key).unwrap()).unwrap();
        }
        assert_eq!(
            load_known(&remote, StoreId::default()).unwrap().state,
            at_checkpoint
        );
        let expected = match entries {
            64 => {
                "log/000000/00000064: is another entry than the one that the state after it knows"
            }
            _ => "log/000000/00000065: follows another entry 64",
        };
        assert_stopped(&remote, expected);
    }
}

#[test]
fn who_goes_on_from_memory_sees_that_the_newest_entry_is_another() {
    let remote = Objects::memory();
    let mut state = filled(&remote, 6);
    let other = other_history(&remote, 6, 6);
    remote
        .put(&log_key(6), other.get(&log_key(6)).unwrap())
        .unwrap();
    state.newest = Newest::default();
    let error = add(&remote, &mut state, 9, &name(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(
        error
            .to_string()
            .starts_with("log/000000/00000006: is another entry")
    );
}

#[test]
fn damage_to_the_copy_that_the_newest_entry_carries_costs_nothing() {
    let remote = Objects::memory();
    let state = filled(&remote, 6);
    let original = remote.get(&log_key(6)).unwrap();
    let mut bytes = original.to_vec();
    *bytes.last_mut().unwrap() ^= 1;
    remote.put(&log_key(6), bytes.into()).unwrap();
    let error = load(&remote).unwrap_err();
    let expected = "log/000000/00000006: behind its text";
    assert!(error.to_string().starts_with(expected), "{error}");
    assert_eq!(
        load_known(&remote, StoreId::default()).unwrap().state,
        state
    );
    let healed = heal::heal(&remote, StoreId::default(), &Who::default(), false).unwrap();
    assert_eq!(healed.restored, [6]);
    assert_eq!(remote.get(&log_key(6)).unwrap(), original);
}
