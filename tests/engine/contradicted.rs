//! Entries of others while a collector carries out its plan, whose changes alone show whether the plan is still valid;
//! and plans that are void again and again.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gc::{CollectReport, Request, collect};
use store::format::{
    Change, Extra, FORMAT_KEY, Format, LOG_PREFIX, Pattern, Policy, Rules, Scope, segment_key,
};
use store::remote::testing::faulty::{Faults, Faulty};
use store::remote::testing::scripted::{Scripted, Step, When};
use store::remote::{Prune, Read};
use store::{ErrorKind, PackId, Result, log};
use support::trees;

use crate::between::{collect_with, commit, pack_of, segment_over};
use crate::collect::{eager, keys, run, world};
use crate::stores::{name, noise};
use crate::world::World;

const REF: &str = "project/a/data";

/// Runs a collection that keeps the newest version of each ref, while somebody commits `change` before its first entry.
/// Returns the number of void plans, and the versions that are left.
fn beside(change: Change, keep_last: Option<usize>) -> (u64, Vec<String>) {
    let world = world();
    let remote = world.memory();
    let mut request = eager();
    request.policy.scopes = vec![gc::policy::Scope {
        pattern: gc::policy::Pattern::new("project/*"),
        rules: gc::policy::Rules {
            keep_last,
            ..gc::policy::Rules::default()
        },
        quota_bytes: None,
        extra: Extra::new(),
    }];
    if keep_last.is_none() {
        // The plan must have something to do.
        commit(
            &*remote,
            &[Change::DropRef {
                name: name(REF),
                version: 1,
            }],
        );
    }
    let there = remote.clone();
    let act = move || drop(commit(&*there, std::slice::from_ref(&change)));
    let (report, entries) = collect_with(&world, &remote, &request, 0, act).unwrap();
    assert!(entries > 0, "{report:?}");
    (u64::from(report.plans_void), world.check(remote, "beside"))
}

const ALL: [&str; 3] = ["project/a/data@1", "project/a/data@2", "team/b/data@1"];
const NEWEST: [&str; 2] = ["project/a/data@2", "team/b/data@1"];

#[test]
fn a_version_that_is_pinned_before_it_is_dropped_stays() {
    let pin = |target: &str, version| Change::Pin {
        name: name(target),
        version,
        pinned: true,
    };
    let (void, left) = beside(pin(REF, 1), Some(1));
    assert_eq!((void, &left[..]), (1, &ALL.map(str::to_owned)[..]));
    // A pin of a version that stays anyway does not contradict the plan.
    for (target, version) in [(REF, 2), ("team/b/data", 1)] {
        let (void, left) = beside(pin(target, version), Some(1));
        assert_eq!((void, &left[..]), (0, &NEWEST.map(str::to_owned)[..]));
    }
}

#[test]
fn a_policy_that_is_set_before_a_version_is_dropped_counts() {
    let keep = |keep_last| Change::SetPolicy {
        policy: Policy {
            keep: vec![Scope {
                pattern: Pattern::new("project/*"),
                rules: Rules {
                    keep_last: Some(keep_last),
                    ..Rules::default()
                },
                quota_bytes: None,
                extra: Extra::new(),
            }],
            bytes_max: None,
            extra: Extra::new(),
        },
    };
    let (void, left) = beside(keep(9), Some(1));
    assert_eq!((void, &left[..]), (1, &ALL.map(str::to_owned)[..]));
    // If no policy drops versions, another policy changes nothing.
    let (void, left) = beside(keep(9), None);
    assert_eq!((void, &left[..]), (0, &NEWEST.map(str::to_owned)[..]));
}

/// The clock of the waiting side, which only the test moves.
static CLOCK: AtomicU64 = AtomicU64::new(0);

fn clock() -> Duration {
    Duration::from_secs(CLOCK.load(Ordering::SeqCst))
}

/// Runs a collection. From entry `first` on, somebody commits a contradicting entry before each one, `secs` later.
fn in_vain(
    world: &World,
    first: u64,
    secs: u64,
    request: &Request,
) -> (Result<CollectReport>, u64) {
    CLOCK.store(0, Ordering::SeqCst);
    let remote = world.memory();
    let (there, tries) = (remote.clone(), Arc::new(AtomicU64::new(0)));
    let count = Arc::clone(&tries);
    let script = move |when, step, key: &str| {
        let is_entry = when == When::Before && step == Step::Create && key.starts_with(LOG_PREFIX);
        if is_entry && count.fetch_add(1, Ordering::SeqCst) >= first {
            CLOCK.fetch_add(secs, Ordering::SeqCst);
            let packs = vec![PackId::random().unwrap()];
            commit(&*there, &[Change::CondemnPacks { packs }]);
        }
    };
    let scripted = Arc::new(Scripted::new(remote, script));
    let store = world.open(scripted.clone()).unwrap();
    let report = collect(&store, scripted.as_ref(), request);
    (report, tries.load(Ordering::SeqCst))
}

#[test]
fn plans_that_come_to_nothing_are_made_again_for_five_minutes() {
    let mut world = world();
    trees::write(&world.tree("part/large"), &noise(1, 100_000));
    world.prepare("part", "project/a/part");
    world.change(|store| {
        store::refs::drop_versions(store, &name(REF), None).unwrap();
    });
    let mut request = eager();
    request.elapsed = clock;
    // With this grace, nothing is freed, so the entries alone show the progress.
    request.options.grace_secs = 3600;
    let (report, tries) = in_vain(&world, 0, 100, &request);
    let error = report.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
    assert!(error.to_string().contains("all of 3 plans"), "{error}");
    assert_eq!(tries, 3);
    // Earlier progress is kept.
    let report = in_vain(&world, 1, 400, &request).0.unwrap();
    assert!(report.stopped, "{report:?}");
    assert_eq!((report.entries.len(), report.plans_void), (1, 1));
    assert_eq!(report.freed_objects, 0);
    // A shorter time limit ends the run in good order.
    request.time_limit = Some(Duration::from_secs(150));
    let report = in_vain(&world, 0, 200, &request).0.unwrap();
    assert!(report.stopped && report.entries.is_empty(), "{report:?}");
    assert_eq!(report.plans_void, 1);
}

/// The collector's entry adds a segment, and another writer folds it before the collector opens it. The plan is then
/// void, and the next one starts from the current state.
#[test]
fn a_segment_that_goes_before_the_collector_has_opened_it_makes_the_plan_void() {
    let world = world();
    let remote = world.memory();
    let store = world.open(remote.clone()).unwrap();
    store::refs::drop_versions(&store, &name(REF), Some(1)).unwrap();
    let (there, step_of) = (remote.clone(), Arc::new(AtomicU64::new(0)));
    let added = Mutex::new(None);
    let script = move |when, step, key: &str| {
        if step != Step::Create || !key.starts_with(LOG_PREFIX) {
            return;
        }
        match (when, step_of.fetch_add(1, Ordering::SeqCst)) {
            (When::Before, 0) => {
                let pack = pack_of(&there, &[noise(77, 9_000)]);
                let add = segment_over(&*there, &[&pack]);
                commit(&*there, std::slice::from_ref(&add));
                *added.lock().unwrap() = Some(add);
            }
            // The first try met the other entry; the second succeeded.
            (When::After, 3) => {
                let Some(Change::AddSegment { segment, .. }) = *added.lock().unwrap() else {
                    panic!("no segment");
                };
                let into = None;
                commit(&*there, &[Change::DropSegment { segment, into }]);
                there.delete(&[segment_key(segment)]).unwrap();
            }
            _ => {}
        }
    };
    let scripted = Arc::new(Scripted::new(remote.clone(), script));
    let store = world.open(scripted.clone()).unwrap();
    let report = collect(&store, scripted.as_ref(), &eager()).unwrap();
    assert_eq!(report.plans_void, 1, "{report:?}");
    assert_eq!(world.check(remote, "folded away"), NEWEST);
}

#[test]
fn beside_other_writers_a_store_of_a_single_one_is_not_collected() {
    let world = world();
    let remote = world.memory();
    let format = Format::decode(&remote.get(FORMAT_KEY).unwrap()).unwrap();
    let bytes = format.for_single_writer().encode().unwrap();
    remote.put(FORMAT_KEY, bytes.into()).unwrap();
    let error = run(&world, &remote, &eager()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:?}");
    assert!(error.to_string().contains("single writer"), "{error}");
    let dry = Request {
        dry_run: true,
        ..eager()
    };
    run(&world, &remote, &dry).unwrap();
    let exclusive = Request {
        exclusive: true,
        ..eager()
    };
    run(&world, &remote, &exclusive).unwrap();
}

/// Merges the segments of many puts. On a full disk, the segments stay and the report says so; any other failure is an
/// error.
#[test]
fn a_merge_that_finds_no_room_leaves_the_segments_as_they_are() {
    let mut world = World::new();
    world.portions.fold = usize::MAX;
    for number in 0..70_u64 {
        let tree = number.to_string();
        trees::write(&world.tree(&tree).join("f"), &noise(number, 500));
        world.prepare(&tree, REF);
    }
    let segments =
        |remote: &dyn Read| -> BTreeSet<String> { keys(remote, "segments").into_iter().collect() };
    let mut request = eager();
    request.options.repack = false;
    let inner = world.memory();
    let before = segments(&*inner);
    let full = Faults {
        full_after: Some(0),
        ..Faults::default()
    };
    let remote: Arc<dyn Prune> = Arc::new(Faulty::new(inner.clone(), full));
    let report = run(&world, &remote, &request).unwrap();
    assert!(report.disk_full && report.stopped, "{report:?}");
    assert_eq!(segments(&*inner), before);
    for stop_after in 0..4 {
        let stuck = Faults {
            stop_after: Some(stop_after),
            ..Faults::default()
        };
        let remote: Arc<dyn Prune> = Arc::new(Faulty::new(world.memory(), stuck));
        let error = run(&world, &remote, &request).unwrap_err();
        assert_eq!(
            error.kind(),
            ErrorKind::Unavailable,
            "{stop_after}: {error:?}"
        );
    }
    let report = run(&world, &inner, &request).unwrap();
    assert!(!report.disk_full && !report.plan.merge.is_empty());
    let state = log::load(&*inner).unwrap();
    let live: BTreeSet<String> = state.segments.keys().map(|id| segment_key(*id)).collect();
    assert_eq!(segments(&*inner), live);
    assert!(live.len() < before.len());
    assert_eq!(world.check(inner, "merged").len(), 70);
}
