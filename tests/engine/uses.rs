//! Uses of versions: readers that cannot record a use read anyway.

use std::fs;
use std::sync::Arc;

use store::remote::Read;
use store::remote::testing::faulty::{Faults, Faulty};
use store::{MaterializeRequest, Pool, PoolLimits, Store, Unwatched, materialize};

use crate::stores::{noise, spec};
use crate::world::World;

const REF: &str = "project/a/data";

fn world() -> World {
    let mut world = World::new();
    fs::create_dir_all(world.tree("in")).unwrap();
    fs::write(world.tree("in/file"), noise(1, 300_000)).unwrap();
    world.prepare("in", REF);
    world
}

fn materialized(world: &World, store: &Store) {
    let out = world.tree("out");
    let request = MaterializeRequest {
        copy_below_bytes: 0,
        ..MaterializeRequest::new(spec(REF), out.clone())
    };
    let pool = Pool::open(&world.tree("pool"), PoolLimits::default()).unwrap();
    materialize(store, &pool, &request, &Unwatched).unwrap();
    assert_eq!(fs::read(out.join("file")).unwrap(), noise(1, 300_000));
    fs::remove_dir_all(out).unwrap();
}

fn got(world: &World, store: &Store) {
    world.get(store, REF).unwrap();
}

fn printed(_: &World, store: &Store) {
    let mut bytes = Vec::new();
    store::cat(
        store,
        &spec("project/a/data:file"),
        &(0..u64::MAX),
        &mut |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        },
    )
    .unwrap();
    assert_eq!(bytes, noise(1, 300_000));
}

const WAYS: [fn(&World, &Store); 3] = [got, printed, materialized];

/// Either all writes fail, or their answers are lost.
#[test]
fn no_reader_fails_for_a_use() {
    let world = world();
    let none = Faults::default();
    let off = Faults {
        stop_after: Some(0),
        ..none
    };
    let lost = Faults {
        after: 1000,
        ..none
    };
    for (faults, left) in [(off, 0), (lost, 1)] {
        for read in WAYS {
            let remote = Arc::new(Faulty::new(world.memory(), none));
            let store = world.open(remote.clone()).unwrap();
            remote.set(faults);
            read(&world, &store);
            remote.set(none);
            assert_eq!(remote.list("uses").unwrap().len(), left, "{faults:?}");
        }
    }
}

#[test]
fn what_reads_for_a_job_leaves_a_use() {
    let world = world();
    let used = |reads: &[fn(&World, &Store)]| {
        let remote = world.memory();
        let store = world.open(remote.clone()).unwrap();
        reads.iter().for_each(|read| read(&world, &store));
        remote.list("uses").unwrap().len()
    };
    for read in WAYS {
        assert_eq!(used(&[read]), 1);
    }
    assert_eq!(used(&WAYS), 1);
    let failed = |world: &World, store: &Store| {
        world.get(store, "project/a/other").unwrap_err();
    };
    assert_eq!(used(&[failed]), 0);
}
