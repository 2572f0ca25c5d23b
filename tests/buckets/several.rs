//! Several hosts on one bucket: they put or push and collect at the same time, and some are killed. Nothing is lost.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use support::servers::Server;
use support::{Finished, Random, assert_same_tree, effort, trees};

use crate::bucket::{Bucket, GREEDY, good};

const TREES: u64 = 3;

/// How a tree gets into the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// It is put into the bucket.
    Put,
    /// It is put into a cluster's own store, then pushed.
    Push,
}

#[test]
fn hosts_put_and_collect_on_moto() {
    disturbed(&Bucket::new("several", Server::moto()), Way::Put, 3);
}

#[test]
fn hosts_put_and_collect_on_ceph() {
    disturbed(&Bucket::new("several", Server::ceph()), Way::Put, 3);
}

#[test]
fn two_clusters_push_while_a_third_collects_on_moto() {
    disturbed(&Bucket::new("clusters", Server::moto()), Way::Push, 2);
}

#[test]
fn two_clusters_push_while_a_third_collects_on_ceph() {
    disturbed(&Bucket::new("clusters", Server::ceph()), Way::Push, 2);
}

/// Runs this many writers, and two aggressive collectors.
fn disturbed(bucket: &Bucket, way: Way, writers: u64) {
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    for number in 0..TREES {
        let tree = bucket.env.path(format!("tree-{number}"));
        trees::version(&tree, seed, number, 100_000);
    }
    let (over, collected) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let putting: Vec<_> = (0..writers)
            .map(|number| scope.spawn(move || bring_often(bucket, way, number, seed ^ number)))
            .collect();
        for host in ["collector-1", "collector-2"] {
            let (over, collected) = (&over, &collected);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let words = GREEDY.into_iter().chain(["--keep-last", "2"]);
                    expect(bucket.on_host(host, words).output().unwrap().into());
                    collected.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // Ends the collectors even if a writer failed.
        let ended: Vec<_> = putting.into_iter().map(|thread| thread.join()).collect();
        over.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok));
    });
    assert!(collected.load(Ordering::Relaxed) > 0);
    bucket.ok(["verify", "--read-data"]);
    bucket.ok(GREEDY);
    bucket.ok(["verify", "--read-data"]);
    for number in 0..writers {
        let name = format!("project/p{number}/data");
        let newest = bucket.ok(["history", &name, "--json"]);
        let newest: serde_json::Value =
            serde_json::from_str(newest.lines().next().unwrap()).unwrap();
        let out = bucket.fresh("checked");
        bucket.ok(["get", &name, out.to_str().unwrap()]);
        assert_same_tree(&bucket.env.path(newest["message"].as_str().unwrap()), &out);
    }
}

/// One host transfers tree after tree; every fourth process is killed at a random time.
fn bring_often(bucket: &Bucket, way: Way, number: u64, seed: u64) {
    let mut random = Random::new(seed);
    let own = format!("own-{number}");
    if way == Way::Push {
        bucket.env.ok(["init", &own]);
    }
    for _ in 0..effort(4, 200) {
        let tree = format!("tree-{}", random.below(TREES));
        let mut command = bring(bucket, way, number, &tree);
        if random.below(4) > 0 {
            expect(command.output().unwrap().into());
            continue;
        }
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(random.below(400)));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    good(bring(bucket, way, number, "tree-0"));
}

/// The command that makes `tree` the newest version of the writer's ref in the bucket.
fn bring(bucket: &Bucket, way: Way, number: u64, tree: &str) -> Command {
    let (host, name) = (format!("host-{number}"), format!("project/p{number}/data"));
    let put = ["put", tree, &name, "-m", tree, "--read-all"];
    if way == Way::Put {
        return bucket.on_host(&host, put);
    }
    let own = format!("own-{number}");
    bucket.env.ok(["--store", &own].into_iter().chain(put));
    let mut push = bucket
        .env
        .command(["--store", &own, "push", &name, &bucket.url]);
    push.envs(bucket.server.variables());
    push.env("HOME", bucket.env.path(host));
    push
}

/// A process that nobody killed may lose every race, but may not fail otherwise.
fn expect(finished: Finished) {
    assert!([Some(0), Some(5)].contains(&finished.code), "{finished}");
}
