//! Which clusters have a ref, and which versions of it.

use serde_json::Value;
use support::{TestEnvironment, environment};

const REF: &str = "project/demo/data";

/// The place, how much it has, and the number of versions.
fn found(env: &TestEnvironment, what: &str, code: i32) -> Vec<(String, String, usize)> {
    let done = env.store(["where", what, "--json"]);
    assert_eq!(done.code, Some(code), "{done}");
    let text = String::from_utf8(done.stdout).unwrap();
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let word = |line: &Value, field: &str| line[field].as_str().unwrap().to_owned();
    let told = lines.map(|line| {
        let versions = line["versions"].as_array().unwrap().len();
        (word(&line, "place"), word(&line, "has"), versions)
    });
    told.collect()
}

fn told(places: &[(&str, &str, usize)]) -> Vec<(String, String, usize)> {
    let places = places.iter();
    places
        .map(|(place, has, versions)| ((*place).to_owned(), (*has).to_owned(), *versions))
        .collect()
}

#[test]
fn clusters_have_all_of_a_ref_part_of_it_or_nothing() {
    let env = environment!();
    for cluster in ["full", "part", "empty"] {
        env.ok(["init", cluster]);
        env.ok(["cluster", "add", cluster, cluster]);
    }
    for text in ["one", "two"] {
        env.write("in/file", text);
        env.ok(["put", "in", REF]);
        if text == "one" {
            env.ok(["push", REF, "part"]);
        }
    }
    env.ok(["push", REF, "full", "--versions", "all"]);
    let all = told(&[
        ("here", "all", 2),
        ("empty", "none", 0),
        ("full", "all", 2),
        ("part", "part", 1),
    ]);
    assert_eq!(found(&env, REF, 0), all);
    // By a local number, which is another version elsewhere; and by the id of a version that only others have.
    let second = told(&[
        ("here", "all", 1),
        ("empty", "none", 0),
        ("full", "all", 1),
        ("part", "none", 0),
    ]);
    assert_eq!(found(&env, &format!("{REF}@2"), 0), second);
    env.ok(["rm", REF, "--yes"]);
    let gone = told(&[
        ("here", "none", 0),
        ("empty", "none", 0),
        ("full", "all", 2),
        ("part", "part", 1),
    ]);
    assert_eq!(found(&env, REF, 0), gone);
    let nowhere = told(&[
        ("here", "none", 0),
        ("empty", "none", 0),
        ("full", "none", 0),
        ("part", "none", 0),
    ]);
    assert_eq!(found(&env, "project/demo/none", 3), nowhere);
    let inside = env.store(["where", &format!("{REF}:file")]);
    assert_eq!(inside.code, Some(2), "{inside}");
}

#[test]
fn one_that_cannot_be_asked_is_named() {
    let env = environment!();
    env.write("in/file", "text");
    env.ok(["put", "in", REF]);
    env.write("broken/format", "no store");
    env.ok(["cluster", "add", "broken", "broken", "--no-check"]);
    let places = found(&env, REF, 6);
    assert_eq!(
        places,
        told(&[("here", "all", 1), ("broken", "unknown", 0)])
    );
}

/// A missing mount leaves an empty directory, or none.
#[test]
fn a_cluster_that_is_gone_or_lost_its_log_could_not_be_asked() {
    let env = environment!();
    env.write("in/file", "text");
    env.ok(["put", "in", REF]);
    for cluster in ["new", "gone", "cut", "hollow"] {
        env.ok(["init", cluster]);
        env.ok(["cluster", "add", cluster, cluster]);
        if cluster != "new" {
            env.ok(["push", REF, cluster]);
        }
    }
    std::fs::rename(env.path("gone"), env.path("away")).unwrap();
    std::fs::rename(env.path("cut/log"), env.path("log")).unwrap();
    std::fs::rename(env.path("hollow"), env.path("hollow-away")).unwrap();
    std::fs::create_dir(env.path("hollow")).unwrap();
    let places = found(&env, REF, 6);
    let expected = [
        ("here", "all", 1),
        ("cut", "unknown", 0),
        ("gone", "unknown", 0),
        ("hollow", "unknown", 0),
        ("new", "none", 0),
    ];
    assert_eq!(places, told(&expected));
    let said = env.store(["where", REF]);
    for named in [
        "gone: ",
        "cut: project/demo/data: no such ref in what can be read",
        "hollow: ",
    ] {
        assert!(said.stderr.contains(named), "{named}: {said}");
    }
    // The first put creates this host's store.
    std::fs::remove_dir_all(env.path("home/.local/share/store")).unwrap();
    let first = found(&env, REF, 6);
    assert_eq!(
        first.first(),
        Some(&("here".to_owned(), "none".to_owned(), 0))
    );
}

/// `undo` restores a version below the newest one, which gets a new number. A copy of both keeps that order.
#[test]
fn what_came_back_behind_a_drop_does_not_become_the_newest_of_a_copy() {
    let env = environment!();
    let at = |store: &'static str, words: &[&str]| {
        env.ok([&["--store", store], words].concat());
    };
    for store in ["first", "second", "third"] {
        env.ok(["init", store]);
    }
    for text in ["old", "new"] {
        env.write("src/f", text);
        at("first", &["put", "src", "project/p/r"]);
    }
    at(
        "first",
        &["push", "project/p/r", "second", "--versions", "all"],
    );
    at("second", &["rm", "--yes", "project/p/r@1"]);
    at("second", &["undo"]);
    let cat = |store| env.ok(["--store", store, "cat", "project/p/r:f"]);
    assert_eq!(cat("second"), "new");
    for _ in 0..2 {
        at(
            "second",
            &["push", "project/p/r", "third", "--versions", "all"],
        );
        assert_eq!(cat("third"), "new");
    }
    let history = env.ok(["--store", "third", "--json", "history", "project/p/r"]);
    assert_eq!(history.lines().count(), 2, "{history}");
}
