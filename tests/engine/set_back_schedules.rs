//! A log that is set back to an earlier entry, with its checkpoints, under schedules: hosts put, are killed, drop and
//! collect in an order that a seed determines. The log is set back between two of their runs, or between two calls of
//! one.
//!
//! From then on, no host that can know adds or deletes: a host that saw a lost entry, and every host as long as an
//! object of a killed writer shows that its writer had seen more. A host that saw nothing of that continues, since
//! nothing could tell it. Failure messages name the seed.

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
use store::{ErrorKind, Host, Result};
use support::{Random, effort, trees};

use crate::collect::eager;
use crate::stores::name;
use crate::world::World;

const REFS: [&str; 2] = ["project/back/one", "project/back/two"];
const TREES: u64 = 4;
/// The hosts of the schedule, and one that comes after the log was set back.
const HOSTS: u64 = 3;

/// How often each event happened, over all schedules.
#[derive(Debug, Default)]
struct Seen {
    /// A host was refused by its own memory alone.
    by_memory: u64,
    /// A host without memory was refused by objects in the store.
    by_headers: u64,
    /// A host that cannot know has added.
    unknowing: u64,
    /// The log was set back during an operation.
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
        // A host that was killed has read the log at least.
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

    /// A host puts, drops or collects.
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

    /// Sets the log back between two calls of a host that has seen all of it.
    fn put_back_under(&mut self, at: usize, number: u64, seen: &mut Seen) {
        let host = self.hosts[at].clone();
        let store = self.world.open_as(self.remote.clone(), host).unwrap();
        // The host reads the whole log. A failure does not matter: an upload of a killed host may be of no history any
        // more.
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
        // The host can have added only after a gap, where everybody sees that entries are missing.
        let there = numbers(&*self.remote);
        let has_added = there.last().is_some_and(|newest| *newest > number);
        let has_gap = !there.contains(&(number + 1));
        assert!(!has_added || has_gap, "{}: {there:?}, {done:?}", self.what);
        if has_added {
            let fresh = self.world.open(self.remote.clone()).unwrap();
            let checkpoints = self.remote.list(CHECKPOINTS_PREFIX).unwrap();
            let mut checkpoints = checkpoints
                .iter()
                .filter_map(|info| parse_checkpoint_key(&info.key));
            // A checkpoint that the host wrote behind the gap has all of what is missing there.
            let stands_for_all = checkpoints.any(|at| at > number);
            match fresh.state() {
                Ok(state) => {
                    assert!(stands_for_all, "{}: {there:?}", self.what);
                    assert_eq!(Some(&state.number), there.last(), "{}", self.what);
                }
                Err(error) => {
                    assert!(!stands_for_all, "{}: {there:?}, {error:?}", self.what);
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{}: {error:?}", self.what);
                }
            }
        }
    }

    /// Acts after the log was set back. A host that can know is refused, and changes nothing.
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
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error:?}");
        seen.by_memory += u64::from(!is_told);
        seen.by_headers += u64::from(!remembers);
    }
}

/// The numbers of the existing entries, in order.
fn numbers(remote: &dyn Read) -> Vec<u64> {
    let keys = remote.list(LOG_PREFIX).unwrap();
    let mut numbers: Vec<u64> = keys
        .iter()
        .filter_map(|info| parse_log_key(&info.key))
        .collect();
    numbers.sort_unstable();
    numbers
}

/// Removes everything that was written after entry `number`, except packs and segments.
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

/// Whether a segment that no entry names was begun by a writer that knew a later entry than the last one.
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
