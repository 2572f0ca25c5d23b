//! Runs of users who may read the store but not write to it.

use support::{Finished, TestEnvironment, environment, with_mounts};

use crate::run::{REF, newest, run};

/// A run with a store that is mounted read-only.
fn reading(env: &TestEnvironment, script: &str) -> Finished {
    let before = ["run", "--project", "llama", "--base", "other"];
    of_reader(
        env,
        &[&before[..], &["--", "/bin/sh", "-c", script]].concat(),
    )
}

fn of_reader(env: &TestEnvironment, words: &[&str]) -> Finished {
    let store = env.path("home/.local/share/store");
    let store = store.display();
    let mounts = format!("mount --bind {store} {store} && mount -o remount,ro,bind {store}");
    with_mounts(&mounts, &env.command(words))
        .output()
        .unwrap()
        .into()
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
    assert!(
        done.stderr.contains("once the store may be written to"),
        "{done}"
    );
    assert_eq!(newest(&env, REF), ["one=one"]);
    // The list says why, and what to do.
    let still = of_reader(&env, &["save", "--pending"]);
    assert_eq!(still.code, Some(6), "{still}");
    assert!(
        still.stderr.contains("mounted read-only; ") && still.stderr.contains("once the store may"),
        "{still}"
    );
    env.ok(["save", "--pending"]);
    assert_eq!(env.ok(["cat", &format!("{REF}:two")]), "two\n");
}
