//! Stores with deltas but without the feature: its entry is lost, or the writer forgot it.

use std::sync::Arc;

use store::check::{ReadData, RepairReport, RepairRequest, repair};
use store::format::{CHECKPOINTS_PREFIX, Change, log_key};
use store::remote::Prune;
use store::{Portions, Unwatched, put};

use crate::collect::{eager, keys, run};
use crate::damaged::verify_target;
use crate::deltas::{OTHER, REF, count_deltas, is_clean, model, safetensors, tree};
use crate::stores::{noise, request};
use crate::strange::{Stranger, commit, file, learn, upload};
use crate::world::World;

fn repaired(world: &World, remote: &Arc<dyn Prune>, accept_loss: bool) -> RepairReport {
    let request = RepairRequest {
        accept_loss,
        ..RepairRequest::default()
    };
    let store = world.open(remote.clone()).unwrap();
    repair(&store, request, &Unwatched).unwrap()
}

fn knows(world: &World, remote: &Arc<dyn Prune>) -> bool {
    let state = world.open(remote.clone()).unwrap().state().unwrap();
    state.features.has_delta_frames()
}

/// Whether a verification finds that the feature is missing. Asserts that it finds nothing else.
fn lacks_the_feature(world: &World, remote: &Arc<dyn Prune>) -> bool {
    let store = world.open(remote.clone()).unwrap();
    let report = verify_target(&store, ReadData::Nothing, None).unwrap();
    assert!(report.hits.is_empty(), "{report:#?}");
    match report.findings.as_slice() {
        [] => false,
        [one] => {
            assert!(one.what.contains("not learned the feature delta-frames"));
            assert!(one.object.starts_with("segments/"), "{one:?}");
            true
        }
        more => panic!("{more:#?}"),
    }
}

#[test]
fn a_feature_that_was_given_up_with_its_entry_is_learned_again() {
    let mut world = World::new();
    world.portions = Portions::default();
    let remote = world.memory();
    for (steps, target) in [(0, REF), (1, REF), (2, OTHER)] {
        let name = format!("steps-{steps}");
        tree(&world, &name, &safetensors(&model(steps)));
        world.put(remote.clone(), &name, target).unwrap();
    }
    let entry = |number| store::log::entry(&*remote, number).unwrap().unwrap();
    assert!(entry(2).changes.contains(&learn()), "{:?}", entry(2));
    remote
        .put(&log_key(3), entry(3).encode().unwrap().into())
        .unwrap();
    let checkpoints = keys(&*remote, CHECKPOINTS_PREFIX);
    remote
        .delete(&[vec![log_key(2)], checkpoints].concat())
        .unwrap();
    let report = repaired(&world, &remote, true);
    assert_eq!(report.entries_lost, [2]);
    let store = world.open(remote.clone()).unwrap();
    assert!(count_deltas(&store, OTHER) >= 4);
    assert!(knows(&world, &remote));
    is_clean(&world, &remote);
    assert_eq!(
        world.check(remote.clone(), "given up"),
        [format!("{REF}@1"), format!("{OTHER}@1")]
    );
    assert!(repaired(&world, &remote, true).findings.is_empty());
}

/// A store with a version in a delta, whose writer did not set the feature.
fn forgotten(world: &World) -> (Arc<dyn Prune>, Change) {
    let remote = world.memory();
    let store = world.open(remote.clone()).unwrap();
    let (base, mut bytes) = (noise(1, 5000), noise(1, 5000));
    bytes[7] ^= 1;
    // The pack is sparse, so the collector copies its good chunks.
    let garbage = noise(2, 50_000);
    let chunks: [Stranger<'_>; 3] = [(&base, &[]), (&bytes, &[&base]), (&garbage, &[])];
    let (added, _) = upload(&store, &chunks);
    commit(world, &remote, &[added.clone(), file(REF, &bytes)]);
    (remote, added)
}

#[test]
fn a_feature_that_a_writer_forgot_is_damage_until_it_is_learned() {
    let world = World::new();
    let (remote, _) = forgotten(&world);
    assert!(lacks_the_feature(&world, &remote));
    let report = repaired(&world, &remote, false);
    assert_eq!((report.findings.len(), report.entry), (1, Some(2)));
    assert!(knows(&world, &remote) && !lacks_the_feature(&world, &remote));
    assert_eq!(repaired(&world, &remote, false).entry, None);
}

#[test]
fn who_folds_or_copies_what_has_deltas_learns_that_there_are_some() {
    let mut world = World::new();
    world.portions = Portions {
        fold: 2,
        ..Portions::default()
    };
    let (remote, added) = forgotten(&world);
    let dir = tempfile::tempdir().unwrap();
    for number in 0..4u8 {
        std::fs::write(dir.path().join("file"), [number; 99]).unwrap();
        let store = world.open(remote.clone()).unwrap();
        put(&store, &request(dir.path(), "project/a/small"), &Unwatched).unwrap();
    }
    let Change::AddSegment { segment, .. } = added else {
        panic!("a segment");
    };
    let state = world.open(remote.clone()).unwrap().state().unwrap();
    assert!(!state.segments.contains_key(&segment), "it is folded");
    assert!(knows(&world, &remote), "by the fold");

    world.portions.fold = usize::MAX;
    let (remote, _) = forgotten(&world);
    for number in 0..8u8 {
        std::fs::write(dir.path().join("file"), [number; 99]).unwrap();
        let store = world.open(remote.clone()).unwrap();
        put(&store, &request(dir.path(), "project/a/small"), &Unwatched).unwrap();
    }
    assert!(!knows(&world, &remote));
    run(&world, &remote, &eager()).unwrap();
    assert!(knows(&world, &remote), "by the collector");
}
