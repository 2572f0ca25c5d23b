//! What a push transfers, counted on the wire.

use std::process::{Command, Stdio};

use support::proxy::Proxy;
use support::servers::Server;
use support::{Random, assert_same_tree, effort, trees};

use crate::bucket::{Bucket, good};

/// Maximum bytes of a pack, without its table and the headers of requests.
const PACK_BYTES: u64 = 64 << 20;

/// The command with a store in a directory.
fn here<'a>(bucket: &Bucket, words: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = bucket.env.command(["--store", "here"]);
    command.args(words).envs(bucket.server.variables());
    command
}

fn push(bucket: &Bucket) -> Command {
    here(bucket, ["push", "project/a/b", &bucket.url])
}

/// Puts a tree of `files` files of 100 kB; the first `new` of them come from `seed`. Returns the bytes stored.
fn put(bucket: &Bucket, files: u64, new: u64, seed: u64) -> u64 {
    for number in 0..files {
        let seed = if number < new { seed } else { 0 };
        let bytes = Random::new(seed << 32 | number).bytes(100_000);
        trees::write(&bucket.env.path(format!("tree/{number}")), &bytes);
    }
    let words = ["put", "tree", "project/a/b", "--read-all", "--json"];
    let told = good(here(bucket, words));
    let told: serde_json::Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    told["stored_bytes"].as_u64().unwrap()
}

fn begun(name: &str) -> (Bucket, Proxy) {
    let (bucket, proxy) = Bucket::proxied(name, &Server::moto());
    good(here(&bucket, ["init", "here"]));
    (bucket, proxy)
}

#[test]
fn a_second_version_moves_what_is_new() {
    let (bucket, proxy) = begun("second");
    put(&bucket, 100, 0, 0);
    good(push(&bucket));
    let stored = put(&bucket, 100, 5, 1);
    proxy.take();
    good(push(&bucket));
    let traffic = proxy.take();
    let moved = traffic.sent() + traffic.received();
    // The new encoded bytes and a tenth of them, and 2 % of the version.
    let most = stored + stored / 10 + 100 * 100_000 / 50;
    assert!(moved <= most, "{moved} bytes for {stored}: {traffic:?}");
    // The destination's segments say what is missing, so no pack is read.
    assert_eq!(
        traffic.with(&["GET", "/packs/"]).requests(),
        0,
        "{traffic:?}"
    );
    good(push(&bucket));
    let traffic = proxy.take();
    assert!(traffic.requests() < 20, "{traffic:?}");
    assert!(traffic.sent() + traffic.received() < 100_000, "{traffic:?}");
    bucket.ok(["get", "project/a/b", "out"]);
    assert_same_tree(&bucket.env.path("tree"), &bucket.env.path("out"));
}

/// To check that a version's packs still exist takes one request, or two in a large store.
#[test]
fn a_push_with_nothing_to_do_asks_once_for_the_packs() {
    let (bucket, proxy) = begun("nothing");
    put(&bucket, 100, 0, 0);
    good(push(&bucket));
    for _ in 0..2 {
        proxy.take();
        let told = good(push(&bucket));
        assert!(told.contains("1 unchanged"), "{told}");
    }
    let traffic = proxy.take();
    // Segments once for those that no entry names, and once for those of which this host has a copy.
    for (listed, times) in [("packs", 1), ("segments", 2), ("checkpoints", 1)] {
        assert_eq!(traffic.with(&[listed]).requests(), times, "{traffic:?}");
    }
    // In addition the format, one entry and two missing ones, and one listing for more.
    assert!(traffic.requests() <= 9, "{traffic:?}");
    // A put that relies on a few packs asks for each of them, or lists all.
    bucket.ok(["put", "tree", "project/a/b"]);
    proxy.take();
    bucket.ok(["put", "tree", "project/a/b"]);
    let traffic = proxy.take();
    assert!(traffic.with(&["packs"]).requests() <= 1, "{traffic:?}");
}

#[test]
fn a_push_that_was_killed_sends_no_whole_pack_twice() {
    let (bucket, proxy) = begun("killed");
    let files = effort(900, 3_000);
    let stored = put(&bucket, files, 0, 0);
    proxy.take();
    for share in effort(vec![80], vec![10, 30, 50, 70, 90, 99]) {
        let other = Bucket::new("killed", bucket.server.clone());
        proxy.take();
        let mut command = here(&bucket, ["push", "project/a/b", &other.url]);
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let mut before = 0;
        while before < stored * share / 100 && child.try_wait().unwrap().is_none() {
            before += proxy.take().sent();
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        good(here(&bucket, ["push", "project/a/b", &other.url]));
        let traffic = proxy.take();
        let sent = before + traffic.sent();
        let most = stored + stored / 50 + PACK_BYTES;
        assert!(
            sent <= most,
            "{sent} of {stored} bytes, killed after {before}: {traffic:?}"
        );
        other.ok(["verify", "--read-data"]);
    }
}

#[test]
fn what_is_there_under_another_name_moves_metadata_only() {
    let (bucket, proxy) = begun("renamed");
    put(&bucket, 50, 0, 0);
    good(push(&bucket));
    good(here(&bucket, ["put", "tree", "team/x/y"]));
    proxy.take();
    good(here(&bucket, ["push", "team/x/y", &bucket.url]));
    let traffic = proxy.take();
    let moved = traffic.sent() + traffic.received();
    assert!(moved < 100_000, "{traffic:?}");
}

#[test]
fn a_pull_brings_it_back_with_what_is_missing() {
    let (bucket, proxy) = begun("pull");
    put(&bucket, 50, 0, 0);
    good(push(&bucket));
    let there = |words: &[&str]| {
        let mut command = bucket.env.command(["--store", "there"]);
        command.args(words).envs(bucket.server.variables());
        good(command)
    };
    there(&["init", "there"]);
    there(&["pull", &bucket.url, "project/a/b"]);
    let stored = put(&bucket, 50, 2, 1);
    good(push(&bucket));
    proxy.take();
    there(&["pull", &bucket.url, "project/a/b"]);
    let traffic = proxy.take();
    let most = stored + stored / 10 + 50 * 100_000 / 50;
    assert!(traffic.received() <= most, "{stored}: {traffic:?}");
    there(&["verify", "--read-data"]);
    there(&["get", "project/a/b", "pulled"]);
    assert_same_tree(&bucket.env.path("tree"), &bucket.env.path("pulled"));
}
