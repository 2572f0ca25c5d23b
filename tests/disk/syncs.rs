//! What a store in a directory acknowledges is durable: before the call returns, every file was synced before it got
//! its name, and every directory after a name in it changed.

use std::path::Path;
use std::sync::Arc;

use store::remote::{Created, Objects, Prune, Read, Write};
use store::{Host, PutRequest, Store, Unwatched, put};

use crate::trace::{Call, PLACE, Step, mark, traced};

const PIECE: usize = 5 << 20;

/// The traced process: calls of a store, with a mark after each. Run alone, it is an ordinary test.
#[test]
fn every_kind_of_write() {
    let temp = tempfile::tempdir().unwrap();
    let place = std::env::var_os(PLACE).map_or(temp.path().to_owned(), Into::into);
    let root = place.join("new/store");
    mark("begin");
    let store = Objects::directory(&root).unwrap();
    mark("directory");
    assert_eq!(
        store.create("log/000000/00000001", "one".into()).unwrap(),
        Created::Created
    );
    mark("create");
    assert_eq!(
        store.create("log/000000/00000001", "two".into()).unwrap(),
        Created::Exists
    );
    mark("exists");
    store.put("checkpoints/00000064", "state".into()).unwrap();
    store.put("checkpoints/00000064", "again".into()).unwrap();
    mark("put");
    std::fs::create_dir_all(root.join("packs/ab")).unwrap();
    mark("begin");
    store
        .put("packs/ab/x", "in a directory of others".into())
        .unwrap();
    mark("others");
    let mut upload = store.upload("packs/cd/y").unwrap();
    (0..4).for_each(|_| upload.write(vec![1; PIECE].into()).unwrap());
    upload.finish().unwrap();
    mark("upload");
    store.upload("packs/ef/z").unwrap().finish().unwrap();
    mark("small upload");
    store
        .delete(&["packs/ab/x".to_owned(), "packs/cd/y".to_owned()])
        .unwrap();
    mark("delete");
    assert_eq!(store.list("").unwrap().len(), 3);
}

#[test]
fn what_is_acknowledged_is_synced() {
    let temp = tempfile::tempdir().unwrap();
    let place = temp.path().canonicalize().unwrap();
    let steps = traced("syncs::every_kind_of_write", &place);
    let names: Vec<_> = steps
        .iter()
        .map(|step| step.name.as_str())
        .filter(|name| *name != "begin")
        .collect();
    assert_eq!(
        names,
        [
            "directory",
            "create",
            "exists",
            "put",
            "others",
            "upload",
            "small upload",
            "delete"
        ]
    );
    let steps: Vec<&Step> = steps.iter().filter(|step| step.name != "begin").collect();
    steps.iter().for_each(|step| check(step));
    let named: Vec<_> = steps
        .iter()
        .map(|step| step.calls.iter().filter(|call| is_naming(call)).count())
        .collect();
    assert_eq!(named, [0, 1, 0, 2, 1, 1, 1, 0], "links and renames");
    let syncs: Vec<_> = steps
        .iter()
        .map(|step| step.calls.iter().filter(|call| is_sync(call)).count())
        .collect();
    // A file and its directory for each, and once the directories above.
    assert_eq!(syncs, [2, 4, 1, 5, 4, 3, 3, 2], "syncs of {names:?}");
}

/// If a caller is told that an entry exists, the entry is durable, even if another writer linked it. The same is true
/// of the directories above an object that another writer created.
#[test]
fn what_others_left_unsynced_is_synced() {
    let temp = tempfile::tempdir().unwrap();
    let place = temp.path().canonicalize().unwrap();
    let steps = traced("syncs::every_kind_of_write", &place);
    let root = place.join("new/store");
    let synced = |name: &str, directory: &Path| {
        let step = steps.iter().find(|step| step.name == name).unwrap();
        step.calls.contains(&Call::Sync(directory.to_owned()))
    };
    assert!(synced("exists", &root.join("log/000000")));
    assert!(synced("others", &root));
    assert!(synced("others", &root.join("packs")));
    assert!(synced("others", &root.join("packs/ab")));
}

/// The traced process: a small put into a store that is not empty.
#[test]
fn a_put_of_little() {
    let temp = tempfile::tempdir().unwrap();
    let place = std::env::var_os(PLACE).map_or(temp.path().join("store"), Into::into);
    let source = temp.path().join("source");
    let put = |text: &str| {
        std::fs::create_dir_all(&source).unwrap();
        std::fs::write(source.join("file"), text).unwrap();
        let remote: Arc<dyn Write> = Arc::new(Objects::directory(&place).unwrap());
        let store = Store::open_or_init(remote, Host::default()).unwrap();
        let name = "project/demo/data".parse().unwrap();
        put(&store, &PutRequest::new(&source, name), &Unwatched).unwrap();
    };
    put("one");
    mark("begin");
    put("two");
    mark("put");
}

/// One pack, one segment and one entry: a file and its directory each. The pack goes into an existing directory.
#[test]
fn a_put_of_little_syncs_six_times() {
    let temp = tempfile::tempdir().unwrap();
    let place = temp.path().canonicalize().unwrap();
    let steps = traced("syncs::a_put_of_little", &place);
    let put = steps.iter().find(|step| step.name == "put").unwrap();
    let is_in_place = |call: &&Call| matches!(call, Call::Sync(path) if path.starts_with(&place));
    let syncs: Vec<&Call> = put.calls.iter().filter(is_in_place).collect();
    assert_eq!(syncs.len(), 6, "{:#?}", put.calls);
    check(put);
}

fn check(step: &Step) {
    for (at, call) in step.calls.iter().enumerate() {
        let (before, after) = step.calls.split_at(at);
        let synced = |calls: &[Call], path: &Path| calls.contains(&Call::Sync(path.to_owned()));
        let changed = match call {
            Call::Sync(_) => continue,
            // After a power cut, the remains of a staged file are hidden, and gc deletes them.
            Call::Unlink(path) if path.to_string_lossy().contains('#') => continue,
            Call::Link(from, to) | Call::Rename(from, to) => {
                assert!(
                    synced(before, from),
                    "{}: {from:?} got a name unsynced: {step:#?}",
                    step.name
                );
                to
            }
            Call::Mkdir(path) | Call::Unlink(path) => path,
        };
        let parent = changed.parent().unwrap();
        assert!(
            synced(after, parent),
            "{}: {parent:?} is not synced after {call:?}: {step:#?}",
            step.name
        );
    }
}

fn is_naming(call: &Call) -> bool {
    matches!(call, Call::Link(..) | Call::Rename(..))
}

fn is_sync(call: &Call) -> bool {
    matches!(call, Call::Sync(_))
}
