//! A collector takes everything during a put that relies on existing chunks: the put repeats its pass, and what it
//! publishes is complete.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use store::format::{Change, LOG_PREFIX, SegmentInfo, parse_pack_key, segment_key};
use store::host::stat_cache::SETTLED_SECS;
use store::remote::testing::scripted::{Scripted, Step, When};
use store::remote::{Objects, Prune};
use store::{ErrorKind, GetRequest, PackId, SegmentId, Store, Unwatched, get, log, put, refs};
use support::{assert_same_tree, trees};

use crate::between::commit;
use crate::meddler::Meddler;
use crate::stores::{host, name, noise, put_tree, request, spec};
use crate::world::World;

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

/// Puts a tree again, and collects everything when `meddler` acts. Asserts that the version is complete.
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

/// A collector commits just before the writer does, and again while the writer checks what is left. If a segment is
/// gone by then, the writer repeats its pass; if it is damaged, the put fails.
#[test]
fn a_segment_that_is_gone_when_a_writer_looks_again_means_another_pass() {
    for is_damaged in [false, true] {
        let world = world();
        let remote = world.memory();
        let segment = SegmentId([7; 16]);
        let moved = Arc::new(AtomicUsize::new(0));
        let script = {
            let (there, moved) = (remote.clone(), Arc::clone(&moved));
            move |when, step, key: &str| {
                let is_entry = step == Step::Create && key.starts_with(LOG_PREFIX);
                if when != When::Before {
                    return;
                }
                let goes_on = |from: usize| {
                    let (to, order) = (from + 1, Ordering::SeqCst);
                    moved.compare_exchange(from, to, order, order).is_ok()
                };
                if is_entry && goes_on(0) {
                    there
                        .put(&segment_key(segment), vec![1; 500].into())
                        .unwrap();
                    let info = SegmentInfo {
                        bytes: 500,
                        ..SegmentInfo::default()
                    };
                    let packs = vec![PackId([7; 16])];
                    let (add, condemn) = (
                        Change::AddSegment { segment, info },
                        Change::CondemnPacks { packs },
                    );
                    commit(&*there, &[add, condemn]);
                } else if !is_damaged && key == segment_key(segment) && goes_on(1) {
                    let into = None;
                    commit(&*there, &[Change::DropSegment { segment, into }]);
                    there.delete(&[segment_key(segment)]).unwrap();
                }
            }
        };
        let number = log::load(&*remote).unwrap().number;
        let scripted = Arc::new(Scripted::new(remote.clone(), script));
        let done = world.put(scripted, "two", REF);
        if is_damaged {
            assert_eq!(done.unwrap_err().kind(), ErrorKind::Corrupt);
            assert_eq!(
                log::load(&*remote).unwrap().number,
                number + 1,
                "nothing added"
            );
        } else {
            assert_eq!(done.unwrap().version, Some(2));
            assert_eq!(moved.load(Ordering::SeqCst), 2);
            world.check(remote, "another pass");
        }
    }
}

fn world() -> World {
    let mut world = World::new();
    for (tree, seed) in [("one", 1), ("two", 2)] {
        trees::write(&world.tree(tree).join("same"), &noise(9, 30_000));
        trees::write(&world.tree(tree).join("own"), &noise(seed, 30_000));
    }
    world.prepare("one", REF);
    world
}

/// An additional file changes only the tree and the times, so only the unread files rely on the collected chunks.
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
