//! Power cuts on separate file systems during puts by the real command: everything acknowledged is there afterwards,
//! byte for byte.
//!
//! Another test shows that such a test can detect a loss: a backend without syncs loses what it acknowledged, on both
//! file systems.

use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use object_store::local::LocalFileSystem;
use store::remote::Objects;
use store::{PutRequest, Store, Unwatched, put};
use support::{Random, effort};

use crate::mounts::Mount;
use crate::witness::{Witness, host};

const REF: &str = "project/power/data";
const TREES: u64 = 5;
const TREE_BYTES: usize = 2_000_000;
/// ext4 then writes its journal so rarely that a missing sync is not hidden by chance.
const LAZY: &str = "commit=600";

#[test]
fn power_cuts_on_ext4() {
    cut_again_and_again(&Mount::ext4(512, &[], LAZY), 1);
}

#[test]
fn power_cuts_on_xfs() {
    cut_again_and_again(&Mount::xfs("defaults"), 2);
}

#[test]
fn a_backend_that_does_not_sync_is_found_out_on_ext4() {
    lose_what_was_not_synced(&Mount::ext4(512, &[], LAZY));
}

#[test]
fn a_backend_that_does_not_sync_is_found_out_on_xfs() {
    lose_what_was_not_synced(&Mount::xfs("defaults"));
}

fn cut_again_and_again(mount: &Mount, seed: u64) {
    let mut random = Random::new(seed);
    // This round also creates the store, so its first entry and directories are at risk.
    let mut witness = Witness::new(&mount.path().join("new/store"), TREES, TREE_BYTES);
    let began = Instant::now();
    witness.put_ok("0", REF);
    let typical = began.elapsed();
    for round in 0..effort(4, 40) {
        let what = format!("seed {seed}, round {round}");
        for _ in 0..random.below(3) {
            witness.put_ok(&random.below(TREES).to_string(), REF);
        }
        let delay = typical * u32::try_from(random.below(150)).unwrap() / 100;
        put_under_a_cut(mount, &mut witness, &random.below(TREES).to_string(), delay);
        mount.again();
        println!("{what}: {} acknowledged", witness.count());
        witness.check(&what);
    }
    witness.put_ok("1", REF);
    witness.check("at the end");
}

fn put_under_a_cut(mount: &Mount, witness: &mut Witness, tree: &str, delay: Duration) {
    let mut command = witness.command(tree, REF);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(delay);
    mount.cut_power();
    witness.note(&child.wait_with_output().unwrap().into());
}

fn lose_what_was_not_synced(mount: &Mount) {
    let place = mount.path().join("store");
    let mut witness = Witness::new(&place, 2, TREE_BYTES);
    witness.put_ok("0", REF);
    // The same directory through object_store alone, which does not sync by default.
    let backend = LocalFileSystem::new_with_prefix(&place).unwrap();
    let remote = Objects::bucket("file:unsynced", Arc::new(backend)).unwrap();
    let store = Store::open(Arc::new(remote), host()).unwrap();
    let request = PutRequest {
        message: "1".to_owned(),
        read_all: true,
        ..PutRequest::new(witness.env.path("1"), REF.parse().unwrap())
    };
    assert_eq!(put(&store, &request, &Unwatched).unwrap().version, Some(2));
    mount.cut_power();
    mount.again();
    witness.check("what was synced");
    match witness.found("what was not synced") {
        Ok(found) => assert!(
            !found.contains(&format!("{REF}@2")),
            "nothing was lost: {found:?}"
        ),
        Err(error) => println!("{error:?}"),
    }
}
