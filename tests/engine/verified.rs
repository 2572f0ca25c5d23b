//! A collector moves and deletes objects between any two steps of a verification, which must not call anything sound
//! damaged.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use store::check::{ReadData, VerifyReport};
use store::remote::Prune;
use store::remote::testing::scripted::{Scripted, When};

use crate::collect::eager;
use crate::damaged::verify_target;
use crate::repacked::sparse;
use crate::world::World;

/// Verifies all of `remote`, with `act` before step `at`, counted from 0. Returns the report and the number of steps.
fn verify_with(
    world: &World,
    remote: &Arc<dyn Prune>,
    at: usize,
    act: impl Fn() + Send + Sync + 'static,
) -> (store::Result<VerifyReport>, usize) {
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
    let report = verify_target(&store, ReadData::Everything, None);
    (report, steps.load(Ordering::SeqCst))
}

#[test]
fn what_a_collector_takes_beside_a_verification_is_not_damage() {
    let world = sparse();
    let (report, steps) = verify_with(&world, &world.memory(), usize::MAX, || {});
    assert!(report.unwrap().is_clean());
    let mut moved = 0;
    for at in 0..steps {
        let remote = world.memory();
        let (beside, store) = (Arc::clone(&remote), world.open(remote.clone()).unwrap());
        let before = store.state().unwrap().number;
        let collector = world.open(remote.clone()).unwrap();
        // The second run deletes what the first has condemned, and the state forgets it.
        let act = move || {
            for _ in 0..2 {
                gc::collect(&collector, beside.as_ref(), &eager()).unwrap();
            }
        };
        let (report, _) = verify_with(&world, &remote, at, act);
        let report = report.unwrap_or_else(|error| panic!("step {at} of {steps}: {error:?}"));
        assert!(report.is_clean(), "step {at} of {steps}: {report:#?}");
        moved += usize::from(store.state().unwrap().number > before);
    }
    assert_eq!(moved, steps, "the collector had something to do each time");
}
