//! `store gc`, run by a person and by cron.

use std::os::unix::process::CommandExt;
use std::process::Command;

use serde_json::json;
use support::{Finished, TestEnvironment, environment};

/// Two refs of random bytes, one of which is dropped.
fn dropped() -> TestEnvironment {
    let env = environment!();
    let mut random = support::Random::new(1);
    env.write("a/file", random.bytes(300_000));
    env.write("b/file", random.bytes(200_000));
    env.ok(["put", "a", "project/demo/a"]);
    env.ok(["put", "b", "project/demo/b"]);
    env.ok(["rm", "project/demo/b"]);
    env
}

fn parsed(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn what_was_dropped_comes_back_and_the_rest_stays() {
    let env = dropped();
    let plan = parsed(&env.ok(["gc", "--dry-run", "--grace", "0", "--json"]));
    assert_eq!(plan["plan"]["condemn"].as_array().unwrap().len(), 1);
    let told = env.ok(["gc", "--dry-run", "--grace", "0"]);
    let would = "would free 0 B now, 201 kB when the grace is over\n";
    assert!(told.contains(would), "{told}");
    let metrics = env.path("store.prom");
    let report = parsed(&env.ok([
        "gc",
        "--grace",
        "0",
        "--json",
        "--metrics-file",
        metrics.to_str().unwrap(),
    ]));
    assert_eq!(report["plan"], plan["plan"]);
    assert!(
        report["freed_bytes"].as_u64().unwrap() > 200_000,
        "{report}"
    );
    // A mistyped name costs nobody a file; metrics of before are replaced.
    for (notes, code) in [
        (&b"notes\n"[..], 5),
        (b"\xff", 5),
        (b"# mine\n", 5),
        (b"# HELP x\nstore_x 1\n", 5),
        (b"# HELP store_x X.\nstore = \"/x\"\n", 5),
        (b"# HELP store_x X.\n# mine\nstore_x 1\n", 5),
        (b"store_dir = \"/x\"\n", 5),
        (b"", 0),
        (
            b"# HELP store_x X.\n# TYPE store_x gauge\nstore_x{store=\"y\"} 1\n",
            0,
        ),
    ] {
        env.write("notes", notes);
        let finished = env.store(["gc", "--metrics-file", "notes"]);
        assert_eq!(finished.code, Some(code), "{finished}");
        let kept = std::fs::read(env.path("notes")).unwrap();
        assert_eq!(kept == notes, code == 5);
    }
    let refused = env.store([
        "duplicate",
        "project/demo",
        "--from",
        "here",
        "--to",
        "x",
        "--metrics-file",
        "a/file",
    ]);
    assert_eq!(refused.code, Some(5), "{refused}");
    let text = std::fs::read_to_string(metrics).unwrap();
    assert!(text.contains("# TYPE store_gc_last_success_timestamp_seconds gauge\nstore_gc_last"));
    env.ok(["get", "project/demo/a", "out"]);
    support::assert_same_tree(&env.path("a"), &env.path("out"));
    assert!(env.ok(["gc"]).starts_with("freed      0 B in 0 objects"));
}

#[test]
fn a_namespace_that_goes_gives_back_what_only_it_used() {
    let env = environment!();
    for (seed, name) in ["shared", "own", "pinned"].into_iter().enumerate() {
        let bytes = support::Random::new(seed as u64).bytes(300_000);
        env.write(format!("{name}/file"), bytes);
        env.ok(["put", name, &format!("project/demo/{name}")]);
    }
    env.ok(["put", "shared", "team/other/data"]);
    env.ok(["pin", "project/demo/pinned"]);
    env.ok(["rm", "--yes", "project/demo"]);
    let report = parsed(&env.ok(["gc", "--grace", "0", "--json"]));
    let freed = report["freed_bytes"].as_u64().unwrap();
    assert!((300_000..400_000).contains(&freed), "{report}");
    assert!(
        report["shared"]["team/other/data"].as_u64().unwrap() >= 300_000,
        "{report}"
    );
    for (name, tree) in [
        ("team/other/data", "shared"),
        ("project/demo/pinned", "pinned"),
    ] {
        env.ok(["get", name, "out"]);
        support::assert_same_tree(&env.path(tree), &env.path("out"));
        std::fs::remove_dir_all(env.path("out")).unwrap();
    }
    // The log keeps who dropped what, and when.
    let entry = env.path("home/.local/share/store/log/000000/00000006");
    let entry = std::fs::read_to_string(entry).unwrap();
    assert!(
        entry.contains(r#""op":"drop_ref","name":"project/demo/own""#)
            && entry.contains(r#""user":"tester""#),
        "{entry}"
    );
}

#[test]
fn the_grace_is_told_with_its_end() {
    let env = dropped();
    let text = env.ok(["gc"]);
    assert!(
        text.contains("condemned, to be deleted after the grace, until 2"),
        "{text}"
    );
}

#[test]
fn a_ttl_and_rules_drop_versions() {
    let env = environment!();
    for text in ["one", "two", "three"] {
        env.write("in/file", text);
        env.ok(["put", "in", "project/demo/data", "--ttl", "1d"]);
    }
    let text = env.ok(["gc", "--keep-last", "2"]);
    assert!(
        text.contains("dropped    project/demo/data@1 (no rule keeps it)"),
        "{text}"
    );
    env.ok(["put", "in", "project/demo/short", "--ttl", "1s"]);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let text = env.ok(["gc"]);
    assert!(
        text.contains("dropped    project/demo/short@1 (its time to live is over)"),
        "{text}"
    );
}

/// The newer of two versions is evicted, since a job reads the older one.
#[test]
fn a_limit_of_size_takes_what_was_not_used() {
    let env = environment!();
    for seed in [1, 2] {
        env.write("in/file", support::Random::new(seed).bytes(200_000));
        env.ok(["put", "in", "project/demo/data"]);
    }
    env.ok(["materialize", "project/demo/data@1", "out"]);
    let limited = ["gc", "--max-size", "300kB", "--may-drop-newest"];
    let plan = parsed(&env.ok([&limited[..], &["--dry-run", "--json"]].concat()));
    let drops = plan["plan"]["drop"].as_array().unwrap();
    assert_eq!((drops.len(), &drops[0]["version"]), (1, &json!(2)));
    let text = env.ok(limited);
    let today = drops[0]["last_use"].as_str().unwrap();
    let told = format!(
        "dropped    project/demo/data@2 (the store is over its limit of size, last used {today})"
    );
    assert!(text.contains(&told), "{text}");
    let history = parsed(&env.ok(["history", "project/demo/data", "--json"]));
    assert_eq!(history["version"], 1);
    assert_eq!(history["last_use"], today);
}

/// What people and cron jobs list does not count as a use.
#[test]
fn a_look_is_no_use() {
    let env = environment!();
    env.write("in/file", support::Random::new(1).bytes(200_000));
    env.ok(["put", "in", "project/demo/data"]);
    env.ok(["init", "other"]);
    let looks: [&[&str]; 7] = [
        &["ls", "project/demo/data"],
        &["summarize", "project/demo/data"],
        &["diff", "project/demo/data", "in"],
        &["history", "project/demo/data"],
        &["verify", "--read-data"],
        &["push", "project/demo/data", "./other"],
        &["gc"],
    ];
    for words in looks {
        env.ok(words);
    }
    let uses = env.path("home/.local/share/store/uses");
    assert!(!uses.exists());
    env.ok(["materialize", "--prefetch", "project/demo/data"]);
    let left = std::fs::read_dir(uses).unwrap().count();
    assert_eq!(left, 1);
}

/// A reader without write access gets no warning, and records a use if the directory permits that.
#[test]
fn a_reader_without_rights_leaves_a_use_where_the_directory_is_open() {
    let env = environment!();
    env.write("in/file", "words");
    env.ok(["put", "in", "project/demo/data"]);
    let store = env.path("home/.local/share/store");
    let shell = |text: &str| {
        let mut command = Command::new("sh");
        let done = command.arg("-c").arg(text).current_dir(env.root()).status();
        assert!(done.unwrap().success(), "{text}");
    };
    shell("chmod -R a+rX .");
    let uses = || std::fs::read_dir(store.join("uses")).map_or(0, Iterator::count);
    for (prepare, left) in [
        ("true", 0),
        ("mkdir -m 1777 home/.local/share/store/uses", 1),
    ] {
        shell(prepare);
        let mut command = env.command(["cat", "project/demo/data:file"]);
        command.uid(65534).gid(65534).env("HOME", "/nonexistent");
        let finished: Finished = command.env("STORE_URL", &store).output().unwrap().into();
        assert_eq!(finished.code, Some(0), "{finished}");
        assert_eq!((finished.stderr.as_str(), uses()), ("", left), "{finished}");
    }
    env.ok(["rm", "project/demo/data"]);
    env.ok(["gc"]);
    assert_eq!(uses(), 0);
}

#[test]
fn a_quota_refuses_and_nothing_is_published() {
    let env = environment!();
    env.ok(["init"]);
    env.write(
        "home/.config/store/config.toml",
        "[[keep]]\nrefs = \"project/small\"\nquota = \"400kB\"\n",
    );
    env.write("in/file", support::Random::new(2).bytes(600_000));
    let finished = env.store(["put", "in", "project/small/data"]);
    assert_eq!(finished.code, Some(1), "{finished}");
    assert!(
        finished
            .stderr
            .contains("project/small: its quota is 400 kB"),
        "{finished}"
    );
    // More than fits into one pack, so an upload may have begun. Only directories may be left of it.
    for dir in std::fs::read_dir(env.path("home/.local/share/store/packs")).unwrap() {
        let left = std::fs::read_dir(dir.unwrap().path()).unwrap();
        assert_eq!(left.count(), 0);
    }
    let tried = env.store(["put", "-n", "in", "project/small/data"]);
    assert_eq!(tried.code, Some(1), "{tried}");
    env.ok(["put", "in", "project/large/data"]);
    env.write("in/file", support::Random::new(3).bytes(50_000));
    env.ok(["put", "in", "project/small/data"]);
}

/// Chunks that are shared with another namespace count in both, for a put and for a collector.
#[test]
fn what_a_put_may_a_collector_leaves() {
    let env = environment!();
    env.write(
        "home/.config/store/config.toml",
        "[[keep]]\nrefs = \"project/small\"\nquota = \"100kB\"\n",
    );
    env.write("a/file", support::Random::new(2).bytes(60_000));
    env.write("b/file", support::Random::new(3).bytes(60_000));
    env.ok(["put", "a", "project/large/data"]);
    env.ok(["put", "b", "project/small/data"]);
    let finished = env.store(["put", "a", "project/small/more"]);
    assert_eq!(finished.code, Some(1), "{finished}");
    assert!(finished.stderr.contains("and this adds 60"), "{finished}");
    env.ok(["put", "b", "project/small/again"]);
    let report = parsed(&env.ok(["gc", "--json"]));
    assert_eq!(report["plan"]["drop"], json!([]), "{report}");
}

#[test]
fn a_second_collector_says_who_runs_and_ends_well() {
    let env = dropped();
    let id = parsed(&env.ok(["info", "--json"]))["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let path = env.path(format!("home/.cache/store/{id}/gc.lock"));
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let running = |pid: u32| {
        let text = format!(r#"{{"running":{{"pid":{pid},"since":"2026-01-02T03:04:05Z"}}}}"#);
        std::fs::write(&path, text).unwrap();
    };
    let own = std::process::id();
    running(own);
    let held = std::fs::File::open(&path).unwrap();
    held.lock().unwrap();
    let text = env.ok(["gc", "--grace", "0"]);
    assert_eq!(
        text,
        format!("nothing done: process {own} collects this store since 2026-01-02 03:04:05 UTC\n")
    );
    // The named process has ended, or none is named: somebody else holds the lock, and no collector runs.
    for pid in [0, 0x7fff_fff0] {
        running(pid);
        let refused = env.store(["gc", "--grace", "0"]);
        assert_eq!(refused.code, Some(5), "{refused}");
        assert!(
            refused.stderr.contains("is not running") && refused.stderr.contains("gc.lock"),
            "{refused}"
        );
    }
    drop(held);
    assert!(env.ok(["gc", "--grace", "0"]).starts_with("freed      "));
}

/// A policy that one host sets in the store applies to all hosts, whatever their configurations say.
#[test]
fn a_policy_in_the_store_holds_for_every_host() {
    let env = environment!();
    env.ok(["init"]);
    assert_eq!(
        env.ok(["policy"]),
        "# no policy: each host goes by its own configuration\n"
    );
    let shown = env.ok([
        "policy",
        "keep",
        "project/*",
        "--last",
        "2",
        "--quota",
        "100kB",
    ]);
    let text = "[[keep]]\nrefs = \"project/*\"\nlast = 2\nquota = \"100kB\"\n";
    assert_eq!(shown, text);
    // This host's configuration would allow it.
    env.write(
        "home/.config/store/config.toml",
        "[[keep]]\nrefs = \"*\"\nlast = 1\nquota = \"1GB\"\n",
    );
    env.write("in/file", support::Random::new(2).bytes(150_000));
    let finished = env.store(["put", "in", "project/small/data"]);
    assert_eq!(finished.code, Some(1), "{finished}");
    assert!(
        finished.stderr.contains("its quota is 100 kB"),
        "{finished}"
    );
    for seed in 3..6 {
        env.write("in/file", support::Random::new(seed).bytes(20_000));
        env.ok(["put", "in", "project/small/data"]);
    }
    let report = parsed(&env.ok(["gc", "--json"]));
    let dropped = json!([{"name": "project/small/data", "version": 1, "why": "retention"}]);
    assert_eq!(report["plan"]["drop"], dropped, "{report}");
    env.write("policy.toml", format!("max-size = \"1TB\"\n{text}"));
    let set = parsed(&env.ok(["policy", "set", "policy.toml", "--json"]));
    assert_eq!(set["policy"]["bytes_max"], json!(1_000_000_000_000_u64));
    assert_eq!(set["before"]["keep"], set["policy"]["keep"]);
    let missing = env.store(["policy", "rm", "team/*"]);
    assert_eq!(missing.code, Some(3), "{missing}");
    let nothing = env.store(["policy", "keep", "team/*"]);
    assert_eq!(nothing.code, Some(2), "{nothing}");
    let covered = env.store(["policy", "keep", "project/a", "--last", "9"]);
    assert!(
        covered.stderr.contains("--first puts one in front"),
        "{covered}"
    );
    env.ok(["policy", "clear"]);
    assert!(env.ok(["policy"]).starts_with("# no policy"));
}

/// Another host pushes: the destination's quota applies.
#[test]
fn a_quota_holds_for_a_push() {
    let env = environment!();
    env.ok(["init", "there"]);
    env.ok([
        "--store",
        "there",
        "policy",
        "keep",
        "project/small",
        "--quota",
        "100kB",
    ]);
    env.ok(["cluster", "add", "far", "there"]);
    env.write("in/file", support::Random::new(2).bytes(150_000));
    env.ok(["put", "in", "project/small/data"]);
    env.ok(["put", "in", "project/large/data"]);
    let finished = env.store(["push", "project/small/data", "far"]);
    assert_ne!(finished.code, Some(0), "{finished}");
    assert!(
        finished.stderr.contains("its quota is 100 kB"),
        "{finished}"
    );
    assert_eq!(env.ok(["--store", "there", "ls", "--json"]), "");
    // The other refs are transferred.
    let both = env.store(["push", "project/small", "project/large", "far"]);
    assert_eq!(both.code, Some(6), "{both}");
    assert!(
        both.stderr
            .contains("failed: project/small/data@1: project/small: its quota is"),
        "{both}"
    );
    let there = env.ok(["--store", "there", "ls", "project/large", "--json"]);
    assert!(there.contains("project/large/data"), "{there}");
}

/// Likewise for a pull: the own store's quota applies.
#[test]
fn a_quota_holds_for_a_pull() {
    let env = environment!();
    env.ok(["init"]);
    env.write("in/file", support::Random::new(2).bytes(150_000));
    env.ok(["init", "there"]);
    env.ok(["--store", "there", "put", "in", "project/small/data"]);
    env.ok(["cluster", "add", "far", "there"]);
    env.ok(["policy", "keep", "project/small", "--quota", "100kB"]);
    let finished = env.store(["pull", "far", "project/small/data"]);
    assert_ne!(finished.code, Some(0), "{finished}");
    assert!(
        finished.stderr.contains("its quota is 100 kB"),
        "{finished}"
    );
    assert_eq!(env.ok(["ls", "--json"]), "");
}

/// An upload of a killed put is removed together with its packs. One that is still open stays.
#[test]
fn what_a_dead_process_was_writing_goes_at_once() {
    let env = environment!();
    env.write("in/file", "some words");
    env.ok(["put", "in", "project/a/data"]);
    let shown = env.ok(["info", "--json"]);
    let url = parsed(&shown)["url"].as_str().unwrap().to_owned();
    let store = std::path::PathBuf::from(url.strip_prefix("file://").unwrap());
    let packs = store.join("packs/ab");
    std::fs::create_dir_all(&packs).unwrap();
    let (dead, open) = (packs.join("x#1"), packs.join("y#1"));
    std::fs::write(&dead, "half").unwrap();
    let written = std::fs::File::create(&open).unwrap();
    env.ok(["gc", "--grace", "0"]);
    assert!(dead.exists(), "it has no age yet");
    env.ok(["gc", "--grace", "0", "--min-age", "0"]);
    assert!(!dead.exists() && open.exists());
    drop(written);
    env.ok(["gc", "--grace", "0", "--min-age", "0"]);
    assert!(!open.exists());
}

/// Whatever a killed process was adding: what it staged for a log entry, a checkpoint, a use or a claim is nobody's, too.
#[test]
fn what_a_dead_process_was_adding_goes_wherever_it_lies() {
    let env = environment!();
    env.write("in/file", "some words");
    env.ok(["put", "in", "project/a/data"]);
    let store = env.path("home/.local/share/store");
    let places = "log/000000 checkpoints uses/ab claims/ab reserve".split(' ');
    let stage = |below| {
        std::fs::create_dir_all(store.join(below)).unwrap();
        let staged = store.join(below).join("00000004#1");
        std::fs::write(&staged, "half").unwrap();
        staged
    };
    let staged: Vec<_> = places.map(stage).collect();
    env.ok(["gc", "--grace", "0", "--min-age", "0"]);
    let left: Vec<_> = staged.iter().filter(|path| path.exists()).collect();
    assert!(left.is_empty(), "{left:?}");
    env.ok(["get", "project/a/data", "out"]);
    env.ok(["verify", "--read-data"]);
}

/// A typing mistake in the pattern would keep everything, for ever.
#[test]
fn a_pattern_of_refs_that_matches_none_is_partly_done() {
    let env = dropped();
    let asked =
        |words: &[&str]| env.store([&["gc", "--grace", "0", "--min-age", "0"], words].concat());
    let refused = asked(&["--refs", "project/dmeo"]);
    assert_eq!(refused.code, Some(2), "{refused}");
    assert!(refused.stderr.contains("expected a rule"), "{refused}");
    let partly = asked(&["--refs", "project/dmeo", "--keep-last", "1", "--json"]);
    assert_eq!(partly.code, Some(6), "{partly}");
    assert!(
        partly
            .stderr
            .contains("--refs project/dmeo: matches no ref"),
        "{partly}"
    );
    let report = parsed(std::str::from_utf8(&partly.stdout).unwrap());
    assert!(report["condemned_bytes"].as_u64() > Some(0), "{report}");
    // What there was is no mistake.
    for known in ["project/demo", "project/demo/b", "project/*"] {
        let done = asked(&["--refs", known, "--keep-last", "1"]);
        assert_eq!(done.code, Some(0), "{done}");
    }
}
