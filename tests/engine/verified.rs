//! A collector moves and deletes objects, and a put adds some, between any two steps of a verification, a repair or an undo,
//! which must not call anything sound damaged.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use store::check::{ReadData, RepairRequest, repair};
use store::remote::Prune;
use store::remote::testing::scripted::{Scripted, When};
use store::replicate::undo;
use store::{ErrorKind, Store, Unwatched, put};

use crate::collect::eager;
use crate::damaged::verify_target;
use crate::repacked::sparse;
use crate::stores::{noise, request};
use crate::world::World;

/// Calls `look` on a store over `remote`, with `act` before step `at`, counted from 0. Returns the number of steps, too.
fn with<T>(
    world: &World,
    remote: &Arc<dyn Prune>,
    (at, act): (usize, impl Fn() + Send + Sync + 'static),
    look: impl FnOnce(&Store) -> T,
) -> (T, usize) {
    let steps = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&steps);
    let script = move |when, _, _: &str| {
        if when == When::Before && count.fetch_add(1, Ordering::SeqCst) == at {
            act();
        }
    };
    let scripted = Arc::new(Scripted::new(Arc::clone(remote), script));
    let store = world.open(scripted).unwrap();
    // Opening is a step as well, but no collector can run before it.
    let looked = look(&store);
    (looked, steps.load(Ordering::SeqCst))
}

/// Calls `look` once for every step that it takes, each time on a store of its own, with a collector and then a put before
/// that step, and passes what came of it to `check`.
fn beside_others<T>(look: impl Fn(&Store) -> T, check: impl Fn(&str, &Store, T)) {
    let world = sparse();
    fs::create_dir_all(world.tree("new")).unwrap();
    fs::write(world.tree("new/file"), noise(5, 300_000)).unwrap();
    let (_, steps) = with(&world, &world.memory(), (usize::MAX, || {}), &look);
    let mut moved = 0;
    for at in 0..steps {
        let remote = world.memory();
        let (beside, store) = (Arc::clone(&remote), world.open(remote.clone()).unwrap());
        let before = store.state().unwrap().number;
        let other = world.open(remote.clone()).unwrap();
        let request = request(&world.tree("new"), "project/a/new");
        let act = move || {
            // The second run deletes what the first has condemned, and the state forgets it.
            for _ in 0..2 {
                gc::collect(&other, beside.as_ref(), &eager()).unwrap();
            }
            put(&other, &request, &Unwatched).unwrap();
        };
        let (looked, _) = with(&world, &remote, (at, act), &look);
        check(&format!("step {at} of {steps}"), &store, looked);
        moved += usize::from(store.state().unwrap().number > before);
    }
    assert_eq!(moved, steps, "the collector had something to do each time");
}

#[test]
fn what_others_do_beside_a_verification_is_not_damage() {
    let verify = |store: &Store| verify_target(store, ReadData::Everything, None);
    beside_others(verify, |at, _, report| {
        let report = report.unwrap_or_else(|error| panic!("{at}: {error:?}"));
        assert!(report.is_clean(), "{at}: {report:#?}");
    });
}

#[test]
fn what_others_do_beside_a_repair_is_no_error_and_repairs_nothing() {
    let request = RepairRequest {
        read_data: false,
        dry_run: false,
        accept_loss: false,
    };
    let repair = |store: &Store| repair(store, request, &Unwatched);
    beside_others(repair, |at, store, report| {
        let report = report.unwrap_or_else(|error| panic!("{at}: {error:?}"));
        assert!(report.findings.is_empty(), "{at}: {report:#?}");
        let verified = verify_target(store, ReadData::Everything, None).unwrap();
        assert!(verified.is_clean(), "{at}: {verified:#?}");
    });
}

/// What a collector deletes in the midst of an undo is gone, and not lost.
#[test]
fn what_a_collector_takes_beside_an_undo_is_not_damage() {
    let undo = |store: &Store| undo(store, None, false, &Unwatched);
    beside_others(undo, |at, store, report| {
        let errors = match report {
            Err(error) => vec![error],
            Ok(report) => (report.failed.into_iter())
                .map(|(.., error)| error)
                .collect(),
        };
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::NotFound, "{at}: {error:?}");
        }
        let verified = verify_target(store, ReadData::Everything, None).unwrap();
        assert!(verified.is_clean(), "{at}: {verified:#?}");
    });
}
