//! Updates that are right whatever was there before: dropped versions, other stores, other options, interrupted
//! updates, pools of earlier programs.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use support::under;

use crate::stopped::Stopped;
use crate::world::{REF, World, assert_same, conflicting, files_below, shell};

/// A world whose ref has versions 1, 2 and so on, with these files each.
pub(crate) fn versions(seed: u64, all: &[&[&str]]) -> World {
    let world = World::new(seed);
    for (number, names) in all.iter().enumerate() {
        version(&world, number + 1, names);
    }
    world
}

/// Puts version `number` with these files, alternately large and small; `source-N` stays.
pub(crate) fn version(world: &World, number: usize, names: &[&str]) {
    let source = format!("source-{number}");
    for (at, name) in names.iter().enumerate() {
        world.write(
            &format!("{source}/{name}"),
            if at % 2 == 0 { 20_000 } else { 200 },
        );
    }
    shell(&format!(
        "find '{}' -exec touch -h -d 2001-01-{number:02} {{}} +",
        world.path(&source).display()
    ));
    world.env.ok(["put", &source, REF]);
}

fn names(dir: &Path) -> Vec<String> {
    let name =
        |path: &std::path::PathBuf| path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
    let mut names: Vec<String> = files_below(dir).iter().map(name).collect();
    names.sort_unstable();
    names
}

/// The number of trees' records, without the files `at`.
pub(crate) fn records(world: &World) -> usize {
    let all = files_below(&world.pool().join("made"));
    all.iter().filter(|path| !path.ends_with("at")).count()
}

/// What may be in place of a file or directory of the pool.
const MISPLACED: [(&str, &str); 4] = [
    ("a sparse file", "truncate -s 20G"),
    ("a pipe", "mkfifo"),
    ("a directory", "mkdir"),
    (
        "a symlink to itself",
        "f() { ln -s \"$(basename \"$1\")\" \"$1\"; }; f",
    ),
];

#[test]
fn what_lies_in_the_place_of_a_record_is_lost_and_costs_no_more_than_that() {
    for (what, make) in MISPLACED {
        let world = versions(110, &[&["keep", "other", "dir/third"]]);
        world.make("out", &[]);
        let made = files_below(&world.pool().join("made"));
        let record = made.iter().find(|path| !path.ends_with("at")).unwrap();
        shell(&format!("rm '{0}'; {make} '{0}'", record.display()));
        // What was made is unknown, but the tree is correct.
        world.make("out", &[]);
        assert_same(&world.path("source-1"), &world.path("out"));
        assert_eq!(records(&world), 1, "{what}");
        let status = world.env.ok(["pool", "status"]);
        assert!(!status.contains("not settled"), "{what}: {status}");
        version(&world, 2, &["keep", "new"]);
        world.make("out", &[]);
        assert_same(&world.path("source-2"), &world.path("out"));
    }
}

#[test]
fn a_linked_file_whose_record_is_lost_is_none_of_a_job() {
    let world = World::new(333);
    let file = |number: &str| {
        world.write(&format!("file-{number}"), 30_000);
        world.env.ok(["put", &format!("file-{number}"), REF]);
    };
    file("1");
    world.make("out", &[]);
    fs::remove_dir_all(world.pool().join("made")).unwrap();
    file("2");
    world.make("out", &[]);
    let read = |name: &str| fs::read(world.path(name)).unwrap();
    assert_eq!(read("out"), read("file-2"));
}

#[test]
fn what_lies_in_the_place_of_a_part_of_the_pool_is_named() {
    for (what, make) in MISPLACED {
        let world = versions(111, &[&["keep", "other"]]);
        world.make("out", &[]);
        let (pool, mark) = (world.pool(), world.pool().join("pool"));
        let aside = world.path("aside");
        let tree = fs::read_dir(pool.join("made")).unwrap().next().unwrap();
        let mut parts = vec![(mark, 1)];
        if make != "mkdir" {
            parts.extend([(tree.unwrap().path(), 4), (pool.join("made"), 4)]);
        }
        for (part, code) in parts {
            shell(&format!(
                "mv '{0}' '{1}'; {make} '{0}'",
                part.display(),
                aside.display()
            ));
            let named = ["--pool", pool.to_str().unwrap()];
            let made = ["materialize", REF, "out"];
            let finished = world.env.store([made.as_slice(), &named].concat());
            let named = part.to_str().unwrap();
            assert_eq!(finished.code, Some(code), "{what}: {finished}");
            assert!(finished.stderr.contains(named), "{what}: {finished}");
            shell(&format!(
                "rm -r '{0}'; mv '{1}' '{0}'",
                part.display(),
                aside.display()
            ));
            world.make("out", &[]);
        }
    }
}

#[test]
fn an_update_is_right_when_the_old_version_was_collected() {
    let world = versions(100, &[&["keep", "old-0", "old-1", "dir/old"]]);
    world.make("out", &[]);
    version(&world, 2, &["keep", "new"]);
    world.env.ok(["rm", "--yes", &format!("{REF}@1")]);
    world.env.ok(["gc", "--grace", "0s", "--min-age", "0s"]);
    world.env.ok(["gc", "--grace", "0s", "--min-age", "0s"]);
    let report = world.make("out", &[]);
    assert_eq!(
        (&report["removed"], &report["updated"]),
        (&4.into(), &1.into())
    );
    assert_same(&world.path("source-2"), &world.path("out"));
    let said = world.env.ok(["materialize", REF, "out"]);
    assert!(said.contains("0 updated, 0 removed, 0 kept"), "{said}");
    assert_eq!(records(&world), 1);
}

#[test]
fn an_update_from_another_store_leaves_nothing_of_the_first() {
    let world = versions(101, &[&["a-0", "a-1", "both"]]);
    world.make("out", &[]);
    for name in ["b-0", "both"] {
        world.write(&format!("other/{name}"), 30_000);
    }
    world.env.ok(["init", "B"]);
    world.env.ok(["put", "--store", "B", "other", REF]);
    world.make("out", &["--store", "B"]);
    assert_same(&world.path("other"), &world.path("out"));
    world.make("out", &[]);
    assert_same(&world.path("source-1"), &world.path("out"));
}

#[test]
fn what_was_flattened_goes_with_its_link() {
    let world = World::new(102);
    for (checkpoint, files) in [("ckpt-1", &["a", "opt"][..]), ("ckpt-2", &["a"])] {
        for file in files {
            world.write(&format!("source/{checkpoint}/{file}"), 20_000);
        }
    }
    let latest = world.path("source/latest");
    std::os::unix::fs::symlink("ckpt-1", &latest).unwrap();
    world.put();
    world.make("out", &["--flatten"]);
    assert_eq!(names(&world.path("out/latest")), ["a", "opt"]);
    fs::remove_file(&latest).unwrap();
    std::os::unix::fs::symlink("ckpt-2", &latest).unwrap();
    world.put();
    world.make("out", &["--flatten"]);
    assert_eq!(names(&world.path("out/latest")), ["a"]);
    let bytes = |path: &str| fs::read(world.path(path)).unwrap();
    assert_eq!(bytes("out/latest/a"), bytes("source/ckpt-2/a"));
    // Without the option, the links are back, and nothing else is in their place.
    world.make("out", &[]);
    assert_same(&world.path("source"), &world.path("out"));
    world.make("out", &["--flatten"]);
    assert_eq!(names(&world.path("out/latest")), ["a"]);
}

#[test]
fn what_the_old_filter_left_out_and_a_job_made_stays() {
    let world = versions(103, &[&["keep", "x", "dir/x", "dir/y"], &["keep", "dir/y"]]);
    let first = format!("{REF}@1");
    world
        .env
        .ok(["materialize", "--exclude", "x", &first, "out"]);
    assert_eq!(names(&world.path("out")), ["dir/y", "keep"]);
    for name in ["x", "dir/x"] {
        fs::write(world.path("out").join(name), "a job's own").unwrap();
    }
    let report = world.make("out", &["--exclude", "x"]);
    assert_eq!(
        (&report["kept"], &report["conflicts"]),
        (&2.into(), &0.into())
    );
    assert_eq!(names(&world.path("out")), ["dir/x", "dir/y", "keep", "x"]);
    let report = world.make("out", &[]);
    assert_eq!(
        (&report["kept"], &report["removed"]),
        (&2.into(), &0.into())
    );
    for name in ["x", "dir/x"] {
        assert_eq!(
            fs::read(world.path("out").join(name)).unwrap(),
            b"a job's own"
        );
    }
    // Files that a filter now excludes are removed; a job's own files stay.
    world.make("out", &["--exclude", "dir/y"]);
    assert_eq!(names(&world.path("out")), ["dir/x", "keep", "x"]);
}

#[test]
fn what_a_job_changed_stays_when_the_version_drops_it() {
    let world = versions(104, &[&["keep", "config", "dir/config"], &["keep"]]);
    let first = format!("{REF}@1");
    world.env.ok(["materialize", &first, "out"]);
    fs::write(world.path("out/config"), "a job's").unwrap();
    for _ in 0..2 {
        let report = world.partly(REF, "out", &[]);
        assert_eq!(conflicting(&report), [("config".into(), "dropped".into())]);
        assert_eq!(names(&world.path("out")), ["config", "keep"]);
    }
    // Back to the version that has the file: it is still the job's.
    let report = world.partly(&first, "out", &[]);
    assert_eq!(conflicting(&report), [("config".into(), "changed".into())]);
    world.make("out", &["--exact"]);
    assert_same(&world.path("source-2"), &world.path("out"));
}

/// Kills `arguments` at the n-th rename. Returns whether it was killed.
pub(crate) fn killed(world: &World, arguments: &[&str], renames: u32) -> bool {
    let plain = world.env.command(arguments);
    let inject = format!("inject=renameat,renameat2,unlinkat:signal=SIGKILL:when={renames}");
    let words = ["-f", "-qq", "-o", "/dev/null", "-e", &inject];
    let status = under("strace", words, &plain)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    !status
        .expect("strace is installed (tests/run installs it)")
        .success()
}

/// Whether `pool status` says that the only tree is settled.
pub(crate) fn is_told_settled(world: &World) -> bool {
    let said = world.env.ok(["pool", "status", "--json"]);
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    said["trees"][0]["settled"].as_bool().unwrap()
}

#[test]
fn any_number_of_interrupted_updates_is_set_right_by_a_whole_one() {
    let world = versions(
        105,
        &[
            &["keep", "a/1", "a/2", "b", "only-1"],
            &["keep", "a/2", "a/3", "b", "only-2/x", "only-2/y"],
            &["keep", "a/3", "a/4", "b/dir", "only-3"],
        ],
    );
    let [first, second] = [1, 2].map(|number| format!("{REF}@{number}"));
    let (mut killed_twice, mut unsettled) = (0, 0);
    for (at, again) in [(11, 12), (14, 13), (17, 22), (20, 15), (23, 18), (26, 26)] {
        world.env.ok(["materialize", "--exact", &first, "out"]);
        let one = killed(&world, &["materialize", &second, "out"], at);
        let two = killed(&world, &["materialize", REF, "out"], again);
        killed_twice += u32::from(one && two);
        let said = world.env.ok(["pool", "status"]);
        unsettled += u32::from(records(&world) > 1);
        assert_eq!(records(&world) > 1, said.contains("not settled"), "{said}");
        assert_eq!(records(&world) > 1, !is_told_settled(&world), "{said}");
        let report = world.make("out", &[]);
        assert_eq!(report["conflicts"], 0, "{at}, {again}: {report}");
        assert_same(&world.path("source-3"), &world.path("out"));
        assert_eq!(records(&world), 1, "{at}, {again}");
        assert!(is_told_settled(&world), "{at}, {again}");
    }
    assert!(unsettled > 2, "{unsettled}");
    assert!(killed_twice > 2, "{killed_twice}");
    world.assert_sound();
}

#[test]
fn a_tree_of_an_earlier_program_is_never_silently_stale() {
    let world = versions(
        106,
        &[
            &["keep", "config", "old-0", "old-1", "dir/old"],
            &["keep", "config"],
        ],
    );
    let first = format!("{REF}@1");
    let marks = || files_below(&world.pool().join("trees"));
    let forget = || {
        for mark in marks() {
            let text = fs::read_to_string(&mark).unwrap();
            let mut old: serde_json::Value = serde_json::from_str(&text).unwrap();
            old.as_object_mut().unwrap().remove("record").unwrap();
            fs::write(mark, old.to_string()).unwrap();
        }
        fs::remove_dir_all(world.pool().join("made")).unwrap();
    };
    world.env.ok(["materialize", &first, "out"]);
    forget();
    // Without records, correct files are recognized by looking at them.
    world.env.ok(["materialize", &first, "out"]);
    forget();
    let left = |path: &str| (path.to_owned(), "unknown".to_owned());
    for _ in 0..2 {
        let report = world.partly(REF, "out", &[]);
        let expected = ["config", "dir", "old-0", "old-1"].map(left);
        assert_eq!(
            conflicting(&report),
            expected,
            "a linked file is known to be a pool's"
        );
    }
    fs::write(world.path("out/mine"), "a job's own").unwrap();
    world.make("out", &["--exact"]);
    assert_same(&world.path("source-2"), &world.path("out"));
    world.env.ok(["materialize", &first, "out"]);
    for record in files_below(&world.pool().join("made")) {
        // The same for a tree with a damaged record.
        drop(fs::write(record, "nothing"));
    }
    let report = world.partly(REF, "out", &[]);
    assert_eq!(conflicting(&report).len(), 4, "{report}");
}

#[test]
fn a_dry_run_tells_the_steps_and_takes_none() {
    let world = versions(
        107,
        &[
            &["keep", "config", "old", "gone/x"],
            &["keep", "config", "new/x"],
        ],
    );
    let json = |arguments: &[&str]| -> serde_json::Value {
        serde_json::from_str(
            &world
                .env
                .ok([&["materialize", "--json"], arguments].concat()),
        )
        .unwrap()
    };
    let first = format!("{REF}@1");
    let fresh = json(&["--dry-run", &first, "some/where/out"]);
    assert!(!world.path("some").exists());
    let verbs = |plan: &serde_json::Value, verb: &str| {
        let steps = plan["steps"].as_array().unwrap().iter();
        steps
            .filter(|step| step["verb"] == verb && step["kind"] != "directory")
            .count()
    };
    assert_eq!(verbs(&fresh, "make"), 4, "{fresh}");
    world.env.ok(["materialize", &first, "out"]);
    fs::write(world.path("out/config"), "a job's").unwrap();
    let before = shell(&format!(
        "cd '{}' && find . -printf '%p %i %T@ %C@\\n' | sort",
        world.path("out").display()
    ));
    // What would be kept is reported as kept, with the exit code of a real run.
    let partly = |options: &[&str]| {
        let arguments = [&["materialize", "--dry-run", REF, "out"], options].concat();
        let finished = world.env.store(arguments);
        assert_eq!(finished.code, Some(6), "{finished}");
        String::from_utf8(finished.stdout).unwrap()
    };
    let plan: serde_json::Value = serde_json::from_str(&partly(&["--json"])).unwrap();
    let said = partly(&[]);
    let after = shell(&format!(
        "cd '{}' && find . -printf '%p %i %T@ %C@\\n' | sort",
        world.path("out").display()
    ));
    assert_eq!(before, after);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines,
        [
            "keep anything config: a job changed it",
            "remove file gone/x",
            "remove directory gone",
            "replace file keep",
            "make directory new",
            "make file new/x",
            "set-time directory new",
            "remove file old",
            "set-time directory .",
            "project/demo/data@2: 0 unchanged, 1 kept; nothing was done",
        ]
    );
    let report = world.partly(REF, "out", &[]);
    assert_eq!(report["updated"], verbs(&plan, "replace"));
    assert_eq!(report["removed"], verbs(&plan, "remove") + 1, "{plan}");
    assert_eq!(
        report["linked"].as_u64().unwrap() + report["copied"].as_u64().unwrap(),
        2
    );
}

#[test]
fn a_stopped_update_that_was_overtaken_notices_and_says_so() {
    let names: Vec<String> = (0..400).map(|n| format!("dir-{}/{n}", n % 7)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let world = versions(108, &[&names, &names, &names]);
    let [first, second] = [1, 2].map(|number| format!("{REF}@{number}"));
    world.env.ok(["materialize", "--prefetch", &second]);
    world.env.ok(["materialize", &first, "out"]);
    let update = Stopped::at(
        &world,
        &["materialize", &second, "out"],
        "renameat:when=150",
    );
    let differs = format!(
        "diff -rq '{}' '{}' | wc -l",
        world.path("out").display(),
        world.path("source-1").display()
    );
    let differ: u32 = shell(&differs).trim().parse().unwrap();
    assert!((100..400).contains(&differ), "not in the middle: {differ}");
    // It waits until the stopped process was silent for long.
    world.make("out", &[]);
    assert_same(&world.path("source-3"), &world.path("out"));
    let ended = update.goes_on();
    assert_eq!(ended.code, Some(5), "{ended}");
    assert!(
        ended.stderr.contains("took the destination over"),
        "{ended}"
    );
    assert!(records(&world) > 1, "the tree is not settled");
    let report = world.make("out", &[]);
    assert_eq!(report["conflicts"], 0, "{report}");
    assert_same(&world.path("source-3"), &world.path("out"));
    assert_eq!(records(&world), 1);
}
