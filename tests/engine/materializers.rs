//! Hosts that materialize with a failing backend, while writers, collectors and droppers change the store: a tree is
//! complete, as it was put, or not there at all. Pool and store are sound afterwards.
//!
//! Faults and actions follow from the seed in the failure message; the order of threads does not.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gc::collect;
use store::remote::Prune;
use store::remote::testing::faulty::{Faults, Faulty};
use store::{Error, MaterializeRequest, Pool, PoolLimits, Result, Store, Unwatched, materialize};
use support::{Random, assert_same_but_file_times, each_seed, effort, trees};

use crate::collect::eager;
use crate::replicate::assert_sound;
use crate::world::{World, assert_expected, random_faults};

const TREES: u64 = 5;
const REFS: [&str; 2] = ["project/one/data", "team/two/data"];
const OPERATIONS: u64 = 3;
/// Files of at least this size are linked.
const COPY_BELOW_BYTES: u64 = 400;

/// The role of a participant.
#[derive(Clone, Copy)]
enum Part {
    /// Makes a new tree each time.
    MakeNew,
    /// Updates one tree to another version each time.
    Update,
    Put,
    Collect,
    Drop,
}

/// The pool and the trees of one host.
struct Site {
    dir: tempfile::TempDir,
    pool: Pool,
}

impl Site {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pool = Pool::open(&dir.path().join("pool"), PoolLimits::default()).unwrap();
        Self { dir, pool }
    }

    fn make(&self, store: &Store, spec: &str, destination: &Path, exact: bool) -> Result<()> {
        let request = MaterializeRequest {
            copy_below_bytes: COPY_BELOW_BYTES,
            exact,
            ..MaterializeRequest::new(spec.parse()?, destination)
        };
        materialize(store, &self.pool, &request, &Unwatched).map(drop)
    }

    /// An unused path.
    fn fresh(&self, random: &mut Random) -> PathBuf {
        self.dir.path().join(format!("out-{:016x}", random.draw()))
    }
}

#[test]
fn a_tree_is_whole_or_not_there_whatever_the_backend_does() {
    let mut world = World::new();
    for number in 0..TREES {
        trees::version(&world.tree(&number.to_string()), 7, number, 4_000);
    }
    world.prepare("0", REFS[0]);
    world.prepare("1", REFS[0]);
    world.prepare("2", REFS[1]);
    each_seed(effort(20, 2000), |seed| run(&world, seed));
}

fn run(world: &World, seed: u64) {
    let what = format!("seed {seed}");
    let (remote, site) = (world.memory(), Site::new());
    let mut random = Random::new(seed);
    std::thread::scope(|scope| {
        for part in cast(&mut random) {
            let faults = Faults {
                stop_after: (random.below(4) == 0).then(|| random.below(30)),
                ..random_faults(&mut random, [0, 10, 40, 80])
            };
            let remote = Arc::new(Faulty::new(remote.clone(), faults));
            let (random, site) = (Random::new(random.draw()), &site);
            scope.spawn(move || play(world, part, site, remote, random, seed));
        }
    });
    world.check(remote.clone(), &what);
    assert_sound(world, &remote, &what);
    let report = site.pool.verify(&Unwatched).unwrap();
    assert!(report.damaged.is_empty(), "{what}: {report:?}");
    // Every existing tree can be updated to the newest version.
    let store = world.open(remote).unwrap();
    let trees: Vec<_> = std::fs::read_dir(site.dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| !path.ends_with("pool"))
        .collect();
    for (name, known) in &store.state().unwrap().refs.all().unwrap() {
        let Some((number, version)) = known.versions.last_key_value() else {
            continue;
        };
        let fresh = site.fresh(&mut random);
        for tree in trees.iter().chain([&fresh]) {
            println!("{what}: {name}@{number} at {}", tree.display());
            site.make(&store, &format!("{name}@{number}"), tree, true)
                .unwrap_or_else(|error| panic!("{what}: {error:?}"));
            assert_same_but_file_times(&world.tree(&version.message), tree);
        }
    }
}

/// Two or three that materialize, a writer, and perhaps a collector and a dropper.
fn cast(random: &mut Random) -> Vec<Part> {
    let mut parts = vec![Part::MakeNew, Part::Update, Part::Put];
    for part in [Part::MakeNew, Part::Collect, Part::Collect, Part::Drop] {
        if random.below(2) == 0 {
            parts.push(part);
        }
    }
    parts
}

/// Acts several times, each time as a new process.
fn play(
    world: &World,
    part: Part,
    site: &Site,
    remote: Arc<dyn Prune>,
    mut random: Random,
    seed: u64,
) {
    let own = site.fresh(&mut random);
    for _ in 0..OPERATIONS {
        let Ok(store) = world.open(remote.clone()) else {
            continue;
        };
        let name = REFS[usize::try_from(random.below(2)).unwrap()];
        let failed = match part {
            Part::MakeNew => {
                let destination = site.fresh(&mut random);
                let failed = make(world, site, &store, name, &destination);
                assert!(
                    failed.is_none() || !destination.exists(),
                    "seed {seed}: {failed:?}, and something is there"
                );
                failed
            }
            Part::Update => make(world, site, &store, name, &own),
            Part::Put => {
                let tree = random.below(TREES).to_string();
                world.put_with(&store, &tree, name).err()
            }
            Part::Collect => collect(&store, remote.as_ref(), &eager()).err(),
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

/// Makes the newest version of a ref at `destination`. Asserts that the result is correct, or that it failed.
fn make(
    world: &World,
    site: &Site,
    store: &Store,
    name: &str,
    destination: &Path,
) -> Option<Error> {
    let version = store.state().and_then(|state| {
        let (number, version) = state.version(&name.parse()?, None)?;
        Ok((number, version.message.clone()))
    });
    let made = version.and_then(|(number, tree)| {
        site.make(store, &format!("{name}@{number}"), destination, true)?;
        Ok(tree)
    });
    match made {
        Ok(tree) => {
            assert_same_but_file_times(&world.tree(&tree), destination);
            None
        }
        Err(error) => Some(error),
    }
}
