//! A put of the same content as the newest version makes no version.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use support::{TestEnvironment, check, environment, under};

const REF: &str = "project/demo/data";

fn versions(env: &TestEnvironment) -> usize {
    env.ok(["history", "--json", REF]).lines().count()
}

fn put(env: &TestEnvironment, options: &[&str]) -> serde_json::Value {
    let said = env.ok([&["put", "--json", "in", REF], options].concat());
    serde_json::from_str(&said).unwrap()
}

fn tree() -> TestEnvironment {
    let env = environment!();
    env.write("in/file", "one");
    env.write("in/sub/other", "two");
    env.ok(["put", "in", REF, "--message", "first"]);
    env
}

#[test]
fn nothing_new_is_no_version() {
    let env = tree();
    check!(env, env.store(["put", "in", REF]), @"
    exit code: 0
    --- stdout
    project/demo/data: unchanged, still @1 (@[VERSION-ID]): 2 files, 6 B in [SECS] ([RATE])
    new 0 B, stored [SIZE]
    --- stderr
    ");
    let report = put(&env, &["--message", "another"]);
    assert_eq!(
        (&report["version"], &report["unchanged"]),
        (&1.into(), &true.into())
    );
    let report = put(&env, &["--dry-run"]);
    assert_eq!(
        (&report["version"], &report["unchanged"]),
        (&1.into(), &true.into())
    );
    assert_eq!(versions(&env), 1);
    let report = put(&env, &["--always"]);
    assert_eq!(
        (&report["version"], &report["unchanged"]),
        (&2.into(), &false.into())
    );
    assert_eq!(versions(&env), 2);
}

#[test]
fn times_of_files_count_and_those_of_directories_do_not() {
    let env = tree();
    let dated = |name: &str, secs| {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(secs);
        File::open(env.path(name))
            .unwrap()
            .set_modified(time)
            .unwrap();
    };
    let log = || {
        std::fs::read_dir(env.path("home/.local/share/store/log/000000"))
            .unwrap()
            .count()
    };
    let entries = log();
    dated("in/sub", 1_000_000);
    dated("in", 2_000_000);
    assert_eq!(put(&env, &[])["unchanged"], true);
    assert_eq!(log(), entries, "not even an entry");
    dated("in/sub/other", 3_000_000);
    let report = put(&env, &[]);
    assert_eq!(
        (&report["version"], &report["unchanged"]),
        (&2.into(), &false.into())
    );
}

#[test]
fn a_version_that_is_to_be_kept_longer_is_made() {
    let env = tree();
    assert_eq!(
        put(&env, &["--ttl", "1d"])["version"],
        1,
        "it is kept already"
    );
    assert_eq!(put(&env, &["--ttl", "1d", "--always"])["version"], 2);
    assert_eq!(put(&env, &["--ttl", "1h"])["version"], 2);
    // A time to live of zero would keep nothing.
    for ttl in ["0", "0d", "0.1s"] {
        let refused = env.store(["put", "in", REF, "--ttl", ttl]);
        assert_eq!(refused.code, Some(2), "{refused}");
        assert!(refused.stderr.contains("0 keeps nothing"), "{refused}");
    }
    assert_eq!(put(&env, &["--ttl", "2d"])["version"], 3);
    assert_eq!(put(&env, &[])["version"], 4, "for ever");
    assert_eq!(put(&env, &[])["version"], 4);
}

#[test]
fn what_is_missing_in_the_newest_version_is_stored_without_a_new_one() {
    let env = tree();
    let packs = env.path("home/.local/share/store/packs");
    std::fs::remove_dir_all(&packs).unwrap();
    std::fs::create_dir(&packs).unwrap();
    assert_eq!(env.store(["repair", "--accept-loss"]).code, Some(6));
    let report = put(&env, &[]);
    assert_eq!(
        (&report["version"], &report["unchanged"]),
        (&1.into(), &true.into())
    );
    env.ok(["verify", "--read-data"]);
}

#[test]
fn an_earlier_version_is_no_reason_to_make_none() {
    let env = tree();
    env.write("in/file", "three");
    assert_eq!(put(&env, &[])["version"], 2);
    let time = env.path("in/file").metadata().unwrap().modified().unwrap();
    env.write("in/file", "one");
    File::open(env.path("in/file"))
        .unwrap()
        .set_modified(time)
        .unwrap();
    assert_eq!(put(&env, &[])["version"], 3);
}

#[test]
fn what_an_unchanged_tree_leaves_without_effect_is_told() {
    let env = environment!();
    env.write("in", "text");
    env.ok(["put", "in", "project/demo/a"]);
    for (options, told) in [
        (&["--message", "x"][..], "--message is without effect"),
        (&["--ttl", "3d"], "--ttl is without effect"),
        (
            &["--ttl", "3d", "--message", "x"],
            "--message and --ttl are without effect",
        ),
    ] {
        let finished = env.store([&["put", "in", "project/demo/a"], options].concat());
        assert_eq!(finished.code, Some(0), "{finished}");
        assert!(finished.stderr.contains(told), "{finished}");
    }
    let finished = env.store(["put", "in", "project/demo/a"]);
    assert_eq!(finished.stderr, "", "{finished}");
}

/// Forgets what this host has seen of the log, as if the process that added to it had been killed before it synced the
/// entry; then runs a command. Returns whether that made the entry durable.
fn settles(env: &TestEnvironment, words: &[&str]) -> bool {
    let entries = |dir: PathBuf| {
        let entries = std::fs::read_dir(dir).unwrap();
        entries.map(|entry| entry.unwrap().path())
    };
    let stores = entries(env.path("home/.cache/store")).filter(|path| path.is_dir());
    let seen = stores.flat_map(entries).filter(|path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with("log-")
    });
    assert_eq!(
        seen.map(|path| std::fs::remove_file(path).unwrap()).count(),
        1
    );
    let report = env.path("report");
    let mut trace = vec!["-f", "-y", "-e", "trace=fsync", "-o"];
    trace.push(report.to_str().unwrap());
    let done = under("strace", trace, &env.command(words))
        .output()
        .unwrap();
    assert!(done.status.success(), "{words:?}: {done:?}");
    let report = std::fs::read_to_string(report).unwrap();
    report.contains("/store/log/000000>")
}

#[test]
fn what_is_there_already_is_made_durable_before_it_is_called_so() {
    let env = tree();
    env.ok(["materialize", REF, "out"]);
    env.ok(["save", "out"]);
    for words in [
        &["put", "in", REF][..],
        &["save", "out"],
        // What a host remembers must not be lost either: it would call the store restored from an older copy.
        &["ls", REF],
        &["rm", "--dry-run", REF],
    ] {
        assert!(settles(&env, words), "{words:?}");
    }
    assert_eq!(versions(&env), 1);
    // Once is enough.
    let words = ["put", "in", REF];
    let report = env.path("again");
    let trace = [
        "-f",
        "-y",
        "-e",
        "trace=fsync",
        "-o",
        report.to_str().unwrap(),
    ];
    let done = under("strace", trace, &env.command(words)).status();
    assert!(done.unwrap().success());
    let report = std::fs::read_to_string(report).unwrap();
    assert!(!report.contains("/log/000000>"), "{report}");
}
