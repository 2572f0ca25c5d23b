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
    assert_eq!(refused.code, Some(6), "{refused}");
    assert!(refused.stderr.contains("behind a symlink"), "{refused}");
    assert_eq!(std::fs::read_dir(env.path("precious")).unwrap().count(), 0);
}

#[test]
fn metrics_take_the_place_of_no_device_pipe_store_or_pool() {
    let env = environment!();
    env.write("in/file", "some words");
    env.ok(["put", "in", "project/demo/data"]);
    env.ok(["materialize", "project/demo/data", "tree"]);
    let pool = env.path(".store-pool-0");
    let own = if pool.is_dir() {
        pool
    } else {
        env.path("home/.cache/store/pool")
    };
    assert!(own.join("pool").is_file(), "{}", own.display());
    let made = std::process::Command::new("mkfifo")
        .arg(env.path("pipe"))
        .status();
    assert!(made.unwrap().success());
    std::os::unix::fs::symlink("pipe", env.path("link")).unwrap();
    std::os::unix::net::UnixListener::bind(env.path("socket")).unwrap();
    std::fs::create_dir(env.path("dir")).unwrap();
    let places = ["pipe", "link", "socket", "dir"].map(|name| env.path(name));
    let next = env.path("home/.local/share/store/log/000000/00000002");
    for place in places.into_iter().chain([next, own.join("metrics")]) {
        let file = place.to_str().unwrap();
        let kind = std::fs::symlink_metadata(&place)
            .map(|found| found.file_type())
            .ok();
        let refused = env.store(["gc", "--metrics-file", file]);
        assert_eq!(refused.code, Some(5), "{refused}");
        let now = std::fs::symlink_metadata(&place)
            .map(|found| found.file_type())
            .ok();
        assert_eq!(kind, now, "{file}");
    }
    env.ok(["token", "add", "one"]);
    chown(
        env.path("home/.config/store/tokens.json"),
        Some(STRANGER),
        None,
    )
    .unwrap();
    let refused = env.store(["token", "ls"]);
    assert!(
        refused.code == Some(1) && refused.stderr.contains("user 4242"),
        "{refused}"
    );
    // Nobody reads the pipe: that ends the server, which does not wait for a reader.
    let refused = env.store(["serve", "--listen", "127.0.0.1:0", "--access-log", "pipe"]);
    assert_ne!(refused.code, Some(0), "{refused}");
}

#[test]
fn a_file_that_is_named_is_not_written_through_a_symlink_of_another_user() {
    let env = environment!();
    env.ok(["init"]);
    env.write("own/file", "own");
    std::fs::create_dir(env.path("theirs")).unwrap();
    link_of_a_stranger(&env.path("own"), &env.path("theirs/way"));
    link_of_a_stranger(&env.path("own/file"), &env.path("theirs/log"));
    env.write(
        "own/cache/neuronxcc-2.1/MODULE_1+a/model.log",
        "Failed compilation",
    );
    link_of_a_stranger(&env.path("own/cache"), &env.path("theirs/cache"));
    for words in [
        vec!["gc", "--metrics-file", "theirs/way/metrics"],
        vec![
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--access-log",
            "theirs/way/log",
        ],
        vec![
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--access-log",
            "theirs/log",
        ],
        vec!["neff", "clean", "theirs/cache"],
        vec!["neff", "pull", "theirs/cache", "project/demo/neff"],
    ] {
        let refused = env.store(&words);
        assert_eq!(refused.code, Some(5), "{words:?}: {refused}");
        assert!(refused.stderr.contains("symlink of user 4242"), "{refused}");
    }
    assert_eq!(std::fs::read(env.path("own/file")).unwrap(), b"own");
    assert_eq!(std::fs::read_dir(env.path("own")).unwrap().count(), 2);
    assert!(
        env.path("own/cache/neuronxcc-2.1/MODULE_1+a/model.log")
            .is_file()
    );
}

/// A store that a group shares, with one version in it.
fn shared_store(env: &TestEnvironment) -> std::path::PathBuf {
    env.ok(["init", "--shared", "store"]);
    env.write("tree/file", "what is kept");
    env.ok(["put", "--store", "store", "tree", "project/demo/a"]);
    env.path("store")
}

fn refused(env: &TestEnvironment, words: &[&str]) {
    let refused = env.store(["--store", "store"].iter().chain(words));
    assert_eq!(refused.code, Some(1), "{words:?}: {refused}");
    assert!(
        refused.stderr.contains("is a symlink of user 4242"),
        "{words:?}: {refused}"
    );
}

#[test]
fn a_symlink_that_a_stranger_put_into_a_shared_store_leads_no_collector_astray() {
    let env = environment!();
    let store = shared_store(&env);
    let precious = env.write("own/ab000000000000000000000000000001", "of root");
    let day = env.write("own/2020-01-01-ab000000000000000000000000000001", "of root");
    let half = env.write("own/ab000000000000000000000000000002#1", "of root");
    let gc = ["gc", "--grace", "0", "--min-age", "0"];
    for place in ["packs/ab", "uses", "claims", "checkpoints", "segments"] {
        let at = store.join(place);
        let aside = env.path("aside");
        let was = std::fs::rename(&at, &aside);
        link_of_a_stranger(&env.path("own"), &at);
        refused(&env, &gc);
        refused(&env, &gc);
        std::fs::remove_file(&at).unwrap();
        if was.is_ok() {
            std::fs::rename(&aside, &at).unwrap();
        }
        assert!(
            precious.exists() && day.exists() && half.exists(),
            "{place}"
        );
    }
    env.ok(["--store", "store"].iter().chain(&gc));
    // A link of the owner of the store counts, as one of the caller does, if it leads to what is the owner's.
    std::fs::create_dir(env.path("elsewhere")).unwrap();
    std::os::unix::fs::symlink(env.path("elsewhere"), store.join("packs/ab")).unwrap();
    env.ok(["--store", "store"].iter().chain(&gc));
    chown(&store, Some(STRANGER), None).unwrap();
    std::os::unix::fs::lchown(store.join("packs/ab"), Some(STRANGER), None).unwrap();
    refused(&env, &gc);
    chown(env.path("elsewhere"), Some(STRANGER), None).unwrap();
    env.ok(["--store", "store"].iter().chain(&gc));
}

#[test]
fn nothing_is_written_or_read_where_a_strangers_symlink_in_a_store_leads() {
    let env = environment!();
    let store = shared_store(&env);
    env.write("more/file", "what comes later");
    std::fs::create_dir(env.path("own")).unwrap();
    let count = || std::fs::read_dir(env.path("own")).unwrap().count();
    for (place, words) in [
        ("packs", vec!["put", "more", "project/demo/b"]),
        ("packs", vec!["cat", "project/demo/a:file"]),
        ("segments", vec!["put", "more", "project/demo/b"]),
        ("log", vec!["put", "more", "project/demo/b"]),
        ("log", vec!["ls"]),
    ] {
        let at = store.join(place);
        std::fs::rename(&at, env.path("aside")).unwrap();
        link_of_a_stranger(&env.path("own"), &at);
        refused(&env, &words);
        assert_eq!(count(), 0, "{place}: {words:?}");
        std::fs::remove_file(&at).unwrap();
        std::fs::rename(env.path("aside"), &at).unwrap();
    }
    // A record of a use is not worth a failure: there is none.
    drop(std::fs::remove_dir_all(store.join("uses")));
    link_of_a_stranger(&env.path("own"), &store.join("uses"));
    env.store(["--store", "store", "cat", "project/demo/a:file"]);
    assert_eq!(count(), 0);
}

#[test]
fn the_mode_of_a_file_to_which_a_planted_use_leads_stays() {
    let env = environment!();
    let store = shared_store(&env);
    let secret = env.write("secret", "of root");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    env.ok(["--store", "store", "cat", "project/demo/a:file"]);
    let uses = std::fs::read_dir(store.join("uses")).unwrap();
    for found in uses.map(|entry| entry.unwrap().path()) {
        std::fs::remove_file(&found).unwrap();
        link_of_a_stranger(&secret, &found);
    }
    env.ok(["--store", "store", "cat", "project/demo/a:file"]);
    let mode = secret.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
}

#[test]
fn a_seed_is_not_made_in_a_base_of_a_stranger() {
    let env = environment!();
    planted(&env, "shared/cache");
    for base in [
        &["--base", "shared/cache"][..],
        &["--base", "shared/cache/below"],
    ] {
        let words = [&["run", "--seed", REF][..], base, &["--", "touch", "ran"]].concat();
        let refused = env.store(words);
        assert_eq!(refused.code, Some(1), "{refused}");
        assert!(refused.stderr.contains("user 4242"), "{refused}");
        assert!(!env.path("ran").exists());
    }
    assert_eq!(
        std::fs::read_dir(env.path("shared/cache")).unwrap().count(),
        0
    );
}

/// Whether a lock may be held by another user depends on who may open its file.
#[test]
fn the_locks_of_jobs_are_closed_to_others() {
    use std::os::unix::fs::MetadataExt;
    let env = environment!();
    env.write("d/file", "text");
    env.ok(["put", "d", "project/demo/d"]);
    env.ok(["init", "other"]);
    let push = ["push", "project/demo/d", "other"];
    env.ok(push);
    let jobs = env.path("home/.local/state/store/jobs");
    let job = std::fs::read_dir(&jobs).unwrap().next().unwrap();
    let job = job.unwrap().path();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().mode() & 0o777;
    let closed = || {
        assert_eq!(mode(&job), 0o700);
        for name in ["lock", "alive"] {
            assert_eq!(mode(&job.join(name)), 0o600, "{name}");
        }
    };
    closed();
    // What an earlier build made is closed, too.
    for (name, open) in [("", 0o755), ("lock", 0o644), ("alive", 0o644)] {
        let open = std::fs::Permissions::from_mode(open);
        std::fs::set_permissions(job.join(name), open).unwrap();
    }
    env.ok(push);
    closed();
    env.ok(["gc"]);
    let found = std::fs::read_dir(env.path("home/.cache/store")).unwrap();
    let locks = found.map(|entry| entry.unwrap().path().join("gc.lock"));
    let locks: Vec<_> = locks.filter(|lock| lock.exists()).collect();
    assert!(!locks.is_empty() && locks.iter().all(|lock| mode(lock) == 0o600));
    // A reader of the journal holds the second lock for a moment; nobody keeps a job from running with it.
    let alive = std::fs::File::open(job.join("alive")).unwrap();
    alive.lock().unwrap();
    env.ok(push);
    drop(alive);
    // A lock of somebody who is not known is no run of this job: the work is done all the same.
    env.write("d/file", "newer");
    env.ok(["put", "d", "project/demo/d"]);
    let lock = std::fs::File::open(job.join("lock")).unwrap();
    lock.lock().unwrap();
    let done = env.store(push);
    assert_eq!(done.code, Some(0), "{done}");
    assert!(done.stderr.contains("is not running"), "{done}");
    let there = env.ok(["cat", "--store", "other", "project/demo/d:file"]);
    assert_eq!(there, "newer");
}

/// The owner of a store may have its directories elsewhere, and must not lead others into their own.
#[test]
fn the_owner_of_a_store_leads_nobody_into_what_is_not_the_owners() {
    let env = environment!();
    env.write("in/file", "some words");
    env.ok(["--store", "theirs", "init"]);
    env.ok(["--store", "theirs", "put", "in", "project/demo/data"]);
    chown(env.path("theirs"), Some(STRANGER), None).unwrap();
    // `packs` lies elsewhere, as when a disk was full.
    std::fs::rename(env.path("theirs/packs"), env.path("elsewhere")).unwrap();
    link_of_a_stranger(&env.path("elsewhere"), &env.path("theirs/packs"));
    let get = ["--store", "theirs", "get", "project/demo/data", "out"];
    let refused = env.store(get);
    assert!(
        refused.stderr.contains("is a symlink of user 4242"),
        "{refused}"
    );
    chown(env.path("elsewhere"), Some(STRANGER), None).unwrap();
    env.ok(get);
    let frames = ["0", "00000001", "00000002"];
    for name in frames {
        env.write(format!("frames/{name}"), "a frame");
    }
    for name in ["checkpoints", "reserve", "uses"] {
        let place = env.path(format!("theirs/{name}"));
        let aside = env.path("aside");
        let was_there = std::fs::rename(&place, &aside).is_ok();
        link_of_a_stranger(&env.path("frames"), &place);
        for words in [
            &["gc", "--grace", "0"][..],
            &["repair"],
            &["put", "in", "project/demo/more", "--always"],
        ] {
            let ran = env.store([&["--store", "theirs"], words].concat());
            println!("{name}, {words:?}: {ran}");
        }
        for frame in frames {
            let bytes = std::fs::read_to_string(env.path(format!("frames/{frame}")));
            assert_eq!(bytes.unwrap(), "a frame", "{name}");
        }
        assert_eq!(
            std::fs::read_dir(env.path("frames")).unwrap().count(),
            3,
            "{name}"
        );
        std::fs::remove_file(&place).unwrap();
        if was_there {
            std::fs::rename(&aside, &place).unwrap();
        }
    }
}

/// Those who write to a cache together, as in the directory of a group, choose where its symlinks lead.
#[test]
fn a_pull_leaves_alone_what_is_behind_a_symlink_in_a_cache() {
    let env = environment!();
    module(&env.path("own"), "100+aaaaaaaa", 1);
    env.ok(["neff", "push", "own", "project/demo/own"]);
    std::fs::create_dir(env.path("cache")).unwrap();
    let half = format!("thesis/{}", "MODULE_100+aaaaaaaa");
    let precious = env.write(format!("{half}/precious"), "years");
    std::fs::create_dir_all(env.path("thesis")).unwrap();
    link_of_a_stranger(&env.path("thesis"), &env.path("cache").join(COMPILER));
    for words in [&["--dry-run"][..], &[]] {
        let pull = ["neff", "pull", "cache", "project/demo/own"];
        let refused = env.store(pull.iter().chain(words));
        assert_eq!(refused.code, Some(6), "{refused}");
        let told = format!("note: {COMPILER}/MODULE_100+aaaaaaaa: behind a symlink, not taken");
        assert!(refused.stderr.contains(&told), "{refused}");
        assert!(
            refused.stderr.contains("hint: look at the symlinks"),
            "{refused}"
        );
        assert_eq!(std::fs::read_to_string(&precious).unwrap(), "years");
        let there = std::fs::read_dir(env.path("thesis")).unwrap();
        assert_eq!(there.count(), 1);
    }
    std::fs::remove_file(env.path("cache").join(COMPILER)).unwrap();
    env.ok(["neff", "pull", "cache", "project/demo/own"]);
}

/// What is noted there would be read as the caller, and published.
#[test]
fn a_state_directory_of_another_user_saves_nothing() {
    let env = environment!();
    env.write("d/file", "text");
    env.ok(["put", "d", "project/demo/d"]);
    env.write("secret/key", "of root");
    let store = env.path("home/.local/share/store");
    // A save that cannot reach its store notes the directory.
    std::fs::rename(&store, env.path("away")).unwrap();
    let noted = env.store(["save", "secret", "project/demo/stolen"]);
    assert_ne!(noted.code, Some(0), "{noted}");
    std::fs::rename(env.path("away"), &store).unwrap();
    let state = env.path("home/.local/state/store");
    let list = state.join("pending");
    let mode = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let file = std::fs::read_dir(&list).unwrap().next().unwrap();
    let file = file.unwrap().path();
    assert_eq!(list.metadata().unwrap().permissions().mode() & 0o077, 0);
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o077, 0);
    let refused = |at: &std::path::Path, why: &str, is_dir: bool| {
        let refused = env.store(["save", "--pending"]);
        assert_eq!(refused.code, Some(1), "{refused}");
        let told = format!("{}: {why}", at.display());
        assert!(refused.stderr.contains(&told), "{refused}");
        assert!(refused.stderr.contains("set XDG_STATE_HOME"), "{refused}");
        assert_ne!(env.store(["ls", "project/demo/stolen"]).code, Some(0));
        if is_dir {
            let refused = env.store(run(&[], "echo started"));
            assert_eq!(refused.code, Some(1), "{refused}");
            assert!(refused.stdout.is_empty() && refused.stderr.contains(&told));
        }
    };
    for at in [&state, &list, &file] {
        let is_dir = at.is_dir();
        chown(at, Some(STRANGER), None).unwrap();
        refused(at, "belongs to user 4242, expected user 0", is_dir);
        chown(at, Some(0), Some(7)).unwrap();
        mode(at, if is_dir { 0o770 } else { 0o660 });
        refused(at, "others may write to it", is_dir);
        mode(at, if is_dir { 0o700 } else { 0o600 });
        chown(at, Some(0), Some(0)).unwrap();
    }
    env.ok(["save", "--pending"]);
    env.ok(["ls", "project/demo/stolen"]);
}
