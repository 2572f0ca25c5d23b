//! Changes of a job that `--force` or `--exact` discards: they are counted and named before anything is removed.

use std::fs;

use serde_json::json;
use support::{Finished, under};

use crate::world::{REF, World, assert_same, shell};

/// A tree of version 1 that a job changed in every way, and a version 2 with other changes.
fn worked_in(seed: u64) -> World {
    let world = World::new(seed);
    for name in ["same", "edited", "gone/a", "gone/b", "to-dir", "to-file/a"] {
        world.write(&format!("source/{name}"), 20_000);
    }
    world.put();
    world.make("out", &[]);
    for (name, text) in [
        ("out/edited", "mine"),
        ("out/added", "mine, too"),
        ("out/notes/deep/er", "mine"),
        ("out/gone/a", "mine"),
        ("out/to-dir", "mine"),
        ("out/to-file/b", "mine"),
    ] {
        let _is_new = fs::remove_file(world.path(name));
        world.env.write(name, text);
    }
    shell(&format!(
        "cd '{}' && rm -r gone to-dir to-file && mkdir to-dir",
        world.path("source").display()
    ));
    world.write("source/to-dir/a", 20_000);
    world.write("source/to-file", 20_000);
    world.put();
    world
}

const NAMED: &str = "/out: 6 files (29 B) that a job changed or added: replaced or removed now: added, edited, \
                     gone/a, notes/deep/er, to-dir, 1 more\n";

fn first(report: &serde_json::Value) -> Vec<&str> {
    let first = report["overruled"]["first"].as_array().unwrap();
    first
        .iter()
        .map(|gone| gone["path"].as_str().unwrap())
        .collect()
}

#[test]
fn what_exact_takes_of_a_job_is_named_first() {
    let world = worked_in(330);
    let planned = world.make("out", &["--exact", "--dry-run"]);
    let all = [
        "added",
        "edited",
        "gone/a",
        "notes/deep/er",
        "to-dir",
        "to-file/b",
    ];
    assert_eq!(first(&planned), all);
    assert_eq!(planned["overruled"]["files"], 6);
    assert_eq!(planned["overruled"]["bytes"], 9 + 5 * 4);
    let said = world
        .env
        .ok(["materialize", "--exact", "--dry-run", REF, "out"]);
    assert!(
        said.contains(
            "6 files (29 B) of these a job changed or added: added, edited, gone/a, notes/deep/er, to-dir, 1 more\n"
        ),
        "{said}"
    );
    // A fault at the first step: the files were named before, in JSON as well, and all of them still exist.
    for (words, before) in [
        (&["materialize", "--exact"][..], "note: "),
        (
            &["materialize", "--exact", "--json"],
            "{\"schema\":1,\"warning\":\"",
        ),
    ] {
        let plain = world.env.command([words, &[REF, "out"]].concat());
        let calls = "renameat,renameat2,unlinkat";
        let words = ["-f", "-qq", "-o", "/dev/null", "-P"];
        let out = world.path("out").display().to_string();
        let inject = format!("inject={calls}:error=EIO");
        let words = [&words[..], &[&out, "-e", &inject]].concat();
        let finished = Finished::from(under("strace", words, &plain).output().unwrap());
        assert_eq!(finished.code, Some(1), "{finished}");
        assert!(finished.stderr.contains(NAMED.trim_end()), "{finished}");
        assert!(finished.stderr.starts_with(before), "{finished}");
    }
    assert_eq!(
        fs::read_to_string(world.path("out/edited")).unwrap(),
        "mine"
    );
    let finished = world.env.store(["materialize", "--exact", REF, "out"]);
    assert_eq!(finished.code, Some(0), "{finished}");
    assert!(finished.stderr.ends_with(NAMED), "{finished}");
    assert_same(&world.path("source"), &world.path("out"));
    // There is nothing left to name.
    let report = world.make("out", &["--exact"]);
    assert_eq!(report.get("overruled"), None, "{report}");
}

#[test]
fn what_force_takes_of_a_job_is_named_and_what_it_leaves_is_not() {
    let world = worked_in(331);
    let report = world.partly(REF, "out", &["--force"]);
    assert_eq!(first(&report), ["edited", "to-dir", "to-file/b"]);
    assert_eq!(
        fs::read_to_string(world.path("out/added")).unwrap(),
        "mine, too"
    );
    assert_eq!(
        fs::read_to_string(world.path("out/gone/a")).unwrap(),
        "mine"
    );
    // A user's directory that was taken over with --force, and kept its other files until now.
    world.env.write("theirs/mine", "mine");
    world.env.write("theirs/edited", "mine");
    let report = world.make("theirs", &["--force"]);
    assert_eq!(report["replaced"], json!({"files": 2, "bytes": 8}));
    assert_eq!(first(&report), ["edited"]);
    assert!(world.path("theirs/mine").exists());
    let finished = world.env.store(["materialize", "--exact", REF, "theirs"]);
    assert_eq!(finished.code, Some(0), "{finished}");
    assert!(
        finished.stderr.ends_with(
            "/theirs: 1 file (4 B) that a job changed or added: replaced or removed now: mine\n"
        ),
        "{finished}"
    );
    assert_same(&world.path("source"), &world.path("theirs"));
}

#[test]
fn a_single_file_that_a_job_changed_is_named() {
    let world = worked_in(332);
    let spec = format!("{REF}:same");
    for is_changed in [false, true] {
        let at = format!("file-{is_changed}");
        world.env.ok(["materialize", &spec, &at]);
        if is_changed {
            fs::remove_file(world.path(&at)).unwrap();
            world.env.write(&at, "mine");
        }
        let words = ["materialize", "--force", "--json", &spec, &at];
        let report: serde_json::Value = serde_json::from_str(&world.env.ok(words)).unwrap();
        let named = report.get("overruled").map(|_| first(&report));
        assert_eq!(named, is_changed.then(|| vec![""]), "{report}");
    }
}

/// A plan, as text and as JSON, and the run: their exit codes are the same. What the run said, and its report.
fn planned_and_done(
    world: &World,
    options: &[&str],
    dest: &str,
) -> (Finished, [serde_json::Value; 2]) {
    let words = [&["materialize", "--force", REF, dest], options].concat();
    let json = [&words[..], &["--json"]].concat();
    let planned = world.env.ok([&words[..], &["-n"]].concat());
    let report = world.env.ok([&json[..], &["-n"]].concat());
    let plan: serde_json::Value = serde_json::from_str(&report).unwrap();
    let first = plan["overruled"]["first"].as_array().unwrap();
    let named = first.iter().map(|gone| gone["path"].as_str().unwrap());
    let named = named.collect::<Vec<_>>().join(", ");
    assert!(
        planned.contains(&format!("of these this command did not make: {named}\n")),
        "{planned}"
    );
    shell(&format!(
        "cd '{}' && cp -a {dest} {dest}.2",
        world.env.root().display()
    ));
    let finished = world.env.store(&words);
    assert_eq!(finished.code, Some(0), "{finished}");
    let twin = format!("{dest}.2");
    let json: Vec<&str> = json
        .iter()
        .map(|word| if *word == dest { &*twin } else { word })
        .collect();
    let done = serde_json::from_str(&world.env.ok(json)).unwrap();
    (finished, [plan, done])
}

#[test]
fn what_force_takes_of_others_is_named_first_and_planned_as_it_is_done() {
    let world = worked_in(333);
    for (dest, options, gone) in [
        (
            "theirs",
            &[][..],
            json!({"files": 2, "bytes": 9, "first": [{"path": "edited"}, {"path": "to-dir"}]}),
        ),
        (
            "all-theirs",
            &["--exact"],
            json!({
                "files": 4, "bytes": 17,
                "first": [{"path": "deep/mine"}, {"path": "edited"}, {"path": "mine"}, {"path": "to-dir"}]
            }),
        ),
    ] {
        for name in ["mine", "edited", "deep/mine"] {
            world.env.write(format!("{dest}/{name}"), "mine");
        }
        world.env.write(format!("{dest}/to-dir"), "mine!");
        let (finished, reports) = planned_and_done(&world, options, dest);
        for report in &reports {
            assert_eq!(report["replaced"], json!({"files": 4, "bytes": 17}));
            assert_eq!(report["overruled"], gone);
            assert_eq!(report["conflicts"], 0);
        }
        assert!(
            finished
                .stderr
                .contains(" that this command did not make: replaced or removed now: "),
            "{finished}"
        );
    }
    // What another pool made is no less somebody's.
    world.env.ok([
        "materialize",
        "--pool",
        "another",
        &format!("{REF}@1"),
        "elsewhere",
    ]);
    world.env.write("elsewhere/added", "mine");
    let (_, reports) = planned_and_done(&world, &["--exact"], "elsewhere");
    for report in &reports {
        let first = first(report);
        assert!(
            first.contains(&"added") && first.contains(&"gone/a"),
            "{first:?}"
        );
    }
}

#[test]
fn a_file_that_goes_for_a_tree_is_named() {
    let world = worked_in(334);
    world.env.write("theirs", "mine");
    let plan = world.make("theirs", &["--force", "-n"]);
    let report = world.make("theirs", &["--force"]);
    for report in [plan, report] {
        assert_eq!(report["replaced"], json!({"files": 1, "bytes": 4}));
        assert_eq!(
            report["overruled"],
            json!({"files": 1, "bytes": 4, "first": [{"path": ""}]})
        );
    }
    let spec = format!("{REF}:same");
    for (name, job) in [("made", false), ("changed", true)] {
        world
            .env
            .ok(["materialize", "--copy-below", "100kB", &spec, name]);
        if job {
            fs::write(world.path(name), "mine").unwrap();
        }
        let finished = world.env.store(["materialize", "--force", REF, name]);
        assert_eq!(finished.code, Some(0), "{finished}");
        let said = "1 file (4 B) that a job changed or added: replaced or removed now: .\n";
        assert_eq!(finished.stderr.contains(said), job, "{finished}");
    }
    let plan = world.env.ok(["materialize", "-n", &spec, "new"]);
    assert!(plan.starts_with("make file .\n"), "{plan}");
}
