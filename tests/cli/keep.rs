//! Why some verbs do not support `--keep`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use support::{TestEnvironment, environment};

#[test]
fn what_is_not_kept_is_refused_with_its_reason() {
    let env = environment!();
    env.write("in/a", "1");
    let refused = |words: &[&str], why: &str| {
        let said = env.store(words.iter().copied());
        assert_eq!(said.code, Some(2), "{said}");
        let line = said.stderr.replace('\n', " ");
        assert!(line.contains(why), "{said}");
    };
    let put = ["put", "in", "project/demo/a", "--keep"];
    refused(
        &[&put[..], &["dates"]].concat(),
        "[possible values: modes, owners, xattrs]",
    );
    env.ok(["put", "in", "project/demo/a", "--keep", "modes,xattrs"]);
    let made = ["materialize", "project/demo/a", "out", "--keep", "modes"];
    refused(&made, "use `store get --keep`");
    assert!(!env.path("out").exists());
}

#[test]
fn what_the_version_before_kept_and_this_one_does_not_is_told() {
    let env = environment!();
    let target = "project/demo/a";
    let put = |words: &[&str]| {
        let said = env.store([&["put", "in", target], words].concat());
        assert_eq!(said.code, Some(0), "{said}");
        said.stderr
    };
    let told = |what: &str, names: &str, version: u32| {
        format!(
            "note: {what} were kept beside the tree of @{version}, and are not beside this one; \
             `store put --keep {names}` keeps them\n"
        )
    };
    env.write("in/a", "1");
    assert!(!put(&["--keep", "modes,xattrs"]).contains("kept"));
    // The same again makes no version.
    assert!(!put(&[]).contains("kept"));
    env.write("in/a", "2");
    let expected = told("modes and xattrs", "modes,xattrs", 1);
    assert!(put(&["--dry-run"]).contains(&expected));
    assert!(put(&["--keep", "modes"]).contains(&told("xattrs", "xattrs", 1)));
    env.write("in/a", "3");
    assert!(put(&[]).contains(&told("modes", "modes", 2)));
    env.write("in/a", "4");
    assert!(!put(&[]).contains("kept"));
}

fn set_mode(env: &TestEnvironment, path: &str, mode: u32) {
    fs::set_permissions(env.path(path), Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_directory_is_compared_with_what_the_version_kept() {
    let env = environment!();
    let target = "project/demo/a";
    env.write("in/a", "1");
    env.write("in/sub/b", "1");
    set_mode(&env, "in/a", 0o640);
    set_mode(&env, "in/sub", 0o755);
    env.ok(["put", "in", target, "--keep", "modes,owners"]);
    let diff = |dir: &str| env.ok(["diff", target, dir]);
    assert_eq!(diff("in"), "");
    set_mode(&env, "in/a", 0o600);
    set_mode(&env, "in/sub", 0o700);
    assert_eq!(
        diff("in"),
        "M a: mode 0640 to 0600\nM sub/: mode 0755 to 0700\n"
    );
    // What was made from a pool has modes of its own.
    env.ok(["materialize", target, "tree"]);
    assert_eq!(diff("tree"), "");
}
