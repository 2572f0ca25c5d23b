//! Runs and saves in directories of which the host has lost the pool, or its cache directory: what others did since is
//! never taken back, and what cannot be known is refused.

use std::fs;
use std::process::Output;

use support::{Finished, TestEnvironment, environment, under};

use crate::run::{REF, newest, run};

/// What a colleague makes of the newest version: `y` is changed, and `z` is gone.
fn colleague(env: &TestEnvironment) {
    drop(fs::remove_dir_all(env.path("theirs")));
    env.ok(["get", REF, "theirs"]);
    env.write("theirs/y", "theirs");
    fs::remove_file(env.path("theirs/z")).unwrap();
    env.ok(["put", "theirs", REF]);
}

/// A ref with the files `y` and `z`.
fn site() -> TestEnvironment {
    let env = environment!();
    env.write("in/y", "old");
    env.write("in/z", "old");
    env.ok(["put", "in", REF]);
    env
}

fn refused(done: &Finished) {
    assert_eq!(done.code, Some(5), "{done}");
    assert!(
        done.stderr.contains("it is not known which version") && done.stderr.contains("--base"),
        "{done}"
    );
}

fn lose_pool(env: &TestEnvironment) {
    fs::remove_dir_all(env.path("home/.cache/store/pool")).unwrap();
}

#[test]
fn a_run_whose_pool_is_lost_reverts_nothing() {
    let env = site();
    env.ok(run(&[], "echo job > $STORE_PROJECT_CACHE_DIR/job"));
    colleague(&env);
    let before = newest(&env, REF);
    lose_pool(&env);
    let next = env.store(run(&[], "true"));
    assert_eq!(next.code, Some(5), "{next}");
    assert_eq!(newest(&env, REF), before);
    assert_eq!(before, ["job=job", "y=theirs"]);
}

#[test]
fn what_a_killed_run_left_is_not_saved_without_its_pool() {
    let env = site();
    let killed = env.store(run(
        &[],
        "echo job > $STORE_PROJECT_CACHE_DIR/job; kill -9 $PPID",
    ));
    assert_eq!(killed.code, None, "{killed}");
    colleague(&env);
    lose_pool(&env);
    refused(&env.store(run(&[], "true")));
    refused(&env.store(["save", "base/project", REF]));
    let pending = env.store(["save", "--pending"]);
    assert_eq!(pending.code, Some(6), "{pending}");
    assert_eq!(newest(&env, REF), ["y=theirs"]);
    // The way that the hint names.
    env.ok(["save", "base/project", REF, "--base", "1"]);
    assert_eq!(newest(&env, REF), ["job=job", "y=theirs"]);
}

/// The first run of a base filled an empty directory, so that there is a note from before the pool made a tree in it.
#[test]
fn a_base_that_began_empty_is_not_merged_from_before_its_pool() {
    for damage in [
        "rm -rf pool",
        "rm -f pool/trees/*",
        "for mark in pool/trees/*; do printf '|' | dd of=$mark bs=1 seek=20 conv=notrunc; done",
    ] {
        let env = environment!();
        env.ok(run(
            &[],
            "cd $STORE_PROJECT_CACHE_DIR; echo d > data; echo x > x",
        ));
        env.ok(run(&[], "rm $STORE_PROJECT_CACHE_DIR/data"));
        env.ok(["get", REF, "other"]);
        env.write("other/data", "theirs");
        fs::write(env.path("other/x"), "theirs").unwrap();
        env.ok(["put", "other", REF]);
        let damaged = std::process::Command::new("sh")
            .args(["-c", damage])
            .current_dir(env.path("home/.cache/store"))
            .stderr(std::process::Stdio::null())
            .status();
        assert!(damaged.unwrap().success());
        let next = env.store(run(&[], "true"));
        assert_eq!(next.code, Some(5), "{next}");
        assert!(next.stderr.contains("--base N"), "{next}");
        refused(&env.store(["save", "base/project", REF]));
        assert_eq!(newest(&env, REF), ["data=theirs", "x=theirs"], "{damage}");
    }
}

/// A copy of a tree holds the name of a record that no pool knows under its path, and is saved like any directory.
#[test]
fn a_copy_of_a_tree_is_saved_again_and_again() {
    let env = site();
    env.ok(["materialize", REF, "job"]);
    let copied = std::process::Command::new("cp")
        .args(["-a", "job", "copy"])
        .current_dir(env.root())
        .status();
    assert!(copied.unwrap().success());
    for name in ["one", "two"] {
        env.write(format!("copy/{name}"), name);
        env.ok(["save", "copy", "project/llama/copy"]);
    }
    fs::remove_file(env.path("copy/one")).unwrap();
    env.ok(["save", "copy"]);
    assert_eq!(
        newest(&env, "project/llama/copy"),
        ["two=two", "y=old", "z=old"]
    );
}

#[test]
fn a_pool_that_is_removed_while_the_command_runs_is_missed_before_the_save() {
    let env = site();
    let pool = env.path("home/.cache/store/pool");
    env.ok(["get", REF, "theirs"]);
    let script = format!(
        "echo job > $STORE_PROJECT_CACHE_DIR/job; rm -rf '{}'; touch ready; while ! [ -e go ]; do sleep 0.05; done",
        pool.display()
    );
    let running = env.command(run(&[], &script)).spawn().unwrap();
    while !env.path("ready").exists() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    colleague(&env);
    env.write("go", "");
    let mut running = running;
    assert_eq!(running.wait().unwrap().code(), Some(5));
    assert_eq!(newest(&env, REF), ["y=theirs"]);
}

/// A container has a cache directory of its own, and the pool lies with the trees on the host.
#[test]
fn runs_with_new_cache_directories_know_what_was_saved() {
    let env = site();
    let pool = env.path("nvme-pool");
    let with = |script: &str| -> Finished {
        drop(fs::remove_dir_all(env.path("home/.cache")));
        let mut command = env.command(run(&[], script));
        let done: Output = command.env("STORE_POOL", &pool).output().unwrap();
        done.into()
    };
    let first =
        with("echo job > $STORE_PROJECT_CACHE_DIR/y; echo job > $STORE_PROJECT_CACHE_DIR/z");
    assert_eq!(first.code, Some(0), "{first}");
    colleague(&env);
    let next = with("cat $STORE_PROJECT_CACHE_DIR/y; ls $STORE_PROJECT_CACHE_DIR");
    assert_eq!(next.code, Some(0), "{next}");
    assert_eq!(String::from_utf8_lossy(&next.stdout), "theirsy\n");
    assert_eq!(newest(&env, REF), ["y=theirs"]);
}

/// The same tree, saved by turns from two nodes that share the pool and have cache directories of their own.
#[test]
fn nodes_that_share_a_tree_share_what_was_saved_of_it() {
    let env = site();
    let pool = env.path("shared-pool");
    let on = |node: &str, words: &[&str]| {
        let mut command = env.command(words);
        let caches = env.path(node);
        command
            .env("STORE_POOL", &pool)
            .env("XDG_CACHE_HOME", caches);
        let done: Finished = command.output().unwrap().into();
        assert_eq!(done.code, Some(0), "{done}");
    };
    on("a", &["materialize", REF, "job"]);
    env.write("job/f", "1");
    on("a", &["save", "job"]);
    on("b", &["materialize", REF, "job"]);
    env.write("job/f", "2");
    on("b", &["save", "job"]);
    env.ok(["get", REF, "other"]);
    env.write("other/f", "theirs");
    env.ok(["put", "other", REF]);
    env.write("job/more", "3");
    on("a", &["save", "job"]);
    assert_eq!(newest(&env, REF), ["f=theirs", "more=3", "y=old", "z=old"]);
}

#[test]
fn what_was_saved_stays_saved_when_links_become_files() {
    let env = site();
    std::os::unix::fs::symlink("y", env.path("in/link")).unwrap();
    env.ok(["put", "in", REF]);
    env.ok(["materialize", REF, "job"]);
    env.write("job/new", "job");
    fs::remove_file(env.path("job/y")).unwrap();
    env.write("job/y", "job");
    env.ok(["save", "job"]);
    env.ok(["get", REF, "other"]);
    env.write("other/y", "theirs");
    fs::remove_file(env.path("other/new")).unwrap();
    env.ok(["put", "other", REF]);
    env.ok(["materialize", REF, "job", "--flatten"]);
    env.ok(["materialize", REF, "job"]);
    env.ok(["save", "job"]);
    let now = newest(&env, REF);
    assert!(now.contains(&"y=theirs".to_owned()), "{now:?}");
    assert!(!now.iter().any(|file| file.starts_with("new")), "{now:?}");
}

/// The tree itself says that it was saved, in case the pool's note of that cannot be written or is lost.
#[test]
fn a_tree_that_was_saved_is_not_merged_from_an_older_version() {
    for keep in [0, 1] {
        let env = site();
        env.ok(["materialize", REF, "job"]);
        let saved = env.path("home/.cache/store/pool/saved");
        env.write("job/first", "1");
        env.ok(["save", "job"]);
        let copy = env.path("copy");
        fs::create_dir(&copy).unwrap();
        let copied = std::process::Command::new("cp")
            .arg("-a")
            .args([&saved, &copy])
            .status();
        assert!(copied.unwrap().success());
        env.write("job/second", "2");
        env.ok(["save", "job"]);
        env.ok(["get", REF, "other"]);
        env.write("other/y", "theirs");
        fs::remove_file(env.path("other/second")).unwrap();
        env.ok(["put", "other", REF]);
        fs::remove_dir_all(&saved).unwrap();
        if keep == 1 {
            fs::rename(copy.join("saved"), &saved).unwrap();
        }
        env.write("job/third", "3");
        let refused = env.store(["save", "job", REF]);
        assert_eq!(refused.code, Some(5), "{refused}");
        let way = format!("`store materialize {REF}@3 job`");
        assert!(refused.stderr.contains(&way), "{refused}");
        // An update would take what was saved for changes of the job.
        let refused = env.store(["materialize", REF, "job"]);
        assert_eq!(refused.code, Some(5), "{refused}");
        let way = format!("`store materialize {REF}@3 /");
        assert!(refused.stderr.contains(&way), "{refused}");
        env.ok(["materialize", &format!("{REF}@3"), "job"]);
        env.ok(["save", "job"]);
        assert_eq!(
            newest(&env, REF),
            ["first=1", "third=3", "y=theirs", "z=old"]
        );
    }
}

/// The note is whole, but the list of what was saved is not: an update would take that for the job's own.
#[test]
fn a_tree_is_not_updated_without_the_list_of_what_was_saved_of_it() {
    for damage in ["rm", "truncate -s -1"] {
        let env = site();
        env.ok(["materialize", REF, "job"]);
        env.write("job/new", "1");
        env.ok(["save", "job"]);
        env.ok(["get", REF, "other"]);
        fs::remove_file(env.path("other/new")).unwrap();
        env.ok(["put", "other", REF]);
        let damaged = std::process::Command::new("sh")
            .args(["-c", &format!("{damage} \"$0\"/*/*/*.list")])
            .arg(env.path("home/.cache/store/pool/saved"))
            .status();
        assert!(damaged.unwrap().success());
        for options in [&[][..], &["--dry-run"]] {
            let refused = env.store([&["materialize", REF, "job"], options].concat());
            assert_eq!(refused.code, Some(5), "{refused}");
            let way = format!("`store materialize {REF}@2 /");
            assert!(refused.stderr.contains(&way), "{refused}");
        }
        env.ok(["materialize", &format!("{REF}@2"), "job"]);
        env.ok(["materialize", REF, "job"]);
        assert!(!env.path("job/new").exists(), "{damage}");
    }
}

/// Whatever lies in the place of notes, a save ends.
#[test]
fn a_pipe_in_the_place_of_a_lock_holds_nothing_up() {
    let env = site();
    env.ok(["materialize", REF, "job"]);
    env.write("job/new", "1");
    env.ok(["save", "job"]);
    let saved = env.path("home/.cache/store/pool/saved");
    let locks = std::process::Command::new("sh")
        .args([
            "-c",
            "for lock in \"$0\"/*/*/*.lock; do rm \"$lock\" && mkfifo \"$lock\"; done",
        ])
        .arg(&saved)
        .status();
    assert!(locks.unwrap().success());
    env.write("job/more", "2");
    let save = env.command(["save", "job"]);
    let done = under("timeout", ["-k", "1", "60"], &save).output().unwrap();
    let done = Finished::from(done);
    assert_eq!(done.code, Some(0), "{done}");
}

/// The pool would know the base: whoever is asked for it instead loses what the job deleted.
#[test]
fn a_pool_that_cannot_be_used_is_named_where_a_base_is_not_known() {
    use std::os::unix::fs::PermissionsExt;
    let env = site();
    env.ok(["materialize", REF, "job"]);
    fs::remove_file(env.path("job/z")).unwrap();
    let open = fs::Permissions::from_mode(0o777);
    fs::set_permissions(env.path("home/.cache/store/pool/trees"), open).unwrap();
    for (words, code) in [(&["save", "job"][..], 3), (&["save", "job", REF], 5)] {
        let refused = env.store(words);
        assert_eq!(refused.code, Some(code), "{refused}");
        let is_named =
            refused.stderr.contains("cannot be used") && refused.stderr.contains("pool/trees");
        assert!(is_named && !refused.stderr.contains("--base"), "{refused}");
    }
    assert_eq!(newest(&env, REF), ["y=old", "z=old"]);
}
