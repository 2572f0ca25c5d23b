//! Runs whose cache is reached through a symlink, or whose directory is elsewhere when they look for it again.

use std::fs;
use std::os::unix::fs::{lchown, symlink};

use support::{TestEnvironment, environment};

use crate::run::{REF, newest, run};

fn killed(env: &TestEnvironment, script: &str) {
    let script = format!("{script}; kill -9 $PPID");
    let killed = env.store(run(&[], &script));
    assert_ne!(killed.code, Some(0), "{killed}");
}

/// A user who leads a cache to another disk means it for all runs.
#[test]
fn the_cache_stays_where_a_link_of_its_user_leads() {
    let env = environment!();
    for dir in ["base", "scratch"] {
        fs::create_dir(env.path(dir)).unwrap();
    }
    symlink("../scratch", env.path("base/project")).unwrap();
    for name in ["a", "b", "c"] {
        let script = format!("echo {name} > $STORE_PROJECT_CACHE_DIR/{name}");
        env.ok(run(&[], &script));
        assert!(env.path("base/project").is_symlink());
        assert!(env.path("scratch").join(name).exists());
    }
    assert_eq!(newest(&env, REF), ["a=a", "b=b", "c=c"]);
}

/// What the link leads to may have to be made.
#[test]
fn a_link_that_leads_to_nothing_yet_is_followed() {
    let env = environment!();
    env.ok(run(&[], "echo a > $STORE_PROJECT_CACHE_DIR/a"));
    fs::remove_dir_all(env.path("base/project")).unwrap();
    symlink("../scratch", env.path("base/project")).unwrap();
    env.ok(run(&[], "echo b > $STORE_PROJECT_CACHE_DIR/b"));
    assert!(env.path("base/project").is_symlink() && env.path("scratch/a").exists());
    assert_eq!(newest(&env, REF), ["a=a", "b=b"]);
}

/// A command may move its cache to another disk and leave a link.
#[test]
fn what_a_command_moves_and_leads_to_is_saved_again_and_again() {
    let env = environment!();
    let script = "D=$STORE_PROJECT_CACHE_DIR; echo a > $D/a; mv $D moved; ln -s ../moved $D";
    env.ok(run(&[], script));
    for name in ["b", "c"] {
        let script = format!(
            "D=$STORE_PROJECT_CACHE_DIR; echo {name} > $D/{name}; mv $D link; ln -s ../link $D; rm $D; mv link $D"
        );
        env.ok(run(&[], &script));
        assert!(env.path("moved").join(name).exists());
    }
    assert_eq!(newest(&env, REF), ["a=a", "b=b", "c=c"]);
}

/// What is where the link leads in the end is not what was followed.
#[test]
fn a_command_that_leads_its_cache_elsewhere_is_told_so() {
    let env = environment!();
    for dir in ["base", "one"] {
        fs::create_dir(env.path(dir)).unwrap();
    }
    symlink("../one", env.path("base/project")).unwrap();
    env.ok(run(&[], "echo a > $STORE_PROJECT_CACHE_DIR/a"));
    let script = "D=$STORE_PROJECT_CACHE_DIR; echo b > $D/b; cp -r one two; echo c > two/c; ln -sfn ../two $D";
    let told = env.store(run(&[], script));
    assert_eq!(told.code, Some(5), "{told}");
    assert!(told.stderr.contains("is another directory"), "{told}");
    assert!(told.stderr.contains("`store save --pending`"), "{told}");
    env.ok(["save", "--pending"]);
    assert_eq!(newest(&env, REF), ["a=a", "b=b"]);
}

/// A link of somebody else may lead to what only this user may read: no hint says how to save that.
#[test]
fn a_link_of_another_user_is_named_and_never_saved() {
    let env = environment!();
    let place = env.path("base/project");
    env.write("private/secret", "s");
    env.ok(run(&[], "echo a > $STORE_PROJECT_CACHE_DIR/a"));
    for is_killed in [false, true] {
        if is_killed {
            killed(&env, "echo b > $STORE_PROJECT_CACHE_DIR/b");
        }
        fs::rename(&place, env.path("away")).unwrap();
        symlink(env.path("private"), &place).unwrap();
        if lchown(&place, Some(1001), Some(1001)).is_err() {
            // Only root can give a link away.
            return;
        }
        let refused = env.store(run(&[], "true"));
        assert_eq!(refused.code, Some(1), "{refused}");
        let told = "is a symlink of another user to";
        assert!(refused.stderr.contains(told), "{refused}");
        let pending = env.store(["save", "--pending"]);
        assert_eq!(
            pending.code,
            Some(if is_killed { 6 } else { 0 }),
            "{pending}"
        );
        for told in [refused, pending] {
            assert!(!told.stderr.contains("--base"), "{told}");
        }
        fs::remove_file(&place).unwrap();
        fs::rename(env.path("away"), &place).unwrap();
    }
    env.ok(["save", "--pending"]);
    assert_eq!(newest(&env, REF), ["a=a", "b=b"]);
}

/// A volume may not be mounted when the next run begins.
#[test]
fn work_on_a_volume_that_is_away_stays_on_the_list() {
    let env = environment!();
    env.ok(run(&[], "echo a > $STORE_PROJECT_CACHE_DIR/a"));
    killed(&env, "echo b > $STORE_PROJECT_CACHE_DIR/b");
    fs::rename(env.path("base"), env.path("unmounted")).unwrap();
    let next = env.store(run(&[], "echo c > $STORE_PROJECT_CACHE_DIR/c"));
    assert_eq!(next.code, Some(0), "{next}");
    assert!(next.stderr.contains("it stays on the list"), "{next}");
    // It stays as often as somebody looks.
    for _ in 0..2 {
        let refused = env.store(["save", "--pending"]);
        assert_eq!(refused.code, Some(6), "{refused}");
        assert!(refused.stderr.contains("--forget"), "{refused}");
        env.ok(run(&[], "true"));
    }
    fs::rename(env.path("base"), env.path("hidden")).unwrap();
    fs::rename(env.path("unmounted"), env.path("base")).unwrap();
    // A newer tree was made at the path since.
    let refused = env.store(["save", "--pending"]);
    assert_eq!(refused.code, Some(6), "{refused}");
    let place = env.path("base/project").display().to_string();
    let by_hand = format!("`store save {place} {REF} --base 0`");
    assert!(refused.stderr.contains(&by_hand), "{refused}");
    assert!(refused.stderr.contains("or with --base 1"), "{refused}");
    env.ok(["save", &place, REF, "--base", "1"]);
    assert_eq!(newest(&env, REF), ["a=a", "b=b", "c=c"]);
    env.ok(["save", "--pending"]);
    let none = env.store(["save", "--pending"]);
    assert_eq!(none.code, Some(0), "{none}");
}

/// The same if somebody moved only the cache, before it had any version.
#[test]
fn work_that_somebody_moved_away_stays_on_the_list() {
    let env = environment!();
    let place = env.path("base/project");
    killed(&env, "echo b > $STORE_PROJECT_CACHE_DIR/b");
    fs::rename(&place, env.path("away")).unwrap();
    let next = env.store(run(&[], "echo c > $STORE_PROJECT_CACHE_DIR/c"));
    assert_eq!(next.code, Some(0), "{next}");
    assert!(next.stderr.contains("it stays on the list"), "{next}");
    let refused = env.store(["save", "--pending"]);
    assert_eq!(refused.code, Some(6), "{refused}");
    fs::rename(&place, env.path("other")).unwrap();
    fs::rename(env.path("away"), &place).unwrap();
    env.ok(["save", "--pending"]);
    assert_eq!(newest(&env, REF), ["b=b", "c=c"]);
    assert_eq!(env.store(["save", "--pending"]).code, Some(0));
    // What is gone for good is given up.
    killed(&env, "echo d > $STORE_PROJECT_CACHE_DIR/d");
    fs::remove_dir_all(&place).unwrap();
    env.ok(run(&[], "true"));
    assert_eq!(env.store(["save", "--pending"]).code, Some(6));
    // The newer one, which is there, stays on the list until it goes, too.
    killed(&env, "echo e > $STORE_PROJECT_CACHE_DIR/e");
    let forget = ["save", "--forget", place.to_str().unwrap()];
    let forgotten = env.store(forget);
    let count = forgotten.stderr.matches("/project: its save").count();
    assert_eq!(count, 1, "{forgotten}");
    let rest = env.store(["save", "--pending", "--dry-run"]);
    assert_eq!(rest.code, Some(0), "{rest}");
    env.ok(forget);
    assert_eq!(env.store(forget).code, Some(3));
    assert_eq!(newest(&env, REF), ["b=b", "c=c"]);
}

/// One path may have had several directories whose work is not saved: a save of one says nothing of the others.
#[test]
fn each_directory_of_a_path_is_on_the_list_for_itself() {
    for by_hand in [false, true] {
        let env = environment!();
        let place = env.path("base/project");
        for name in ["b", "c", "d"] {
            killed(
                &env,
                &format!("echo {name} > $STORE_PROJECT_CACHE_DIR/{name}"),
            );
            fs::rename(&place, env.path(name)).unwrap();
        }
        for (left, name) in [(2, "c"), (1, "d"), (0, "b")] {
            fs::rename(env.path(name), &place).unwrap();
            let place = place.to_str().unwrap();
            let pending = match by_hand {
                true => {
                    env.ok(["save", place, REF, "--base", "0"]);
                    env.store(["save", "--pending", "--dry-run"])
                }
                false => env.store(["save", "--pending"]),
            };
            assert_eq!(
                pending.code,
                Some(if left == 0 { 0 } else { 6 }),
                "{pending}"
            );
            let named = pending.stderr.matches("  /").count();
            assert_eq!(named, left, "{pending}");
            assert!(newest(&env, REF).contains(&format!("{name}={name}")));
            fs::rename(place, env.path(name)).unwrap();
        }
        let none = env.store(["save", "--pending"]);
        assert_eq!(none.code, Some(0), "{none}");
        assert_eq!(newest(&env, REF), ["b=b", "c=c", "d=d"]);
    }
}

/// A run goes on with the directory that is back, whatever was there meanwhile.
#[test]
fn a_run_takes_up_the_directory_that_is_back() {
    let env = environment!();
    let place = env.path("base/project");
    for name in ["b", "c"] {
        killed(
            &env,
            &format!("echo {name} > $STORE_PROJECT_CACHE_DIR/{name}"),
        );
        fs::rename(&place, env.path(name)).unwrap();
    }
    // A newer one that has nothing left to save.
    env.ok(run(&[], "true"));
    fs::remove_dir_all(&place).unwrap();
    fs::rename(env.path("b"), &place).unwrap();
    env.ok(run(&[], "echo d > $STORE_PROJECT_CACHE_DIR/d"));
    assert_eq!(newest(&env, REF), ["b=b", "d=d"]);
    let refused = env.store(["save", "--pending"]);
    assert_eq!(refused.code, Some(6), "{refused}");
    fs::rename(&place, env.path("b")).unwrap();
    fs::rename(env.path("c"), &place).unwrap();
    env.ok(["save", "--pending"]);
    assert_eq!(newest(&env, REF), ["b=b", "c=c", "d=d"]);
    assert_eq!(env.store(["save", "--pending"]).code, Some(0));
}
