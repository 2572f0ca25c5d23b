//! Saves and puts of trees that are not of the newest version here, and copies over what others did: nothing is taken back
//! without a word.

use support::environment;

use crate::save::{newest, site};

const REF: &str = "project/demo/cache";

/// The numbers of versions differ from store to store, and their trees do not.
#[test]
fn a_tree_of_another_store_is_merged_from_the_version_that_was_copied_there() {
    let env = site(&[]);
    env.write("in/a", "2");
    env.ok(["put", "in", REF]);
    env.ok(["init", "far"]);
    let far = env.path("far").display().to_string();
    env.ok(["push", REF, &far]);
    env.ok(["materialize", "--store", &far, REF, "job"]);
    // Meanwhile, a colleague removes a file here.
    env.ok(["rm", &format!("{REF}:b")]);
    env.write("job/mine", "m");
    env.ok(["save", "job", REF]);
    assert_eq!(newest(&env), ["a", "dir/c", "mine"]);
    env.write("job/more", "m");
    env.ok(["save", "job", REF]);
    assert_eq!(newest(&env), ["a", "dir/c", "mine", "more"]);
    // A part of a version is none.
    env.ok([
        "materialize",
        "--store",
        &far,
        REF,
        "part",
        "--include",
        "a",
    ]);
    assert_eq!(env.store(["save", "part", REF]).code, Some(5));
}

/// A put is told to replace; that it takes back what others saved is said even with --quiet.
#[test]
fn a_put_of_an_older_tree_names_what_it_replaces() {
    let env = site(&["one", "other"]);
    env.write("one/a", "by one");
    env.ok(["save", "one"]);
    let told =
        "other is of version 1 of project/demo/cache, and version 3 takes the place of version 2";
    let how = "`store rm project/demo/cache@3`, then `store save other project/demo/cache`";
    env.write("other/b", "by the other");
    for options in [&["--dry-run"][..], &["--quiet"]] {
        let put = env.store([&["put", "other", REF], options].concat());
        assert_eq!(put.code, Some(0), "{put}");
        assert!(put.stderr.contains(&format!("warning: {told}")), "{put}");
        assert!(put.stderr.contains(how), "{put}");
    }
    // The advice keeps both.
    env.ok(["rm", &format!("{REF}@3")]);
    env.ok(["save", "other", REF]);
    assert_eq!(env.ok(["cat", &format!("{REF}:a")]), "by one");
    assert_eq!(env.ok(["cat", &format!("{REF}:b")]), "by the other");
    // What that save merged is not in the directory.
    env.write("other/b", "again");
    let put = env.store(["put", "other", REF, "--dry-run"]);
    assert!(
        put.stderr.contains("warning: other is of version 4"),
        "{put}"
    );

    // Neither a tree of the newest version nor one that was told which version it replaces takes anything back.
    env.ok(["materialize", REF, "last"]);
    env.write("last/c", "new");
    let put = env.store(["put", "last", REF]);
    assert!(!put.stderr.contains("warning"), "{put}");
    env.write("other/c", "too");
    let put = env.store(["put", "--base", "5", "other", REF]);
    assert_eq!(put.code, Some(0), "{put}");
    assert!(!put.stderr.contains("warning"), "{put}");
}

#[test]
fn several_versions_on_top_of_the_work_of_others_are_a_warning() {
    let env = environment!();
    let put = |store: &str, text: &str| {
        env.write("in/file", text);
        env.ok(["--store", store, "put", "in", REF]);
    };
    for (store, text) in [("one", "1"), ("central", "theirs")] {
        env.ok(["init", store]);
        put(store, text);
    }
    put("one", "2");
    let all = ["duplicate", "--quiet", "--versions", "all", REF];
    let done = env.store(all.iter().chain(&["--from", "one", "--to", "central"]));
    assert_eq!(done.code, Some(0), "{done}");
    assert!(done.stderr.contains("which was put there"), "{done}");
}
