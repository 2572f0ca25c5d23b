//! A host keeps copies of the segments of a store that is far. What it acknowledges must be readable to others all the
//! same, so a segment that the store has lost counts as lost here, too.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use store::check::{ReadData, RepairRequest, repair};
use store::format::SEGMENTS_PREFIX;
use store::remote::{Objects, Prune, Read, Write};
use store::replicate::{Forgetful, replicate};
use store::{Error, ErrorKind, Store, Unwatched, put};
use tempfile::TempDir;

use crate::collect::eager;
use crate::damaged::verify_target;
use crate::replicate::all;
use crate::stores::{host, noise, put_tree, request};

const REF: &str = "project/a/data";
const OTHER: &str = "project/a/other";

/// What becomes of a segment, given its key.
type Damage = fn(&Objects, &str);

const DAMAGES: [(&str, Damage); 3] = [
    ("gone", |remote, key| {
        remote.delete(&[key.to_owned()]).unwrap();
    }),
    ("cut off", |remote, key| {
        let bytes = remote.get(key).unwrap();
        remote.put(key, bytes.slice(..bytes.len() - 1)).unwrap();
    }),
    ("flipped", |remote, key| {
        let mut bytes = remote.get(key).unwrap().to_vec();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        remote.put(key, bytes.into()).unwrap();
    }),
];

/// A store with one version, of whose segment `dir/cache` has a copy, and the segment then damaged.
fn damaged_in(dir: &Path, damage: Damage) -> (Arc<Objects>, Store) {
    fs::create_dir(dir.join("tree")).unwrap();
    fs::write(dir.join("tree/file"), noise(1, 300_000)).unwrap();
    let remote = Arc::new(Objects::memory());
    let store = Store::init(remote.clone(), host(dir)).unwrap();
    put_tree(&store, &dir.join("tree"), REF);
    store.view().unwrap();
    let listed = remote.list(SEGMENTS_PREFIX).unwrap();
    assert_eq!(listed.len(), 1, "{listed:?}");
    damage(&remote, &listed[0].key);
    (remote, store)
}

/// Checks that a tree with the same file and another one is not stored, and that nothing was published.
fn assert_refused(dir: &Path, store: &Store, what: &str) -> Error {
    let tree = dir.join("more");
    if !tree.exists() {
        fs::create_dir(&tree).unwrap();
        fs::write(tree.join("file"), noise(1, 300_000)).unwrap();
        fs::write(tree.join("new"), "new").unwrap();
    }
    let number = store.state().unwrap().number;
    let error = put(store, &request(&tree, OTHER), &Unwatched).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error:?}");
    assert!(error.to_string().contains("segments/"), "{what}: {error:?}");
    assert_eq!(store.state().unwrap().number, number, "{what}");
    error
}

#[test]
fn a_put_does_not_rely_on_the_copy_of_a_segment_that_the_store_lost() {
    for (what, damage) in DAMAGES {
        let dir = TempDir::new().unwrap();
        let (_, store) = damaged_in(dir.path(), damage);
        let error = assert_refused(dir.path(), &store, what);
        assert!(error.to_string().contains("this host"), "{what}: {error:?}");
        // A put of the same tree as before relies on it, too.
        let tree = dir.path().join("tree");
        let mut same = request(&tree, REF);
        same.always = false;
        let error = put(&store, &same, &Unwatched).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error:?}");
    }
}

#[test]
fn a_transfer_finds_that_the_destination_lost_a_segment() {
    for (what, damage) in DAMAGES {
        for verify in [true, false] {
            let dir = TempDir::new().unwrap();
            let (_, to) = damaged_in(dir.path(), damage);
            let from = Store::init(Arc::new(Objects::memory()), host(dir.path())).unwrap();
            put_tree(&from, &dir.path().join("tree"), REF);
            let mut request = all(&[REF]);
            request.verify = verify;
            let error = replicate(&from, &to, &request, &Forgetful, &Unwatched).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error:?}");
        }
    }
}

#[test]
fn a_collector_finds_that_a_segment_is_gone() {
    let dir = TempDir::new().unwrap();
    let (remote, store) = damaged_in(dir.path(), DAMAGES[0].1);
    let error = gc::collect(&store, remote.as_ref(), &eager()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
}

#[test]
fn what_a_verification_found_damaged_is_no_longer_read_from_a_copy() {
    for (what, damage) in DAMAGES {
        let dir = TempDir::new().unwrap();
        let (_, store) = damaged_in(dir.path(), damage);
        store.view().unwrap();
        let report = verify_target(&store, ReadData::Nothing, None).unwrap();
        assert_eq!(report.findings.len(), 1, "{what}: {report:#?}");
        let error = store.view().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error:?}");
        assert_refused(dir.path(), &store, what);
        let mend = RepairRequest {
            read_data: false,
            dry_run: false,
            accept_loss: false,
        };
        repair(&store, mend, &Unwatched).unwrap();
        put_tree(&store, &dir.path().join("more"), OTHER);
        let report = verify_target(&store, ReadData::Everything, None).unwrap();
        assert!(report.is_clean(), "{what}: {report:#?}");
    }
}
