//! Commits while the disk fails: each n-th system call of a kind fails with EIO or ENOSPC, or kills the process. An
//! acknowledged commit is in the log exactly once, and the next process continues.

use std::path::Path;

use store::Result;
use store::format::{Change, Content, Extra, LogEntry, Root, Sides, State, Who, log_key};
use store::log::{commit, load, read_after};
use store::remote::{Objects, Read, Write};

use crate::trace::{Call, PLACE, injected};

const COMMITS: u64 = 5;
/// More calls of any kind than [`COMMITS`] commits make. The sweep ends when a fault hits no call.
const CALLS_MAX: u32 = 60;

/// The disturbed process: records each acknowledged commit. Run alone, it is an ordinary test.
#[test]
fn commits_one_after_another() {
    let temp = tempfile::tempdir().unwrap();
    let place = std::env::var_os(PLACE).map_or(temp.path().to_owned(), Into::into);
    let Ok(remote) = Objects::directory(&place.join("store")) else {
        return;
    };
    let acknowledged: Vec<_> = (0..COMMITS)
        .filter_map(|number| add(&remote, &number.to_string(), &place).ok())
        .collect();
    if std::env::var_os(PLACE).is_none() {
        assert_eq!(acknowledged, [1, 2, 3, 4, 5]);
    }
}

#[test]
fn every_failing_sync() {
    sweep("fsync", "error=EIO");
}

#[test]
fn every_link_on_a_full_disk() {
    sweep("linkat", "error=ENOSPC");
}

#[test]
fn every_directory_on_a_full_disk() {
    // That of the store itself, and then those in it.
    sweep_of("mkdir", "error=ENOSPC", 1);
    sweep_of("mkdirat", "error=ENOSPC", 2);
}

#[test]
fn killed_at_every_sync() {
    sweep("fsync", "signal=SIGKILL");
}

#[test]
fn killed_at_every_link() {
    sweep("linkat", "signal=SIGKILL");
}

fn sweep(call: &str, fault: &str) {
    sweep_of(call, fault, 3);
}

/// Hits the first call, then the second, and so on until there are no more; there are `least` of them or more.
fn sweep_of(call: &str, fault: &str, least: u32) {
    for at in 1..CALLS_MAX {
        let temp = tempfile::tempdir().unwrap();
        let fault = format!("{fault}:when={at}");
        let (hit, calls) = injected(
            "faults::commits_one_after_another",
            temp.path(),
            call,
            &fault,
        );
        check_synced(temp.path(), &calls, &format!("{call}: {fault}"));
        check(temp.path(), &format!("{call}: {fault}"));
        if !hit {
            assert!(at > least, "{call} was hit only {at} times");
            return;
        }
    }
    panic!("{call}: still hit after {CALLS_MAX} calls");
}

fn check(place: &Path, what: &str) {
    let remote = Objects::directory(&place.join("store")).unwrap();
    let mut state = State::default();
    let entries = read_after(&remote, &mut state).unwrap();
    let notes = std::fs::read_dir(place)
        .unwrap()
        .map(|note| note.unwrap().file_name().into_string().unwrap());
    for note in notes.filter(|note| note.starts_with("acknowledged ")) {
        let found = entries
            .iter()
            .filter(|entry| note == acknowledgement(entry))
            .count();
        assert_eq!(found, 1, "{what}: {note:?}");
    }
    assert_eq!(load(&remote).unwrap(), state, "{what}");
    assert_eq!(
        add(&remote, "after", place).unwrap(),
        state.number + 1,
        "{what}"
    );
    assert!(
        remote
            .list("")
            .unwrap()
            .iter()
            .all(|info| !info.key.contains('#')),
        "{what}"
    );
}

/// Asserts that an acknowledged entry's directory was synced after the entry was linked, even if the first sync failed.
fn check_synced(place: &Path, calls: &[Call], what: &str) {
    let remote = Objects::directory(&place.join("store")).unwrap();
    for number in 1..=COMMITS {
        let path = remote.local_path(&log_key(number)).unwrap();
        let Some(at) = calls
            .iter()
            .position(|call| matches!(call, Call::Link(_, to) if *to == path))
        else {
            continue;
        };
        let acknowledged = std::fs::read_dir(place).unwrap().any(|note| {
            note.unwrap()
                .file_name()
                .to_string_lossy()
                .starts_with(&format!("acknowledged {number} "))
        });
        let (_, after) = calls.split_at(at);
        let until = after
            .iter()
            .skip(1)
            .position(|call| matches!(call, Call::Link(..)))
            .unwrap_or(after.len() - 1);
        let synced = after
            .iter()
            .take(until + 1)
            .any(|call| *call == Call::Sync(path.parent().unwrap().into()));
        assert!(
            synced || !acknowledged,
            "{what}: {path:?} was acknowledged unsynced: {calls:#?}"
        );
    }
}

fn add(remote: &dyn Write, message: &str, place: &Path) -> Result<u64> {
    let mut state = load(remote)?;
    let mut prepare = |now: &State, _: &[LogEntry]| Ok(vec![set(now, message)?]);
    let Some(done) = commit(remote, &mut state, &Who::default(), &mut prepare)? else {
        return Ok(0);
    };
    std::fs::write(place.join(acknowledgement(&done.entry)), "").unwrap();
    Ok(done.entry.number)
}

fn set(state: &State, message: &str) -> Result<Change> {
    let name = "team/t/r".parse()?;
    Ok(Change::SetRef {
        version: state.refs.last(&name).unwrap() + 1,
        name,
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
    })
}

fn acknowledgement(entry: &LogEntry) -> String {
    format!("acknowledged {} {}", entry.number, entry.commit)
}
