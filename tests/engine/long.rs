//! Long passes beside collectors: a put or a transfer commits on its way, and a collection follows each of its entries.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gc::{Request, collect};
use store::format::{Change, LOG_PREFIX, Who, segment_key};
use store::host::stat_cache::SETTLED_SECS;
use store::log;
use store::remote::testing::faulty::Faults;
use store::remote::testing::scripted::{Scripted, Step, When};
use store::remote::{Faulty, Prune, Write};
use store::replicate::{Forgetful, Selection};
use store::{PutReport, ReplicateRequest, Store, Unwatched, put, replicate};
use support::trees;

use crate::collect::{eager, run};
use crate::replicate::{assert_sound, empty};
use crate::stores::{host, name, noise, request};
use crate::world::World;

const REF: &str = "project/a/long";
const FILES: u64 = 24;
const FILE_BYTES: usize = 500_000;
const ALL: u64 = FILES * FILE_BYTES as u64;

fn world() -> World {
    let mut world = World::new();
    world.portions.pack_bytes = 512 << 10;
    for number in 0..FILES {
        let path = world.tree("one").join(format!("{number:02}"));
        trees::write(&path, &noise(number, FILE_BYTES));
    }
    world
}

/// The default options of a collector, but without grace for readers.
fn ordinary() -> Request {
    let mut request = eager();
    request.options.min_age_secs = 24 * 3600;
    request.options.max_unused_ppm = 50_000;
    request
}

/// Wraps `remote` so that `collector` runs after each entry. Also returns the number of runs.
fn collected(
    world: &World,
    remote: &Arc<dyn Prune>,
    collector: impl Fn(usize) -> Option<Request> + Send + Sync + 'static,
) -> (Arc<dyn Write>, Arc<AtomicUsize>) {
    let runs = Arc::new(AtomicUsize::new(0));
    let (count, inner) = (runs.clone(), remote.clone());
    let (host, portions) = (world.host(), world.portions);
    let script = move |when, step, key: &str| {
        if when == When::After && step == Step::Create && key.starts_with(LOG_PREFIX) {
            let number = count.fetch_add(1, Ordering::SeqCst);
            if let Some(request) = collector(number) {
                let store = Store::open(inner.clone(), host.clone()).unwrap();
                let store = store.in_portions(portions);
                collect(&store, inner.as_ref(), &request).unwrap();
            }
        }
    };
    (Arc::new(Scripted::new(remote.clone(), script)), runs)
}

fn put_one(store: &Store, source: &Path) -> store::Result<PutReport> {
    let mut request = request(source, REF);
    "one".clone_into(&mut request.message);
    put(store, &request, &Unwatched)
}

fn condemned(remote: &dyn Prune) -> usize {
    let mut state = store::format::State::default();
    let entries = log::read_after(remote, &mut state).unwrap();
    let changes = entries.iter().flat_map(|entry| &entry.changes);
    let packs = changes.map(|change| match change {
        Change::CondemnPacks { packs } => packs.len(),
        _ => 0,
    });
    packs.sum()
}

/// Each of the two limits alone ends a portion. Without them, a pass has one.
#[test]
fn a_pass_commits_by_bytes_and_by_chunks() {
    let mut world = world();
    let segments = |world: &World| {
        let remote = world.memory();
        world.put(remote.clone(), "one", REF).unwrap();
        crate::collect::keys(remote.as_ref(), store::format::SEGMENTS_PREFIX).len()
    };
    (world.portions.commit_bytes, world.portions.commit_chunks) = (u64::MAX, usize::MAX);
    // Segments are not folded here.
    world.portions.fold = usize::MAX;
    assert_eq!(segments(&world), 1);
    world.portions.commit_bytes = 2 << 20;
    let by_bytes = segments(&world);
    assert!((4..=7).contains(&by_bytes), "{by_bytes} for {ALL} bytes");
    (world.portions.commit_bytes, world.portions.commit_chunks) = (u64::MAX, 60);
    let by_chunks = segments(&world);
    assert!((2..=20).contains(&by_chunks), "{by_chunks}");
}

#[test]
fn a_put_stores_everything_once_beside_ordinary_collectors() {
    let world = world();
    let remote = empty(&world);
    let (through, runs) = collected(&world, &remote, |_| Some(ordinary()));
    let report = put_one(&world.open(through).unwrap(), &world.tree("one")).unwrap();
    assert!(runs.load(Ordering::SeqCst) > 4, "{runs:?}");
    assert_eq!((report.version, report.new_bytes), (Some(1), ALL));
    assert_eq!(condemned(&*remote), 0);
    assert_eq!(
        assert_sound(&world, &remote, "beside"),
        [format!("{REF}@1")]
    );
    // Chunks that `rm` drops are collected at once, however young they are.
    let store = world.open(remote.clone()).unwrap();
    store::refs::drop_versions(&store, &name(REF), None).unwrap();
    let report = run(&world, &remote, &ordinary()).unwrap();
    assert!(report.freed_bytes > ALL, "{report:?}");
    assert_eq!(report.held.by_age.bytes, 0);
}

#[test]
fn a_transfer_sends_everything_once_beside_ordinary_collectors() {
    let mut world = world();
    world.prepare("one", REF);
    let from = world.open(world.memory()).unwrap();
    let remote = empty(&world);
    let (through, runs) = collected(&world, &remote, |_| Some(ordinary()));
    let request = ReplicateRequest::new(vec![Selection::Ref(name(REF))]);
    let to = world.open(through).unwrap();
    let report = replicate(&from, &to, &request, &Forgetful, &Unwatched).unwrap();
    assert!(report.stopped.is_none(), "{report:?}");
    assert!(runs.load(Ordering::SeqCst) > 1, "{runs:?}");
    assert!(report.sent_bytes < ALL + ALL / 10, "{report:?}");
    assert_eq!(condemned(&*remote), 0);
    assert_eq!(
        assert_sound(&world, &remote, "beside"),
        [format!("{REF}@1")]
    );
    let store = world.open(remote.clone()).unwrap();
    store::refs::drop_versions(&store, &name(REF), None).unwrap();
    assert!(run(&world, &remote, &ordinary()).unwrap().freed_bytes > ALL);
}

#[test]
fn what_a_killed_put_left_is_spared_until_it_is_old_and_found_by_the_next() {
    let world = world();
    let remote = empty(&world);
    let faults = Faults {
        stop_after: Some(8),
        ..Faults::default()
    };
    let cut = Arc::new(Faulty::new(remote.clone(), faults));
    put_one(&world.open(cut).unwrap(), &world.tree("one")).unwrap_err();
    let report = run(&world, &remote, &ordinary()).unwrap();
    assert!(report.held.by_age.bytes > ALL / 10, "{report:?}");
    assert!(report.held.by_age.until.is_some());
    let copy = copy_of(&remote);
    let again = put_one(&world.open(copy.clone()).unwrap(), &world.tree("one")).unwrap();
    assert!(again.new_bytes < ALL, "{again:?}");
    assert_eq!(condemned(&*copy), 0);
    // An eager collection frees them at once, an ordinary one a day later.
    let copy = copy_of(&remote);
    let report = run(&world, &copy, &eager()).unwrap();
    assert!(report.freed_bytes > ALL / 10, "{report:?}");
    let mut later = ordinary();
    later.clock = || jiff::Timestamp::now() + jiff::SignedDuration::from_hours(25);
    assert!(run(&world, &remote, &later).unwrap().freed_bytes > ALL / 10);
}

fn copy_of(remote: &Arc<dyn Prune>) -> Arc<dyn Prune> {
    let copy: Arc<dyn Prune> = Arc::new(store::remote::Objects::memory());
    for info in remote.list("").unwrap() {
        copy.put(&info.key, remote.get(&info.key).unwrap()).unwrap();
    }
    copy
}

/// The most aggressive collectors, for a limited time: the put ends, and nothing is lost.
#[test]
fn a_put_ends_some_time_beside_collectors_that_take_everything() {
    let world = world();
    let remote = empty(&world);
    let (through, runs) = collected(&world, &remote, |number| (number < 12).then(eager));
    let report = put_one(&world.open(through).unwrap(), &world.tree("one")).unwrap();
    assert!(runs.load(Ordering::SeqCst) > 12);
    assert!(condemned(&*remote) > 4);
    assert!(
        report.new_bytes > ALL,
        "what was taken was stored again: {report:?}"
    );
    assert_eq!(
        assert_sound(&world, &remote, "beside"),
        [format!("{REF}@1")]
    );
    assert_eq!(world.check(remote, "beside").len(), 1);
}

/// One pack is condemned before the end: only the files in it are read and stored again.
#[test]
fn only_what_is_missing_is_read_and_stored_again() {
    let world = world();
    let remote = empty(&world);
    std::thread::sleep(Duration::from_secs(SETTLED_SECS) + Duration::from_millis(50));
    let taken = Arc::new(Mutex::new(None));
    let (inner, victim, own) = (remote.clone(), taken.clone(), world.host());
    let script = move |when, step, key: &str| {
        if when != When::After || step != Step::Create || !key.starts_with(LOG_PREFIX) {
            return;
        }
        let mut victim = victim.lock().unwrap();
        if victim.is_some() {
            return;
        }
        let view = Store::open(inner.clone(), own.clone())
            .unwrap()
            .view()
            .unwrap();
        // All packs of the first segment, which is a part of the put.
        let packs: Vec<_> = view.index.packs().map(|pack| pack.id).collect();
        let bytes: u64 = view.index.packs().map(|pack| u64::from(pack.len)).sum();
        let mut changes = vec![Change::CondemnPacks { packs }];
        for segment in view.state.segments.keys() {
            changes.push(Change::DropSegment {
                segment: *segment,
                into: None,
            });
        }
        let mut state = view.state;
        let who = Who::default();
        log::commit(&*inner, &mut state, &who, &mut |_, _| Ok(changes.clone())).unwrap();
        *victim = Some(bytes);
    };
    let through = Arc::new(Scripted::new(remote.clone(), script));
    let cache = tempfile::tempdir().unwrap();
    let store = world.open_as(through, host(cache.path())).unwrap();
    let report = put_one(&store, &world.tree("one")).unwrap();
    let taken = taken.lock().unwrap().expect("something was taken");
    assert!(taken < ALL / 2, "{taken}");
    assert!(report.unchanged_files > FILES / 3, "{report:?}");
    let again = report.new_bytes - ALL;
    assert!(
        again > 0 && again <= taken,
        "{again} of {taken}: {report:?}"
    );
    assert_eq!(assert_sound(&world, &remote, "taken"), [format!("{REF}@1")]);
}

/// A commit checks the newest segments after its entry. One of them is gone by then, so the commit reads on in the log,
/// and there finds its own chunks condemned.
#[test]
fn what_is_condemned_while_a_commit_looks_at_its_segment_is_stored_again() {
    let mut world = world();
    world.portions.commit_bytes = 1 << 20;
    trees::write(&world.tree("other").join("file"), &noise(99, 10_000));
    let remote = empty(&world);
    let (inner, host, other) = (remote.clone(), world.host(), world.tree("other"));
    let (begun, taken) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let count = taken.clone();
    let script = move |when, step, key: &str| {
        if step != Step::Create || !key.starts_with(LOG_PREFIX) {
            return;
        }
        let store = Store::open(inner.clone(), host.clone()).unwrap();
        if when == When::Before && begun.fetch_add(1, Ordering::SeqCst) == 0 {
            put(&store, &request(&other, "project/a/other"), &Unwatched).unwrap();
        }
        let view = store.view().unwrap();
        let infos = || view.state.segments.iter();
        let own = infos().find(|(_, info)| info.pass.is_some());
        let others = infos().find(|(_, info)| info.pass.is_none());
        if let (When::After, Some((own, _)), Some((others, _))) = (when, own, others) {
            let mut segments = view.index.segments();
            let own = segments.find(|segment| segment.id == *own).unwrap();
            let pack = own.packs().next().unwrap().id;
            store::refs::drop_versions(&store, &name("project/a/other"), None).unwrap();
            let changes = [
                Change::CondemnPacks { packs: vec![pack] },
                Change::DropSegment {
                    segment: *others,
                    into: None,
                },
            ];
            crate::between::commit(inner.as_ref(), &changes);
            inner.delete(&[segment_key(*others)]).unwrap();
            count.fetch_add(1, Ordering::SeqCst);
        }
    };
    let through = Arc::new(Scripted::new(remote.clone(), script));
    let report = put_one(&world.open(through).unwrap(), &world.tree("one")).unwrap();
    assert_eq!((report.version, taken.load(Ordering::SeqCst)), (Some(1), 1));
    assert_eq!(assert_sound(&world, &remote, "taken"), [format!("{REF}@1")]);
}
