//! A collector takes everything in the middle of a put that counts on what is there: the put does its
//! pass again, and what it publishes is complete.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use store::GetRequest;
use store::format::{Change, parse_pack_key};
use store::host::stat_cache::SETTLED_SECS;
use store::remote::{Objects, Prune};
use store::{Store, Unwatched, get, log, put, refs};
use support::{assert_same_tree, trees};

use crate::meddler::Meddler;
use crate::stores::{host, name, noise, put_tree, request, spec};

const REF: &str = "project/collected/data";

/// Drops every ref and segment, condemns every pack, and deletes all their objects.
fn collect_everything(store: &Store, remote: &dyn Prune) {
    refs::drop_versions(store, &name(REF), None).unwrap();
    let mut state = store.state().unwrap();
    let listed = |prefix: &str| -> Vec<String> {
        let objects = remote.list(prefix).unwrap();
        objects.into_iter().map(|info| info.key).collect()
    };
    let keys = [listed("packs"), listed("segments")].concat();
    let packs = keys.iter().filter_map(|key| parse_pack_key(key)).collect();
    let committed = log::commit(remote, &mut state, &store.host().who, &mut |state, _| {
        let drops = state.segments.keys().map(|segment| Change::DropSegment {
            segment: *segment,
            into: None,
        });
        let condemned = Change::CondemnPacks {
            packs: Vec::clone(&packs),
        };
        Ok(drops.chain([condemned]).collect())
    });
    assert!(committed.unwrap().is_some());
    remote.delete(&keys).unwrap();
}

/// Puts a tree again and collects everything when `meddler` says so; what comes back is what was put.
fn put_beside_a_collector<'m>(
    source: &Path,
    store: &'m Store,
    remote: &'m dyn Prune,
    meddler: impl FnOnce(Box<dyn Fn() + Sync + 'm>) -> Meddler<Box<dyn Fn() + Sync + 'm>>,
) {
    let meddler = meddler(Box::new(|| collect_everything(store, remote)));
    let report = put(store, &request(source, REF), &meddler).unwrap();
    assert!(meddler.is_done());
    assert_eq!(report.version, Some(2));
    assert_eq!(report.unchanged_files, 0);
    assert!(
        report.new_bytes > 0,
        "everything had to be stored again: {report:?}"
    );
    let out = tempfile::tempdir().unwrap();
    get(store, &GetRequest::new(spec(REF), out.path()), &Unwatched).unwrap();
    assert_same_tree(source, out.path());
}

#[test]
fn chunks_that_a_put_deduplicated_against_are_stored_again() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    trees::version(&source, 3, 1, 3_000_000);
    let remote = Arc::new(Objects::directory(&dir.path().join("store")).unwrap());
    let mut host = host(dir.path());
    host.cache_dir = None;
    let store = Store::init(remote.clone(), host).unwrap();
    put_tree(&store, &source, REF);
    put_beside_a_collector(&source, &store, &*remote, Meddler::in_the_reading);
}

/// A file more changes the only tree and the times, so that nothing but the files that are not read
/// counts on what is collected.
#[test]
fn files_that_a_put_did_not_read_are_read_after_all() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    for seed in 0..3 {
        fs::write(source.join(seed.to_string()), noise(seed, 9000)).unwrap();
    }
    std::thread::sleep(Duration::from_secs(SETTLED_SECS) + Duration::from_millis(50));
    let remote = Arc::new(Objects::directory(&dir.path().join("store")).unwrap());
    let store = Store::init(remote.clone(), host(dir.path())).unwrap();
    put_tree(&store, &source, REF);
    fs::write(source.join("more"), noise(3, 9000)).unwrap();
    put_beside_a_collector(&source, &store, &*remote, Meddler::in_the_walk);
}
