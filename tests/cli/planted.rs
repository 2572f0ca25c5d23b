//! Directories of other users at paths where everybody may write.

use std::os::unix::fs::{PermissionsExt, chown};

use support::{TestEnvironment, environment};

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
