//! Directories of a version that a colleague has dropped: what goes with it is named.

use std::fs;

use support::{Finished, TestEnvironment, environment};

use crate::run::run;

const REF: &str = "project/llama/cache";

/// A tree that was saved as version 2, which a colleague then dropped.
fn site() -> TestEnvironment {
    let env = environment!();
    env.write("in/a", "1");
    env.ok(["put", "in", REF]);
    env.ok(["materialize", REF, "job"]);
    env.write("job/mine", "hours");
    env.ok(["save", "job"]);
    env.ok(["rm", &format!("{REF}@2")]);
    env
}

fn is_warned(done: &Finished) -> bool {
    assert_eq!(done.code, Some(0), "{done}");
    let told = format!("was of {REF}@2, which was dropped since, and @1 is the newest again");
    let hint = format!("`store undo {REF}@2`");
    done.stderr.contains(&told) && done.stderr.contains(&hint)
}

#[test]
fn a_save_names_the_version_that_was_dropped() {
    let env = site();
    let saved = env.store(["save", "--quiet", "job"]);
    assert!(is_warned(&saved), "{saved}");
    // The advice brings it back, as the newest.
    env.ok(["undo", &format!("{REF}@2")]);
    assert_eq!(env.ok(["cat", &format!("{REF}:mine")]), "hours");
    let again = env.store(["save", "--quiet", "job"]);
    assert!(!is_warned(&again), "{again}");
}

#[test]
fn an_update_of_a_tree_names_the_version_that_was_dropped() {
    let env = site();
    for options in [&["--dry-run", "--quiet"][..], &["--quiet"]] {
        let made = env.store([&["materialize", REF, "job"], options].concat());
        assert!(is_warned(&made), "{made}");
    }
    assert!(!env.path("job/mine").exists());
    let again = env.store(["materialize", REF, "job"]);
    assert!(!is_warned(&again), "{again}");
}

#[test]
fn a_run_names_the_version_that_was_dropped() {
    let env = environment!();
    env.write("in/a", "1");
    env.ok(["put", "in", REF]);
    env.ok(run(&[], "echo hours > $STORE_PROJECT_CACHE_DIR/mine"));
    env.ok(["rm", &format!("{REF}@2")]);
    let next = env.store(run(&["--quiet"], "true"));
    assert!(is_warned(&next), "{next}");
}

#[test]
fn who_asks_for_an_older_version_or_has_a_newer_one_is_not_warned() {
    let env = site();
    let older = env.store(["materialize", &format!("{REF}@1"), "job"]);
    assert!(!is_warned(&older), "{older}");
    let env = site();
    env.write("in/a", "3");
    env.ok(["put", "in", REF]);
    let newer = env.store(["save", "job"]);
    assert!(!is_warned(&newer), "{newer}");
    // One that a rule dropped was not the newest.
    fs::remove_dir_all(env.path("job")).unwrap();
    env.ok(["materialize", REF, "job"]);
    env.write("in/a", "4");
    env.ok(["put", "in", REF]);
    env.ok(["rm", &format!("{REF}@3")]);
    let made = env.store(["materialize", REF, "job"]);
    assert!(!is_warned(&made), "{made}");
}
