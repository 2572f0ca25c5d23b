//! A store that was restored from a backup lacks what this host remembers of unchanged files.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use store::GetRequest;
use store::check::{RepairRequest, repair};
use store::format::Change;
use store::host::stat_cache::SETTLED_SECS;
use store::remote::{Objects, Prune};
use store::{ErrorKind, Remedy, Store, Unwatched, get, put};
use support::assert_same_tree;

use crate::stores::{host, noise, put_tree, request, shell, spec, store_in};

const REF: &str = "project/restored/data";

/// Waits until files have settled, so that the next put remembers them.
fn settle() {
    std::thread::sleep(Duration::from_secs(SETTLED_SECS) + Duration::from_millis(50));
}

fn replace(place: &Path, by: &Path) {
    fs::remove_dir_all(place).unwrap();
    shell(&format!("cp -a '{}' '{}'", by.display(), place.display()));
}

/// Accepts a restored store that is older than what this host has seen.
fn accept(dir: &Path) {
    let request = RepairRequest {
        accept_loss: true,
        ..RepairRequest::default()
    };
    let store = store_in(dir);
    let error = store.state().unwrap_err();
    assert!(
        matches!(error.remedy(), Some(Remedy::AcceptRollback { .. })),
        "{error:?}"
    );
    assert_eq!(
        repair(&store, request, &Unwatched)
            .unwrap()
            .entries_lost
            .len(),
        1
    );
}

#[test]
fn what_a_restored_store_does_not_have_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let (source, other) = (dir.path().join("source"), dir.path().join("other"));
    let (place, backup) = (dir.path().join("store"), dir.path().join("backup"));
    for (at, tree) in [&source, &other].into_iter().enumerate() {
        fs::create_dir(tree).unwrap();
        fs::write(tree.join("file"), noise(at as u64, 100_000)).unwrap();
    }
    put_tree(&store_in(dir.path()), &source, REF);
    shell(&format!(
        "cp -a '{}' '{}'",
        place.display(),
        backup.display()
    ));

    fs::write(source.join("file"), noise(2, 200_000)).unwrap();
    settle();
    put_tree(&store_in(dir.path()), &source, REF);
    let again = put_tree(&store_in(dir.path()), &source, REF);
    assert_eq!(again.unchanged_files, 1, "this host remembers");

    // The remembered version does not exist any more.
    replace(&place, &backup);
    accept(dir.path());
    let lost = put_tree(&store_in(dir.path()), &source, REF);
    assert_eq!((lost.version, lost.unchanged_files), (Some(2), 0));

    // The version exists under the same number, with other content.
    settle();
    put_tree(&store_in(dir.path()), &source, REF);
    replace(&place, &backup);
    accept(dir.path());
    put_tree(&store_in(dir.path()), &other, REF);
    put_tree(&store_in(dir.path()), &other, REF);
    let store = store_in(dir.path());
    let mistaken = put_tree(&store, &source, REF);
    assert_eq!((mistaken.version, mistaken.unchanged_files), (Some(4), 0));
    let out = dir.path().join("out");
    get(&store, &GetRequest::new(spec(REF), &out), &Unwatched).unwrap();
    assert_same_tree(&source, &out);
}

/// Hosts that saw none of the lost entries went on so far that a reader begins after them.
#[test]
fn another_history_is_told_behind_a_checkpoint_too() {
    let dir = tempfile::tempdir().unwrap();
    let (place, backup) = (dir.path().join("store"), dir.path().join("backup"));
    let source = dir.path().join("source");
    fs::write(&source, "one").unwrap();
    put_tree(&store_in(dir.path()), &source, REF);
    shell(&format!(
        "cp -a '{}' '{}'",
        place.display(),
        backup.display()
    ));
    fs::write(&source, "two").unwrap();
    put_tree(&store_in(dir.path()), &source, REF);
    let seen = store_in(dir.path()).state().unwrap().number;

    replace(&place, &backup);
    let elsewhere = tempfile::tempdir().unwrap();
    let remote: Arc<dyn Prune> = Arc::new(Objects::directory(&place).unwrap());
    let theirs = Store::open(remote, host(elsewhere.path())).unwrap();
    let mut state = theirs.state().unwrap();
    let nothing = Change::CondemnPacks { packs: Vec::new() };
    while state.number <= seen || !place.join("checkpoints").exists() {
        let added = theirs.commit(&mut state, &mut |_, _| Ok(vec![nothing.clone()]));
        added.unwrap().unwrap();
    }
    let error = store_in(dir.path()).state().unwrap_err();
    assert!(error.to_string().contains("is another entry"), "{error}");
    accept(dir.path());
    store_in(dir.path()).state().unwrap();
    theirs.state().unwrap();
}

/// A process that has the directory open does not create a new one in its place.
#[test]
fn a_directory_that_was_moved_away_is_not_made_again() {
    for is_replaced in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (place, moved) = (dir.path().join("store"), dir.path().join("moved"));
        let remote: Arc<dyn Prune> = Arc::new(Objects::directory(&place).unwrap());
        let store = Store::init(remote.clone(), host(dir.path())).unwrap();
        std::fs::rename(&place, &moved).unwrap();
        if is_replaced {
            std::fs::create_dir(&place).unwrap();
        }
        let made = remote.create("log/00/000000001", "x".into()).unwrap_err();
        assert_eq!(made.kind(), ErrorKind::Unavailable, "{made}");
        let source = dir.path().join("source");
        std::fs::write(&source, "bytes").unwrap();
        let refused = put(&store, &request(&source, REF), &Unwatched).unwrap_err();
        assert_ne!(refused.kind(), ErrorKind::Corrupt, "{refused}");
        let left = std::fs::read_dir(&place).map_or(0, Iterator::count);
        assert_eq!((place.exists(), left), (is_replaced, 0));
        std::fs::remove_dir(&place).ok();
        std::fs::rename(&moved, &place).unwrap();
        put(&store, &request(&source, REF), &Unwatched).unwrap();
    }
}
