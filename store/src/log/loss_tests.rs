//! Evidence of loss: holes, cut logs and damaged entries, and what brings them back.

use super::tests::*;
use super::*;
use crate::remote::{Objects, Prune};

/// What a directory of the whole log lies in, as text: to see that nothing was written.
fn keys(remote: &Objects) -> Vec<String> {
    let listed = remote.list("").unwrap().into_iter();
    listed.map(|info| info.key).collect()
}

/// Nothing can be added, and no deleter can begin, where the log lost something.
fn assert_stopped(remote: &Objects, expected: &str) {
    let before = keys(remote);
    assert_eq!(load(remote).unwrap_err().kind(), Kind::Corrupt);
    let mut known = load_known(remote).unwrap();
    let damage = known.damage.unwrap();
    assert!(damage.to_string().starts_with(expected), "{damage}");
    let error = add(remote, &mut known.state, 9, &name(1)).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt, "{error:?}");
    assert_eq!(keys(remote), before);
}

#[test]
fn any_number_of_missing_entries_is_damage() {
    for (gone, expected, readable) in [
        (vec![3, 4], "log/000000/00000003: missing", 2),
        (vec![3, 4, 5], "log/000000/00000003: missing", 2),
        (vec![1, 2], "log/000000/00000001: missing", 0),
        // The entry after it says what it was, so nothing is lost; it is evidence all the same.
        (vec![3], "log/000000/00000003: missing", 6),
    ] {
        let remote = Objects::memory();
        filled(&remote, 6);
        let keys: Vec<_> = gone.iter().map(|number| log_key(*number)).collect();
        remote.delete(&keys).unwrap();
        let known = load_known(&remote).unwrap();
        assert_eq!(known.state.number, readable, "{gone:?}");
        assert!(load(&remote).unwrap_err().to_string().starts_with(expected));
        let mut old = load_at(&remote, gone[0] - 1).unwrap();
        let error = add(&remote, &mut old, 9, &name(1)).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{gone:?}: {error:?}");
    }
}

#[test]
fn a_log_that_ends_before_its_checkpoint_is_damage() {
    let remote = Objects::memory();
    let whole = filled(&remote, 70);
    let at_checkpoint = load_at(&remote, 64).unwrap();
    let entries: Vec<_> = (1..=70).map(log_key).collect();
    remote.delete(&entries).unwrap();
    assert_eq!(load_known(&remote).unwrap().state, at_checkpoint);
    assert_stopped(&remote, "log/000000/00000064: missing");
    // Also for who has known more.
    let error = add(&remote, &mut whole.clone(), 9, &name(1)).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("log/000000/00000070: missing"),
        "{error}"
    );
    let error = heal::heal(&remote, &Who::default(), false).unwrap_err();
    assert!(
        error.remedy().unwrap().contains("--accept-loss"),
        "{error:?}"
    );
    heal::heal(&remote, &Who::default(), true).unwrap();
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
        assert_eq!(load_known(&remote).unwrap().state, state);
        assert_eq!(load_at(&remote, 70).unwrap(), state);
        let mut known = load_known(&remote).unwrap();
        assert!(
            known
                .damage
                .take()
                .unwrap()
                .to_string()
                .contains("00000067")
        );
        assert_eq!(load(&remote).unwrap_err().kind(), Kind::Corrupt);
        let healed = heal::heal(&remote, &Who::default(), false).unwrap();
        assert_eq!((healed.restored, healed.lost), (vec![67], vec![]));
        assert_eq!(remote.get(&log_key(67)).unwrap(), original);
        assert_eq!(load(&remote).unwrap(), state);
    }
}

#[test]
fn the_newest_entry_costs_its_own_changes_and_only_on_request() {
    let remote = Objects::memory();
    let mut real = filled(&remote, 6);
    remote.put(&log_key(6), Bytes::new()).unwrap();
    assert_eq!(load_known(&remote).unwrap().state.number, 5);
    assert_stopped(&remote, "log/000000/00000006");
    heal::heal(&remote, &Who::default(), false).unwrap_err();
    assert_stopped(&remote, "log/000000/00000006");
    let healed = heal::heal(&remote, &Who::default(), true).unwrap();
    assert_eq!(healed.lost, [6]);
    let mut state = load(&remote).unwrap();
    assert_eq!(state.number, 7);
    // Who worked with the entry that was given up begins anew.
    let error = add(&remote, &mut real, 9, &name(1)).unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict, "{error:?}");
    assert_eq!(
        add(&remote, &mut state, 9, &name(1)).unwrap().entry.number,
        8
    );
    // A checkpoint by somebody who knew the lost entry is not believed.
    let mut wrong = load_at(&remote, 5).unwrap();
    wrong.number = 6;
    wrong.refs.clear();
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
    for number in 1..=12 {
        let entry = entry(&remote, number).unwrap().unwrap();
        remote
            .put(&log_key(number), entry.encode().unwrap().into())
            .unwrap();
    }
    // Entry 3 set the first version of ref-2, entries 8 and 13 (not there) the next ones.
    remote.put(&log_key(3), Bytes::new()).unwrap();
    assert_eq!(load_known(&remote).unwrap().state.number, 2);
    let healed = heal::heal(&remote, &Who::default(), true).unwrap();
    assert_eq!((healed.restored, healed.lost), (vec![], vec![3]));
    let state = load(&remote).unwrap();
    assert_eq!(state.number, 13);
    let versions = |number| {
        state.refs[&name(number)]
            .versions
            .keys()
            .copied()
            .collect::<Vec<_>>()
    };
    assert_eq!((versions(2), versions(1)), (vec![2], vec![1, 2, 3]));
}

#[test]
fn what_a_checkpoint_stands_in_for_is_needed_no_more() {
    let remote = Objects::memory();
    let state = filled(&remote, 70);
    remote.delete(&[log_key(10), log_key(11)]).unwrap();
    assert_eq!(load(&remote).unwrap(), state);
    let healed = heal::heal(&remote, &Who::default(), false).unwrap();
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
    assert_eq!(confirm(&remote, 3).unwrap_err().kind(), Kind::Corrupt);
    remote.delete(&[log_key(3)]).unwrap();
    assert_eq!(confirm(&remote, 3).unwrap_err().kind(), Kind::Corrupt);
}
