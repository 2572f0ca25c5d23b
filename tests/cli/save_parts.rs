//! Saves of trees that have only a part of their version.

use std::fs;

use support::environment;

const REF: &str = "project/demo/cache";

#[test]
fn a_part_is_not_saved_as_if_it_had_been_made_from_a_whole_version() {
    let env = environment!();
    for file in ["a", "b", "dir/c"] {
        env.write(format!("in/{file}"), "base");
    }
    env.ok(["put", "in", REF]);
    let below = format!("{REF}:dir");
    for (dir, words) in [
        ("below", &[&*below][..]),
        ("some", &[REF, "--include", "dir/**"]),
        ("others", &[REF, "--exclude", "dir"]),
    ] {
        let (source, options) = words.split_first().unwrap();
        env.ok([&["materialize", source, dir], options].concat());
        fs::write(env.path(format!("{dir}/new")), "new").unwrap();
        let finished = env.store(["save", dir, REF, "--base", "1"]);
        assert_eq!(finished.code, Some(2), "{dir}: {finished}");
        assert!(
            finished.stderr.contains("part of") || dir == "below",
            "{finished}"
        );
        let said = env.ok(["ls", "-r", REF]);
        assert!(said.contains("dir/c") && said.contains('b'), "{said}");
        // From nothing, it can only add.
        env.ok(["save", dir, REF, "--base", "0"]);
        let said = env.ok(["ls", "-r", REF]);
        assert!(said.contains("dir/c") && said.contains("new"), "{said}");
    }
}

#[test]
fn what_others_removed_from_a_part_does_not_come_back() {
    for options in [["--exclude", "dir"], ["--include", "[a-z]*"]] {
        let env = environment!();
        for file in ["a", "b", "dir/c"] {
            env.write(format!("in/{file}"), "base");
        }
        env.ok(["put", "in", REF]);
        let make = |code: i32| {
            let words = [&["materialize", REF, "job"][..], &options].concat();
            let finished = env.store(words);
            assert_eq!(finished.code, Some(code), "{finished}");
        };
        make(0);
        fs::write(env.path("job/new"), "new").unwrap();
        fs::create_dir(env.path("job/more")).unwrap();
        fs::write(env.path("job/more/new"), "new").unwrap();
        env.ok(["save", "job"]);
        env.ok(["rm", &format!("{REF}:new"), &format!("{REF}:more")]);
        make(0);
        assert!(!env.path("job/new").exists() && !env.path("job/more").exists());
        env.ok(["save", "job"]);
        let said = env.ok(["ls", "-r", REF]);
        assert!(!said.contains("new") && said.contains("dir/c"), "{said}");
    }
}

#[test]
fn what_a_job_added_where_a_part_has_nothing_stays_with_it() {
    let env = environment!();
    for file in ["a", "dir/c"] {
        env.write(format!("in/{file}"), "base");
    }
    env.ok(["put", "in", REF]);
    let make = ["materialize", REF, "job", "--exclude", "dir"];
    env.ok(make);
    fs::create_dir(env.path("job/dir")).unwrap();
    fs::write(env.path("job/dir/own"), "own").unwrap();
    env.ok(["save", "job"]);
    env.ok(make);
    assert!(env.path("job/dir/own").exists());
    let said = env.ok(["ls", "-r", REF]);
    assert!(said.contains("dir/own") && said.contains("dir/c"), "{said}");
}

/// Each part has nothing of `dir`, where a job adds files and a directory, and saves them. Then others remove one and
/// change another.
#[test]
fn what_a_job_added_outside_of_its_part_and_saved_is_known_after_an_update() {
    let moments: [fn(usize) -> bool; 4] = [|_| false, |at| at == 0, |at| at == 1, |_| true];
    for (case, updates) in moments.into_iter().enumerate() {
        for options in [["--exclude", "dir/**"], ["--include", "[a-z]"]] {
            let env = environment!();
            for file in ["a", "dir/c"] {
                env.write(format!("in/{file}"), "base");
            }
            env.ok(["put", "in", REF]);
            let make = [&["materialize", REF, "job"][..], &options].concat();
            let update = |at: usize| {
                for _ in 0..2 {
                    updates(at).then(|| env.ok(&make));
                }
            };
            env.ok(&make);
            let names = ["changed", "gone", "kept", "mine", "sub/gone", "sub/kept"];
            for name in names {
                env.write(format!("job/dir/{name}"), "1");
            }
            env.write("job/dir/whole/xx", "1");
            std::os::unix::fs::symlink("kept", env.path("job/dir/link")).unwrap();
            env.ok(["save", "job"]);
            env.ok(["rm", "-y", &format!("{REF}:dir/gone")]);
            env.ok(["get", REF, "theirs"]);
            fs::write(env.path("theirs/dir/changed"), "2").unwrap();
            env.ok(["put", "theirs", REF]);
            update(0);
            fs::remove_file(env.path("job/dir/mine")).unwrap();
            fs::remove_file(env.path("job/dir/sub/gone")).unwrap();
            fs::remove_dir_all(env.path("job/dir/whole")).unwrap();
            update(1);
            assert!(env.path("job/dir/changed").exists());
            assert!(env.path("job/dir/link").symlink_metadata().is_ok());
            fs::write(env.path("job/h"), "h").unwrap();
            let saved = env.store(["save", "job"]);
            assert_eq!(saved.code, Some(0), "{case} {options:?}: {saved}");
            assert!(!saved.stderr.contains("conflict"), "{saved}");
            env.ok(["get", REF, "after"]);
            let read = |name: &str| fs::read_to_string(env.path("after").join(name)).ok();
            for (name, is) in [
                ("a", Some("base")),
                ("h", Some("h")),
                ("dir/c", Some("base")),
                ("dir/changed", Some("2")),
                ("dir/gone", None),
                ("dir/kept", Some("1")),
                ("dir/link", Some("1")),
                ("dir/mine", None),
                ("dir/sub/gone", None),
                ("dir/sub/kept", Some("1")),
                ("dir/whole/xx", None),
            ] {
                assert_eq!(read(name).as_deref(), is, "{case} {options:?}: {name}");
            }
        }
    }
}

#[test]
fn what_an_exact_update_removes_outside_of_its_part_stays_in_the_ref() {
    let env = environment!();
    env.write("in/a", "base");
    env.ok(["put", "in", REF]);
    let make = ["materialize", REF, "job", "--exclude", "dir/**"];
    env.ok(make);
    env.write("job/dir/own", "own");
    env.ok(["save", "job"]);
    env.ok(make);
    env.ok([&make[..], &["--exact"]].concat());
    assert!(!env.path("job/dir/own").exists());
    fs::write(env.path("job/h"), "h").unwrap();
    env.ok(["save", "job"]);
    assert!(env.ok(["ls", "-r", REF]).contains("dir/own"));
    // Once the part has it, it is made, and goes with the version.
    env.ok(["materialize", REF, "job"]);
    assert!(env.path("job/dir/own").exists());
    env.ok(["rm", "-y", &format!("{REF}:dir/own")]);
    env.ok(["materialize", REF, "job"]);
    assert!(!env.path("job/dir/own").exists());
}
