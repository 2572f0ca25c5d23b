//! A collector that acts at the worst moment of a transfer: it takes packs that were just finished, and moves or takes
//! what is about to be read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gc::collect;
use store::refs::drop_versions;
use store::remote::Prune;
use store::replicate::{Forgetful, Resume};
use store::{PackId, Progress, Unwatched, replicate};

use crate::collect::eager;
use crate::replicate::{FAR, REF, assert_sound, bring, empty, latest, outcomes, world};
use crate::stores::name;
use crate::world::World;

fn collect_all(world: &World, remote: &Arc<dyn Prune>) {
    let store = world.open(remote.clone()).unwrap();
    collect(&store, remote.as_ref(), &eager()).unwrap();
}

/// Runs a collector at the destination when the first packs are finished.
struct Greedy<'w> {
    world: &'w World,
    there: Arc<dyn Prune>,
    packs: AtomicU64,
}

impl Resume for Greedy<'_> {
    fn packs(&self) -> Vec<PackId> {
        Vec::new()
    }

    fn pack_sealed(&self, _pack: PackId) {
        if self.packs.fetch_add(1, Ordering::Relaxed) < 2 {
            collect_all(self.world, &self.there);
        }
    }

    fn packs_committed(&self, _packs: &[PackId]) {}
}

#[test]
fn packs_that_are_taken_before_they_are_committed_are_sent_again() {
    let world = world();
    let (from, to) = (world.memory(), empty(&world));
    let unbroken = bring(&world, &from, &empty(&world), &latest(&[REF]));
    let greedy = Greedy {
        world: &world,
        there: to.clone(),
        packs: AtomicU64::new(0),
    };
    let (here, there) = (world.open(from).unwrap(), world.open(to.clone()).unwrap());
    let report = replicate(&here, &there, &latest(&[REF]), &greedy, &Unwatched).unwrap();
    assert!(report.stopped.is_none(), "{report:?}");
    assert_eq!(outcomes(&report), [format!("{REF} 2 > 1 published")]);
    assert!(report.sent_bytes > unbroken.sent_bytes, "{report:?}");
    assert_eq!(world.check(to.clone(), "taken"), [format!("{REF}@1")]);
    assert_sound(&world, &to, "taken");
}

/// Drops versions and runs a collector at the source, between the walk and the first read.
struct Moved<'w> {
    world: &'w World,
    here: Arc<dyn Prune>,
    drop: (&'static str, Option<u64>),
    is_done: AtomicBool,
}

impl Progress for Moved<'_> {
    fn total(&self, _files: u64, _bytes: u64) {
        if self.is_done.swap(true, Ordering::Relaxed) {
            return;
        }
        let store = self.world.open(self.here.clone()).unwrap();
        let (target, number) = self.drop;
        drop_versions(&store, &name(target), number).unwrap();
        // The first run condemns, the second deletes.
        collect_all(self.world, &self.here);
        collect_all(self.world, &self.here);
    }

    fn advance(&self, _files: u64, _bytes: u64) {}
}

#[test]
fn what_is_moved_before_it_is_read_is_found_again_and_what_is_gone_fails_by_itself() {
    let mut world = World::new();
    for (tree, number) in [("one", 1), ("two", 2)] {
        support::trees::version(&world.tree(tree), 7, number, 4_000_000);
    }
    support::trees::everything(&world.tree("far"), 3);
    world.prepare("one", REF);
    world.prepare("two", REF);
    world.prepare("far", FAR);
    let run = |drop, expected: [String; 2]| {
        let (from, to) = (world.memory(), empty(&world));
        let packs = from.list("packs").unwrap();
        let moved = Moved {
            world: &world,
            here: from.clone(),
            drop,
            is_done: AtomicBool::new(false),
        };
        let (here, there) = (
            world.open(from.clone()).unwrap(),
            world.open(to.clone()).unwrap(),
        );
        let report = replicate(&here, &there, &latest(&[REF, FAR]), &Forgetful, &moved).unwrap();
        assert!(report.stopped.is_none(), "{report:?}");
        assert_eq!(outcomes(&report), expected);
        let left = from.list("packs").unwrap();
        assert!(
            packs.iter().any(|pack| !left.contains(pack)),
            "packs are gone"
        );
        assert_sound(&world, &to, "moved");
        world.check(to, "moved")
    };
    let arrived = format!("{FAR} 1 > 1 published");
    let found = run(
        (REF, Some(1)),
        [format!("{REF} 2 > 1 published"), arrived.clone()],
    );
    assert_eq!(found, [format!("{REF}@1"), format!("{FAR}@1")]);
    let found = run((REF, None), [arrived, format!("{REF} 2 > - NotFound")]);
    assert_eq!(found, [format!("{FAR}@1")]);
}
