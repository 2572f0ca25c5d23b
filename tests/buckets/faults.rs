//! Networks as they are: every fault by itself, then by dice. What comes out is right, and the store is whole.

use support::proxy::{Fault, Proxy, Schedule};
use support::servers::Server;
use support::{Finished, assert_same_but_file_times, assert_same_tree, effort, trees};

use crate::bucket::{Bucket, GREEDY};

/// Of a thousand requests so many meet a fault.
const PER_THOUSAND: u64 = 60;

/// A store with one version, and a second tree to put.
fn begun(name: &str) -> (Bucket, Proxy) {
    let (bucket, proxy) = Bucket::proxied(name, &Server::moto());
    for number in [1, 2] {
        let tree = bucket.env.path(format!("tree-{number}"));
        trees::version(&tree, 5, number, 400_000);
    }
    bucket.ok(["put", "tree-1", "project/a/b"]);
    proxy.take();
    (bucket, proxy)
}

/// What each verb does here, by words; `OUT` is a path of its own.
const VERBS: [&[&str]; 4] = [
    &["put", "tree-2", "project/a/b", "--read-all"],
    &["get", "project/a/b", "OUT"],
    &["materialize", "project/a/b", "OUT"],
    &GREEDY,
];

/// Runs a verb on a host of its own; returns what it did and where.
fn run(bucket: &Bucket, verb: &[&str]) -> (Finished, std::path::PathBuf) {
    let out = bucket.fresh("out");
    let words = verb.iter().map(|&word| match word {
        "OUT" => out.to_str().unwrap(),
        word => word,
    });
    let host = bucket.fresh("host");
    let finished = bucket
        .on_host(host.to_str().unwrap(), words)
        .output()
        .unwrap();
    (finished.into(), out)
}

#[test]
fn every_fault_by_itself_passes() {
    let (bucket, proxy) = begun("one-fault");
    for verb in VERBS {
        proxy.set(Schedule::Fine);
        proxy.take();
        let (finished, _) = run(&bucket, verb);
        assert_eq!(finished.code, Some(0), "{finished}");
        let requests = u64::try_from(proxy.take().requests()).unwrap();
        for (fault, start) in Fault::PASSING.into_iter().zip(1..) {
            // In the ordinary suite each fault meets another request; at length each meets every one.
            for number in (start..=requests).step_by(effort(25, 1)) {
                proxy.set(Schedule::At(number, Vec::new(), fault));
                let (finished, out) = run(&bucket, verb);
                let traffic = proxy.take();
                let what = format!("{fault:?} at {number}: {verb:?}: {finished}{traffic:?}");
                assert_eq!(finished.code, Some(0), "{what}");
                check_tree(&bucket, verb, &out);
            }
        }
    }
    proxy.set(Schedule::Fine);
    bucket.ok(["verify", "--read-data"]);
}

/// What was got is a tree that was put.
fn check_tree(bucket: &Bucket, verb: &[&str], out: &std::path::Path) {
    let tree = bucket.env.path("tree-2");
    match verb.first() {
        Some(&"get") => assert_same_tree(&tree, out),
        Some(&"materialize") => assert_same_but_file_times(&tree, out),
        _ => {}
    }
}

#[test]
fn faults_by_dice_lose_nothing() {
    let first: u64 = std::env::var("STORE_TESTS_SEED").map_or(1, |seed| seed.parse().unwrap());
    let count =
        std::env::var("STORE_TESTS_SEEDS").map_or(effort(2, 100), |seeds| seeds.parse().unwrap());
    for seed in first..first + count {
        let (bucket, proxy) = begun("dice");
        proxy.set(Schedule::dice(seed, PER_THOUSAND));
        for verb in VERBS {
            let (finished, out) = run(&bucket, verb);
            let traffic = proxy.take();
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

#[test]
fn credentials_that_end_in_the_middle_end_the_verb_and_nothing_else() {
    let (bucket, proxy) = begun("expired");
    for verb in VERBS {
        proxy.set(Schedule::From(3, Fault::Expired));
        proxy.take();
        let (finished, _) = run(&bucket, verb);
        assert_eq!(finished.code, Some(1), "{verb:?}: {finished}");
        assert!(finished.stderr.contains("credentials"), "{finished}");
        let traffic = proxy.take();
        assert!(traffic.requests() < 12, "no storm: {traffic:?}");
        proxy.set(Schedule::Fine);
        let (finished, out) = run(&bucket, verb);
        assert_eq!(finished.code, Some(0), "{verb:?}: {finished}");
        check_tree(&bucket, verb, &out);
    }
    bucket.ok(["verify", "--read-data"]);
}
