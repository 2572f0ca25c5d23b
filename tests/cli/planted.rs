//! Directories of other users at paths where everybody may write.

use std::os::unix::fs::{PermissionsExt, chown};

use support::{TestEnvironment, environment};

use crate::cache::{COMPILER, module};
use crate::run::{REF, run};

const STRANGER: u32 = 4_242;

/// A directory like `/tmp`, with a directory in it that another user made for everybody.
fn planted(env: &TestEnvironment, path: &str) {
    let dir = env.path(path);
    std::fs::create_dir_all(&dir).unwrap();
    let mode = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(dir.parent().unwrap(), 0o1777);
    mode(&dir, 0o777);
    chown(&dir, Some(STRANGER), None).unwrap();
}

#[test]
fn a_run_takes_no_cache_that_a_stranger_made() {
    let env = environment!();
    planted(&env, "base/project");
    env.write("base/project/file", "of a stranger");
    for script in ["echo started", "true"] {
        let refused = env.store(run(&[], script));
        assert_eq!(refused.code, Some(1), "{refused}");
        assert!(
            refused.stdout.is_empty() && refused.stderr.contains("user 4242"),
            "{refused}"
        );
    }
    assert_ne!(env.store(["ls", REF]).code, Some(0));
    // Root and the owner of the directory are trusted.
    chown(env.path("base/project"), Some(0), None).unwrap();
    std::fs::remove_file(env.path("base/project/file")).unwrap();
    env.ok(run(&[], "true"));
}

#[test]
fn a_compile_cache_of_a_stranger_is_not_pulled_into_pushed_or_cleaned() {
    let env = environment!();
    env.ok(["init"]);
    planted(&env, "shared/cache");
    env.write("own/file", "own");
    let link = env.path("shared/link");
    std::os::unix::fs::symlink(env.path("own"), &link).unwrap();
    std::os::unix::fs::lchown(&link, Some(STRANGER), None).unwrap();
    for dir in ["shared/cache", "shared/link"] {
        for words in [
            vec!["neff", "pull", dir, "project/demo/neff"],
            vec!["neff", "push", dir, "project/demo/neff"],
            vec!["neff", "clean", dir],
        ] {
            let refused = env.store(words);
            assert_eq!(refused.code, Some(1), "{refused}");
            assert!(refused.stderr.contains("user 4242"), "{refused}");
        }
    }
}

/// A cache directory for everybody, like `/tmp`.
fn open_to_all(env: &TestEnvironment, path: &str) {
    let dir = env.path(path);
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o1777)).unwrap();
}

fn link_of_a_stranger(target: &std::path::Path, at: &std::path::Path) {
    std::os::unix::fs::symlink(target, at).unwrap();
    std::os::unix::fs::lchown(at, Some(STRANGER), None).unwrap();
}

#[test]
fn a_symlink_in_a_cache_for_everybody_leads_nowhere() {
    let env = environment!();
    open_to_all(&env, "shared");
    let made = module(&env.path("shared"), "100+aaaaaaaa", 1);
    module(&env.path("own"), "100+aaaaaaaa", 1);
    env.ok(["neff", "push", "own", "project/demo/own"]);
    // What only the caller may read is not pushed.
    env.write("secret", "of root");
    std::fs::remove_file(made.join("compile_flags.json")).unwrap();
    link_of_a_stranger(&env.path("secret"), &made.join("compile_flags.json"));
    let refused = env.store(["neff", "push", "shared", "project/demo/neff"]);
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(
        refused.stderr.contains("is a symlink of user 4242"),
        "{refused}"
    );
    assert_eq!(env.store(["ls", "project/demo/neff"]).code, Some(3));
    // Nothing is written where it leads.
    open_to_all(&env, "other");
    std::fs::create_dir(env.path("precious")).unwrap();
    link_of_a_stranger(&env.path("precious"), &env.path("other").join(COMPILER));
    let refused = env.store(["neff", "pull", "other", "project/demo/own"]);
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(refused.stderr.contains("user 4242"), "{refused}");
    assert_eq!(std::fs::read_dir(env.path("precious")).unwrap().count(), 0);
}
