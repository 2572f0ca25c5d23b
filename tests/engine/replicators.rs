//! Transfers that are disturbed at each step; and transfers, writers, collectors and droppers on two stores at the same
//! time: in every order, each live version reads back on both sides.
//!
//! Collectors are as aggressive as possible: no grace, no age, no unused bytes. Faults and actions follow from the seed
//! in the failure message; the order of threads does not.

use std::sync::Arc;

use gc::collect;
use store::remote::testing::faulty::{Faults, Faulty};
use store::remote::testing::schedule::schedule;
use store::remote::{Objects, Prune, Write};
use store::replicate::{Delete, Forgetful, Memory, RefStatus, Resume};
use store::{Error, ErrorKind, ReplicateReport, Store, Unwatched, replicate};
use support::{Random, each_seed, effort, trees};

use crate::collect::eager;
use crate::replicate::{all, assert_sound, bring, empty, latest, run};
use crate::world::{World, assert_expected, random_faults};

const TREES: u64 = 5;
const REFS: [&str; 3] = ["project/one/data", "project/one/more", "team/two/data"];
const WHAT: [&str; 2] = ["project/one", "team/two"];
/// All versions at the beginning.
const EVERYTHING: [&str; 4] = [
    "project/one/data@1",
    "project/one/data@2",
    "project/one/more@1",
    "team/two/data@1",
];
const OPERATIONS: u64 = 3;
/// More requests than one run makes.
const STEPS_MAX: u64 = 300;

/// A store with a version of each ref: small, similar trees.
fn world() -> World {
    let mut world = World::fine();
    for number in 0..TREES {
        trees::version(&world.tree(&number.to_string()), 7, number, 4_000);
    }
    world.prepare("0", REFS[0]);
    world.prepare("1", REFS[0]);
    world.prepare("2", REFS[1]);
    world.prepare("3", REFS[2]);
    world
}

/// Whatever a fault did to the first run, its published versions are complete; the second run transfers the rest. Tries
/// the faults at `first` and at every `step`-th place after it, until one comes too late.
fn disturbed(
    world: &World,
    faults: impl Fn(u64) -> Faults,
    at_source: bool,
    (first, step): (u64, usize),
) -> u64 {
    for at in (first..STEPS_MAX).step_by(step) {
        let (from, to) = (world.memory(), empty(world));
        let what = format!("step {at}, at the source: {at_source}");
        let inner = if at_source { &from } else { &to };
        let faulty = Arc::new(Faulty::new(inner.clone(), faults(at)));
        let (one, other) = match at_source {
            true => (faulty.clone() as _, to.clone()),
            false => (from.clone(), faulty.clone() as _),
        };
        let first = run(world, &one, &other, &all(&WHAT));
        let published = first
            .iter()
            .flat_map(|report| &report.refs)
            .filter_map(|one| {
                let is_there = matches!(one.status, RefStatus::Published);
                is_there.then(|| format!("{}@{}", one.name, one.to.unwrap()))
            });
        let before = assert_sound(world, &to, &what);
        for version in published {
            assert!(before.contains(&version), "{what}: {version} of {before:?}");
        }
        bring(world, &from, &to, &all(&WHAT));
        assert_eq!(assert_sound(world, &to, &what), EVERYTHING, "{what}");
        let counts = faulty.counts();
        let is_through = match faults(at).stop_after {
            Some(stop) => counts.mutations < stop,
            None => counts.requests < at,
        };
        if is_through {
            assert!(first.unwrap().stopped.is_none());
            assert_eq!(world.check(to, &what), EVERYTHING);
            return at;
        }
    }
    panic!("more than {STEPS_MAX} steps");
}

#[test]
fn power_goes_off_after_every_mutation() {
    let steps = disturbed(
        &world(),
        |at| Faults {
            stop_after: Some(at - 1),
            ..Faults::default()
        },
        false,
        (1, 1),
    );
    assert!(steps > 4, "packs, a segment, an entry: {steps}");
}

/// A kind of fault, and how to set it.
type FaultKind = (&'static str, fn(&mut Faults));

#[test]
fn one_fault_at_every_request_of_either_side() {
    let kinds: [FaultKind; 5] = [
        ("no answer", |faults| faults.before = 1000),
        ("a lost answer", |faults| faults.after = 1000),
        ("a create told twice", |faults| faults.retold = 1000),
        ("an answer cut short", |faults| faults.truncated = 1000),
        ("a call overtaken", |faults| faults.overtaken = 1000),
    ];
    let world = world();
    // In the ordinary suite every place has one of the kinds.
    let step = effort(3, 1);
    for (first, (name, set)) in (1..=step as u64).cycle().zip(kinds) {
        for at_source in [false, true] {
            println!("{name}");
            disturbed(
                &world,
                |at| {
                    let mut faults = Faults {
                        only_at: Some(at),
                        ..Faults::default()
                    };
                    set(&mut faults);
                    faults
                },
                at_source,
                (first, step),
            );
        }
    }
}

/// The role of a participant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Replicate,
    Put,
    Collect,
    Drop,
}

#[test]
fn replicators_writers_collectors_and_droppers_lose_nothing() {
    let world = world();
    for seed in 0..effort(24, 4000) {
        play_all(&world, seed);
    }
}

fn play_all(world: &World, seed: u64) {
    let what = format!("seed {seed}");
    let (from, to) = (world.memory(), empty(world));
    let mut random = Random::new(seed);
    std::thread::scope(|scope| {
        for (part, is_there) in cast(&mut random) {
            let mut faulty = |remote: &Arc<dyn Prune>| -> Arc<dyn Prune> {
                Arc::new(Faulty::new(remote.clone(), faults(&mut random)))
            };
            let remotes = (faulty(&from), faulty(&to));
            let random = Random::new(random.draw());
            scope.spawn(move || play(world, part, is_there, &remotes, random, seed));
        }
    });
    world.check(from.clone(), &what);
    let found = world.check(to.clone(), &what);
    assert_sound(world, &from, &what);
    assert_sound(world, &to, &what);
    // A quiet collection takes nothing that is needed, and a quiet transfer completes the destination.
    let there = world.open(to.clone()).unwrap();
    collect(&there, to.as_ref(), &eager()).unwrap_or_else(|error| panic!("{what}: {error:?}"));
    assert_eq!(world.check(to.clone(), &what), found, "{what}");
    let report = run(world, &from, &to, &live(world, &from)).unwrap();
    assert!(report.stopped.is_none(), "{what}: {report:?}");
    for outcome in report.refs {
        // An earlier version may conflict if somebody has put a later one at the destination.
        let is_fine = |error: &Error| error.kind() == ErrorKind::Conflict;
        if let RefStatus::Failed(error) = outcome.status {
            assert!(is_fine(&error), "{what}: {error:?}");
        }
    }
    let there = world.open(to.clone()).unwrap().state().unwrap();
    for (name, root) in newest(world, &from) {
        let versions = there.versions(&name.parse().unwrap()).unwrap();
        let is_there = versions.values().any(|version| version.root == root);
        assert!(is_there, "{what}: {name}");
    }
}

/// All refs that have a version.
fn live(world: &World, remote: &Arc<dyn Prune>) -> store::ReplicateRequest {
    let names: Vec<_> = newest(world, remote)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    latest(&names.iter().map(String::as_str).collect::<Vec<_>>())
}

fn newest(world: &World, remote: &Arc<dyn Prune>) -> Vec<(String, store::format::Root)> {
    let state = world.open(remote.clone()).unwrap().state().unwrap();
    let refs = state.refs.iter();
    refs.filter_map(|found| {
        let (name, known) = found.unwrap();
        let (_, version) = known.versions.last_key_value()?;
        Some((name.to_string(), version.root))
    })
    .collect()
}

/// Two transfers, a collector on each side, and some others. The second value is whether it works at the destination.
fn cast(random: &mut Random) -> Vec<(Part, bool)> {
    let mut parts = vec![
        (Part::Replicate, true),
        (Part::Replicate, true),
        (Part::Collect, true),
        (Part::Collect, false),
    ];
    for part in [Part::Put, Part::Drop, Part::Collect] {
        for is_there in [false, true] {
            if random.below(3) == 0 {
                parts.push((part, is_there));
            }
        }
    }
    parts
}

/// A quarter of all participants loses power.
fn faults(random: &mut Random) -> Faults {
    Faults {
        stop_after: (random.below(4) == 0).then(|| random.below(30)),
        ..random_faults(random, [0, 0, 10, 40])
    }
}

/// Acts several times, each time as a new process.
fn play(
    world: &World,
    part: Part,
    is_there: bool,
    (from, to): &(Arc<dyn Prune>, Arc<dyn Prune>),
    mut random: Random,
    seed: u64,
) {
    let memory = Memory::default();
    for _ in 0..OPERATIONS {
        let own = if is_there { to } else { from };
        let (Ok(here), Ok(store)) = (
            Store::open(from.clone() as Arc<dyn Write>, world.host()),
            Store::open(own.clone() as Arc<dyn Write>, world.host()),
        ) else {
            continue;
        };
        let name = REFS[usize::try_from(random.below(3)).unwrap()];
        let failed = match part {
            Part::Replicate => replicator(&here, &store, &mut random, &memory),
            Part::Put => {
                let tree = random.below(TREES).to_string();
                world.put_with(&store, &tree, name).err()
            }
            Part::Collect => collect(&store, own.as_ref(), &eager()).err(),
            Part::Drop => {
                let number = 1 + random.below(4);
                store::refs::drop_versions(&store, &name.parse().unwrap(), Some(number)).err()
            }
        };
        if let Some(error) = failed {
            assert_expected(&error, seed);
        }
    }
}

/// Runs a transfer, sometimes without the memory of earlier runs.
fn replicator(from: &Store, to: &Store, random: &mut Random, memory: &Memory) -> Option<Error> {
    let mut request = match random.below(2) {
        0 => all(&WHAT),
        _ => latest(&WHAT),
    };
    request.verify = random.below(2) == 0;
    if random.below(6) == 0 {
        request.delete = Delete::All;
    }
    let resume: &dyn Resume = match random.below(3) {
        0 => &Forgetful,
        _ => memory,
    };
    match replicate(from, to, &request, resume, &Unwatched) {
        Ok(ReplicateReport { stopped, .. }) => stopped,
        Err(error) => Some(error),
    }
}

/// A seed determines the order of calls, so each seed tests another interleaving on any machine. Uses a directory,
/// whose segments are mapped; otherwise several threads of one participant would make calls at the same time.
#[test]
fn two_replicators_and_a_collector_in_every_order() {
    let world = world();
    each_seed(effort(20, 2000), |seed| {
        let what = format!("seed {seed}");
        let (from, dir) = (world.memory(), world.tree(&format!("there-{seed}")));
        let to: Arc<dyn Prune> = Arc::new(Objects::directory(&dir).unwrap());
        Store::init(to.clone(), world.host()).unwrap();
        // Parts of the later data, which no version needs any more, so that there is something to collect.
        bring(&world, &from, &to, &latest(&[REFS[0]]));
        let name = REFS[0].parse().unwrap();
        store::refs::drop_versions(&world.open(to.clone()).unwrap(), &name, None).unwrap();
        let turns = schedule(seed, vec![to.clone(); 3]).into_iter();
        let turns: Vec<Arc<dyn Prune>> = turns.map(|turn| Arc::new(turn) as _).collect();
        let [one, other, theirs] = turns.try_into().unwrap();
        let bring = |mine: Arc<dyn Prune>| {
            let report = run(&world, &from, &mine, &all(&WHAT));
            let report = report.unwrap_or_else(|error| panic!("{what}: {error:?}"));
            assert!(report.stopped.is_none(), "{what}: {report:?}");
        };
        std::thread::scope(|scope| {
            scope.spawn(|| bring(one));
            scope.spawn(|| bring(other));
            scope.spawn(|| {
                let (theirs, world) = (theirs, &world);
                let store = world.open(theirs.clone()).unwrap();
                collect(&store, theirs.as_ref(), &eager()).map(drop)
            });
        });
        // Number 1 of one ref belonged to the dropped version. Nothing was published twice.
        let found = assert_sound(&world, &to, &what);
        let expected = [
            "project/one/data@2",
            "project/one/data@3",
            "project/one/more@1",
            "team/two/data@1",
        ];
        assert_eq!(found, expected, "{what}");
        if seed % 10 == 0 {
            assert_eq!(world.check(to, &what), expected, "{what}");
        }
        std::fs::remove_dir_all(dir).unwrap();
    });
}
