//! A log that is put back to what it was at some entry, checkpoints and all, under schedules: hosts that put, are
//! killed, drop and collect, in an order that dice decide; and the log goes back between two of their runs, or between
//! two calls of one of them.
//!
//! From then on nobody adds or deletes who can know: a host that saw an entry that was taken, and every host as long as
//! something that a killed writer left says that its writer had seen more. Whoever saw nothing of that goes on; nothing
//! could tell it. A failure names its seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use gc::collect;
use store::format::{
    CHECKPOINTS_PREFIX, LOG_PREFIX, PACKS_PREFIX, SEGMENT_HEADER_LEN, SEGMENTS_PREFIX,
    SegmentLayout, log_key, parse_checkpoint_key, parse_log_key, parse_segment_key,
};
use store::log;
use store::refs::drop_versions;
use store::remote::testing::faulty::{Faults, Faulty};
use store::remote::testing::scripted::{Scripted, When};
use store::remote::{Prune, Read};
use store::{Host, Kind, Result};
use support::{Random, effort, trees};

use crate::collect::eager;
use crate::stores::name;
use crate::world::World;

const REFS: [&str; 2] = ["project/back/one", "project/back/two"];
const TREES: u64 = 4;
/// Those of the first schedule, and one that comes when the log was put back.
const HOSTS: u64 = 3;

/// How often each happened in all schedules together.
#[derive(Debug, Default)]
struct Seen {
    /// A host was refused by what it remembers alone.
    by_memory: u64,
    /// One that remembers nothing was refused by what lies in the store.
    by_headers: u64,
    /// One that cannot know has added.
    unknowing: u64,
    /// The log went back under somebody's hands.
    in_flight: u64,
}

struct Schedule<'w> {
    world: &'w World,
    what: String,
    random: Random,
    remote: Arc<dyn Prune>,
    hosts: Vec<Host>,
}

#[test]
fn a_log_that_is_put_back_is_neither_added_to_nor_collected_by_who_can_know() {
    let world = World::fine();
    for number in 0..TREES {
        trees::version(&world.tree(&number.to_string()), 7, number, 3_000);
    }
    let mut seen = Seen::default();
    for seed in 0..effort(24, 1500) {
        run(&world, seed, &mut seen);
    }
    let floors = [
        seen.by_memory,
        seen.by_headers,
        seen.unknowing,
        seen.in_flight,
    ];
    assert!(floors.iter().all(|count| *count > 0), "{seen:?}");
}

fn run(world: &World, seed: u64, seen: &mut Seen) {
    let host = |at| Host {
        cache_dir: Some(world.tree(&format!("cache-{seed}-{at}"))),
        ..world.host()
    };
    let mut schedule = Schedule {
        world,
        what: format!("seed {seed}"),
        random: Random::new(seed),
        remote: world.directory(&format!("store-{seed}")),
        hosts: (0..HOSTS).map(host).collect(),
    };
    let mut newest = [0; 3];
    for _ in 0..4 + schedule.random.below(5) {
        let at = schedule.anybody(2);
        let before = schedule.newest();
        let is_killed = schedule.random.below(3) == 0;
        let after = schedule.random.below(25);
        let faults = Faults {
            stop_after: is_killed.then_some(after),
            ..Faults::default()
        };
        let faulty = Faulty::new(schedule.remote.clone(), faults);
        let done = schedule.act(at, Arc::new(faulty));
        // Whoever did not come to its end has read the log at least.
        newest[at] = if done.is_ok() {
            schedule.newest()
        } else {
            before
        };
    }
    let last = schedule.newest();
    if last < 2 {
        return;
    }
    let number = last - 1 - schedule.random.below(3.min(last - 1));
    if schedule.random.below(2) == 0 {
        let at = schedule.anybody(2);
        newest[at] = last;
        schedule.put_back_under(at, number, seen);
    }
    put_back(&*schedule.remote, number);
    let knows = newest.map(|newest| newest > number);
    for _ in 0..5 {
        let at = schedule.anybody(HOSTS);
        schedule.act_knowing(at, knows[at], seen);
    }
    let store = world.open(schedule.remote.clone()).unwrap();
    store.readable_state().unwrap();
    std::fs::remove_dir_all(world.tree(&format!("store-{seed}"))).unwrap();
}

impl Schedule<'_> {
    fn anybody(&mut self, of: u64) -> usize {
        usize::try_from(self.random.below(of)).unwrap()
    }

    fn newest(&self) -> u64 {
        numbers(&*self.remote).last().copied().unwrap_or(0)
    }

    /// Somebody puts, drops or collects.
    fn act(&mut self, at: usize, remote: Arc<dyn Prune>) -> Result<()> {
        let store = self.world.open_as(remote.clone(), self.hosts[at].clone())?;
        let target = REFS[usize::try_from(self.random.below(2)).unwrap()];
        match self.random.below(5) {
            0 => drop_versions(&store, &name(target), None).map(drop),
            1 => collect(&store, &*remote, &eager()).map(drop),
            _ => {
                let tree = self.random.below(TREES).to_string();
                self.world.put_with(&store, &tree, target).map(drop)
            }
        }
    }

    /// The log goes back between two calls of somebody who has seen all of it.
    fn put_back_under(&mut self, at: usize, number: u64, seen: &mut Seen) {
        let host = self.hosts[at].clone();
        let store = self.world.open_as(self.remote.clone(), host).unwrap();
        // What an earlier one left may be of no history any more.
        drop(store.state());
        let calls = i64::try_from(self.random.below(60)).unwrap();
        let (calls, beneath) = (Arc::new(AtomicI64::new(calls)), self.remote.clone());
        let left = calls.clone();
        let scripted = Scripted::new(self.remote.clone(), move |when, _, _| {
            if when == When::Before && left.fetch_sub(1, Ordering::SeqCst) == 0 {
                put_back(&*beneath, number);
            }
        });
        let done = self.act(at, Arc::new(scripted));
        if calls.load(Ordering::SeqCst) >= 0 {
            return;
        }
        seen.in_flight += 1;
        // Only behind a gap, where everybody sees that something is missing.
        let there = numbers(&*self.remote);
        let has_added = there.last().is_some_and(|newest| *newest > number);
        let has_gap = !there.contains(&(number + 1));
        assert!(!has_added || has_gap, "{}: {there:?}, {done:?}", self.what);
        if has_added {
            let fresh = self.world.open(self.remote.clone()).unwrap();
            let error = fresh.state().unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt, "{}: {error:?}", self.what);
        }
    }

    /// After the log was put back: who can know is refused, and nothing moves.
    fn act_knowing(&mut self, at: usize, remembers: bool, seen: &mut Seen) {
        let is_told = has_witness(&*self.remote);
        let before = named(&*self.remote);
        let done = self.act(at, self.remote.clone());
        let after = named(&*self.remote);
        if !remembers && !is_told {
            seen.unknowing += u64::from(done.is_ok() && after != before);
            return;
        }
        let what = format!("{}: remembers {remembers}, told {is_told}", self.what);
        assert_eq!(after, before, "{what}: {done:?}");
        let error = done.expect_err(&what);
        assert_eq!(error.kind(), Kind::Corrupt, "{what}: {error:?}");
        seen.by_memory += u64::from(!is_told);
        seen.by_headers += u64::from(!remembers);
    }
}

/// Numbers of the entries that are there, in order.
fn numbers(remote: &dyn Read) -> Vec<u64> {
    let keys = remote.list(LOG_PREFIX).unwrap();
    let mut numbers: Vec<u64> = keys
        .iter()
        .filter_map(|info| parse_log_key(&info.key))
        .collect();
    numbers.sort_unstable();
    numbers
}

/// Takes what was written behind entry `number`, but for packs and segments.
fn put_back(remote: &dyn Prune, number: u64) {
    let entries = numbers(remote).into_iter().filter(|at| *at > number);
    let listed = remote.list(CHECKPOINTS_PREFIX).unwrap();
    let is_later = |key: &String| parse_checkpoint_key(key).is_some_and(|at| at > number);
    let checkpoints = listed.into_iter().map(|info| info.key).filter(is_later);
    let gone: Vec<String> = entries.map(log_key).chain(checkpoints).collect();
    remote.delete(&gone).unwrap();
}

/// The keys of the log, the segments and the packs.
fn named(remote: &dyn Read) -> Vec<String> {
    let prefixes = [LOG_PREFIX, SEGMENTS_PREFIX, PACKS_PREFIX];
    let listed = prefixes
        .iter()
        .flat_map(|prefix| remote.list(prefix).unwrap());
    listed.map(|info| info.key).collect()
}

/// Whether a segment that no entry names was begun by a writer that knew a later entry than the last.
fn has_witness(remote: &dyn Read) -> bool {
    let state = log::load(remote).unwrap();
    let listed = remote.list(SEGMENTS_PREFIX).unwrap();
    listed.into_iter().any(|info| {
        let Some(id) = parse_segment_key(&info.key) else {
            return false;
        };
        let is_known = state.segments.contains_key(&id) || state.dropped.contains_key(&id);
        let header = remote.get_ranges(&info.key, std::slice::from_ref(&(0..SEGMENT_HEADER_LEN)));
        let made = header.and_then(|bytes| SegmentLayout::made_of(&info.key, &bytes[0]));
        !is_known && made.is_ok_and(|made| made.began > state.number.max(state.until))
    })
}
