//! Removing paths of a ref: what it frees, and how it is undone.

use std::fs;

use serde_json::Value;
use support::{Random, TestEnvironment, check, environment};

const REF: &str = "project/demo/cache";

fn site() -> TestEnvironment {
    let env = environment!();
    for (path, seed) in [("models/a.bin", 1), ("models/b.bin", 2), ("data/c.bin", 3)] {
        env.write(format!("in/{path}"), Random::new(seed).bytes(50_000));
    }
    env.write("in/data/notes.txt", "notes");
    env.write("in/logs/deep/old.log", "old");
    let past = rustix::fs::Timespec {
        tv_sec: 1_000_000_000,
        tv_nsec: 5,
    };
    let times = rustix::fs::Timestamps {
        last_access: past,
        last_modification: past,
    };
    let old = fs::File::open(env.path("in/logs/deep/old.log")).unwrap();
    rustix::fs::futimens(&old, &times).unwrap();
    env.ok(["put", "in", REF]);
    env
}

fn files(env: &TestEnvironment, spec: &str) -> Vec<String> {
    let listed = env.ok(["ls", spec, "--recursive", "--json"]);
    let entries = listed
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let files = entries.filter(|entry| entry["kind"] == "file");
    files
        .map(|entry| entry["path"].as_str().unwrap().to_owned())
        .collect()
}

fn json(env: &TestEnvironment, words: &[&str]) -> Value {
    let said = env.ok(words.iter().chain(&["--json"]));
    serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"))
}

#[test]
fn a_colon_without_a_path_drops_nothing() {
    let env = site();
    for path in ["", ".", "/", "./", "//"] {
        for spec in [format!("{REF}:{path}"), format!("{REF}@1:{path}")] {
            for dry in [&[][..], &["--dry-run"][..]] {
                let words = ["rm", spec.as_str()];
                let done = env.store(words.iter().chain(dry));
                assert_eq!(done.code, Some(2), "{spec}: {done}");
                assert!(done.stderr.contains("names no path"), "{spec}: {done}");
            }
        }
    }
    assert_eq!(files(&env, REF).len(), 5);
}

#[test]
fn paths_go_as_a_new_version_and_the_old_one_stays() {
    let env = site();
    check!(env, env.store(["rm", &format!("{REF}:models/a.bin"), &format!("{REF}:logs")]), @"
    exit code: 0
    --- stdout
    project/demo/cache@2 (@[VERSION-ID]): without 4 entries of @1, 50.0 kB
    @1 still has them, and their bytes stay until it is dropped; while this is the newest version, `store rm project/demo/cache@2` takes it back
    --- stderr
    ");
    assert_eq!(
        files(&env, REF),
        ["data/c.bin", "data/notes.txt", "models/b.bin"]
    );
    assert_eq!(files(&env, &format!("{REF}@1")).len(), 5);
    // The remaining entries keep their times.
    env.ok(["get", REF, "out"]);
    let time = |path: &str| fs::metadata(env.path(path)).unwrap().modified().unwrap();
    for path in ["data/c.bin", "models/b.bin", "data", ""] {
        assert_eq!(
            time(&format!("in/{path}")),
            time(&format!("out/{path}")),
            "{path}"
        );
    }
    env.ok(["verify"]);
}

#[test]
fn filters_take_what_fits_all_of_them() {
    for (words, left) in [
        (
            &["--glob", "*.bin"][..],
            &["data/notes.txt", "logs/deep/old.log"][..],
        ),
        (
            &["--glob", "models/"],
            &["data/c.bin", "data/notes.txt", "logs/deep/old.log"],
        ),
        (
            &["--larger-than", "10kB"],
            &["data/notes.txt", "logs/deep/old.log"],
        ),
        (
            &["--older-than", "30d"],
            &[
                "data/c.bin",
                "data/notes.txt",
                "models/a.bin",
                "models/b.bin",
            ],
        ),
        (
            &[
                "--glob",
                "models",
                "--glob",
                "old.log",
                "--larger-than",
                "10kB",
            ],
            &["data/c.bin", "data/notes.txt", "logs/deep/old.log"],
        ),
    ] {
        let env = site();
        env.ok([&["rm", REF], words].concat());
        assert_eq!(files(&env, REF), left, "{words:?}");
    }
    let env = site();
    env.ok(["rm", &format!("{REF}:data"), "--glob", "*.bin"]);
    assert_eq!(files(&env, REF).len(), 4);
}

/// As in `rm`, only named entries are removed, and links are matched by name only.
#[test]
fn directories_stay_when_they_are_empty_and_links_have_no_age() {
    let env = site();
    std::os::unix::fs::symlink("deep/old.log", env.path("in/logs/link")).unwrap();
    let past = rustix::fs::Timespec {
        tv_sec: 1_000_000_000,
        tv_nsec: 5,
    };
    let times = rustix::fs::Timestamps {
        last_access: past,
        last_modification: past,
    };
    let link = env.path("in/logs/link");
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    rustix::fs::utimensat(rustix::fs::CWD, &link, &times, flags).unwrap();
    env.ok(["put", "in", REF]);
    env.ok(["rm", REF, "--older-than", "30d"]);
    env.ok(["get", REF, "out"]);
    let left = fs::read_dir(env.path("out/logs/deep")).unwrap().count();
    assert_eq!(left, 0, "the directory is there, and empty");
    assert_eq!(
        fs::read_link(env.path("out/logs/link")).unwrap(),
        std::path::Path::new("deep/old.log")
    );
    env.ok(["rm", &format!("{REF}:logs/link")]);
    assert!(env.ok(["ls", &format!("{REF}:logs")]).contains("deep"));
    env.ok(["verify"]);
}

#[test]
fn a_path_in_a_directory_that_goes_goes_with_it() {
    let env = site();
    let specs = ["models/a.bin", "models", "models/a.bin"].map(|path| format!("{REF}:{path}"));
    let [first, dir, again] = &specs;
    env.ok(["rm", first, dir, again]);
    assert_eq!(files(&env, REF).len(), 3);
    for path in ["logs/none", "logs/deep/old.log/x", "logs/deep/x"] {
        let done = env.store(["rm", &format!("{REF}:logs"), &format!("{REF}:{path}")]);
        assert_eq!(done.code, Some(3), "{done}");
        assert!(done.stderr.contains("there is nothing"), "{done}");
    }
    assert_eq!(files(&env, REF).len(), 3);
}

#[test]
fn what_a_dry_run_says_is_given_back_is_what_is_given_back() {
    let env = site();
    // Another ref has one of the two files.
    env.ok(["put", "in/models/a.bin", "project/demo/other"]);
    let gc = |env: &TestEnvironment| {
        let words = ["gc", "--grace", "0", "--min-age", "0", "--max-unused", "0"];
        json(env, &words);
        let info = json(env, &words);
        info["live"]["newest_bytes"].as_u64().unwrap()
    };
    let before = gc(&env);
    let planned = json(&env, &["rm", &format!("{REF}:models"), "--dry-run"]);
    assert_eq!(planned["entries"], 3, "{planned}");
    assert_eq!(
        planned["frees"]["held_by"],
        serde_json::json!([1]),
        "{planned}"
    );
    let frees = planned["frees"]["bytes"].as_u64().unwrap();
    assert!((50_000..51_000).contains(&frees), "{planned}");
    assert_eq!(files(&env, REF).len(), 5, "nothing is done");
    env.ok(["rm", &format!("{REF}:models")]);
    env.ok(["rm", &format!("{REF}@1")]);
    let after = gc(&env);
    // The trees that name the files are freed as well.
    assert!(
        (frees..frees + 2000).contains(&(before - after)),
        "{before} {after} {frees}"
    );
    check!(env, env.store(["rm", &format!("{REF}:data"), "--dry-run"]), @"
    exit code: 0
    --- stdout
    nothing is done; a new version would lack 3 entries of project/demo/cache@2, 50.0 kB
    would go: data
    frees nothing at once: 50.1 kB when @2 is dropped, and `store gc` has run
    --- stderr
    ");
}

#[test]
fn what_is_not_there_or_would_leave_nothing_is_refused() {
    let env = site();
    for (words, code, said) in [
        (
            &["rm", "project/demo/cache:no/such"][..],
            3,
            "there is nothing",
        ),
        (
            &["rm", "project/demo/cache", "--glob", "*.none"],
            3,
            "nothing in it",
        ),
        (
            &["rm", "project/demo/cache", "--larger-than", "0"],
            5,
            "nothing would be left",
        ),
        (
            &["rm", "project/demo/cache:data", "--glob", "!a"],
            2,
            "matches nothing",
        ),
        (&["rm", "project/demo/none:x"], 3, "project/demo/none"),
        (
            &["rm", "project/demo/cache:data", "project/demo/other:x"],
            2,
            "paths of one ref",
        ),
        (
            &["rm", "project/demo/cache", "project/demo/other"],
            2,
            "one at a time",
        ),
        (&["rm", "project/demo", "--glob", "x"], 2, "project/demo"),
    ] {
        let done = env.store(words);
        assert_eq!(done.code, Some(code), "{words:?}: {done}");
        assert!(done.stderr.contains(said), "{words:?}: {done}");
    }
    env.write("in/more", "more");
    env.ok(["put", "in", REF]);
    let old = env.store(["rm", &format!("{REF}@1:data")]);
    assert_eq!(old.code, Some(2), "{old}");
    env.ok(["rm", &format!("{REF}@2:data")]);
}

#[test]
fn an_undo_says_the_way_back_from_paths_that_were_taken() {
    let env = site();
    env.ok(["rm", &format!("{REF}:data")]);
    env.ok(["put", "in", "project/demo/other"]);
    env.ok(["rm", "project/demo/other", "--yes"]);
    env.ok(["rm", REF, "--glob", "*.log"]);
    for words in [&["undo", REF][..], &["undo"]] {
        let none = env.store(words);
        assert_eq!(none.code, Some(3), "{none}");
        let told = "`store rm project/demo/cache@3` takes it back";
        assert!(none.stderr.contains(told), "{none}");
    }
    assert_eq!(files(&env, REF).len(), 2);
    env.ok(["rm", &format!("{REF}@3")]);
    assert_eq!(files(&env, REF).len(), 3);
    // What was dropped before comes back by its name.
    let back = env.ok(["undo", "project/demo/other"]);
    assert!(back.contains("project/demo/other@1 is back"), "{back}");
    // What comes back was made by a removal of paths, but not just now.
    let back = env.ok(["undo", REF]);
    assert!(back.contains("cache@3 is back"), "{back}");
    let again = env.ok(["undo", REF]);
    assert!(again.contains("cache@3 is there by its content"), "{again}");
}

/// What was put after the removal stays the newest, also if it is what was there before.
#[test]
fn an_undo_does_not_take_a_later_version_for_an_older_one_of_the_same_content() {
    let env = site();
    env.write("in/number", "2");
    env.ok(["put", "in", REF]);
    env.ok(["get", REF, "two"]);
    env.write("in/number", "3");
    env.ok(["put", "in", REF]);
    env.ok(["rm", REF, "--yes"]);
    env.ok(["put", "two", REF]);
    let back = env.ok(["undo"]);
    assert!(back.contains("cache@2 is there by its content"), "{back}");
    assert!(back.contains("cache@4 stays the newest"), "{back}");
    assert_eq!(env.ok(["cat", &format!("{REF}:number")]), "2");
}

#[test]
fn what_was_dropped_last_comes_back_and_the_newest_stays_the_newest() {
    let env = site();
    for number in 2..=4 {
        env.write("in/number", number.to_string());
        env.ok(["put", "in", REF]);
    }
    env.ok(["rm", &format!("{REF}@2")]);
    let back = env.ok(["undo"]);
    assert!(
        back.contains("cache@2 is back, as @5") && back.contains("cache@4 stays the newest, as @6"),
        "{back}"
    );
    assert_eq!(env.ok(["cat", &format!("{REF}:number")]), "4");
    assert_eq!(env.ok(["cat", &format!("{REF}@5:number")]), "2");
    let again = env.ok(["undo"]);
    assert!(again.contains("cache@2 is there by its content"), "{again}");
    assert!(
        again.contains("`store undo project/demo/cache@N`"),
        "{again}"
    );
    env.ok(["rm", REF, "--yes"]);
    assert_eq!(env.store(["ls", REF]).code, Some(3));
    env.ok(["undo", "project/demo", "--dry-run"]);
    assert_eq!(env.store(["ls", REF]).code, Some(3));
    env.ok(["undo", REF]);
    assert_eq!(env.ok(["cat", &format!("{REF}:number")]), "4");
    env.ok(["get", REF, "out"]);
    env.ok(["verify", "--read-data"]);
    assert_eq!(env.store(["undo", "team/other"]).code, Some(3));
}

#[test]
fn what_came_back_is_as_old_as_it_was() {
    let env = site();
    for number in 2..=4 {
        env.write("in/number", number.to_string());
        env.ok(["put", "in", REF]);
    }
    env.ok(["rm", &format!("{REF}@1")]);
    env.ok(["undo"]);
    // A restored version can be dropped and restored again.
    env.ok(["rm", &format!("{REF}@5")]);
    let back = env.ok(["undo"]);
    assert!(back.contains("cache@5 is back, as @7"), "{back}");
    env.ok(["policy", "keep", "project/*", "--last", "2"]);
    env.ok(["gc"]);
    let listed = env.ok(["history", REF, "--json"]);
    let versions = listed
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut numbers: Vec<u64> = versions
        .map(|version| version["version"].as_u64().unwrap())
        .collect();
    numbers.sort_unstable();
    // The last two versions that were put, and copies of the newest.
    assert_eq!(numbers, [3, 4, 6, 8]);
    assert_eq!(env.ok(["cat", &format!("{REF}:number")]), "4");
}

/// Of two refs used on the same day, the one that was put first is evicted first, even if it was restored.
#[test]
fn a_limit_of_size_takes_what_came_back_for_as_old_as_it_was() {
    let env = environment!();
    let mut random = Random::new(5);
    for name in ["project/demo/one", "project/demo/two"] {
        for _ in 0..2 {
            env.write("in/file", random.bytes(100_000));
            env.ok(["put", "in", name]);
        }
    }
    env.ok(["rm", "project/demo/one@1"]);
    env.ok(["undo"]);
    env.ok(["policy", "max-size", "350kB"]);
    env.ok(["gc"]);
    assert_eq!(env.store(["ls", "project/demo/one@3"]).code, Some(3));
    env.ok(["ls", "project/demo/two@1"]);
}

#[test]
fn what_is_condemned_comes_back_as_long_as_the_grace_lasts() {
    let env = site();
    env.write("other/file", "other");
    env.ok(["put", "other", "project/demo/other"]);
    env.ok(["rm", REF, "--yes"]);
    env.ok(["gc", "--min-age", "0"]);
    env.ok(["undo"]);
    env.ok(["verify", "--read-data"]);
    env.ok(["get", REF, "out"]);
    assert_eq!(
        fs::read(env.path("in/models/a.bin")).unwrap(),
        fs::read(env.path("out/models/a.bin")).unwrap()
    );
    env.ok(["rm", REF, "--yes"]);
    for _ in 0..2 {
        env.ok(["gc", "--min-age", "0", "--grace", "0"]);
    }
    let late = env.store(["undo"]);
    assert!(matches!(late.code, Some(3 | 6)), "{late}");
    assert!(
        late.stderr.contains("bytes are gone")
            || String::from_utf8_lossy(&late.stdout).contains("bytes are gone"),
        "{late}"
    );
    env.ok(["verify", "--read-data"]);
}

#[test]
fn what_comes_back_stays_as_long_as_it_did() {
    let env = environment!();
    env.write("in/file", "kept for good");
    env.ok(["put", "in", REF]);
    env.ok(["put", "in", REF, "--always", "--ttl", "1h"]);
    env.ok(["rm", &format!("{REF}@1")]);
    // The version that is left has the same content, but it ends in an hour.
    env.ok(["undo", REF]);
    let history = env.ok(["history", REF, "--json"]);
    let versions: Vec<Value> = (history.lines())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let stays = |version: &&Value| version["expires"].is_null();
    assert_eq!(versions.iter().filter(stays).count(), 1, "{history}");
    // Once is enough.
    let again = env.store(["undo", REF, "--json"]);
    assert!(again.to_string().contains(&format!("{REF}@1")), "{again}");
    assert_eq!(env.ok(["history", REF, "--json"]), history);
}

/// A hint that is pasted must not drop something in another store.
#[test]
fn the_commands_of_a_report_name_the_store_that_was_named() {
    let env = site();
    env.ok(["init", "my other"]);
    env.ok(["--store", "my other", "put", "in", REF]);
    let spec = format!("{REF}:logs");
    let told = env.ok(["--store", "my other", "rm", &spec]);
    let hint = format!(
        "while this is the newest version, `store rm --store 'my other' {REF}@2` takes it back"
    );
    assert!(told.contains(&hint), "{told}");
    let told = env.ok(["rm", &spec]);
    assert!(told.contains(&format!("`store rm {REF}@2`")), "{told}");
    let of_environment = env
        .command(["rm", &format!("{REF}:data")])
        .env("STORE_URL", "my other")
        .output()
        .unwrap();
    let told = String::from_utf8(of_environment.stdout).unwrap();
    assert!(told.contains(&format!("`store rm {REF}@3`")), "{told}");
    let told = env.ok(["--store", "my other", "rm", &format!("{REF}@3")]);
    let hint = format!("`store undo --store 'my other' {REF}`");
    assert!(told.contains(&hint), "{told}");
}
