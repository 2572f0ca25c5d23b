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
