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
