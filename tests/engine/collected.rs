//! A collector takes everything in the middle of a put that counts on what is there: the put does its
//! pass again, and what it publishes is complete.

use std::path::Path;
use std::sync::Arc;

use store::format::{Change, parse_pack_key};
use store::remote::{Objects, Prune};
use store::{Store, Unwatched, get, log, put, refs};
use support::{assert_same_tree, trees};

use crate::meddler::Meddler;
use crate::stores::{host, name, put_tree, request, spec};

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
        let drops = state
            .segments
            .keys()
            .map(|segment| Change::DropSegment { segment: *segment });
        let condemned = Change::CondemnPacks {
            packs: Vec::clone(&packs),
        };
        Ok(drops.chain([condemned]).collect())
    });
    assert!(committed.unwrap().is_some());
    remote.delete(&keys).unwrap();
}

/// Puts a tree again; in the middle of it everything is collected.
fn put_beside_a_collector(dir: &Path, is_remembered: bool) {
    let source = dir.join("source");
    trees::version(&source, 3, 1, 3_000_000);
    let remote = Arc::new(Objects::directory(&dir.join("store")).unwrap());
    let mut host = host(dir);
    if is_remembered {
        let settled = store::stat_cache::SETTLED_SECS;
        std::thread::sleep(std::time::Duration::from_millis(settled * 1000 + 50));
    } else {
        host.cache_dir = None;
    }
    let store = Store::init(remote.clone(), host).unwrap();
    put_tree(&store, &source, REF);

    let collect = || collect_everything(&store, &*remote);
    let meddler = if is_remembered {
        Meddler::in_the_walk(collect)
    } else {
        Meddler::in_the_reading(collect)
    };
    let report = put(&store, &request(&source, REF), &meddler).unwrap();
    assert!(meddler.is_done());
    assert_eq!(report.version, Some(2));
    assert!(
        report.new_bytes > 0,
        "everything had to be stored again: {report:?}"
    );
    let out = dir.join("out");
    get(&store, &spec(REF), &out, &Unwatched).unwrap();
    assert_same_tree(&source, &out);
}

#[test]
fn chunks_that_a_put_deduplicated_against_are_stored_again() {
    let dir = tempfile::tempdir().unwrap();
    put_beside_a_collector(dir.path(), false);
}

#[test]
fn files_that_a_put_did_not_read_are_read_after_all() {
    let dir = tempfile::tempdir().unwrap();
    put_beside_a_collector(dir.path(), true);
}
