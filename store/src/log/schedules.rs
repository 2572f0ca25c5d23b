//! The log under random schedules: writers share a store, their calls are interleaved at random, some answers are lost
//! and some writers stop half-way. Each acknowledged commit must exist exactly once; a failure names its seed. Passes
//! that commit as they go, beside collectors: `tests/engine/schedules.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::tests::{Counting, name, set};
use super::*;
use crate::id::StoreId;
use crate::remote::testing::faulty::{Faults, Faulty, roll};
use crate::remote::testing::schedule::schedule;
use crate::remote::{Objects, Prune};

const WRITERS: u64 = 4;
const COMMITS: u64 = 12;
const SEEDS: u64 = 300;

/// What was acknowledged to one writer: number and message of each commit.
type Acknowledged = Vec<(u64, String)>;

#[test]
fn writers_with_lost_answers_and_crashes() {
    for seed in 0..SEEDS {
        let store: Arc<Objects> = Arc::new(Objects::memory());
        let mut dice = seed;
        let backends = (0..WRITERS).map(|_| faulty(&store, &mut dice)).collect();
        let participants = schedule(seed, backends);
        let acknowledged: Vec<Acknowledged> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .zip(participants)
                .map(|(writer, remote)| scope.spawn(move || write(&remote, seed, writer)))
                .collect();
            writers
                .into_iter()
                .map(|writer| writer.join().unwrap())
                .collect()
        });
        check(&*store, seed, acknowledged.concat());
    }
}

/// The same with free-running threads on a directory, where hard links decide the races.
#[test]
fn writers_on_a_directory() {
    let temp = tempfile::tempdir().unwrap();
    let store = Objects::directory(temp.path()).unwrap();
    let acknowledged: Vec<Acknowledged> = std::thread::scope(|scope| {
        let start = |writer| {
            let remote = Objects::existing_directory(temp.path()).unwrap();
            scope.spawn(move || write(&remote, 0, writer))
        };
        let writers: Vec<_> = (0..WRITERS).map(start).collect();
        writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .collect()
    });
    let acknowledged = acknowledged.concat();
    assert_eq!(acknowledged.len() as u64, WRITERS * COMMITS);
    check(&store, 0, acknowledged);
}

#[test]
fn a_seed_replays_its_schedule() {
    let run = || {
        let store: Arc<Objects> = Arc::new(Objects::memory());
        let mut dice = 5;
        let backends = (0..WRITERS).map(|_| faulty(&store, &mut dice)).collect();
        std::thread::scope(|scope| {
            for (writer, remote) in (0..WRITERS).zip(schedule(5, backends)) {
                scope.spawn(move || write(&remote, 5, writer));
            }
        });
        let mut state = State::default();
        read_after(&*store, &mut state).unwrap()
    };
    let first = run();
    assert!(!first.is_empty());
    assert_eq!(first, run());
}

/// The newest entry is damaged while writers know it and repairers give it up. Whoever is first decides, all agree on
/// one history, and whatever is acknowledged later exists in it.
#[test]
fn writers_beside_repairers_of_a_damaged_entry() {
    for seed in 0..SEEDS / 3 {
        let store: Arc<Objects> = Arc::new(Objects::memory());
        let known = super::tests::filled(&*store, 5);
        store.put(&log_key(5), Bytes::from_static(b"torn")).unwrap();
        let backend = || Arc::clone(&store) as Arc<dyn Prune>;
        let participants = schedule(seed, (0..WRITERS).map(|_| backend()).collect());
        let acknowledged: Vec<Acknowledged> = std::thread::scope(|scope| {
            let works: Vec<_> = (0..WRITERS)
                .zip(participants)
                .map(|(number, remote)| {
                    let known = known.clone();
                    scope.spawn(move || match number {
                        0 | 1 => write_from(&remote, seed, number, Some(known)),
                        _ => {
                            // A repairer that was overtaken would be run again.
                            drop(heal::heal(
                                &remote,
                                StoreId::default(),
                                &Who::default(),
                                true,
                            ));
                            Vec::new()
                        }
                    })
                })
                .collect();
            works.into_iter().map(|work| work.join().unwrap()).collect()
        });
        heal::heal(&*store, StoreId::default(), &Who::default(), true).unwrap();
        let state = load(&*store).unwrap();
        for (number, message) in acknowledged.concat() {
            let found = entry(&*store, number).unwrap().unwrap();
            let is_there = found.changes.iter().any(|change| match change {
                Change::SetRef { message: found, .. } => *found == message,
                _ => false,
            });
            assert!(
                is_there,
                "seed {seed}: {message} was acknowledged as {number}"
            );
        }
        let mut folded = State::default();
        read_after(&*store, &mut folded).unwrap();
        assert_eq!(folded, state, "seed {seed}");
    }
}

/// A quarter of the writers lose power at some point; all see errors before and after calls take effect.
fn faulty(store: &Arc<Objects>, dice: &mut u64) -> Arc<dyn Prune> {
    let stop_after = roll(dice)
        .is_multiple_of(4)
        .then(|| roll(dice) % (COMMITS * 2));
    let faults = Faults {
        seed: roll(dice),
        before: 60,
        after: 80,
        retold: 80,
        truncated: 40,
        stop_after,
        ..Faults::default()
    };
    Arc::new(Faulty::new(Arc::clone(store) as Arc<dyn Prune>, faults))
}

/// Commits repeatedly; after an error, starts from a loaded state like a new process.
fn write(remote: &dyn Write, seed: u64, writer: u64) -> Acknowledged {
    write_from(remote, seed, writer, None)
}

fn write_from(
    remote: &dyn Write,
    seed: u64,
    writer: u64,
    mut loaded: Option<State>,
) -> Acknowledged {
    let mut outside = Counting {
        seed: (seed << 8) | writer,
        count: 0,
    };
    let mut acknowledged = Vec::new();
    for number in 0..COMMITS {
        let message = format!("{writer}-{number}");
        let Ok(mut state) = loaded.take().map_or_else(|| load(remote), Ok) else {
            continue;
        };
        let mut prepare =
            |now: &State, _: &[LogEntry]| Ok(vec![set(now, &name(number % 3), &message)]);
        let done = commit_with(
            remote,
            &mut state,
            &Who::default(),
            &mut outside,
            &mut prepare,
        );
        if let Ok(Some(committed)) = done {
            assert_eq!(state.number, committed.entry.number);
            acknowledged.push((committed.entry.number, message));
            loaded = Some(state);
        }
    }
    acknowledged
}

/// Checks that numbers have no gaps, that each message exists at most once, that each acknowledged message is in its
/// entry, and that the state is the same with and without checkpoints.
fn check(store: &dyn Read, seed: u64, acknowledged: Acknowledged) {
    let mut state = State::default();
    let entries = read_after(store, &mut state).unwrap();
    assert_eq!(
        store.list("log").unwrap().len(),
        entries.len(),
        "seed {seed}: entries behind a gap"
    );
    let mut places = BTreeMap::new();
    for entry in &entries {
        for change in &entry.changes {
            let Change::SetRef { message, .. } = change else {
                panic!("seed {seed}: {change:?}")
            };
            let before = places.insert(message.clone(), entry.number);
            assert_eq!(before, None, "seed {seed}: {message} was committed twice");
        }
    }
    for (number, message) in acknowledged {
        assert_eq!(
            places.get(&message),
            Some(&number),
            "seed {seed}: {message} was acknowledged"
        );
    }
    assert_eq!(load(store).unwrap(), state, "seed {seed}");
}
