//! Deltas on their way to another store: what is sent, and what a dry run reports.

use std::sync::Arc;

use store::remote::Prune;
use store::replicate::{RefStatus, ReplicateReport, ReplicateRequest};

use crate::collect::{eager, run};
use crate::deltas::{REF, count_deltas, is_clean, model, safetensors, trained, tree};
use crate::replicate::{all, bring, empty, latest};
use crate::stores::name;
use crate::world::World;

/// The report of a dry run, then that of the run.
fn both(
    world: &World,
    [from, to]: [&Arc<dyn Prune>; 2],
    request: &ReplicateRequest,
) -> [ReplicateReport; 2] {
    let dry = ReplicateRequest {
        dry_run: true,
        ..request.clone()
    };
    [dry, request.clone()].map(|request| bring(world, from, to, &request))
}

/// Whether the two numbers are nearly equal.
fn is_near(said: u64, sent: u64) -> bool {
    said.abs_diff(sent) * 100 <= sent * 15
}

#[test]
fn a_dry_run_counts_what_goes_over_in_place_of_a_delta() {
    let (world, remote) = trained();
    let to = empty(&world);
    let [dry, run] = both(&world, [&remote, &to], &latest(&[REF]));
    assert!(is_near(dry.sent_bytes, run.sent_bytes), "{dry:?} {run:?}");
    let store = world.open(to.clone()).unwrap();
    assert_eq!(
        count_deltas(&store, REF),
        0,
        "one delta is no reason to send its base"
    );
    is_clean(&world, &to);
}

#[test]
fn a_base_that_no_version_has_goes_over_once_where_several_deltas_need_it() {
    let (world, remote) = trained();
    for steps in [2, 3] {
        let name = format!("steps-{steps}");
        tree(&world, &name, &safetensors(&model(steps)));
        world.put(remote.clone(), &name, REF).unwrap();
    }
    let store = world.open(remote.clone()).unwrap();
    store::refs::drop_versions(&store, &name(REF), Some(1)).unwrap();
    run(&world, &remote, &eager()).unwrap();
    let stored = |remote: &Arc<dyn Prune>| {
        let packs = remote.list("packs").unwrap();
        packs.iter().map(|info| info.size).sum::<u64>()
    };
    let to = empty(&world);
    let [dry, done] = both(&world, [&remote, &to], &all(&[REF]));
    assert!(is_near(dry.sent_bytes, done.sent_bytes), "{dry:?} {done:?}");
    assert_eq!(dry.chunks, done.chunks, "{dry:?} {done:?}");
    let index = world.open(to.clone()).unwrap().view().unwrap().index;
    let there: u64 = index
        .segments()
        .map(|segment| segment.layout().chunks())
        .sum();
    assert_eq!(done.chunks, there, "each once");
    assert!(stored(&to) * 100 <= stored(&remote) * 110, "{done:?}");
    let there = world.open(to.clone()).unwrap();
    for version in [1, 2, 3] {
        let found = count_deltas(&there, &format!("{REF}@{version}"));
        assert!(found >= 4, "{version}: {found}");
    }
    is_clean(&world, &to);
    assert_eq!(world.check(to.clone(), "a mirror").len(), 3);
    // The collector at the destination keeps what the deltas need.
    run(&world, &to, &eager()).unwrap();
    assert_eq!(world.check(to.clone(), "a mirror, collected").len(), 3);
    is_clean(&world, &to);
    let [dry, again] = both(&world, [&remote, &to], &all(&[REF]));
    assert_eq!((dry.sent_bytes, again.sent_bytes), (0, 0));
}

#[test]
fn a_dry_run_counts_what_a_version_lacks_that_is_there_already() {
    let (world, remote) = trained();
    let to = empty(&world);
    bring(&world, &remote, &to, &all(&[REF]));
    let packs = to.list("packs").unwrap();
    let largest = packs.iter().max_by_key(|info| info.size).unwrap();
    to.delete(std::slice::from_ref(&largest.key)).unwrap();
    let [dry, done] = both(&world, [&remote, &to], &all(&[REF]));
    let healed = |report: &ReplicateReport| {
        let mut refs = report.refs.iter();
        refs.any(|one| matches!(one.status, RefStatus::Healed))
    };
    assert!(healed(&dry) && healed(&done), "{dry:?} {done:?}");
    assert!(
        done.sent_bytes > 0 && is_near(dry.sent_bytes, done.sent_bytes),
        "{dry:?} {done:?}"
    );
    is_clean(&world, &to);
}
