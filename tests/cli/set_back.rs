//! A store that was restored from an older copy: later versions exist only in what others have of them.

use std::process::Command;

use support::{Finished, TestEnvironment, environment};

const REF: &str = "project/demo/data";

fn copy(env: &TestEnvironment, from: &str, to: &str) {
    let _missing = std::fs::remove_dir_all(env.path(to));
    let copied = Command::new("cp")
        .arg("-a")
        .args([env.path(from), env.path(to)])
        .status();
    assert!(copied.unwrap().success());
}

/// A tree of version 1 that a job saved as version 2, and a copy of the store from before that.
fn set_back() -> TestEnvironment {
    let env = environment!();
    env.write("source/file", "one");
    env.ok(["init", "store"]);
    env.ok(["--store", "store", "put", "source", REF]);
    env.ok(["--store", "store", "materialize", REF, "out"]);
    copy(&env, "store", "older");
    env.write("out/job", "a job's own");
    env.ok(["--store", "store", "save", "out"]);
    env
}

/// Removes remembered state, as on a host that has not seen the store.
fn forget(env: &TestEnvironment) {
    for store in std::fs::read_dir(env.path("home/.cache/store")).unwrap() {
        let Ok(names) = std::fs::read_dir(store.unwrap().path()) else {
            continue;
        };
        for name in names {
            let path = name.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy();
            if name.starts_with("log-") {
                std::fs::remove_file(&path).unwrap();
            }
        }
    }
}

fn run(env: &TestEnvironment, words: &[&str]) -> Finished {
    env.store([&["--store", "store"], words].concat())
}

fn assert_refused(refused: &Finished) {
    assert_eq!(refused.code, Some(4), "{refused}");
    for said in ["log/000000/0000000", "this host has seen", "older copy"] {
        assert!(refused.stderr.contains(said), "{refused}");
    }
    assert!(
        refused.stderr.contains("--accept-loss` continues"),
        "{refused}"
    );
}

/// Two versions, and a copy of the store after the first.
fn two_versions() -> TestEnvironment {
    let env = environment!();
    env.write("source/file", "one");
    env.ok(["init", "store"]);
    env.ok(["--store", "store", "put", "source", REF]);
    copy(&env, "store", "older");
    env.write("source/file", "two");
    env.ok(["--store", "store", "put", "source", REF]);
    env
}

#[test]
fn nothing_is_added_to_a_log_that_lacks_what_this_host_has_seen() {
    let env = two_versions();
    for part in ["log", "segments"] {
        copy(&env, &format!("older/{part}"), &format!("store/{part}"));
    }
    env.write("source/file", "three");
    for words in [
        &["put", "source", REF][..],
        &["rm", "--yes", REF],
        &["pin", REF],
        &["gc"],
        &["verify"],
    ] {
        let refused = run(&env, words);
        assert_eq!(refused.code, Some(4), "{words:?}: {refused}");
    }
    assert_refused(&run(&env, &["put", "source", REF]));
    let read = run(&env, &["cat", &format!("{REF}:file")]);
    assert_eq!((read.code, &*read.stdout), (Some(0), &b"one"[..]), "{read}");
    assert!(read.stderr.contains("warning: log/"), "{read}");
    // A job's files wait on the list.
    let refused = run(&env, &["save", "source", "project/demo/made"]);
    assert_refused(&refused);
    assert!(refused.stderr.contains("--pending` saves it"), "{refused}");
    // A user who knows about the restored copy accepts it.
    let refused = run(&env, &["repair"]);
    assert_eq!(refused.code, Some(4), "{refused}");
    run(&env, &["repair", "--accept-loss"]);
    let read = run(&env, &["cat", &format!("{REF}:file")]);
    assert_eq!((read.code, &*read.stderr), (Some(0), ""), "{read}");
    env.ok(["--store", "store", "put", "source", REF]);
    env.ok(["--store", "store", "save", "--pending"]);
    env.ok(["--store", "store", "ls", "project/demo/made"]);
    env.ok(["--store", "store", "gc"]);
    env.ok(["--store", "store", "verify"]);
}

#[test]
fn entries_that_took_the_place_of_those_that_were_seen_are_told() {
    let env = two_versions();
    copy(&env, "older", "store");
    env.write("source/file", "three");
    elsewhere(&env, &["put", "source", REF]);
    let refused = run(&env, &["put", "source", REF]);
    assert_refused(&refused);
    assert!(refused.stderr.contains("is another entry"), "{refused}");
    run(&env, &["repair", "--accept-loss"]);
    env.write("source/file", "four");
    env.ok(["--store", "store", "put", "source", REF]);
    env.ok(["--store", "store", "verify"]);
}

/// Runs a command on another host, which has seen nothing of the store.
fn elsewhere(env: &TestEnvironment, words: &[&str]) {
    let mut command = env.command([&["--store", "store"], words].concat());
    let done: Finished = (command
        .env("XDG_CACHE_HOME", env.path("elsewhere"))
        .output())
    .unwrap()
    .into();
    assert_eq!(done.code, Some(0), "{done}");
}

#[test]
fn a_store_that_is_brought_back_twice_is_told_twice() {
    // Restored from a later copy, and from the first copy again.
    for is_of_later in [true, false] {
        let env = two_versions();
        for file in ["three", "four", "five"] {
            env.write("source/file", file);
            env.ok(["--store", "store", "put", "source", REF]);
        }
        copy(&env, "older", "store");
        let accepted = run(&env, &["repair", "--accept-loss"]);
        assert!(accepted.to_string().contains("given up"), "{accepted}");
        if is_of_later {
            copy(&env, "store", "older");
        }
        env.write("source/file", "after");
        env.ok(["--store", "store", "put", "source", REF]);
        copy(&env, "older", "store");
        let refused = run(&env, &["put", "source", REF]);
        assert_refused(&refused);
        // The loss is accepted once, and no host reports it again.
        run(&env, &["repair", "--accept-loss"]);
        env.ok(["--store", "store", "put", "source", REF]);
        env.ok(["--store", "store", "verify"]);
    }
}

/// Another host has seen more than the one that accepts the loss.
#[test]
fn a_loss_that_one_host_accepts_is_accepted_for_all() {
    let env = two_versions();
    env.write("source/file", "three");
    elsewhere(&env, &["put", "source", REF]);
    copy(&env, "older", "store");
    run(&env, &["repair", "--accept-loss"]);
    elsewhere(&env, &["put", "source", "project/demo/other"]);
    elsewhere(&env, &["verify"]);
    env.ok(["--store", "store", "put", "source", REF]);
    // The next loss is one that nobody has accepted.
    copy(&env, "older", "store");
    for place in ["home/.cache", "elsewhere"] {
        let mut command = env.command(["--store", "store", "put", "source", REF]);
        let refused = command.env("XDG_CACHE_HOME", env.path(place)).output();
        assert_refused(&refused.unwrap().into());
    }
}

#[test]
fn a_hint_names_the_store_that_was_brought_back() {
    let env = two_versions();
    env.ok(["init", "healthy"]);
    env.ok(["--store", "healthy", "put", "source", "project/o/x"]);
    copy(&env, "older", "store");
    let store = env.path("store");
    for words in [
        &["push", "project/o/x", &store.to_string_lossy()][..],
        &["pull", &store.to_string_lossy(), REF],
    ] {
        let refused = env.store([&["--store", "healthy"], words].concat());
        let hint = format!("repair --store file://{} --accept-loss", store.display());
        assert!(refused.stderr.contains(&hint), "{refused}");
    }
}

#[test]
fn a_copy_elsewhere_and_a_new_store_are_no_older_ones() {
    let env = two_versions();
    for (store, file) in [("older", "mine"), ("store", "three"), ("older", "more")] {
        env.write("source/file", file);
        env.ok(["--store", store, "put", "source", REF]);
        assert_eq!(
            env.ok(["--store", store, "cat", &format!("{REF}:file")]),
            file
        );
    }
    std::fs::remove_dir_all(env.path("store")).unwrap();
    env.ok(["init", "store"]);
    env.ok(["--store", "store", "put", "source", REF]);
}

#[test]
fn a_tree_that_knows_more_than_the_store_is_neither_called_unchanged_nor_overruled() {
    let env = set_back();
    copy(&env, "older", "store");
    forget(&env);
    for words in [vec!["save", "out"], vec!["materialize", REF, "out"]] {
        let refused = env.store([&["--store", "store"], &words[..]].concat());
        assert_eq!(refused.code, Some(5), "{refused}");
        assert!(
            refused.stderr.contains("@2") && refused.stderr.contains("older copy"),
            "{refused}"
        );
    }
    assert_eq!(
        std::fs::read_to_string(env.path("out/job")).unwrap(),
        "a job's own"
    );
    env.ok(["--store", "store", "save", "out", REF, "--base", "1"]);
    assert!(env.ok(["--store", "store", "ls", REF]).contains("job"));
}

/// The same number does not mean that a version is the one that was lost.
#[test]
fn a_version_that_was_given_up_is_none_that_others_made_since() {
    let env = set_back();
    copy(&env, "older", "store");
    run(&env, &["repair", "--accept-loss"]);
    env.write("other/own", "theirs");
    for number in ["2", "3"] {
        env.write("other/number", number);
        elsewhere(&env, &["save", "other", REF, "--base", "0"]);
    }
    for words in [
        vec!["save", "out"],
        vec!["materialize", REF, "out"],
        vec!["materialize", REF, "out", "--dry-run"],
    ] {
        let refused = env.store([&["--store", "store"], &words[..]].concat());
        assert_eq!(refused.code, Some(5), "{refused}");
        assert!(refused.stderr.contains("@2 is another one"), "{refused}");
    }
    assert!(env.path("out/job").exists());
    env.ok(["--store", "store", "save", "out", REF, "--base", "1"]);
    env.ok(["--store", "store", "materialize", REF, "out"]);
    let listed = env.ok(["--store", "store", "ls", REF]);
    for name in ["job", "own", "number", "file"] {
        assert!(listed.contains(name) && env.path("out").join(name).exists());
    }
}

#[test]
fn a_copy_keeps_what_its_source_does_not_know_of_any_more() {
    let env = set_back();
    env.ok(["init", "copy"]);
    let words = [
        "duplicate",
        "project/demo",
        "--versions",
        "all",
        "--from",
        "store",
        "--to",
        "copy",
    ];
    env.ok(words);
    copy(&env, "older", "store");
    forget(&env);
    let refused = env.store([&words[..], &["--delete"]].concat());
    assert_eq!(refused.code, Some(5), "{refused}");
    assert!(refused.stderr.contains("older copy"), "{refused}");
    assert!(env.ok(["--store", "copy", "ls", REF]).contains("job"));
}
