//! Saves of caches whose links share files: what one job removes stays if another one added a link to it.

use std::fs;
use std::os::unix::fs::symlink;

use support::{TestEnvironment, environment};

const REF: &str = "project/demo/cache";

/// Two trees of a repository with one snapshot of two files. The repository is removed from the first; the second gets
/// another snapshot, which shares a file with the first one.
fn trees() -> TestEnvironment {
    let env = environment!();
    let link = |tree: &str, snapshot: &str, name: &str, blob: &str| {
        let dir = env.path(format!("{tree}/repo/snapshots/{snapshot}"));
        fs::create_dir_all(&dir).unwrap();
        symlink(format!("../../blobs/{blob}"), dir.join(name)).unwrap();
    };
    env.write("in/other", "text");
    for (name, blob) in [("weights", "a"), ("card", "b")] {
        env.write(format!("in/repo/blobs/{blob}"), format!("bytes of {blob}"));
        link("in", "one", name, blob);
    }
    env.ok(["put", "in", REF, "--profile", "none"]);
    for tree in ["remover", "adder"] {
        env.ok(["materialize", REF, tree]);
    }
    fs::remove_dir_all(env.path("remover/repo")).unwrap();
    env.write("adder/repo/blobs/c", "bytes of c");
    link("adder", "two", "weights", "a");
    link("adder", "two", "card", "c");
    env
}

fn listed(env: &TestEnvironment) -> Vec<String> {
    let listed = env.ok(["ls", "-r", REF]);
    listed.lines().map(str::to_owned).collect()
}

const WHOLE: [&str; 9] = [
    "other",
    "repo/",
    "repo/blobs/",
    "repo/blobs/a",
    "repo/blobs/c",
    "repo/snapshots/",
    "repo/snapshots/two/",
    "repo/snapshots/two/card -> ../../blobs/c",
    "repo/snapshots/two/weights -> ../../blobs/a",
];

#[test]
fn what_others_removed_stays_for_a_link_from_here() {
    let env = trees();
    env.ok(["save", "remover"]);
    let saved = env.store(["save", "adder"]);
    assert_eq!(saved.code, Some(0), "{saved}");
    let named = "conflict: repo/blobs/a: deleted in @2, and a new link here leads to it; it stays";
    assert!(saved.stderr.contains(named), "{saved}");
    assert_eq!(listed(&env), WHOLE);
    env.ok(["get", REF, "out"]);
    let weights = fs::read(env.path("out/repo/snapshots/two/weights"));
    assert_eq!(weights.unwrap(), b"bytes of a");
}

#[test]
fn what_was_removed_here_stays_for_a_link_of_others() {
    let env = trees();
    env.ok(["save", "adder"]);
    let saved = env.store(["save", "remover", "--json"]);
    assert_eq!(saved.code, Some(6), "{saved}");
    let stdout = String::from_utf8_lossy(&saved.stdout);
    assert!(stdout.contains("\"case\":\"linked-there\""), "{saved}");
    assert_eq!(listed(&env), WHOLE);
    // Who removes it once more knows of the link.
    env.ok(["materialize", REF, "remover"]);
    fs::remove_dir_all(env.path("remover/repo")).unwrap();
    env.ok(["save", "remover"]);
    assert_eq!(listed(&env), ["other"]);
}

/// A file cannot stay below what is no directory any more.
#[test]
fn a_new_link_that_leads_nowhere_is_named() {
    for replaces_first in [true, false] {
        let env = environment!();
        env.write("in/ck-1/w", "weights");
        env.ok(["put", "in", REF]);
        for tree in ["linker", "replacer"] {
            env.ok(["materialize", REF, tree]);
        }
        symlink("ck-1/w", env.path("linker/best")).unwrap();
        fs::remove_dir_all(env.path("replacer/ck-1")).unwrap();
        env.write("replacer/ck-1", "a file");
        let mut order = ["linker", "replacer"];
        if replaces_first {
            order.reverse();
        }
        env.ok(["save", order[0]]);
        let saved = env.store(["save", order[1]]);
        let named = "conflict: ck-1/w: one side has a new link to it";
        assert!(saved.stderr.contains(named), "{saved}");
        assert_eq!(listed(&env), ["best -> ck-1/w", "ck-1"]);
    }
}
