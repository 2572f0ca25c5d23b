//! Trees that are saved to other refs and stores than the one that they were made from.

use std::fs;

use support::environment;

const REF: &str = "project/a/data";
const OTHER: &str = "project/a/backup";

/// A newer version in the tree is a change like any other for the backup.
#[test]
fn a_tree_that_is_brought_up_to_date_is_saved_elsewhere_as_before() {
    let env = environment!();
    env.ok(["init", "near"]);
    env.ok(["init", "far"]);
    let near = |words: &[&str]| env.ok([&["--store", "near"], words].concat());
    env.write("source/a", "1");
    env.write("source/b", "1");
    near(&["put", "source", REF]);
    near(&["materialize", REF, "tree"]);
    near(&["materialize", REF, "colleague"]);
    for night in 1..4 {
        near(&["materialize", REF, "tree"]);
        env.write(format!("tree/own-{night}"), "");
        near(&["save", "tree", REF]);
        near(&["save", "tree", OTHER]);
        env.ok(["--store", "far", "save", "tree", REF]);
        near(&["materialize", REF, "colleague"]);
        env.write(format!("colleague/theirs-{night}"), "");
        if night == 2 {
            fs::remove_file(env.path("colleague/b")).unwrap();
        }
        near(&["save", "colleague", REF]);
    }
    let expected = "a\nown-1\nown-2\nown-3\ntheirs-1\ntheirs-2\n";
    assert_eq!(near(&["ls", OTHER]), expected);
    assert_eq!(env.ok(["--store", "far", "ls", REF]), expected);
}

/// Another ref in the directory is no change of what was there.
#[test]
fn a_tree_of_another_ref_is_not_saved_as_what_was_there() {
    let env = environment!();
    env.write("one/a", "1");
    env.write("two/b", "1");
    env.ok(["put", "one", REF]);
    env.ok(["put", "two", "project/a/two"]);
    env.ok(["materialize", REF, "tree"]);
    env.write("tree/c", "1");
    env.ok(["save", "tree", OTHER]);
    env.ok(["materialize", "--force", "--exact", "project/a/two", "tree"]);
    let refused = env.store(["save", "tree", OTHER]);
    assert_eq!(refused.code, Some(5), "{refused}");
    assert_eq!(env.ok(["ls", OTHER]), "a\nc\n");
}
