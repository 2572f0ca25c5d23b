//! Runs of users who may read the store but not write to it.

use support::{Finished, TestEnvironment, environment, with_mounts};

use crate::run::{REF, newest, run};

/// A run with a store that is mounted read-only.
fn reading(env: &TestEnvironment, script: &str) -> Finished {
    let store = env.path("home/.local/share/store");
    let store = store.display();
    let mounts = format!("mount --bind {store} {store} && mount -o remount,ro,bind {store}");
    let before = ["run", "--project", "llama", "--base", "other"];
    let plain = env.command([&before[..], &["--", "/bin/sh", "-c", script]].concat());
    with_mounts(&mounts, &plain).output().unwrap().into()
}

#[test]
fn who_changes_nothing_needs_no_right_to_write() {
    let env = environment!();
    env.ok(run(&[], "echo one > $STORE_PROJECT_CACHE_DIR/one"));
    for _ in 0..2 {
        let done = reading(&env, "cat $STORE_PROJECT_CACHE_DIR/one");
        assert_eq!(done.code, Some(0), "{done}");
        assert_eq!(done.stdout, b"one\n", "{done}");
    }
    // New files are reported, and put on the list.
    let done = reading(&env, "echo two > $STORE_PROJECT_CACHE_DIR/two");
    assert_eq!(done.code, Some(1), "{done}");
    assert!(done.stderr.contains("not saved"), "{done}");
    assert_eq!(newest(&env, REF), ["one=one"]);
    env.ok(["save", "--pending"]);
    assert_eq!(env.ok(["cat", &format!("{REF}:two")]), "two\n");
}
