//! Copying live chunks out of sparse packs: their new places, and what is left when the time limit is reached.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use store::ChunkId;
use store::format::{Node, pack_key};
use store::index::Location;
use store::read::Reader;
use store::remote::Prune;
use store::remote::testing::faulty::{Faults, Faulty};

use crate::collect::{assert_idle, eager, keys, run};
use crate::stores::{noise, spec, text};
use crate::world::World;

const REFS: [&str; 2] = ["project/a/kept", "project/b/kept"];
const LARGE: u64 = 5;
const SMALL: u64 = 40;

/// Two packs of data in which live and dropped chunks alternate: large incompressible files, and small ones that share
/// frames. The refs share nothing.
pub(crate) fn sparse() -> World {
    let mut world = World::new();
    for (tree, seed) in [("one", 1000), ("two", 2000)] {
        let (both, kept) = (world.tree(&format!("{tree}-both")), world.tree(tree));
        for dir in [&both, &kept] {
            fs::create_dir_all(dir).unwrap();
        }
        let write = |number: u64, bytes: &[u8]| {
            let name = file(number);
            fs::write(both.join(&name), bytes).unwrap();
            if number.is_multiple_of(2) {
                fs::write(kept.join(&name), bytes).unwrap();
            }
        };
        for number in 0..2 * LARGE {
            write(number, &noise(seed + number, 700_000));
        }
        for number in 2 * LARGE..2 * (LARGE + SMALL) {
            write(number, &text(seed + number, 9_000));
        }
    }
    for (tree, name) in [("one", REFS[0]), ("two", REFS[1])] {
        world.prepare(&format!("{tree}-both"), "project/a/dropped");
        world.prepare(tree, name);
    }
    world.change(|store| {
        let name = "project/a/dropped".parse().unwrap();
        store::refs::drop_versions(store, &name, None).unwrap();
    });
    world
}

fn file(number: u64) -> String {
    format!("{number:03}")
}

fn first_small() -> Vec<u8> {
    file(2 * LARGE).into_bytes()
}

/// The data chunks of a ref in the order of their locations, each with the name of its file.
fn in_place(
    world: &World,
    remote: &Arc<dyn Prune>,
    name: &str,
) -> Vec<(Location, Vec<u8>, ChunkId)> {
    let store = world.open(remote.clone()).unwrap();
    let reader = Reader::new(&store).unwrap();
    let Node::Tree { content, .. } = reader.resolve(&spec(name)).unwrap().node else {
        panic!("{name}: is no tree");
    };
    let mut found = Vec::new();
    for entry in reader.tree(&content).unwrap() {
        let Node::File { content, .. } = entry.node else {
            panic!("{name}: holds more than files");
        };
        let mut each = |id, _| {
            found.push((reader.locate(&id)?, entry.name.clone(), id));
            Ok(())
        };
        reader.chunks(&content, &mut each).unwrap();
    }
    found.sort_by_key(|(place, ..)| (place.pack, place.frame_offset, place.offset));
    found
}

/// Asserts that the chunks follow each other in one pack without gaps.
fn assert_adjacent(places: &[Location], what: &str) {
    for pair in places.windows(2) {
        let (before, after) = (pair[0], pair[1]);
        assert_eq!(before.pack, after.pack, "{what}");
        let end = before.offset + before.len;
        if before.frame_offset == after.frame_offset {
            assert_eq!(end, after.offset, "{what}");
        } else {
            let next = before.frame_offset + before.stored_len;
            assert_eq!((end, next), (before.raw_len, after.frame_offset), "{what}");
        }
    }
}

#[test]
fn what_lives_lies_together_in_the_order_it_had() {
    let world = sparse();
    let remote = world.memory();
    let before = REFS.map(|name| in_place(&world, &remote, name));
    let report = run(&world, &remote, &eager()).unwrap();
    assert!(report.plan.repack.len() >= 2 && report.copied_bytes > 7_000_000);
    for (name, before) in REFS.into_iter().zip(before) {
        let after = in_place(&world, &remote, name);
        let order = |chunks: &[(Location, Vec<u8>, ChunkId)]| -> Vec<_> {
            let rows = chunks.iter().map(|(_, name, id)| (name.clone(), *id));
            rows.collect()
        };
        assert!(order(&before) == order(&after), "{name}");
        let places: Vec<Location> = after.iter().map(|(place, ..)| *place).collect();
        assert_ne!(before[0].0.pack, places[0].pack, "{name}");
        assert_adjacent(&places, name);
        // Chunks with a frame of their own have one again; those that shared a frame share it with more.
        let (small, large): (Vec<_>, Vec<_>) = after
            .iter()
            .partition(|(_, name, _)| *name >= first_small());
        let frames: BTreeSet<u32> = small.iter().map(|(place, ..)| place.frame_offset).collect();
        assert_eq!(small.len() as u64, SMALL, "{name}");
        assert!(frames.len() <= 3, "{name}: {frames:?}");
        let shares = large
            .iter()
            .filter(|(place, ..)| place.len >= 16 << 10 && place.len != place.raw_len);
        assert_eq!(shares.count(), 0, "{name}");
    }
    world.check(remote, "repacked");
}

/// The clock: one second passes each time it is read.
static LOOKS: AtomicU64 = AtomicU64::new(0);

fn counted() -> Duration {
    Duration::from_secs(LOOKS.fetch_add(1, Ordering::Relaxed))
}

#[test]
fn a_time_limit_in_the_middle_of_the_copying_leaves_the_rest_to_the_next_run() {
    let world = sparse();
    let packs = |remote: &Arc<dyn Prune>| remote.list("packs").unwrap().len();
    let at_once = world.memory();
    let whole = run(&world, &at_once, &eager()).unwrap();
    let mut in_the_middle = 0;
    for looks in 1.. {
        let remote = world.memory();
        let mut request = eager();
        request.elapsed = counted;
        request.time_limit = Some(Duration::from_secs(looks));
        let what = format!("stopped at look {looks}");
        let report = run(&world, &remote, &request).unwrap();
        if !report.stopped {
            break;
        }
        let copied = 0 < report.copied_bytes && report.copied_bytes < whole.copied_bytes;
        in_the_middle += u64::from(copied);
        assert_eq!(world.check(remote.clone(), &what).len(), REFS.len());
        let rest = run(&world, &remote, &eager()).unwrap();
        let again = report.plan.repack.len() - rest.plan.repack.len();
        assert_eq!(again > 0, report.copied_bytes > 0, "{what}: {rest:?}");
        let sum = report.copied_bytes + rest.copied_bytes;
        assert!(sum < whole.copied_bytes + 10_000, "{what}: {sum} copied");
        assert_eq!(world.check(remote.clone(), &what).len(), REFS.len());
        assert_idle(&run(&world, &remote, &eager()).unwrap().plan, &what);
        assert!(packs(&remote) <= packs(&at_once) + 2, "{what}");
    }
    assert!(
        in_the_middle > 1,
        "{in_the_middle} runs stopped in the middle"
    );
}

/// The disk is full after any number of copied packs. The copies are removed again, the store is as before, and the
/// next run with space does everything.
#[test]
fn a_disk_that_is_full_in_the_middle_of_the_copying_gets_its_room_back() {
    let mut world = sparse();
    world.portions.pack_bytes = 1 << 20;
    let mut in_the_middle = 0;
    for uploads in 0.. {
        let inner = world.memory();
        let before = keys(inner.as_ref(), "packs");
        let faults = Faults {
            full_after: Some(uploads),
            ..Faults::default()
        };
        let remote: Arc<dyn Prune> = Arc::new(Faulty::new(inner.clone(), faults));
        let report = run(&world, &remote, &eager()).unwrap();
        if !report.disk_full {
            break;
        }
        in_the_middle += u64::from(uploads > 1);
        let what = format!("full after {uploads} uploads");
        let named: BTreeSet<String> = {
            let index = world.open(inner.clone()).unwrap().view().unwrap().index;
            index.packs().map(|pack| pack_key(pack.id)).collect()
        };
        let left: Vec<String> = keys(inner.as_ref(), "packs")
            .into_iter()
            .filter(|key| !before.contains(key) && !named.contains(key))
            .collect();
        assert_eq!(left, [""; 0], "{what}");
        assert_eq!(world.check(inner.clone(), &what).len(), REFS.len());
        assert!(!run(&world, &inner, &eager()).unwrap().disk_full, "{what}");
        assert_eq!(world.check(inner, &what).len(), REFS.len());
    }
    assert!(in_the_middle > 3, "{in_the_middle} copies in the middle");
}
