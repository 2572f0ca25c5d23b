//! Removing paths, and undoing a drop: killed at every request, and beside others who commit and collect.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;

use gc::collect;
use store::format::{Change, Target, pack_key};
use store::refs::drop_versions;
use store::remote::Prune;
use store::remote::testing::faulty::{Faults, Faulty};
use store::remote::testing::schedule::{Scheduled, in_bursts};
use store::replicate::undo;
use store::{
    Ancestor, Onto, PutRequest, Result, Store, TrimFilter, TrimRequest, Unwatched, put, trim,
};
use support::trees::write;
use support::{Random, each_seed, effort};

use crate::between::commit;
use crate::collect::eager;
use crate::replicate::assert_sound;
use crate::stores::{name, noise, spec};
use crate::world::{World, assert_expected};

const REF: &str = "project/one/cache";

fn world() -> World {
    let mut world = World::fine();
    for version in 1..=3 {
        for number in 0..8 {
            write(
                &world
                    .tree("in")
                    .join(format!("dir-{}/{number}", number % 3)),
                b"kept",
            );
        }
        write(&world.tree("in/dir-0/goes"), b"goes");
        write(&world.tree("in/version"), format!("{version}").as_bytes());
        world.prepare("in", REF);
    }
    world
}

fn request() -> TrimRequest {
    TrimRequest {
        target: name(REF),
        paths: vec![b"dir-0/goes".to_vec(), b"dir-1".to_vec()],
        filter: TrimFilter::default(),
        message: String::new(),
        dry_run: false,
    }
}

/// Repeats `act`, killed one request later each time, until it completes.
fn killed_everywhere(
    world: &World,
    act: &dyn Fn(&Store) -> Result<()>,
    check: &dyn Fn(&Arc<dyn Prune>, bool),
) {
    for stop_after in 0.. {
        let remote = world.memory();
        let faulty = Arc::new(Faulty::new(remote.clone(), Faults::default()));
        faulty.set(Faults {
            stop_after: Some(stop_after),
            ..Faults::default()
        });
        let done = world.open(faulty).and_then(|store| act(&store));
        assert_sound(world, &remote, &format!("after {stop_after}"));
        check(&remote, false);
        // A repeated attempt leads to the same result.
        act(&world.open(remote.clone()).unwrap()).unwrap();
        check(&remote, true);
        assert_sound(world, &remote, &format!("again after {stop_after}"));
        if done.is_ok() {
            assert!(stop_after >= 1);
            return;
        }
    }
}

#[test]
fn a_trim_that_is_killed_anywhere_has_happened_or_not() {
    let world = world();
    let act = |store: &Store| match trim(store, &request()) {
        // It had been done already.
        Err(error) if error.kind() == store::ErrorKind::NotFound => Ok(()),
        done => done.map(drop),
    };
    killed_everywhere(&world, &act, &|remote, is_done| {
        let store = world.open(remote.clone()).unwrap();
        let out = world.get(&store, REF).unwrap();
        let there = ["dir-0/goes", "dir-1"].map(|path| out.path().join(path).exists());
        assert_eq!(there[0], there[1]);
        assert!(!is_done || !there[0]);
        assert_eq!(fs::read_to_string(out.path().join("version")).unwrap(), "3");
        assert!(out.path().join("dir-0/0").exists() && out.path().join("dir-2/2").exists());
    });
}

#[test]
fn an_undo_that_is_killed_anywhere_is_finished_by_the_next_one() {
    let mut world = world();
    world.change(|store| drop(drop_versions(store, &name(REF), Some(2)).unwrap()));
    let what = Target::parse(REF.as_bytes()).unwrap();
    let act = |store: &Store| undo(store, Some(&what), false, &Unwatched).map(drop);
    killed_everywhere(&world, &act, &|remote, is_done| {
        let store = world.open(remote.clone()).unwrap();
        let versions = store.state().unwrap().versions(&name(REF)).unwrap();
        let text = |number: u64| {
            let out = world.get(&store, &format!("{REF}@{number}")).unwrap();
            fs::read_to_string(out.path().join("version")).unwrap()
        };
        let texts: Vec<String> = versions.keys().map(|number| text(*number)).collect();
        assert!(
            texts.starts_with(&["1".to_owned(), "3".to_owned()]),
            "{texts:?}"
        );
        // The newest version stays the newest at all times.
        assert_eq!(texts.last().unwrap(), "3", "{texts:?}");
        assert!(!is_done || texts.contains(&"2".to_owned()), "{texts:?}");
    });
}

/// Of the versions that one entry dropped, the readable ones are restored, and the others are reported.
#[test]
fn what_an_undo_cannot_bring_back_is_told_beside_what_it_can() {
    let other = "project/one/other";
    let mut world = world();
    write(&world.tree("other/large"), &noise(9, 50_000));
    world.prepare("other", other);
    let remote = world.memory();
    let store = world.open(remote.clone()).unwrap();
    let reader = store::read::Reader::new(&store).unwrap();
    let found = reader.resolve(&spec(&format!("{other}:large"))).unwrap();
    let store::format::Node::File { content, .. } = found.node else {
        panic!("a file");
    };
    let mut packs = BTreeSet::new();
    let mut each = |id, _| {
        packs.insert(pack_key(reader.locate(&id)?.pack));
        Ok(())
    };
    reader.chunks(&content, &mut each).unwrap();
    let drops = [(REF, 3), (other, 1)].map(|(target, version)| Change::DropRef {
        name: name(target),
        version,
    });
    commit(&*remote, &drops);
    remote.delete(&Vec::from_iter(packs)).unwrap();
    let store = world.open(remote.clone()).unwrap();
    let report = undo(&store, None, false, &Unwatched).unwrap();
    let back = store::replicate::Restored {
        name: name(REF),
        from: 3,
        to: Some(4),
        on_top: false,
    };
    assert_eq!(report.restored, [back]);
    let [(failed, 1, error)] = &report.failed[..] else {
        panic!("{report:?}");
    };
    assert_eq!(
        (failed, error.kind()),
        (&name(other), store::ErrorKind::Corrupt)
    );
    assert!(
        error.to_string().starts_with("its bytes are lost"),
        "{error}"
    );
    assert_sound(&world, &remote, "what came back");
}

/// A job that saves, one that removes paths, and a collector. A seed determines the order of their calls.
#[test]
fn trims_and_saves_beside_each_other_lose_nothing() {
    let world = world();
    write(&world.tree("job/dir-2/new"), b"new");
    for number in 0..8 {
        write(
            &world
                .tree("job")
                .join(format!("dir-{}/{number}", number % 3)),
            b"kept",
        );
    }
    write(&world.tree("job/dir-0/goes"), b"goes");
    write(&world.tree("job/version"), b"3");
    each_seed(effort(20, 1000), |seed| {
        let remote = world.memory();
        let backends =
            (0..3).map(|_| Arc::new(Faulty::new(remote.clone(), Faults::default())) as _);
        let mut random = Random::new(seed);
        let turns = in_bursts(random.draw(), 1 + random.below(40), backends.collect());
        std::thread::scope(|scope| {
            for (who, turn) in turns.into_iter().enumerate() {
                let remote: Arc<dyn Prune> = Arc::<Scheduled>::new(turn);
                let world = &world;
                scope.spawn(move || {
                    let store = world.open(remote.clone()).unwrap();
                    let done = match who {
                        0 => trim(&store, &request()).map(drop),
                        1 => put(&store, &save(world), &Unwatched).map(drop),
                        _ => collect(&store, remote.as_ref(), &eager()).map(drop),
                    };
                    if let Err(error) = done {
                        assert!(who > 1, "seed {seed}: {error:?}");
                        assert_expected(&error, seed);
                    }
                });
            }
        });
        assert_sound(&world, &remote, &format!("seed {seed}"));
        let store = world.open(remote.clone()).unwrap();
        let out = world.get(&store, REF).unwrap();
        let is_there = |path: &str| out.path().join(path).exists();
        assert!(is_there("dir-2/new") && is_there("dir-0/0"), "seed {seed}");
        assert!(!is_there("dir-0/goes") && !is_there("dir-1"), "seed {seed}");
    });
}

fn save(world: &World) -> PutRequest {
    PutRequest {
        onto: Onto::Merge(Ancestor::Version(3)),
        ..PutRequest::save(world.tree("job"), name(REF))
    }
}
