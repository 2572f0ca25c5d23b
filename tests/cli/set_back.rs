//! A store that was brought back from an older copy: what others have of it is all that is left.

use std::process::Command;

use support::{TestEnvironment, environment};

const REF: &str = "project/demo/data";

fn copy(env: &TestEnvironment, from: &str, to: &str) {
    let _missing = std::fs::remove_dir_all(env.path(to));
    let copied = Command::new("cp")
        .arg("-a")
        .args([env.path(from), env.path(to)])
        .status();
    assert!(copied.unwrap().success());
}

/// A tree of version 1, which a job saved as version 2, and the store as it was before that.
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

#[test]
fn a_tree_that_knows_more_than_the_store_is_neither_called_unchanged_nor_overruled() {
    let env = set_back();
    copy(&env, "older", "store");
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
    let refused = env.store([&words[..], &["--delete"]].concat());
    assert_eq!(refused.code, Some(5), "{refused}");
    assert!(refused.stderr.contains("older copy"), "{refused}");
    assert!(env.ok(["--store", "copy", "ls", REF]).contains("job"));
}
