//! What a collection counts, and what it tells of its reasons.

use gc::Request;
use support::trees;

use crate::collect::{drop_ref, eager, run, world};
use crate::stores::{noise, text};
use crate::world::World;

#[test]
fn what_was_dropped_before_the_newest_checkpoint_is_still_told() {
    let world = world();
    let remote = world.memory();
    let store = world.open(remote.clone()).unwrap();
    let name = "project/a/data".parse().unwrap();
    let pin_until = |number: u64| {
        let is_before = || store.state().unwrap().number < number;
        for turn in (0..).take_while(|_| is_before()) {
            store::refs::pin(&store, &name, Some(2), turn % 2 == 0).unwrap();
        }
    };
    pin_until(100);
    drop_ref(&store, "project/a/data", Some(1));
    pin_until(135);
    let dry = Request {
        dry_run: true,
        ..eager()
    };
    let report = run(&world, &remote, &dry).unwrap();
    assert!(report.shared.contains_key(&name), "{report:?}");
}

/// Noise and text lie in one pack, and text takes about half of its bytes there.
#[test]
fn what_is_unused_is_counted_as_it_is_stored() {
    let world = World::new();
    let remote = world.memory();
    let (noise, text) = (noise(1, 1_000_000), text(2, 1_000_000));
    trees::write(&world.tree("both").join("noise"), &noise);
    trees::write(&world.tree("both").join("text"), &text);
    trees::write(&world.tree("text").join("text"), &text);
    let put = |tree: &str| world.put(remote.clone(), tree, "project/a/data").unwrap();
    put("both");
    put("text");
    drop_ref(
        &world.open(remote.clone()).unwrap(),
        "project/a/data",
        Some(1),
    );
    let mut request = eager();
    request.options.max_unused_ppm = 1_000_000;
    let held = run(&world, &remote, &request).unwrap().plan.held;
    let noise = noise.len() as u64;
    assert!(
        (noise - noise / 50..noise + noise / 50).contains(&held.unused_bytes),
        "{held:?}"
    );
}
