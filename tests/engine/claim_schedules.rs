//! Claims under schedules: several processes want one ref, make it or wait, are killed and start again, beside a
//! collector and with lost answers. A seed determines the order of their calls.
//!
//! In every order, the ref has one complete version, every survivor has seen it, and a dead maker is replaced. Patience
//! is counted in checks, so that some live owners are also taken for dead.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gc::collect;
use store::claims::{Claims, Look};
use store::remote::Prune;
use store::remote::testing::faulty::{Faults, Faulty};
use store::remote::testing::schedule::{Scheduled, in_bursts};
use store::{Ended, ErrorKind, Onto, PutRequest, Result, Store, Unwatched, put};
use support::trees::write;
use support::{Random, effort};

use crate::collect::eager;
use crate::replicate::assert_sound;
use crate::stores::{name, request};
use crate::world::{World, assert_expected};

const REF: &str = "project/one/seeded";
const WORKERS: usize = 4;
const KILLED_MAX: u64 = 3;
/// Checks without a new beat after which an owner counts as dead.
const PATIENCE: u64 = 3;
const BURSTS: [u64; 3] = [3, 30, 120];

/// Events over all schedules, to make sure that each kind occurs.
#[derive(Debug, Default)]
struct Seen {
    killed: AtomicU64,
    replaced: AtomicU64,
    waited: AtomicU64,
    twice: AtomicU64,
    collected: AtomicU64,
}

#[test]
fn one_of_many_makes_a_ref_and_is_replaced_when_it_dies_in_any_order() {
    let world = World::fine();
    for number in 0..10 {
        write(&world.tree("made").join(format!("dir/{number}")), b"made");
    }
    let seen = Seen::default();
    let seeds = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !std::thread::panicking() {
                    let seed = seeds.fetch_add(1, Ordering::Relaxed);
                    if seed >= effort(40, 4000) {
                        break;
                    }
                    run(&world, seed, &seen);
                }
            });
        }
    });
    let all = [
        &seen.killed,
        &seen.replaced,
        &seen.waited,
        &seen.twice,
        &seen.collected,
    ];
    let happened = all.iter().all(|count| count.load(Ordering::Relaxed) > 4);
    assert!(happened, "{seen:?}");
}

fn run(world: &World, seed: u64, seen: &Seen) {
    let what = format!("seed {seed}");
    let remote = world.memory();
    let mut random = Random::new(seed);
    let burst = BURSTS[usize::try_from(random.below(3)).unwrap()];
    let supplies: Vec<Faulty> = (0..=WORKERS)
        .map(|_| Faulty::new(remote.clone(), Faults::default()))
        .collect();
    let backends = supplies.iter().map(|faulty| Arc::new(faulty.clone()) as _);
    let turns = in_bursts(random.draw(), burst, backends.collect());
    let seeds: Vec<u64> = (0..=WORKERS).map(|_| random.draw()).collect();
    let made = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for (worker, ((turn, faulty), dice)) in
            turns.into_iter().zip(supplies).zip(seeds).enumerate()
        {
            let remote: Arc<dyn Prune> = Arc::<Scheduled>::new(turn);
            let made = &made;
            scope.spawn(move || match worker {
                WORKERS => sweep(world, &remote, seed, seen),
                _ => until_there(world, &remote, &faulty, (seed, dice), made, seen),
            });
        }
    });
    assert!(made.load(Ordering::Relaxed) > 0, "{what}");
    let is_twice = made.load(Ordering::Relaxed) > 1;
    seen.twice.fetch_add(u64::from(is_twice), Ordering::Relaxed);
    assert_sound(world, &remote, &what);
    let store = world.open(remote.clone()).unwrap();
    assert_eq!(
        store.state().unwrap().versions(&name(REF)).unwrap().len(),
        1,
        "{what}"
    );
    let out = world.get(&store, REF).unwrap();
    assert_eq!(
        fs::read_dir(out.path().join("dir")).unwrap().count(),
        10,
        "{what}"
    );
    // Two collections later, the claims are gone.
    for _ in 0..2 {
        collect(&store, remote.as_ref(), &eager()).unwrap();
    }
    assert!(remote.list("claims").unwrap().is_empty(), "{what}");
}

/// Starts until the ref exists, and is sometimes killed.
fn until_there(
    world: &World,
    remote: &Arc<dyn Prune>,
    faulty: &Faulty,
    (seed, dice): (u64, u64),
    made: &AtomicU64,
    seen: &Seen,
) {
    let mut random = Random::new(dice);
    for start in 0..=KILLED_MAX {
        let is_killed = start < KILLED_MAX && random.below(3) > 0;
        let after = faulty.counts().mutations + random.below(8);
        faulty.set(Faults {
            after: u32::try_from(random.below(20)).unwrap(),
            retold: u32::try_from(random.below(20)).unwrap(),
            stop_after: is_killed.then_some(after),
            seed: random.draw(),
            ..Faults::default()
        });
        let opened = world.open(remote.clone());
        match opened.and_then(|store| seed_or_wait(world, &store, made, seen)) {
            Ok(()) => return,
            Err(error) => assert_expected(&error, seed),
        }
        seen.killed
            .fetch_add(u64::from(is_killed), Ordering::Relaxed);
    }
    // The last start saw only lost answers. It is repeated without faults, as a person would do.
    faulty.set(Faults::default());
    let store = world.open(remote.clone()).unwrap();
    seed_or_wait(world, &store, made, seen).unwrap();
}

/// Does what `store run --seed` does.
fn seed_or_wait(world: &World, store: &Store, made: &AtomicU64, seen: &Seen) -> Result<()> {
    let target = name(REF);
    let is_there = || Ok(store.state()?.version(&target, None).is_ok());
    let mut claims = Claims::new(store, REF, Duration::from_secs(PATIENCE))?;
    for look in 0.. {
        if is_there()? {
            return Ok(());
        }
        let claim = match claims.look(Duration::from_secs(look))? {
            Look::Mine(claim) => claim,
            Look::Held { .. } => {
                seen.waited.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            Look::Failed { said, .. } => panic!("{said}"),
        };
        seen.replaced
            .fetch_add(u64::from(look > PATIENCE), Ordering::Relaxed);
        return make(world, store, claim, made);
    }
    Ok(())
}

fn make(
    world: &World,
    store: &Store,
    mut claim: store::claims::Claim,
    made: &AtomicU64,
) -> Result<()> {
    claim.beat()?;
    if store.state()?.version(&name(REF), None).is_ok() {
        return claim.end(Ended::Done);
    }
    let request = PutRequest {
        onto: Onto::Only(0),
        ..request(&world.tree("made"), REF)
    };
    made.fetch_add(1, Ordering::Relaxed);
    match put(store, &request, &Unwatched) {
        // Another process was faster, and its result is equally valid.
        Err(error) if error.kind() == ErrorKind::Conflict => {}
        done => drop(done?),
    }
    claim.end(Ended::Done)
}

fn sweep(world: &World, remote: &Arc<dyn Prune>, seed: u64, seen: &Seen) {
    for _ in 0..4 {
        let opened = Store::open(remote.clone(), world.host());
        match opened.and_then(|store| collect(&store, remote.as_ref(), &eager())) {
            Ok(_) => drop(seen.collected.fetch_add(1, Ordering::Relaxed)),
            Err(error) => assert_expected(&error, seed),
        }
    }
}
