//! One put, disturbed at each of its steps: old refs stay readable, the new version exists completely or not at all, an
//! acknowledged version exists, and a retry succeeds.
//!
//! Steps of several threads have no fixed order, so the same n may hit another call in another run.

use std::sync::Arc;

use store::PutReport;
use store::format::RefName;
use store::remote::Faulty;
use store::remote::Prune;
use store::remote::testing::faulty::Faults;
use support::trees;

use crate::world::World;

const REF: &str = "project/crash/data";
const OTHER: &str = "team/other/data";
/// More mutations and requests than one put of these trees makes.
const STEPS_MAX: u64 = 400;
/// Packs of data and of metadata, the segment, and the log entry.
const MUTATIONS_MIN: u64 = 4;

/// A store with two segments and a first version, and a tree for the second version.
fn world() -> World {
    let mut world = World::new();
    for number in 0..3 {
        trees::version(&world.tree(&number.to_string()), 1, number, 400_000);
    }
    world.prepare("0", REF);
    world.prepare("2", OTHER);
    world
}

/// The same with a longer log, so that the next entry writes a checkpoint.
fn world_before_a_checkpoint() -> World {
    let mut world = world();
    world.change(|store| {
        let name: RefName = OTHER.parse().unwrap();
        let first = store.state().unwrap().number;
        for entry in first..63 {
            store::refs::pin(store, &name, None, (entry - first) % 2 == 0).unwrap();
        }
        assert_eq!(store.state().unwrap().number, 63);
    });
    world
}

fn check(world: &World, remote: &Arc<dyn Prune>, outcome: &store::Result<PutReport>, what: &str) {
    let found = world.check(remote.clone(), what);
    let has = |spec: &str| found.iter().any(|found| found == spec);
    assert!(
        has(&format!("{REF}@1")) && has(&format!("{OTHER}@1")),
        "{what}: {found:?}"
    );
    assert_eq!(
        found.len(),
        2 + usize::from(has(&format!("{REF}@2"))),
        "{what}: {found:?}"
    );
    if let Ok(report) = outcome {
        assert_eq!(report.version, Some(2), "{what}");
        assert!(
            has(&format!("{REF}@2")),
            "{what}: acknowledged, and only {found:?} is there"
        );
    }
    let again = world.put(remote.clone(), "1", REF).unwrap();
    assert_eq!(again.version, Some(found.len() as u64), "{what}");
    assert_eq!(
        world.check(remote.clone(), what).len(),
        found.len() + 1,
        "{what}"
    );
}

fn stop_after_every_mutation(world: &World, copy: impl Fn(u64) -> Arc<dyn Prune>) {
    for stop_after in 0..STEPS_MAX {
        let remote = copy(stop_after);
        let faults = Faults {
            stop_after: Some(stop_after),
            ..Faults::default()
        };
        let faulty = Faulty::new(remote.clone(), faults);
        let outcome = world.put(Arc::new(faulty.clone()), "1", REF);
        check(
            world,
            &remote,
            &outcome,
            &format!("stopped after {stop_after} mutations"),
        );
        if faulty.counts().mutations < stop_after {
            outcome.unwrap();
            assert!(stop_after > MUTATIONS_MIN);
            return;
        }
    }
    panic!("more than {STEPS_MAX} mutations");
}

fn one_fault_at_every_request(name: &str, faults: Faults) {
    let world = world_before_a_checkpoint();
    let mut injected = 0;
    for at in 1..STEPS_MAX {
        let remote = world.memory();
        let faults = Faults {
            only_at: Some(at),
            ..faults
        };
        let faulty = Faulty::new(remote.clone(), faults);
        let outcome = world.put(Arc::new(faulty.clone()), "1", REF);
        let counts = faulty.counts();
        if counts.faults > 0 {
            injected += 1;
            // A put that is told that its entry exists recognizes it as its own.
            assert!(
                faults.retold == 0 || outcome.is_ok(),
                "{name} at request {at}: {outcome:?}"
            );
            check(
                &world,
                &remote,
                &outcome,
                &format!("{name} at request {at}"),
            );
        } else if counts.requests < at {
            outcome.unwrap();
            assert!(injected > 1, "{name}: injected only {injected} times");
            return;
        }
    }
    panic!("more than {STEPS_MAX} requests");
}

#[test]
fn power_goes_off_after_every_mutation_in_memory() {
    let world = world_before_a_checkpoint();
    stop_after_every_mutation(&world, |_| world.memory());
}

#[test]
fn power_goes_off_after_every_mutation_in_a_directory() {
    let world = world();
    stop_after_every_mutation(&world, |n| world.directory(&format!("store-{n}")));
}

#[test]
fn an_error_without_effect_at_every_request() {
    let before = Faults {
        before: 1000,
        ..Faults::default()
    };
    one_fault_at_every_request("no answer", before);
}

#[test]
fn an_error_after_the_effect_at_every_mutation() {
    let after = Faults {
        after: 1000,
        ..Faults::default()
    };
    one_fault_at_every_request("a lost answer", after);
}

#[test]
fn a_create_that_says_exists_of_its_own_object() {
    let retold = Faults {
        retold: 1000,
        ..Faults::default()
    };
    one_fault_at_every_request("a create told twice", retold);
}

#[test]
fn an_answer_cut_short_at_every_read() {
    let truncated = Faults {
        truncated: 1000,
        ..Faults::default()
    };
    one_fault_at_every_request("an answer cut short", truncated);
}

#[test]
fn get_is_whole_or_nothing_under_a_fault_at_every_request() {
    let world = world();
    for at in 1..STEPS_MAX {
        for (before, truncated) in [(1000, 0), (0, 1000)] {
            let faults = Faults {
                before,
                truncated,
                only_at: Some(at),
                ..Faults::default()
            };
            let faulty = Faulty::new(world.memory(), faults);
            let got = world
                .open(Arc::new(faulty.clone()))
                .and_then(|store| world.get(&store, &format!("{REF}@1")));
            if let Ok(out) = &got {
                support::assert_same_tree(&world.tree("0"), out.path());
            }
            if faulty.counts().requests < at && faulty.counts().faults == 0 {
                got.unwrap();
                return;
            }
        }
    }
    panic!("more than {STEPS_MAX} requests");
}
