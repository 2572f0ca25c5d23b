//! One host and a bucket: what several processes fetch together, and what is stored on the host.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use support::servers::Server;
use support::{Finished, Random, assert_same_but_file_times, trees};

use crate::bucket::{Bucket, good};

const FILES: u64 = 6;
const FILE_BYTES: usize = 3_000_000;
const PROCESSES: u64 = 8;

#[test]
fn processes_of_one_host_build_each_file_once_and_fetch_each_byte_about_once() {
    let (bucket, proxy) = Bucket::proxied("host", &Server::moto());
    for number in 0..FILES {
        let bytes = Random::new(number).bytes(FILE_BYTES);
        trees::write(&bucket.env.path(format!("tree/{number}")), &bytes);
    }
    bucket.ok(["put", "tree", "project/a/b"]);
    proxy.take();
    good(bucket.on_host("alone", ["materialize", "project/a/b", "of-one"]));
    let alone = proxy.take().received();
    assert!(alone > FILES * FILE_BYTES as u64, "{alone}");
    let outs: Vec<String> = (0..PROCESSES)
        .map(|number| format!("out-{number}"))
        .collect();
    let start = |out: &String| {
        let words = ["--json", "materialize", "project/a/b", out];
        let mut command = bucket.on_host("many", words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let children: Vec<_> = outs.iter().map(start).collect();
    let mut built = 0;
    for child in children {
        let finished: Finished = child.wait_with_output().unwrap().into();
        assert_eq!(finished.code, Some(0), "{finished}");
        let told: serde_json::Value = serde_json::from_slice(&finished.stdout).unwrap();
        built += told["fetched"].as_u64().unwrap();
    }
    assert_eq!(built, FILES);
    let together = proxy.take();
    // Each process reads the state. If two files alternate in a pack, the process that builds one reads up to a
    // megabyte of the other rather than send another request. Without coordination, they would read eight times as
    // much.
    let most = alone + alone / 2 + PROCESSES * 50_000;
    assert!(together.received() <= most, "{alone} alone, {together:?}");
    for out in &outs {
        assert_same_but_file_times(&bucket.env.path("tree"), &bucket.env.path(out));
    }
    let kept = kept(&bucket.env.path("many"));
    assert!(kept < 1_000_000, "{kept} bytes beside the pool");
}

/// The number of bytes in files outside of pools.
fn kept(dir: &Path) -> u64 {
    let mut bytes = 0;
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let found = entry.metadata().unwrap();
        bytes += match (found.is_dir(), entry.file_name() == "pool") {
            (true, true) => 0,
            (true, false) => kept(&entry.path()),
            (false, _) => found.len(),
        };
    }
    bytes
}
