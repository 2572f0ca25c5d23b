//! Saves under schedules: several jobs merge into one ref, are killed and start again, beside a collector and with lost
//! answers. A seed determines the order of their calls.
//!
//! In every order, the newest version has the changes of all acknowledged saves, every version can be read completely,
//! and a repeated save in the end finds nothing to do.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gc::collect;
use store::remote::Prune;
use store::remote::testing::faulty::{Faults, Faulty};
use store::remote::testing::schedule::{Scheduled, in_bursts};
use store::{Ancestor, Onto, PutReport, PutRequest, Result, Store, Unwatched, put};
use support::trees::write;
use support::{Random, effort};

use crate::collect::eager;
use crate::replicate::assert_sound;
use crate::stores::name;
use crate::world::{World, assert_expected};

const REF: &str = "project/one/cache";
const JOBS: usize = 4;
const KILLED_MAX: u64 = 4;
const BURSTS: [u64; 3] = [3, 30, 120];

/// Events over all schedules, to make sure that each kind occurs.
#[derive(Debug, Default)]
struct Seen {
    killed: AtomicU64,
    merged: AtomicU64,
    clashed: AtomicU64,
    collected: AtomicU64,
}

/// The files of a job: some of its own in shared directories, one that all jobs change, and one that none changes.
fn tree(world: &World, job: usize) {
    let dir = world.tree(&job.to_string());
    for number in 0..12 {
        write(
            &dir.join(format!("all/{number}")),
            format!("base {number}").as_bytes(),
        );
    }
    write(&dir.join("kept/deep/er"), b"base");
    if job == JOBS {
        return;
    }
    write(
        &dir.join(format!("all/of-{job}")),
        format!("job {job}").repeat(40).as_bytes(),
    );
    write(&dir.join(format!("own-{job}/file")), b"own");
    write(&dir.join("all/0"), format!("changed by {job}").as_bytes());
    fs::remove_file(dir.join(format!("all/{}", job + 1))).unwrap();
}

fn save(world: &World, store: &Store, job: usize) -> Result<PutReport> {
    let request = PutRequest {
        onto: Onto::Merge(Ancestor::Version(1)),
        ..PutRequest::save(world.tree(&job.to_string()), name(REF))
    };
    put(store, &request, &Unwatched)
}

#[test]
fn saves_beside_each_other_and_a_collector_lose_nothing_in_any_order() {
    let mut world = World::fine();
    (0..=JOBS).for_each(|job| tree(&world, job));
    world.prepare(&JOBS.to_string(), REF);
    let seen = Seen::default();
    let seeds = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !std::thread::panicking() {
                    let seed = seeds.fetch_add(1, Ordering::Relaxed);
                    if seed >= effort(24, 4000) {
                        break;
                    }
                    run(&world, seed, &seen);
                }
            });
        }
    });
    let all = [&seen.killed, &seen.merged, &seen.clashed, &seen.collected];
    let happened = all.iter().all(|count| count.load(Ordering::Relaxed) > 2);
    assert!(happened, "{seen:?}");
}

fn run(world: &World, seed: u64, seen: &Seen) {
    let what = format!("seed {seed}");
    let remote = world.memory();
    let mut random = Random::new(seed);
    let burst = BURSTS[usize::try_from(random.below(3)).unwrap()];
    let supplies: Vec<Faulty> = (0..=JOBS)
        .map(|_| Faulty::new(remote.clone(), Faults::default()))
        .collect();
    let backends = supplies.iter().map(|faulty| Arc::new(faulty.clone()) as _);
    let turns = in_bursts(random.draw(), burst, backends.collect());
    let seeds: Vec<u64> = (0..=JOBS).map(|_| random.draw()).collect();
    let acknowledged: Vec<usize> = std::thread::scope(|scope| {
        let jobs: Vec<_> = turns
            .into_iter()
            .zip(supplies)
            .zip(seeds)
            .enumerate()
            .map(|(job, ((turn, faulty), dice))| {
                let remote: Arc<dyn Prune> = Arc::<Scheduled>::new(turn);
                let mut random = Random::new(dice);
                scope.spawn(move || match job {
                    JOBS => sweep(world, &remote, seed, seen),
                    _ => until_saved(world, &remote, &faulty, (job, seed), &mut random, seen),
                })
            })
            .collect();
        jobs.into_iter()
            .filter_map(|job| job.join().unwrap())
            .collect()
    });
    assert_sound(world, &remote, &what);
    check(world, &remote, &acknowledged, &what);
    let store = world.open(remote.clone()).unwrap();
    for job in 0..JOBS {
        save(world, &store, job).unwrap_or_else(|error| panic!("{what}: {error:?}"));
    }
    check(world, &remote, &[0, 1, 2, 3], &what);
    collect(&store, remote.as_ref(), &eager()).unwrap();
    assert_sound(world, &remote, &what);
    check(world, &remote, &[0, 1, 2, 3], &what);
}

/// Starts until it has saved, and is sometimes killed.
fn until_saved(
    world: &World,
    remote: &Arc<dyn Prune>,
    faulty: &Faulty,
    (job, seed): (usize, u64),
    random: &mut Random,
    seen: &Seen,
) -> Option<usize> {
    for start in 0..=KILLED_MAX {
        let is_killed = start < KILLED_MAX && random.below(3) > 0;
        let after = faulty.counts().mutations + random.below(12);
        let mut rate = || u32::try_from(random.below(20)).unwrap();
        faulty.set(Faults {
            before: rate(),
            after: rate(),
            retold: rate(),
            stop_after: is_killed.then_some(after),
            seed: random.draw(),
            ..Faults::default()
        });
        match world
            .open(remote.clone())
            .and_then(|store| save(world, &store, job))
        {
            Ok(report) => {
                let saved = report.saved.unwrap();
                let is_merged = saved.onto.is_some_and(|onto| onto > 1);
                seen.merged
                    .fetch_add(u64::from(is_merged), Ordering::Relaxed);
                seen.clashed.fetch_add(saved.clashed, Ordering::Relaxed);
                return Some(job);
            }
            Err(error) => assert_expected(&error, seed),
        }
        seen.killed
            .fetch_add(u64::from(is_killed), Ordering::Relaxed);
    }
    None
}

fn sweep(world: &World, remote: &Arc<dyn Prune>, seed: u64, seen: &Seen) -> Option<usize> {
    for _ in 0..6 {
        let opened = Store::open(remote.clone(), world.host());
        match opened.and_then(|store| collect(&store, remote.as_ref(), &eager())) {
            Ok(_) => drop(seen.collected.fetch_add(1, Ordering::Relaxed)),
            Err(error) => assert_expected(&error, seed),
        }
    }
    None
}

/// Asserts that the newest version has the changes of these jobs.
fn check(world: &World, remote: &Arc<dyn Prune>, jobs: &[usize], what: &str) {
    let store = world.open(remote.clone()).unwrap();
    let out = world.get(&store, REF).unwrap();
    let read = |path: &str| fs::read_to_string(out.path().join(path)).ok();
    let base = "base".to_owned();
    assert_eq!(read("kept/deep/er"), Some(base), "{what}");
    let mut expected = BTreeMap::new();
    for job in jobs {
        expected.insert(
            format!("all/of-{job}"),
            Some(format!("job {job}").repeat(40)),
        );
        expected.insert(format!("own-{job}/file"), Some("own".to_owned()));
        expected.insert(format!("all/{}", job + 1), None);
    }
    for (path, text) in expected {
        assert_eq!(read(&path), text, "{what}: {path}");
    }
    if !jobs.is_empty() {
        let changed = read("all/0").unwrap();
        assert!(changed.starts_with("changed by "), "{what}: {changed}");
    }
}
