//! The log, step by step: how it reacts to each answer of the store.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use jiff::Timestamp;

use super::*;
use crate::format::{Content, Extra, RefName, Root, Sides, checkpoint_key};
use crate::id::EntryId;
use crate::remote::testing::faulty::{Faults, Faulty};
use crate::remote::{Objects, Prune};

/// Ids and times that count up from a seed; never pauses.
#[derive(Debug)]
pub(super) struct Counting {
    pub(super) seed: u64,
    pub(super) count: u64,
}

impl Outside for Counting {
    fn now(&mut self) -> Timestamp {
        Timestamp::from_second(i64::try_from(self.count).unwrap()).unwrap()
    }

    fn commit_id(&mut self) -> Result<CommitId> {
        self.count += 1;
        let id = (u128::from(self.seed) << 64) | u128::from(self.count);
        Ok(CommitId(id.to_be_bytes()))
    }

    fn pause(&mut self, _tries: u32) {}
}

pub(super) fn name(number: u64) -> RefName {
    format!("team/t/ref-{number}").parse().unwrap()
}

/// Sets the next version of a ref, according to `state`.
pub(super) fn set(state: &State, name: &RefName, message: &str) -> Change {
    Change::SetRef {
        name: name.clone(),
        version: state.refs.last(name).unwrap() + 1,
        root: Root::File {
            content: Content::empty(),
            executable: false,
        },
        sides: Sides::default(),
        message: message.to_owned(),
        expires: None,
        origin: None,
        ends: Vec::new(),
        private: false,
        extra: Extra::new(),
    }
}

pub(super) fn add(
    remote: &dyn Write,
    state: &mut State,
    seed: u64,
    name: &RefName,
) -> Result<Committed> {
    let mut outside = Counting {
        seed,
        count: state.number,
    };
    let mut prepare = |now: &State, _: &[LogEntry]| Ok(vec![set(now, name, "")]);
    commit_with(remote, state, &Who::default(), &mut outside, &mut prepare).map(Option::unwrap)
}

pub(super) fn filled(remote: &dyn Write, entries: u64) -> State {
    let mut state = load(remote).unwrap();
    while state.number < entries {
        let next = name(state.number % 5);
        add(remote, &mut state, 1, &next).unwrap();
    }
    state
}

#[test]
fn an_empty_store_has_the_empty_state() {
    assert_eq!(load(&Objects::memory()).unwrap(), State::default());
}

#[test]
fn nothing_to_change_writes_nothing() {
    let remote = Objects::memory();
    let none = commit(
        &remote,
        &mut State::default(),
        &Who::default(),
        &mut |_, _| Ok(Vec::new()),
    )
    .unwrap();
    assert!(none.is_none());
    assert!(remote.list("").unwrap().is_empty());
}

#[test]
fn loading_with_checkpoints_is_folding_the_whole_log() {
    let remote = Objects::memory();
    let state = filled(&remote, 200);
    let keys: Vec<_> = remote
        .list("checkpoints")
        .unwrap()
        .into_iter()
        .map(|info| info.key)
        .collect();
    assert_eq!(
        keys,
        [checkpoint_key(64), checkpoint_key(128), checkpoint_key(192)]
    );
    let mut whole = State::default();
    assert_eq!(read_after(&remote, &mut whole).unwrap().len(), 200);
    assert_eq!(whole, state);
    assert_eq!(load(&remote).unwrap(), state);
}

#[test]
fn a_broken_or_misplaced_checkpoint_is_passed_over() {
    let remote = Objects::memory();
    let state = filled(&remote, 200);
    let mut flipped = remote.get(&checkpoint_key(192)).unwrap().to_vec();
    // A byte in its first row.
    flipped[20] ^= 1;
    for bytes in [
        Bytes::from_static(b"broken"),
        flipped.into(),
        remote.get(&checkpoint_key(64)).unwrap(),
    ] {
        remote.put(&checkpoint_key(192), bytes).unwrap();
        assert_eq!(load(&remote).unwrap(), state);
    }
    remote.put(&checkpoint_key(128), Bytes::new()).unwrap();
    remote.delete(&[checkpoint_key(64)]).unwrap();
    assert_eq!(load(&remote).unwrap(), state);
}

#[test]
fn a_gap_is_found_by_the_entry_after_it_and_by_a_later_checkpoint() {
    let remote = Objects::memory();
    filled(&remote, 130);
    remote.delete(&[log_key(129)]).unwrap();
    let error = load(&remote).unwrap_err();
    assert_eq!(
        error.to_string(),
        "log/000000/00000129: missing, although entry 130 exists"
    );
    remote.put(&checkpoint_key(128), Bytes::new()).unwrap();
    remote.delete(&[log_key(100), log_key(101)]).unwrap();
    let error = load(&remote).unwrap_err();
    assert_eq!(
        error.to_string(),
        "log/000000/00000100: missing, although entry 102 exists"
    );
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}

#[test]
fn a_damaged_entry_is_corrupt_by_name() {
    let remote = Objects::memory();
    filled(&remote, 10);
    let whole = remote.get(&log_key(7)).unwrap();
    for damaged in [
        Bytes::new(),
        whole.slice(..whole.len() / 3),
        whole.slice(..2 * whole.len() / 3),
        remote.get(&log_key(8)).unwrap(),
    ] {
        remote.put(&log_key(7), damaged).unwrap();
        let error = load(&remote).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
        assert!(
            error.to_string().starts_with("log/000000/00000007"),
            "{error}"
        );
    }
}

#[test]
fn prepare_sees_the_state_and_what_is_new_since_it_was_asked() {
    let remote = Objects::memory();
    let mut mine = filled(&remote, 2);
    let mut theirs = filled(&remote, 3);
    let mut seen = Vec::new();
    let mut prepare = |now: &State, news: &[LogEntry]| {
        seen.push((
            now.number,
            news.iter().map(|entry| entry.number).collect::<Vec<_>>(),
        ));
        if seen.len() < 3 {
            add(&remote, &mut theirs, 2, &name(9)).unwrap();
        }
        Ok(vec![set(now, &name(0), "mine")])
    };
    let done = commit(&remote, &mut mine, &Who::default(), &mut prepare)
        .unwrap()
        .unwrap();
    assert_eq!(done.entry.number, 6);
    assert_eq!(seen, [(3, vec![3]), (4, vec![4]), (5, vec![5])]);
    assert_eq!(load(&remote).unwrap(), mine);
}

#[test]
fn changes_that_contradict_the_state_are_not_written() {
    let remote = Objects::memory();
    let mut state = filled(&remote, 3);
    let before = state.clone();
    let mut prepare = |_: &State, _: &[LogEntry]| {
        Ok(vec![Change::DropRef {
            name: name(4),
            version: 1,
        }])
    };
    let error = commit(&remote, &mut state, &Who::default(), &mut prepare).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!((state, load(&remote).unwrap()), (before.clone(), before));
}

#[test]
fn a_writer_whose_answer_was_lost_recognises_its_entry() {
    for faults in [
        Faults {
            retold: 1000,
            ..Faults::default()
        },
        Faults {
            after: 1000,
            ..Faults::default()
        },
    ] {
        let inner = Arc::new(Objects::memory());
        let mut state = filled(&*inner, 3);
        let remote = Faulty::new(Arc::clone(&inner) as Arc<dyn Prune>, faults);
        let done = add(&OnceFaulty::new(remote), &mut state, 7, &name(1)).unwrap();
        assert_eq!(done.entry.number, 4);
        assert_eq!(load(&*inner).unwrap(), state);
    }
}

#[test]
fn when_nobody_answers_the_outcome_is_said_to_be_unknown() {
    let inner = Arc::new(Objects::memory());
    let mut state = filled(&*inner, 3);
    let remote = Faulty::new(
        inner,
        Faults {
            stop_after: Some(0),
            ..Faults::default()
        },
    );
    let mut outside = Counting { seed: 1, count: 0 };
    let (commit, now) = (outside.commit_id().unwrap(), outside.now());
    let changes = vec![set(&state, &name(1), "")];
    let entry = state.next(commit, now, Who::default(), changes);
    let bytes = encoded(&entry, None).unwrap();
    let error = place(&remote, &mut outside, &entry, &bytes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(
        error.to_string(),
        "log/000000/00000004: it is not known whether the entry was written"
    );
    let remedy = error.remedy().unwrap().to_string();
    assert!(remedy.starts_with("run it again"), "{remedy}");
    add(&remote, &mut state, 1, &name(1)).unwrap_err();
}

#[test]
fn a_disk_that_says_no_is_believed() {
    let temp = tempfile::tempdir().unwrap();
    let remote = Objects::directory(temp.path()).unwrap();
    let mut state = State::default();
    std::fs::write(temp.path().join("log"), b"in the way").unwrap();
    let error = add(&remote, &mut state, 1, &name(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error:?}");
    std::fs::remove_file(temp.path().join("log")).unwrap();
    assert_eq!(
        add(&remote, &mut state, 1, &name(1)).unwrap().entry.number,
        1
    );
}

#[test]
fn a_create_that_was_refused_has_changed_nothing() {
    let remote = Objects::memory();
    filled(&remote, 1);
    for (kind, expected) in [
        (ErrorKind::Denied, true),
        (ErrorKind::Unsupported, true),
        (ErrorKind::InvalidInput, true),
        (ErrorKind::Io, false),
        (ErrorKind::Unavailable, false),
    ] {
        let done = had_no_effect(&remote, &log_key(1), &Error::new(kind, "no"));
        assert_eq!(done, expected, "{kind:?}");
    }
    let refused = Error::new(ErrorKind::Io, "no");
    assert!(had_no_effect(&remote, &log_key(2), &refused));
}

#[test]
fn what_lies_in_the_place_of_an_object_is_one_that_is_there() {
    let temp = tempfile::tempdir().unwrap();
    let (remote, key) = (Objects::directory(temp.path()).unwrap(), checkpoint_key(64));
    std::fs::create_dir_all(temp.path().join(&key)).unwrap();
    assert!(exists(&remote, &key).unwrap());
}

#[test]
fn a_checkpoint_that_fails_does_not_fail_the_commit() {
    let temp = tempfile::tempdir().unwrap();
    let remote = Objects::directory(temp.path()).unwrap();
    std::fs::write(temp.path().join("checkpoints"), b"in the way").unwrap();
    let mut state = State::default();
    while state.number < 63 {
        assert!(
            add(&remote, &mut state, 1, &name(1))
                .unwrap()
                .checkpoint
                .is_none()
        );
    }
    assert_eq!(
        add(&remote, &mut state, 1, &name(1))
            .unwrap()
            .checkpoint
            .unwrap()
            .kind(),
        ErrorKind::Io
    );
    std::fs::remove_file(temp.path().join("checkpoints")).unwrap();
    assert_eq!(load(&remote).unwrap(), state);
}

#[test]
fn the_first_entry_of_a_directory_confirms_the_last_of_the_one_before() {
    let created = Arc::new(Mutex::new(Vec::new()));
    let inner = Objects::memory();
    let before = State {
        number: 9_998,
        entry: Some(EntryId([1; 32])),
        ..State::default()
    };
    let now = Timestamp::UNIX_EPOCH;
    let last = before.next(CommitId([1; 16]), now, Who::default(), Vec::new());
    inner
        .put(&log_key(9_999), last.encode().unwrap().into())
        .unwrap();
    let remote = OnceFaulty {
        created: Arc::clone(&created),
        ..OnceFaulty::new(Faulty::new(Arc::new(inner), Faults::default()))
    };
    let mut state = State {
        number: 9_999,
        entry: Some(last.id().unwrap()),
        ..State::default()
    };
    add(&remote, &mut state, 1, &name(1)).unwrap();
    add(&remote, &mut state, 1, &name(1)).unwrap();
    assert_eq!(
        *created.lock().unwrap(),
        [log_key(9_999), log_key(10_000), log_key(10_001)]
    );
}

#[test]
fn the_reserve_is_not_for_what_only_adds() {
    let temp = tempfile::tempdir().unwrap();
    let inner = Objects::directory(temp.path()).unwrap();
    reserve::fill(&inner).unwrap();
    let mut state = filled(&inner, 2);
    let contents = || -> Vec<(String, Bytes)> {
        let listed = inner.list("reserve").unwrap();
        let keys = listed.into_iter().map(|info| info.key);
        keys.map(|key| (key.clone(), inner.get(&key).unwrap()))
            .collect()
    };
    let (pieces, before) = (|| contents().len() as u64, contents());
    assert_eq!(pieces(), reserve::RESERVE_PIECES);
    let is_whole = |(_, piece): &(String, Bytes)| piece.len() == reserve::RESERVE_PIECE_BYTES;
    assert!(before.iter().all(is_whole));
    let remote = OnceFaulty {
        is_full: true,
        ..OnceFaulty::new(Faulty::new(Arc::new(inner.clone()), Faults::default()))
    };
    let error = add(&remote, &mut state, 1, &name(1)).unwrap_err();
    assert!(error.is_full(), "{error:?}");
    assert!(contents() == before, "{} pieces are left", pieces());
    let drop_one = Change::DropRef {
        name: name(0),
        version: 1,
    };
    let mut prepare = |_: &State, _: &[LogEntry]| Ok(vec![drop_one.clone()]);
    commit(&remote, &mut state, &Who::default(), &mut prepare).unwrap_err();
    assert_eq!(pieces(), 0, "what takes may have it");
}

#[test]
fn what_the_store_was_asked_for_until_the_deadline_is_asked_once() {
    let inner = Arc::new(Objects::memory());
    let mut state = filled(&*inner, 3);
    let remote = OnceFaulty {
        is_given_up: true,
        ..OnceFaulty::new(Faulty::new(inner, Faults::default()))
    };
    let error = add(&remote, &mut state, 7, &name(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("it is not known whether"));
    assert_eq!(*remote.created.lock().unwrap(), [log_key(4)]);
}

/// Faults until the first create, none afterwards; records what is created.
#[derive(Debug)]
struct OnceFaulty {
    inner: Faulty,
    created: Arc<Mutex<Vec<String>>>,
    /// Whether all creates fail because the disk is full.
    is_full: bool,
    /// Whether all creates fail after retrying until the deadline.
    is_given_up: bool,
}

impl OnceFaulty {
    fn new(inner: Faulty) -> Self {
        Self {
            inner,
            created: Arc::default(),
            is_full: false,
            is_given_up: false,
        }
    }
}

impl Read for OnceFaulty {
    fn url(&self) -> String {
        self.inner.url()
    }

    fn get(&self, key: &str) -> Result<Bytes> {
        self.inner.get(key)
    }

    fn get_run(&self, keys: &[String]) -> Result<Vec<Bytes>> {
        crate::remote::one_by_one(self, keys)
    }

    fn get_ranges(&self, key: &str, ranges: &[std::ops::Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner.get_ranges(key, ranges)
    }

    fn size(&self, key: &str) -> Result<u64> {
        self.inner.size(key)
    }

    fn list(&self, prefix: &str) -> Result<Vec<crate::remote::ObjectInfo>> {
        self.inner.list(prefix)
    }

    fn keys_after(&self, prefix: &str, after: &str) -> Result<Vec<String>> {
        self.inner.keys_after(prefix, after)
    }

    fn local_path(&self, key: &str) -> Option<std::path::PathBuf> {
        self.inner.local_path(key)
    }
}

impl Write for OnceFaulty {
    fn create(&self, key: &str, bytes: Bytes) -> Result<Created> {
        if self.is_full {
            let full = std::io::ErrorKind::StorageFull.into();
            return Err(Error::io("write", key, full));
        }
        if self.is_given_up {
            self.created.lock().unwrap().push(key.to_owned());
            return Err(Error::unavailable("500 for ever").given_up(true));
        }
        let answer = self.inner.create(key, bytes);
        self.inner.set(Faults::default());
        self.created.lock().unwrap().push(key.to_owned());
        answer
    }

    fn put(&self, key: &str, bytes: Bytes) -> Result<()> {
        self.inner.put(key, bytes)
    }

    fn touch(&self, key: &str) -> Result<()> {
        self.inner.touch(key)
    }

    fn give_up(&self, key: &str) -> Result<()> {
        self.inner.give_up(key)
    }

    fn upload(&self, key: &str) -> Result<Box<dyn crate::remote::Upload>> {
        self.inner.upload(key)
    }
}
