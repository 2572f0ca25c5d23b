//! Writers, collectors and droppers on one store at the same time, with errors before and after effect, lost answers
//! and power cuts: in every order, each live version reads back.
//!
//! The collectors are as aggressive as possible: no grace, no age, no unused bytes. Faults and actions follow from the
//! seed in the failure message; the order of threads does not.

use std::sync::Arc;

use gc::collect;
use store::Host;
use store::remote::testing::faulty::{Faults, Faulty};
use store::remote::{Prune, Write};
use support::{Random, effort, trees};

use crate::collect::eager;
use crate::replicate::assert_sound;
use crate::stores::host;
use crate::world::{World, assert_expected, random_faults};

const TREES: u64 = 6;
const REFS: [&str; 3] = ["project/one/data", "project/one/more", "team/two/data"];
const OPERATIONS: u64 = 3;

/// The role of a participant.
#[derive(Clone, Copy)]
enum Part {
    Put,
    Collect,
    Drop,
}

fn world() -> World {
    let mut world = World::fine();
    for number in 0..TREES {
        trees::version(&world.tree(&number.to_string()), 7, number, 4_000);
    }
    world.prepare("0", REFS[0]);
    world.prepare("1", REFS[1]);
    world
}

#[test]
fn writers_collectors_and_droppers_lose_nothing() {
    let world = world();
    for seed in 0..effort(24, 4000) {
        run(&world, seed);
    }
}

fn run(world: &World, seed: u64) {
    let remote = world.memory();
    let mut random = Random::new(seed);
    let acknowledged: Vec<String> = std::thread::scope(|scope| {
        let players: Vec<_> = cast(&mut random)
            .into_iter()
            .map(|part| {
                let remote = Arc::new(Faulty::new(remote.clone(), faults(&mut random)));
                let random = Random::new(random.draw());
                scope.spawn(move || play(world, part, remote, random, seed))
            })
            .collect();
        players
            .into_iter()
            .flat_map(|player| player.join().unwrap())
            .collect()
    });
    let what = format!("seed {seed}");
    let found = world.check(remote.clone(), &what);
    assert_sound(world, &remote, &what);
    // Versions may have been dropped, but the log shows that an acknowledged version existed.
    let state = world.open(remote.clone()).unwrap().state().unwrap();
    for version in acknowledged {
        let (name, number) = version.rsplit_once('@').unwrap();
        let last = state.refs.all().unwrap()[&name.parse().unwrap()].last;
        assert!(
            number.parse::<u64>().unwrap() <= last,
            "{what}: {version}, last {last}"
        );
    }
    // One quiet run collects the leftovers and nothing else.
    let store = world.open(remote.clone()).unwrap();
    collect(&store, remote.as_ref(), &eager()).unwrap_or_else(|error| panic!("{what}: {error:?}"));
    assert_eq!(world.check(remote.clone(), &what), found, "{what}");
    let state = store.state().unwrap();
    assert!(state.dropped.is_empty(), "{what}: {:?}", state.dropped);
    let segments = remote.list("segments").unwrap();
    assert_eq!(segments.len(), state.segments.len(), "{what}");
}

/// Two or three writers, one or two collectors, and perhaps a dropper.
fn cast(random: &mut Random) -> Vec<Part> {
    let mut parts = vec![Part::Put, Part::Put, Part::Collect];
    for part in [Part::Put, Part::Collect, Part::Drop] {
        if random.below(2) == 0 {
            parts.push(part);
        }
    }
    parts
}

/// A quarter of all participants loses power.
fn faults(random: &mut Random) -> Faults {
    Faults {
        stop_after: (random.below(4) == 0).then(|| random.below(30)),
        ..random_faults(random, [0, 10, 40, 80])
    }
}

/// Acts several times, each time as a new process. Returns the acknowledged versions.
fn play(
    world: &World,
    part: Part,
    remote: Arc<dyn Prune>,
    mut random: Random,
    seed: u64,
) -> Vec<String> {
    let mut acknowledged = Vec::new();
    let dir = world.tree("");
    let host = Host {
        cache_dir: None,
        ..host(&dir)
    };
    for _ in 0..OPERATIONS {
        let Ok(store) = world.open_as(remote.clone() as Arc<dyn Write>, host.clone()) else {
            continue;
        };
        let name = REFS[usize::try_from(random.below(3)).unwrap()];
        let failed = match part {
            Part::Put => {
                let tree = random.below(TREES).to_string();
                match world.put_with(&store, &tree, name) {
                    Ok(report) => {
                        acknowledged.push(format!("{name}@{}", report.version.unwrap()));
                        None
                    }
                    Err(error) => Some(error),
                }
            }
            Part::Collect => {
                // Half of the collections leave unfinished passes alone.
                let mut request = eager();
                request.options.min_age_secs = 24 * 3600 * random.below(2);
                collect(&store, remote.as_ref(), &request).err()
            }
            Part::Drop => {
                let number = 1 + random.below(4);
                let name = name.parse().unwrap();
                store::refs::drop_versions(&store, &name, Some(number)).err()
            }
        };
        if let Some(error) = failed {
            assert_expected(&error, seed);
        }
    }
    acknowledged
}
