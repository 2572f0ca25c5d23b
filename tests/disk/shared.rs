//! A store that a group shares, and a member whose umask closes everything: wherever a put of theirs is killed, nothing
//! has its name that the group may not read.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use support::{Finished, TestEnvironment, environment, under};

/// Calls that make names, or set modes.
const CALLS: [&str; 4] = [
    "fchmod,fchmodat",
    "link,linkat",
    "rename,renameat,renameat2",
    "mkdir,mkdirat",
];
/// More than any thread of a put makes of one kind.
const CALLS_MAX: u32 = 200;

#[test]
fn a_killed_member_closes_nothing_to_the_group() {
    for calls in CALLS {
        let mut at = 1;
        while killed_at(calls, at) {
            at += 1;
            assert!(at < CALLS_MAX, "{calls}: still hit after {CALLS_MAX} calls");
        }
        assert!(at > 1, "{calls}: nothing was hit");
    }
}

/// Kills a put at one call. Returns whether there was such a call.
fn killed_at(calls: &str, at: u32) -> bool {
    let env = environment!();
    env.write("in/file", vec![7; 3000]);
    env.ok(["init", "--shared", "store"]);
    let inject = format!("inject={calls}:signal=SIGKILL:when={at}");
    let finished = put(
        &env,
        &["strace", "-f", "-qq", "-o", "report", "-e", &inject],
    );
    let report = std::fs::read_to_string(env.path("report")).unwrap();
    check_open(&env.path("store"), &format!("{calls} at {at}: {finished}"));
    let is_hit = report.contains("killed by SIGKILL");
    assert!(is_hit || finished.code == Some(0), "{finished}");
    let again = put(&env, &[]);
    assert_eq!(again.code, Some(0), "{calls} at {at}: {again}");
    check_open(&env.path("store"), &format!("{calls} at {at}, put again"));
    is_hit
}

fn put(env: &TestEnvironment, before: &[&str]) -> Finished {
    let put = env.command(["--store", "store", "put", "in", "project/demo/a"]);
    let script = ["-c", "umask 077; exec \"$@\"", "sh"];
    let words = script.iter().chain(before);
    under("sh", words, &put).output().unwrap().into()
}

/// Asserts that a group reads all that has its name in a directory. Others' files have a number after `#` until then.
fn check_open(dir: &Path, what: &str) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let mode = path.symlink_metadata().unwrap().permissions().mode();
        if path.to_str().unwrap().contains('#') {
            continue;
        }
        let wanted = if path.is_dir() { 0o2070 } else { 0o040 };
        assert_eq!(
            mode & wanted,
            wanted,
            "{}: {mode:o}: {what}",
            path.display()
        );
        if path.is_dir() {
            check_open(&path, what);
        }
    }
}
