//! Every verb on a store in a bucket, on each server that keeps the promises.

use std::fs;

use support::servers::Server;
use support::{assert_same_but_file_times, assert_same_tree, trees};

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
}
