//! Every verb with a store in a bucket, on each server that keeps its promises.

use std::fs;

use support::servers::Server;
use support::{Random, assert_same_but_file_times, assert_same_tree, trees};

use crate::bucket::{Bucket, GREEDY};

#[test]
fn every_verb_works_on_moto() {
    every_verb(&Bucket::new("verbs", Server::moto()));
}

#[test]
fn every_verb_works_on_ceph() {
    every_verb(&Bucket::new("verbs", Server::ceph()));
}

fn every_verb(bucket: &Bucket) {
    let env = &bucket.env;
    for number in [1, 2] {
        let tree = env.path(format!("tree-{number}"));
        trees::version(&tree, 7, number, 2_000_000);
        bucket.ok(["put", tree.to_str().unwrap(), "project/a/b"]);
    }
    assert!(bucket.ok(["ls"]).contains("project/a\n"));
    let listed = bucket.ok(["ls", "project/a/b"]);
    assert!(listed.contains("weights.bin"), "{listed}");
    assert_eq!(
        bucket.ok(["cat", "project/a/b@1:run.sh"]),
        "#!/bin/sh\necho 1\n"
    );
    let cat = bucket.store(["cat", "project/a/b:weights.bin"]);
    assert_eq!(
        cat.stdout,
        fs::read(env.path("tree-2/weights.bin")).unwrap()
    );
    let different = bucket.ok(["diff", "project/a/b@1", "project/a/b@2"]);
    assert!(different.contains("shards/1"), "{different}");
    assert!(
        bucket
            .ok(["summarize", "project/a/b"])
            .contains("project/a/b")
    );
    assert!(bucket.ok(["info"]).contains(&bucket.url));
    for number in ["1", "2"] {
        let (out, name) = (format!("out-{number}"), format!("project/a/b@{number}"));
        bucket.ok(["get", &name, &out]);
        assert_same_tree(&env.path(format!("tree-{number}")), &env.path(&out));
        bucket.ok(["materialize", &name, "linked"]);
        let tree = env.path(format!("tree-{number}"));
        assert_same_but_file_times(&tree, &env.path("linked"));
    }
    let history = bucket.ok(["history", "project/a/b", "--json"]);
    assert_eq!(history.lines().count(), 2, "{history}");
    bucket.ok(["pin", "project/a/b@1"]);
    bucket.ok(["unpin", "project/a/b@1"]);
    bucket.ok(["repair"]);
    let there = format!("file://{}", env.path("there").display());
    bucket.ok(["init", &there]);
    let way = ["--from", &bucket.url, "--to", &there];
    let all = ["duplicate", "project/a/b", "--versions", "all", "--verify"];
    bucket.ok(all.into_iter().chain(way));
    let mut get = env.command(["--store", &there, "get", "project/a/b@1", "duplicated"]);
    assert!(get.output().unwrap().status.success());
    assert_same_tree(&env.path("tree-1"), &env.path("duplicated"));
    bucket.ok(["pin", "project/a/b@2"]);
    bucket.ok(["rm", "project/a/b@1", "--yes"]);
    bucket.ok(GREEDY);
    bucket.ok(["verify", "--read-data"]);
    bucket.ok(["get", "project/a/b", "collected"]);
    assert_same_tree(&env.path("tree-2"), &env.path("collected"));
    assert_eq!(bucket.store(["ls", "project/a/b@1"]).code, Some(3));
}

#[test]
fn a_server_that_overwrites_takes_a_store_with_one_writer_only() {
    let bucket = Bucket::without_store("liar", Server::s3rver());
    let refused = bucket.store(["init"]);
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(refused.stderr.contains("--single-writer"), "{refused}");
    bucket.ok(["init", "--single-writer"]);
    let tree = bucket.env.path("tree");
    trees::version(&tree, 7, 1, 200_000);
    bucket.ok(["put", "tree", "project/a/b"]);
    bucket.ok(["get", "project/a/b", "out"]);
    assert_same_tree(&tree, &bucket.env.path("out"));
    trees::write(&bucket.env.path("garbage"), &Random::new(3).bytes(300_000));
    bucket.ok(["put", "garbage", "project/c/d"]);
    bucket.ok(["rm", "project/c/d", "--yes"]);
    let refused = bucket.store(GREEDY);
    assert_eq!(refused.code, Some(2), "{refused}");
    assert!(refused.stderr.contains("--exclusive"), "{refused}");
    let collect = ["--json", "--exclusive"];
    let told = bucket.ok(GREEDY
        .into_iter()
        .filter(|word| *word != "--quiet")
        .chain(collect));
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert!(told["freed_bytes"].as_u64().unwrap() > 300_000, "{told}");
    bucket.ok(["verify", "--read-data"]);
    bucket.ok(["get", "project/a/b", "after"]);
    assert_same_tree(&tree, &bucket.env.path("after"));
    assert_eq!(bucket.store(["ls", "project/c/d"]).code, Some(3));
}
