//! Versions of refs: history, pins, and drops.

use std::io::Write;
use std::process::Stdio;

use support::{Finished, TestEnvironment, check, environment};

/// Three versions of one ref, one version of another, and one in another namespace.
fn versions() -> TestEnvironment {
    let env = environment!();
    for text in ["one", "two", "three"] {
        env.write("in/file", text);
        env.ok(["put", "in", "project/demo/data", "--message", text]);
    }
    env.ok(["put", "in", "project/demo/more/data"]);
    env.ok(["put", "in", "team/other/data"]);
    env
}

fn left(env: &TestEnvironment, name: &str) -> Vec<u64> {
    let lines = String::from_utf8(env.store(["--json", "history", name]).stdout).unwrap();
    let version = |line| {
        serde_json::from_str::<serde_json::Value>(line).unwrap()["version"]
            .as_u64()
            .unwrap()
    };
    lines.lines().map(version).collect()
}

fn rm_and_type(env: &TestEnvironment, namespace: &str, typed: &str) -> Finished {
    let mut command = env.command(["rm", namespace]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(typed.as_bytes())
        .unwrap();
    child.wait_with_output().unwrap().into()
}

#[test]
fn history_lists_versions_newest_first() {
    let env = versions();
    env.ok(["pin", "project/demo/data@2"]);
    check!(env, env.store(["history", "project/demo/data"]), @"
    exit code: 0
    --- stdout
    version  id             put (UTC)            by         size  last use  marks   origin  message
          3  [VERSION-ID]  [TIME]  tester@[HOST]   5 B                            three
          2  [VERSION-ID]  [TIME]  tester@[HOST]   3 B            pinned          two
          1  [VERSION-ID]  [TIME]  tester@[HOST]   3 B                            one
    --- stderr
    ");
    check!(env, env.store(["history", "project/demo/data", "--json"]), @r#"
    exit code: 0
    --- stdout
    {"version":3,"id":"[VERSION-ID]","time":"[TIME]","host":"[HOST]","user":"tester","program":"store [VERSION]","message":"three","kind":"tree","bytes":5,"entries":1,"pinned":false}
    {"version":2,"id":"[VERSION-ID]","time":"[TIME]","host":"[HOST]","user":"tester","program":"store [VERSION]","message":"two","kind":"tree","bytes":3,"entries":1,"pinned":true}
    {"version":1,"id":"[VERSION-ID]","time":"[TIME]","host":"[HOST]","user":"tester","program":"store [VERSION]","message":"one","kind":"tree","bytes":3,"entries":1,"pinned":false}
    --- stderr
    "#);
    check!(env, env.store(["history", "project/demo/data@2"]), @"
    exit code: 2
    --- stdout
    --- stderr
    error: project/demo/data@2: expected a ref without version and path
    hint: write project/demo/data
    ");
}

#[test]
fn one_version_is_dropped_or_all_of_them() {
    let env = versions();
    check!(env, env.store(["rm", "project/demo/data@2"]), @"
    exit code: 0
    --- stdout
    dropped 1 version; `store undo project/demo/data` brings that back until `store gc` has given back the space
    --- stderr
    ");
    assert_eq!(left(&env, "project/demo/data"), [3, 1]);
    check!(env, env.store(["rm", "project/demo/data@2"]), @"
    exit code: 3
    --- stdout
    --- stderr
    error: project/demo/data@2: no such version
    hint: `store undo project/demo/data@2` brings it back, as long as its bytes are there; `store history project/demo/data` lists the others
    ");
    check!(env, env.store(["--json", "rm", "project/demo/data"]), @r#"
    exit code: 0
    --- stdout
    {"dropped":["project/demo/data@1","project/demo/data@3"],"kept_pinned":[],"pools":[]}
    --- stderr
    "#);
    check!(env, env.store(["rm", "project/demo/data"]), @"
    exit code: 3
    --- stdout
    --- stderr
    error: project/demo/data: the ref was removed (last version: 3)
    hint: `store undo project/demo/data` brings it back, as long as its bytes are there
    ");
    assert_eq!(left(&env, "project/demo/more/data"), [1]);
}

#[test]
fn a_number_is_never_used_again() {
    let env = versions();
    env.ok(["rm", "project/demo/data"]);
    env.ok(["put", "in", "project/demo/data"]);
    assert_eq!(left(&env, "project/demo/data"), [4]);
}

#[test]
fn a_pinned_version_is_not_dropped() {
    let env = versions();
    check!(env, env.store(["pin", "project/demo/data@1"]), @"
    exit code: 0
    --- stdout
    project/demo/data@1 is pinned
    --- stderr
    ");
    check!(env, env.store(["rm", "project/demo/data"]), @"
    exit code: 5
    --- stdout
    --- stderr
    error: project/demo/data@1: it is pinned; nothing was dropped
    hint: `store unpin project/demo/data@1` first
    ");
    assert_eq!(left(&env, "project/demo/data"), [3, 2, 1]);
    check!(env, env.store(["unpin", "project/demo/data@1"]), @"
    exit code: 0
    --- stdout
    project/demo/data@1 is not pinned
    --- stderr
    ");
    check!(env, env.store(["unpin", "project/demo/data@1"]), @"
    exit code: 0
    --- stdout
    project/demo/data@1 is not pinned
    --- stderr
    ");
    env.ok(["rm", "project/demo/data"]);
    assert_eq!(left(&env, "project/demo/data"), [0; 0]);
    check!(env, env.store(["pin", "project/demo/data@1"]), @"
    exit code: 3
    --- stdout
    --- stderr
    error: project/demo/data: the ref was removed (last version: 3)
    hint: `store undo project/demo/data` brings it back, as long as its bytes are there
    ");
    check!(env, env.store(["pin", "project/demo/more/data:path"]), @"
    exit code: 2
    --- stdout
    --- stderr
    error: project/demo/more/data:path: expected a ref without path
    hint: a version is pinned, dropped and listed as a whole
    ");
}

#[test]
fn a_pin_without_a_number_is_of_the_newest() {
    let env = versions();
    check!(env, env.store(["--json", "pin", "project/demo/data"]), @r#"
    exit code: 0
    --- stdout
    {"ref":"project/demo/data","version":3,"pinned":true}
    --- stderr
    "#);
}

#[test]
fn a_namespace_is_dropped_when_its_name_is_typed_again() {
    let env = versions();
    env.ok(["pin", "project/demo/data@1"]);
    check!(env, rm_and_type(&env, "project/demo", ""), @r#"
    exit code: 2
    --- stdout
    --- stderr
    error: rm project/demo: 3 versions not dropped, since not confirmed: expected "project/demo", found ""
    hint: nothing was dropped; type the whole name, or say --yes
    "#);
    check!(env, rm_and_type(&env, "project/demo", "y\n"), @r#"
    exit code: 2
    --- stdout
    --- stderr
    error: rm project/demo: 3 versions not dropped, since not confirmed: expected "project/demo", found "y"
    hint: nothing was dropped; type the whole name, or say --yes
    "#);
    assert_eq!(left(&env, "project/demo/data"), [3, 2, 1]);
    check!(env, rm_and_type(&env, "project/demo", "project/demo\n"), @"
    exit code: 0
    --- stdout
    dropped 3 versions; `store undo` brings that back until `store gc` has given back the space
    kept, since it is pinned: project/demo/data@1
    --- stderr
    ");
    assert_eq!(left(&env, "project/demo/data"), [1]);
    assert_eq!(left(&env, "project/demo/more/data"), [0; 0]);
    assert_eq!(left(&env, "team/other/data"), [1]);
    check!(env, env.store(["rm", "--yes", "team/other"]), @"
    exit code: 0
    --- stdout
    dropped 1 version; `store undo team/other/data` brings that back until `store gc` has given back the space
    --- stderr
    ");
    assert_eq!(left(&env, "team/other/data"), [0; 0]);
}

/// The newest version of a ref in a store, as JSON.
fn newest(env: &TestEnvironment, store: &[&str]) -> serde_json::Value {
    let words = ["--json", "history", "project/demo/data"];
    let lines = env.ok(words.iter().chain(store));
    serde_json::from_str(lines.lines().next().unwrap()).unwrap()
}

#[test]
fn a_version_has_one_id_in_every_store_and_every_verb_takes_it() {
    let env = versions();
    env.ok(["init", "far"]);
    env.ok(["cluster", "add", "h200", "far"]);
    env.write("in/file", "four");
    let put = env.ok([
        "--json",
        "put",
        "in",
        "project/demo/data",
        "--message",
        "of four",
    ]);
    let put: serde_json::Value = serde_json::from_str(&put).unwrap();
    let pushed = env.ok(["--json", "push", "project/demo/data", "h200"]);
    let pushed: serde_json::Value = serde_json::from_str(&pushed).unwrap();
    let (here, there) = (newest(&env, &[]), newest(&env, &["--store", "h200"]));
    assert_eq!(
        (&here["version"], &there["version"]),
        (&4.into(), &1.into())
    );
    let id = here["id"].as_str().unwrap();
    for told in [&there["id"], &put["id"], &pushed["refs"][0]["id"]] {
        assert_eq!(told, id);
    }
    // The message and the origin are transferred.
    assert_eq!(there["message"], "of four");
    let origin = &there["origin"];
    assert_eq!(origin["version"], 4, "{there}");
    assert_eq!(origin["time"], here["time"], "{there}");
    let shown = env.ok(["history", "project/demo/data", "--store", "h200"]);
    assert!(shown.contains("  @4 of "), "{shown}");
    let short = &id[..9];
    let named = |path: &str| format!("project/demo/data@{short}{path}");
    for store in [&[][..], &["--store", "h200"]] {
        let run = |words: &[&str]| env.ok(words.iter().chain(store));
        assert_eq!(run(&["cat", &named(":file")]), "four");
        let out = format!("out-{}", store.len());
        run(&["get", &named(""), &out]);
        run(&["materialize", &named(""), &format!("{out}-tree")]);
        for words in [
            &["ls", &named("")][..],
            &["summarize", &named("")],
            &["diff", &named(""), "in"],
            &["verify", &named("")],
            &["pin", &named("")],
            &["unpin", &named("")],
        ] {
            run(words);
        }
    }
    let unchanged = env.ok(["--json", "push", &named(""), "h200"]);
    assert!(unchanged.contains("\"unchanged\""), "{unchanged}");
    for (name, code) in [
        ("project/demo/data@t00000000", 3),
        ("project/demo/data@t0000000", 2),
        ("project/demo/data@00000000", 2),
    ] {
        assert_eq!(env.store(["ls", name]).code, Some(code), "{name}");
    }
    env.ok(["rm", &named("")]);
    assert_eq!(left(&env, "project/demo/data"), [3, 2, 1]);
}

#[test]
fn a_namespace_that_does_not_exist_is_3_to_every_verb() {
    let env = versions();
    for verb in ["verify", "ls", "summarize", "rm"] {
        let refused = env.store([verb, "project/nope"]);
        assert_eq!(refused.code, Some(3), "{verb}: {refused}");
        assert!(refused.stderr.contains("hint: "), "{verb}: {refused}");
    }
}
