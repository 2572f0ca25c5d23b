//! Faulty networks: every fault alone, then at random. Results are correct, and the store is sound.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use support::proxy::{Fault, Proxy, Schedule, Traffic};
use support::servers::{BUCKET, Server, fresh_prefix};
use support::{Finished, Random, assert_same_but_file_times, assert_same_tree, effort, trees};

use crate::bucket::{Bucket, GREEDY};

/// How many of a thousand requests meet a fault.
pub(crate) const PER_THOUSAND: u64 = 60;

/// Every fault that a retry overcomes, with the number of its request. In the ordinary suite each fault hits one
/// request, in the long form every request.
pub(crate) fn each_fault(requests: usize) -> impl Iterator<Item = (Fault, u64)> {
    let last = u64::try_from(requests).unwrap();
    Fault::PASSING
        .into_iter()
        .zip(1..)
        .flat_map(move |(fault, first)| {
            let numbers = (first..=last).step_by(effort(40, 1));
            numbers.map(move |number| (fault, number))
        })
}

/// The seeds: `STORE_TESTS_SEEDS` of them, beginning with `STORE_TESTS_SEED`.
pub(crate) fn seeds() -> Range<u64> {
    let told = |name| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let first = told("STORE_TESTS_SEED").unwrap_or(1);
    first..first + told("STORE_TESTS_SEEDS").unwrap_or(effort(2, 100))
}

/// A store with one version, and a second tree to put.
fn begun(name: &str) -> (Bucket, Proxy) {
    let (bucket, proxy) = Bucket::proxied(name, &Server::moto());
    for number in [1, 2] {
        let tree = bucket.env.path(format!("tree-{number}"));
        trees::version(&tree, 5, number, 400_000);
    }
    bucket.ok(["put", "tree-1", "project/a/b"]);
    (bucket, proxy)
}

/// The arguments of each verb; `OUT` stands for a new path.
const VERBS: [&[&str]; 4] = [
    &["put", "tree-2", "project/a/b", "--read-all"],
    &["get", "project/a/b", "OUT"],
    &["materialize", "project/a/b", "OUT"],
    &GREEDY,
];

/// Runs a verb under `schedule`, on a host of its own. Returns its result, its path, and the traffic.
fn run(
    bucket: &Bucket,
    proxy: &Proxy,
    verb: &[&str],
    schedule: Schedule,
) -> (Finished, PathBuf, Traffic) {
    proxy.set(Schedule::Fine);
    give_work(bucket, verb);
    let out = bucket.fresh("out");
    let words = verb.iter().map(|&word| match word {
        "OUT" => out.to_str().unwrap(),
        word => word,
    });
    let host = bucket.fresh("host");
    let mut command = bucket.on_host(host.to_str().unwrap(), words);
    proxy.take();
    proxy.set(schedule);
    let finished = command.output().unwrap().into();
    (finished, out, proxy.take())
}

/// Gives each put new bytes, and each collection something to delete.
fn give_work(bucket: &Bucket, verb: &[&str]) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let tree = match verb.first() {
        Some(&"put") => "tree-2",
        Some(&"gc") => "garbage",
        _ => return,
    };
    let bytes = Random::new(COUNT.fetch_add(1, Ordering::Relaxed)).bytes(100_000);
    trees::write(&bucket.env.path(tree).join("fresh"), &bytes);
    if tree == "garbage" {
        bucket.ok(["put", tree, "project/c/d"]);
        bucket.ok(["rm", "project/c/d", "--yes"]);
    }
}

fn every_fault_passes(name: &str, verb: &[&str]) {
    let (bucket, proxy) = begun(name);
    bucket.ok(["put", "tree-2", "project/a/b"]);
    // The first run may take more requests, since this host has nothing cached yet, and a busy one retries.
    let requests = [(); 2].map(|()| {
        let (finished, _, traffic) = run(&bucket, &proxy, verb, Schedule::Fine);
        assert_eq!(finished.code, Some(0), "{finished}");
        traffic.requests()
    });
    let (mut tried, mut met) = (0, 0);
    for (fault, number) in each_fault(requests[0].min(requests[1])) {
        let schedule = Schedule::At(number, Vec::new(), fault);
        let (finished, out, traffic) = run(&bucket, &proxy, verb, schedule);
        let what = format!("{fault:?} at {number}: {verb:?}: {finished}{traffic:?}");
        assert_eq!(finished.code, Some(0), "{what}");
        check_tree(&bucket, verb, &out);
        tried += 1;
        met += traffic.faults();
    }
    assert!(met * 10 >= tried * 9, "{verb:?}: {met} faults of {tried}");
    proxy.set(Schedule::Fine);
    bucket.ok(["verify", "--read-data"]);
}

#[test]
fn every_fault_by_itself_passes_a_put() {
    every_fault_passes("one-fault-put", VERBS[0]);
}

#[test]
fn every_fault_by_itself_passes_a_get() {
    every_fault_passes("one-fault-get", VERBS[1]);
}

#[test]
fn every_fault_by_itself_passes_a_materialization() {
    every_fault_passes("one-fault-materialize", VERBS[2]);
}

#[test]
fn every_fault_by_itself_passes_a_collection() {
    every_fault_passes("one-fault-gc", VERBS[3]);
}

/// Asserts that the result is the tree that was put.
fn check_tree(bucket: &Bucket, verb: &[&str], out: &Path) {
    let tree = bucket.env.path("tree-2");
    match verb.first() {
        Some(&"get") => assert_same_tree(&tree, out),
        Some(&"materialize") => assert_same_but_file_times(&tree, out),
        _ => {}
    }
}

#[test]
fn faults_by_dice_lose_nothing() {
    for seed in seeds() {
        let (bucket, proxy) = begun("dice");
        for verb in VERBS {
            let schedule = Schedule::dice(seed, PER_THOUSAND);
            let (finished, out, traffic) = run(&bucket, &proxy, verb, schedule);
            let what = format!("seed {seed}: {verb:?}: {finished}{traffic:?}");
            assert_eq!(finished.code, Some(0), "{what}");
            check_tree(&bucket, verb, &out);
        }
        proxy.set(Schedule::Fine);
        bucket.ok(["verify", "--read-data"]);
        for number in ["1", "2"] {
            let out = bucket.fresh("out");
            let name = format!("project/a/b@{number}");
            bucket.ok(["get", &name, out.to_str().unwrap()]);
            assert_same_tree(&bucket.env.path(format!("tree-{number}")), &out);
        }
    }
}

/// A use that cannot be recorded does not make a read fail or wait for long: neither with a busy server, nor with one
/// that is gone, nor with read-only credentials.
#[test]
fn a_use_that_cannot_be_left_holds_nothing_up() {
    let (bucket, proxy) = begun("uses");
    for fault in [Fault::Busy, Fault::Broken, Fault::Reset, Fault::Expired] {
        let schedule = Schedule::all(&["PUT", "/uses/"], fault);
        for verb in [
            &["get", "project/a/b", "OUT"][..],
            &["materialize", "project/a/b", "OUT"],
        ] {
            let (finished, out, traffic) = run(&bucket, &proxy, verb, schedule.clone());
            let what = format!("{fault:?}: {verb:?}: {finished}{traffic:?}");
            assert_eq!(finished.code, Some(0), "{what}");
            assert_eq!(finished.stderr, "", "{what}");
            assert_same_but_file_times(&bucket.env.path("tree-1"), &out);
            let tries = traffic.faults();
            assert!((1..=20).contains(&tries), "{what}");
        }
    }
}

#[test]
fn credentials_that_end_in_the_middle_end_the_verb_and_nothing_else() {
    let (bucket, proxy) = begun("expired");
    for verb in VERBS {
        let expired = Schedule::From(3, Fault::Expired);
        let (finished, _, traffic) = run(&bucket, &proxy, verb, expired);
        assert_eq!(finished.code, Some(1), "{verb:?}: {finished}");
        assert!(finished.stderr.contains("credentials"), "{finished}");
        assert!(traffic.requests() < 12, "no storm: {traffic:?}");
        let (finished, out, _) = run(&bucket, &proxy, verb, Schedule::Fine);
        assert_eq!(finished.code, Some(0), "{verb:?}: {finished}");
        check_tree(&bucket, verb, &out);
    }
    bucket.ok(["verify", "--read-data"]);
}

/// A store whose first answer was lost is not somebody else's.
#[test]
fn init_makes_a_store_whichever_answer_is_lost() {
    let (bucket, proxy) = Bucket::proxied("init", &Server::moto());
    let init = |schedule| {
        let place = format!("s3://{BUCKET}/{}", fresh_prefix("new"));
        proxy.take();
        proxy.set(schedule);
        let mut command = bucket.env.command(["--store", &place, "init"]);
        command.envs(bucket.server.variables());
        let finished: Finished = command.output().unwrap().into();
        (place, finished, proxy.take())
    };
    let (_, _, traffic) = init(Schedule::Fine);
    let last = u64::try_from(traffic.requests()).unwrap();
    let mut faults = 0;
    for number in 1..=last {
        let (place, finished, traffic) = init(Schedule::At(number, Vec::new(), Fault::Lost));
        assert_eq!(finished.code, Some(0), "{number}: {finished}{traffic:?}");
        faults += traffic.faults();
        proxy.set(Schedule::Fine);
        let mut again = bucket.env.command(["--store", &place, "init"]);
        again.envs(bucket.server.variables());
        let again: Finished = again.output().unwrap().into();
        assert_eq!(again.code, Some(5), "{number}: {again}");
    }
    assert!(faults > 3, "{faults} faults");
}
