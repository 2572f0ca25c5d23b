//! Power cuts for the journal of a push and its destination: the next push completes, and both stores are sound. Packs
//! that the journal lost are sent again.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::{Random, TestEnvironment, assert_same_tree, effort, environment};

use crate::mounts::Mount;

const REF: &str = "project/power/data";
const BYTES: usize = 2_000_000;

#[test]
fn power_cuts_under_a_push_on_ext4() {
    cut_again_and_again(&Mount::ext4(512, &[], "commit=600"), 1);
}

#[test]
fn power_cuts_under_a_push_on_xfs() {
    cut_again_and_again(&Mount::xfs("defaults"), 2);
}

/// The host's state and the destination are on `mount`; every round transfers a new version.
fn cut_again_and_again(mount: &Mount, seed: u64) {
    let env = environment!();
    let mut random = Random::new(seed);
    let far = mount.path().join("far");
    env.ok(["init".as_ref(), far.as_os_str()]);
    for round in 0..effort(3, 30) {
        let what = format!("seed {seed}, round {round}");
        env.write("in/file", random.bytes(BYTES));
        env.ok(["put", "in", REF]);
        let mut child = push(&env, mount, &far)
            .args(["--bwlimit", "500k"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_for_a_run(&env, mount, &what);
        std::thread::sleep(Duration::from_millis(random.below(3000)));
        mount.cut_power();
        child.kill().unwrap();
        child.wait().unwrap();
        mount.again();
        let finished: support::Finished = push(&env, mount, &far).output().unwrap().into();
        assert_eq!(finished.code, Some(0), "{what}: {finished}");
        println!("{what}: {}", finished.stderr);
        env.ok(["verify", "--read-data"]);
        env.ok([
            "--store".as_ref(),
            far.as_os_str(),
            "verify".as_ref(),
            "--read-data".as_ref(),
        ]);
        let out = round.to_string();
        env.ok([
            "--store".as_ref(),
            far.as_os_str(),
            "get".as_ref(),
            REF.as_ref(),
            out.as_ref(),
        ]);
        assert_same_tree(&env.path("in"), &env.path(&out));
    }
}

fn push(env: &TestEnvironment, mount: &Mount, far: &Path) -> Command {
    let mut command = env.command(["push".as_ref(), REF.as_ref(), far.as_os_str()]);
    command.env("XDG_STATE_HOME", mount.path().join("state"));
    command
}

fn wait_for_a_run(env: &TestEnvironment, mount: &Mount, what: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let mut status = env.command(["duplicate", "--status"]);
        let told = status
            .env("XDG_STATE_HOME", mount.path().join("state"))
            .output()
            .unwrap();
        if String::from_utf8_lossy(&told.stdout).contains(" running ") {
            return;
        }
        assert!(Instant::now() < deadline, "{what}: no run was told of");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The host's state directory has space for the beginning of a journal, or none.
#[test]
fn a_push_goes_on_where_the_disk_of_its_journal_is_full() {
    for blocks in [0, 1, 4, 16, 64] {
        let env = environment!();
        let mount = Mount::tmpfs("size=4M");
        env.ok(["init", "far"]);
        env.write("in/file", Random::new(blocks).bytes(BYTES));
        env.ok(["put", "in", REF]);
        let filled = (4 << 20) - 4096 * usize::try_from(blocks).unwrap();
        std::fs::write(mount.path().join("filled"), vec![1; filled]).unwrap();
        let far = env.path("far");
        let pushed: support::Finished = push(&env, &mount, &far).output().unwrap().into();
        assert_eq!(pushed.code, Some(0), "{blocks} blocks left: {pushed}");
        assert!(
            !pushed.stderr.contains("panicked"),
            "{blocks} blocks left: {pushed}"
        );
        env.ok(["get", "--store", "far", REF, "out"]);
        assert_same_tree(&env.path("in"), &env.path("out"));
    }
}
