//! What a source has dropped altogether: the destination's copy goes with `--delete-all`, and only then.

use support::{TestEnvironment, environment};

const REFS: [&str; 2] = ["project/demo/one", "project/demo/two"];

/// Two stores with the same refs, the first of which are dropped at the source.
fn stores(dropped: &[&str]) -> TestEnvironment {
    let env = environment!();
    env.ok(["init"]);
    env.ok(["init", "there"]);
    env.ok(["cluster", "add", "far", "there"]);
    for name in REFS {
        env.write("in/file", name);
        env.ok(["put", "in", name]);
    }
    env.ok(["push", "project/demo", "far"]);
    for name in dropped {
        env.ok(["rm", "--yes", name]);
    }
    env
}

fn duplicate<'w>(what: &[&'w str], options: &[&'w str]) -> Vec<&'w str> {
    let ends = ["--from", "here", "--to", "far"];
    [&["duplicate"], what, &ends, options].concat()
}

#[test]
fn the_only_ref_of_a_job_goes_when_the_source_has_dropped_it() {
    for (dropped, what) in [
        (&REFS[..1], "project/demo/one"),
        (&REFS[..], "project/demo"),
    ] {
        let env = stores(dropped);
        let refused = env.store(duplicate(&[what], &["--delete"]));
        assert_eq!(refused.code, Some(3), "{refused}");
        assert!(
            refused.stderr.contains("run it once with --delete-all"),
            "{refused}"
        );
        let dry = env.ok(duplicate(&[what], &["--delete-all", "-n"]));
        assert!(dry.contains("project/demo/one@1 would be dropped"), "{dry}");
        let done = env.ok(duplicate(&[what], &["--delete-all"]));
        assert!(done.contains("project/demo/one@1 dropped"), "{done}");
        let left = env.store(["--store", "there", "ls", "--json", "project/demo"]);
        let left = String::from_utf8(left.stdout).unwrap();
        assert!(!left.contains("one"), "{left}");
        assert_eq!(left.contains("two"), dropped.len() == 1, "{left}");
    }
}

#[test]
fn one_of_several_refs_is_named_and_goes_with_delete_all() {
    let env = stores(&REFS[..1]);
    let partly = env.store(duplicate(&REFS, &["--delete"]));
    assert_eq!(partly.code, Some(6), "{partly}");
    assert!(
        partly
            .stderr
            .contains("failed: project/demo/one: the ref was removed"),
        "{partly}"
    );
    assert!(
        partly.stderr.contains("run it once with --delete-all"),
        "{partly}"
    );
    let done = env.ok(duplicate(&REFS, &["--delete-all"]));
    assert!(done.contains("project/demo/one@1 dropped"), "{done}");
    // A slip of the pen is none, and drops nothing.
    env.write("in/file", "there alone");
    env.ok(["--store", "there", "put", "in", "project/demo/typo"]);
    for what in ["project/demo/typo", "project/typo"] {
        let failed = env.store(duplicate(&[what, "project/demo/two"], &["--delete-all"]));
        assert_eq!(failed.code, Some(6), "{failed}");
        assert!(
            failed.stderr.contains("the source never had it"),
            "{failed}"
        );
    }
    assert!(
        env.ok(["--store", "there", "ls", "--json", "project/demo"])
            .contains("typo")
    );
}
