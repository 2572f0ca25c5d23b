//! Long passes under schedules: puts and transfers that commit on their way, are killed, adopt what they left and
//! resume, beside ordinary collectors and a dropper. A seed determines the order of their calls.
//!
//! A participant does some or all of its work between two steps of another, and some answers are lost. In every order,
//! each acknowledged version reads back completely, and repeated operations finish. The seed in the failure message
//! determines the order, except for participants that sleep before a retry: the others do not wait for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gc::{Request, collect};
use jiff::{SignedDuration, Timestamp};
use store::format::{Change, State};
use store::log;
use store::refs::drop_versions;
use store::remote::testing::faulty::{Faults, Faulty};
use store::remote::testing::schedule::{Scheduled, in_bursts};
use store::remote::{Prune, Read};
use store::replicate::{Memory, RefStatus};
use store::{Portions, ReplicateReport, Store, Unwatched, replicate};
use support::{Random, effort, trees};

use crate::collect::eager;
use crate::replicate::{assert_sound, latest};
use crate::stores::name;
use crate::world::{World, assert_expected};

/// An existing ref, which is dropped and put again.
const OLD: &str = "project/one/old";
/// The ref that is put, and its tree; the tree shares much with the old one.
const PUT: (&str, &str) = ("2", "project/one/put");
/// The refs that come from another store, each by a job of its own.
const BROUGHT: [(&str, &str); 2] = [("4", "project/one/data"), ("5", "team/two/data")];
/// How often a writer may be killed.
const KILLED_MAX: u64 = 3;
const COLLECTIONS: u64 = 8;
/// Number of schedules that run at the same time.
const AT_ONCE: u64 = 4;
/// Average number of calls in a row: a few, half of the work, most of it, nearly all.
const BURSTS: [u64; 4] = [4, 40, 150, 400];

/// Events over all schedules, to make sure that each kind occurs.
#[derive(Debug, Default)]
struct Seen {
    killed: AtomicU64,
    adopted_bytes: AtomicU64,
    condemned: AtomicU64,
    /// Collections that took chunks of unfinished passes.
    greedy: AtomicU64,
}

/// A participant's access to the store, with its power supply.
struct Player<'s> {
    world: &'s World,
    seen: &'s Seen,
    seed: u64,
    random: Random,
    faulty: Faulty,
    remote: Arc<dyn Prune>,
}

#[test]
fn long_passes_beside_collectors_lose_nothing_in_any_order() {
    let mut world = World::fine();
    for number in 0..6 {
        trees::version(&world.tree(&number.to_string()), 7, number, 6_000);
    }
    world.prepare("0", OLD);
    world.prepare("1", OLD);
    let from = World::fine().memory();
    for (tree, what) in BROUGHT {
        world.put(from.clone(), tree, what).unwrap();
    }
    let seen = Seen::default();
    let seeds = AtomicU64::new(0);
    // Participants mostly sleep before retries, so several schedules run at the same time.
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                let _last = Last(&seeds);
                loop {
                    let seed = seeds.fetch_add(1, Ordering::Relaxed);
                    if seed >= effort(40, 2000) {
                        break;
                    }
                    run(&world, &from, seed, &seen);
                }
            });
        }
    });
    let floors = [
        &seen.killed,
        &seen.adopted_bytes,
        &seen.condemned,
        &seen.greedy,
    ];
    let happened = floors.iter().all(|count| count.load(Ordering::Relaxed) > 1);
    assert!(happened, "{seen:?}");
}

/// After a failure, no other schedule begins.
struct Last<'s>(&'s AtomicU64);

impl Drop for Last<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(u64::MAX / 2, Ordering::Relaxed);
        }
    }
}

fn run(world: &World, from: &Arc<dyn Prune>, seed: u64, seen: &Seen) {
    let what = format!("seed {seed}");
    let remote = world.memory();
    let mut random = Random::new(seed);
    // In a calm schedule, no clock is a day ahead, so unfinished passes are left alone.
    let is_calm = random.below(3) == 0;
    let burst = BURSTS[usize::try_from(random.below(4)).unwrap()];
    let supplies: Vec<Faulty> = (0..6)
        .map(|_| Faulty::new(remote.clone(), Faults::default()))
        .collect();
    let backends = supplies.iter().map(|faulty| Arc::new(faulty.clone()) as _);
    let turns = in_bursts(random.draw(), burst, backends.collect());
    let players = turns
        .into_iter()
        .zip(supplies)
        .map(|(turn, faulty)| Player {
            world,
            seen,
            seed,
            random: Random::new(random.draw()),
            faulty,
            remote: Arc::<Scheduled>::new(turn),
        });
    let memories = [Memory::default(), Memory::default()];
    let acknowledged: Vec<String> = std::thread::scope(|scope| {
        let [
            mut writer,
            mut one,
            mut other,
            mut keeper,
            mut second,
            mut dropper,
        ] = <[Player<'_>; 6]>::try_from(players.collect::<Vec<_>>())
            .ok()
            .unwrap();
        let [own, others] = &memories;
        let writers = [
            scope.spawn(move || writer.put(PUT)),
            scope.spawn(move || one.bring(from, BROUGHT[0].1, own)),
            scope.spawn(move || other.bring(from, BROUGHT[1].1, others)),
        ];
        scope.spawn(move || keeper.collect(is_calm));
        scope.spawn(move || second.collect(is_calm));
        scope.spawn(move || dropper.put_and_drop());
        let told = writers
            .into_iter()
            .flat_map(|writer| writer.join().unwrap());
        told.collect()
    });
    let found = assert_sound(world, &remote, &what);
    for version in &acknowledged {
        assert!(found.contains(version), "{what}: {version} of {found:?}");
    }
    assert_eq!(world.check(remote.clone(), &what), found, "{what}");
    check_log(&*remote, is_calm, seen, &what);
    finish(world, from, &remote, &memories, &what);
}

/// Repeated operations finish without disturbance, and an aggressive collector takes nothing of them.
fn finish(
    world: &World,
    from: &Arc<dyn Prune>,
    remote: &Arc<dyn Prune>,
    memories: &[Memory; 2],
    what: &str,
) {
    let (tree, target) = PUT;
    let put = world.put(remote.clone(), tree, target);
    put.unwrap_or_else(|error| panic!("{what}: {error:?}"));
    let store = world.open(remote.clone()).unwrap();
    let here = world.open(from.clone()).unwrap();
    for ((_, target), memory) in BROUGHT.iter().zip(memories) {
        let report = replicate(&here, &store, &latest(&[target]), memory, &Unwatched);
        let report = report.unwrap_or_else(|error| panic!("{what}: {error:?}"));
        let is_lost = |status: &RefStatus| matches!(status, RefStatus::Failed(_));
        let is_there = !report.refs.iter().any(|one| is_lost(&one.status));
        assert!(report.stopped.is_none() && is_there, "{what}: {report:?}");
    }
    let found = assert_sound(world, remote, what);
    collect(&store, remote.as_ref(), &eager()).unwrap_or_else(|error| panic!("{what}: {error:?}"));
    assert_eq!(assert_sound(world, remote, what), found, "{what}");
    assert_eq!(world.check(remote.clone(), what), found, "{what}");
    let state = store.state().unwrap();
    let segments = remote.list("segments").unwrap();
    assert_eq!(segments.len(), state.segments.len(), "{what}");
}

/// Counts condemned packs. If no clock is ahead, asserts that no segment of an unfinished pass was dropped.
fn check_log(remote: &dyn Read, is_calm: bool, seen: &Seen, what: &str) {
    let mut state = State::default();
    let entries = log::read_after(remote, &mut state).unwrap();
    let mut state = State::default();
    for entry in &entries {
        for change in &entry.changes {
            match change {
                Change::CondemnPacks { packs } => {
                    seen.condemned
                        .fetch_add(packs.len() as u64, Ordering::Relaxed);
                }
                Change::DropSegment { segment, .. } => {
                    let info = state.segments.get(segment);
                    let is_of_pass = info.is_some_and(|info| info.pass.is_some());
                    seen.greedy
                        .fetch_add(u64::from(is_of_pass), Ordering::Relaxed);
                    assert!(!is_calm || !is_of_pass, "{what}: entry {}", entry.number);
                }
                _ => {}
            }
        }
        state.apply(entry).unwrap();
    }
}

impl Player<'_> {
    /// Restores power, until the next power cut.
    fn start(&mut self, is_killed: bool) {
        let after = self.faulty.counts().mutations + self.random.below(20);
        let rates = [0, 0, 10, 30];
        let mut rate = || {
            let most = rates[usize::try_from(self.random.below(4)).unwrap()];
            u32::try_from(self.random.below(most + 1)).unwrap()
        };
        let faults = Faults {
            before: rate(),
            after: rate(),
            retold: rate(),
            truncated: rate(),
            seed: self.random.draw(),
            stop_after: is_killed.then_some(after),
            ..Faults::default()
        };
        self.faulty.set(faults);
    }

    /// Starts until it is done, and is sometimes killed. The size of portions varies.
    fn until_done<T>(
        &mut self,
        mut act: impl FnMut(&Self, &Store) -> store::Result<T>,
    ) -> Option<T> {
        for start in 0..=KILLED_MAX {
            let is_killed = start < KILLED_MAX && self.random.below(3) > 0;
            self.start(is_killed);
            let portions = Portions {
                commit_bytes: [3 << 10, 1 << 30][usize::from(self.random.below(2) == 0)],
                commit_chunks: [5, 200][usize::from(self.random.below(2) == 0)],
                together_bytes: [500, 20_000][usize::from(self.random.below(2) == 0)],
                ..self.world.portions
            };
            let opened = Store::open(self.remote.clone(), self.world.host());
            match opened.and_then(|store| act(self, &store.in_portions(portions))) {
                Ok(done) => return Some(done),
                Err(error) => assert_expected(&error, self.seed),
            }
            self.seen
                .killed
                .fetch_add(u64::from(is_killed), Ordering::Relaxed);
        }
        None
    }

    /// Returns the acknowledged version.
    fn put(&mut self, (tree, target): (&str, &str)) -> Vec<String> {
        let report = self.until_done(|player, store| player.world.put_with(store, tree, target));
        let version = report.and_then(|report| report.version);
        version
            .map(|number| format!("{target}@{number}"))
            .into_iter()
            .collect()
    }

    /// Remembers what was sent before a kill. Returns the acknowledged versions.
    fn bring(&mut self, from: &Arc<dyn Prune>, what: &str, memory: &Memory) -> Vec<String> {
        let mut told = Vec::new();
        self.until_done(|player, store| {
            let here = player.world.open(from.clone())?;
            let report = replicate(&here, store, &latest(&[what]), memory, &Unwatched)?;
            let ReplicateReport {
                refs,
                stopped,
                resumed_bytes,
                ..
            } = report;
            player
                .seen
                .adopted_bytes
                .fetch_add(resumed_bytes, Ordering::Relaxed);
            let there = refs
                .into_iter()
                .filter(|one| !matches!(one.status, RefStatus::Failed(_)));
            told.extend(there.filter_map(|one| Some(format!("{}@{}", one.name, one.to?))));
            stopped.map_or(Ok(()), Err)
        });
        told
    }

    /// Collects with default options, some time later; a day later if unfinished passes may be taken.
    fn collect(&mut self, is_calm: bool) {
        let later: [fn() -> Timestamp; 3] = [
            Timestamp::now,
            || Timestamp::now() + SignedDuration::from_hours(2),
            || Timestamp::now() + SignedDuration::from_hours(26),
        ];
        for _ in 0..COLLECTIONS {
            let is_killed = self.random.below(4) == 0;
            self.start(is_killed);
            let clock = self.random.below(if is_calm { 2 } else { 4 }).min(2);
            let mut request = Request {
                clock: later[usize::try_from(clock).unwrap()],
                ..eager()
            };
            request.options.min_age_secs = 24 * 3600;
            request.options.grace_secs = 3600;
            request.options.max_unused_ppm = 50_000;
            let opened = Store::open(self.remote.clone(), self.world.host());
            let collected = opened.and_then(|store| collect(&store, &*self.remote, &request));
            if let Err(error) = collected {
                assert_expected(&error, self.seed);
            }
        }
    }

    /// Makes garbage, and puts again what is about to be collected.
    fn put_and_drop(&mut self) {
        for _ in 0..3 {
            self.until_done(|_, store| drop_versions(store, &name(OLD), None));
            let tree = self.random.below(2).to_string();
            self.put((&tree, OLD));
        }
    }
}
