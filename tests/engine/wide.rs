//! Directories of more than a thousand names, whose trees have chunk lists themselves, with all operations that walk a
//! store: a collection, a transfer, a summary and a verification.

use store::format::Target;
use store::inspect::summarize;
use store::read::Reader;
use store::replicate::{RefStatus, Selection, replicate};
use store::{ReplicateRequest, Unwatched};
use support::trees;

use crate::collect::{eager, run};
use crate::replicate::{assert_sound, empty};
use crate::stores::{name, text};
use crate::world::World;

const NAMES: u64 = 3000;
const WIDE: &str = "project/a/wide";
const OTHER: &str = "project/a/other";

/// Two versions of a wide directory, with one subdirectory and different bytes in every file.
fn world() -> World {
    let mut world = World::new();
    for (tree, version) in [("one", 0), ("two", 1)] {
        for number in 0..NAMES {
            let seed = if number < 10 {
                number + 100 * version
            } else {
                number
            };
            let path = world.tree(tree).join(format!("entry-{number:05}"));
            trees::write(&path, &text(seed, 40));
        }
        trees::write(&world.tree(tree).join("sub/deep/file"), &text(7, 400));
    }
    trees::write(&world.tree("other/f"), &text(9, 40));
    world.prepare("one", WIDE);
    world.prepare("two", WIDE);
    world.prepare("other", OTHER);
    world
}

#[test]
fn a_collector_keeps_every_entry() {
    let world = world();
    let remote = world.memory();
    let store = world.open(remote.clone()).unwrap();
    store::refs::drop_versions(&store, &name(OTHER), None).unwrap();
    run(&world, &remote, &eager()).unwrap();
    let both = [format!("{WIDE}@1"), format!("{WIDE}@2")];
    assert_eq!(assert_sound(&world, &remote, "both"), both);
    store::refs::drop_versions(&store, &name(WIDE), Some(1)).unwrap();
    let report = run(&world, &remote, &eager()).unwrap();
    assert!(report.freed_bytes > 0, "{report:?}");
    assert_sound(&world, &remote, "the second");
    assert_eq!(world.check(remote, "the second"), [format!("{WIDE}@2")]);
}

#[test]
fn a_replicator_brings_every_entry() {
    let world = world();
    let (from, to) = (world.memory(), empty(&world));
    let (from, there) = (world.open(from).unwrap(), world.open(to.clone()).unwrap());
    let request = ReplicateRequest::new(vec![Selection::Ref(name(WIDE))]);
    let forgetful = store::replicate::Forgetful;
    let report = replicate(&from, &there, &request, &forgetful, &Unwatched).unwrap();
    assert!(
        matches!(report.refs[0].status, RefStatus::Published),
        "{report:?}"
    );
    assert!(report.raw_bytes > NAMES * 40, "{report:?}");
    assert_sound(&world, &to, "brought");
    assert_eq!(world.check(to, "brought"), [format!("{WIDE}@1")]);
}

/// The store is one namespace, and all of it is needed, so the sums equal what the segments name, to the byte.
#[test]
fn a_summary_counts_every_entry() {
    let world = world();
    let store = world.open(world.memory()).unwrap();
    let reader = Reader::new(&store).unwrap();
    let index = reader.view();
    let chunks: u64 = (index.index.segments())
        .map(|segment| segment.layout().chunks())
        .sum();
    let sum = |target: &str| {
        let target = Target::parse(target.as_bytes()).unwrap();
        let summary = summarize(&reader, &target).unwrap();
        let held = summary.unique.bytes + summary.shared.bytes;
        (summary, summary.unique.chunks + summary.shared.chunks, held)
    };
    let (all, held_chunks, held) = sum("project/a");
    assert_eq!((all.refs, all.versions, all.shared.chunks), (2, 3, 0));
    assert_eq!(held_chunks, chunks, "{all:?}");
    // Files and directories: two large ones that share most of their chunks, and small ones.
    assert!(held > all.bytes + NAMES * 50, "{all:?}");
    let (wide, wide_chunks, wide_held) = sum(WIDE);
    let (other, other_chunks, other_held) = sum(OTHER);
    let shared = (wide.shared, wide.shared.chunks);
    assert_eq!(shared, (other.shared, other.shared.chunks));
    assert_eq!(wide_chunks + other_chunks - wide.shared.chunks, chunks);
    assert_eq!(wide_held + other_held - wide.shared.bytes, held);
}
