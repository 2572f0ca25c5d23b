//! Several hosts on one store with a faulty backend: in every order of calls, each version in the log reads back as it
//! was put, and each acknowledged version is in the log.
//!
//! Faults follow from the seed in the failure message; the order of threads does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use store::format::Who;
use store::remote::testing::faulty::Faults;
use store::remote::{Faulty, Prune};
use store::{ErrorKind, Host, Store};
use support::{Random, assert_same_tree, effort, trees};

use crate::replicate::assert_sound;
use crate::world::{World, random_faults};

const TREES: u64 = 6;
const REFS: [&str; 2] = ["project/one/data", "team/two/data"];
const OPERATIONS: u64 = 3;

#[test]
fn puts_and_gets_at_once_over_a_failing_backend() {
    let mut world = World::fine();
    for number in 0..TREES {
        trees::version(&world.tree(&number.to_string()), 7, number, 3_000);
    }
    world.prepare("0", REFS[0]);
    // The stat cache accepts only files that have settled.
    std::thread::sleep(std::time::Duration::from_secs(2));
    let seeds = effort(60, 3000);
    let mut done = Done::default();
    for seed in 0..seeds {
        let one = run(&world, seed);
        done.puts += one.puts;
        done.gets += one.gets;
    }
    // Most backends fail only now and then. If almost nothing succeeds, something else is wrong.
    println!("{done:?} of {seeds} runs");
    assert!(
        done.puts > 2 * seeds && done.gets > seeds / 2,
        "{done:?} of {seeds} runs"
    );
}

/// The number of successful operations.
#[derive(Debug, Default)]
struct Done {
    puts: u64,
    gets: u64,
}

fn run(world: &World, seed: u64) -> Done {
    let remote = world.memory();
    let cache = tempfile::tempdir().unwrap();
    let mut random = Random::new(seed);
    let hosts = 2 + random.below(2);
    let gets = AtomicU64::new(0);
    let acknowledged: Vec<String> = std::thread::scope(|scope| {
        let gets = &gets;
        let hosts: Vec<_> = (0..hosts)
            .map(|number| {
                let faulty =
                    Faulty::new(remote.clone(), random_faults(&mut random, [0, 10, 40, 150]));
                let random = Random::new(random.draw());
                // Half of the hosts share a stat cache.
                let cache = (number % 2 == 0).then(|| cache.path().to_owned());
                let host = Host {
                    cache_dir: cache,
                    who: Who::default(),
                    memory_bytes: 128 << 20,
                    threads: 2,
                    stop: Arc::default(),
                };
                scope.spawn(move || operate(world, &faulty, host, random, gets, seed))
            })
            .collect();
        hosts
            .into_iter()
            .flat_map(|host| host.join().unwrap())
            .collect()
    });
    let what = format!("seed {seed}");
    let found = world.check(remote.clone(), &what);
    assert_sound(world, &remote, &what);
    for version in &acknowledged {
        assert!(
            found.contains(version),
            "seed {seed}: {version} was acknowledged, {found:?}"
        );
    }
    Done {
        puts: acknowledged.len() as u64,
        gets: gets.into_inner(),
    }
}

/// Puts and gets at random. Returns the acknowledged versions.
fn operate(
    world: &World,
    faulty: &Faulty,
    host: Host,
    mut random: Random,
    gets: &AtomicU64,
    seed: u64,
) -> Vec<String> {
    let mut acknowledged = Vec::new();
    for _ in 0..OPERATIONS {
        let Ok(store) = world.open_as(Arc::new(faulty.clone()), host.clone()) else {
            continue;
        };
        let name = REFS[usize::try_from(random.below(2)).unwrap()];
        if random.below(3) == 0 {
            let got = get_and_compare(world, &store, name, seed);
            gets.fetch_add(u64::from(got), Ordering::Relaxed);
            continue;
        }
        let tree = random.below(TREES).to_string();
        match world.put_with(&store, &tree, name) {
            Ok(report) => acknowledged.push(format!("{name}@{}", report.version.unwrap())),
            Err(error) => assert_ne!(
                error.kind(),
                ErrorKind::InvalidInput,
                "seed {seed}: {error:?}"
            ),
        }
    }
    acknowledged
}

/// A get either fails or returns what was put. Returns whether it succeeded.
fn get_and_compare(world: &World, store: &Store, name: &str, seed: u64) -> bool {
    let Ok(state) = store.state() else {
        return false;
    };
    let Ok((number, version)) = state.version(&name.parse().unwrap(), None) else {
        return false;
    };
    let Ok(out) = world.get(store, &format!("{name}@{number}")) else {
        return false;
    };
    println!("seed {seed}: {name}@{number} of {}", version.message);
    assert_same_tree(&world.tree(&version.message), out.path());
    true
}

/// The backends of a run share one memory, but each has its own faults.
#[test]
fn faults_of_one_host_are_not_those_of_another() {
    let world = World::new();
    let remote: Arc<dyn Prune> = world.memory();
    let bad = Faults {
        before: 1000,
        ..Faults::default()
    };
    let bad = Arc::new(Faulty::new(remote.clone(), bad));
    let good = Arc::new(Faulty::new(remote, Faults::default()));
    assert_eq!(world.open(bad).unwrap_err().kind(), ErrorKind::Unavailable);
    world.open(good).unwrap();
}
