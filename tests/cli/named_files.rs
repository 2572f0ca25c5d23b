//! Files that a person names to be written: what they are, and where they lie, is looked at first.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use support::{Finished, TestEnvironment, environment};

const STRANGER: u32 = 4_242;

const WORDS: &str = "some words\n";

const SERVE: [&str; 4] = ["serve", "--listen", "127.0.0.1:0", "--access-log"];

/// A store `S` with a version, which is in the trees `m1` and `m2`, and the pool of these.
fn with_trees(env: &TestEnvironment) -> PathBuf {
    env.ok(["init", "S"]);
    env.write("in/file", WORDS.repeat(10_000));
    env.ok(["--store", "S", "put", "in", "project/demo/data"]);
    for tree in ["m1", "m2"] {
        let made = ["materialize", "project/demo/data", tree, "--pool", "P"];
        env.ok(["--store", "S"].iter().chain(&made));
    }
    assert!(env.path("P/pool").is_file());
    env.path("P")
}

fn files_below(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files_below(&path)),
            // A pool has symlinks that lead nowhere.
            false => found.push((path.clone(), fs::read(&path).unwrap_or_default())),
        }
    }
    found.sort();
    found
}

/// Runs a command that must not write to the file that it ends with. A server that starts all the same is ended.
fn refused(env: &TestEnvironment, words: &[&str], file: &Path, why: &str) {
    let words = ["--store", "S"].iter().chain(words).copied();
    let mut begun = env
        .command(words.chain([file.to_str().unwrap()]))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(begun.stdout.take().unwrap()).lines();
    for line in lines {
        if line.unwrap().contains("listening on") {
            begun.kill().unwrap();
        }
    }
    let done: Finished = begun.wait_with_output().unwrap().into();
    assert_eq!(done.code, Some(5), "{}: {done}", file.display());
    assert!(done.stderr.contains(why), "{}: {done}", file.display());
}

#[test]
fn an_access_log_is_in_no_store_pool_or_directory_of_the_command() {
    let env = environment!();
    let pool = with_trees(&env);
    env.ok(["--store", "S", "export", "bundle", "project/demo"]);
    symlink("S/format", env.path("to-format")).unwrap();
    symlink("S/new", env.path("to-new")).unwrap();
    let before = [files_below(&env.path("S")), files_below(&pool)];
    let pack = files_below(&env.path("S/packs")).remove(0).0;
    let own = env.path("home/.config/store/config.toml");
    for (file, why) in [
        (env.path("S/format"), "lies in a store"),
        (env.path("S/log/000000/00000001"), "lies in a store"),
        (env.path("S/new"), "lies in a store"),
        (env.path("to-format"), "lies in a store"),
        (env.path("to-new"), "lies in a store"),
        (pack, "lies in a store"),
        (env.path("bundle"), "is a store in one file"),
        (pool.join("new"), "lies in a pool"),
        (env.path("m1/file"), "nobody may write"),
        (own.clone(), "belongs to this program"),
    ] {
        refused(&env, &SERVE, &file, why);
        if !file.ends_with("file") {
            refused(&env, &["gc", "--metrics-file"], &file, "");
        }
    }
    assert!(!own.exists());
    refused(&env, &["man"], &env.path("S"), "lies in a store");
    let pull = ["cache", "pull", "--profile", "triton", "project/demo/c"];
    for (dir, why) in [("S", "lies in a store"), ("P/below", "lies in a pool")] {
        let words = ["--store", "S"].iter().chain(&pull[..4]);
        let done = env.store(words.chain([&dir, &pull[4]]));
        assert_eq!(done.code, Some(5), "{done}");
        assert!(done.stderr.contains(why), "{done}");
    }
    refused(
        &env,
        &["gc", "--systemd"],
        &env.path("S"),
        "lies in a store",
    );
    assert!(before == [files_below(&env.path("S")), files_below(&pool)]);
    assert_eq!(
        fs::read_to_string(env.path("m2/file")).unwrap(),
        WORDS.repeat(10_000)
    );
}

#[test]
fn an_access_log_is_a_file_of_the_caller_that_may_be_written_to() {
    let env = environment!();
    env.ok(["init", "S"]);
    for name in ["closed", "theirs", "twice"] {
        env.write(name, "kept\n");
    }
    fs::set_permissions(env.path("closed"), Permissions::from_mode(0o444)).unwrap();
    fs::set_permissions(env.path("theirs"), Permissions::from_mode(0o666)).unwrap();
    chown(env.path("theirs"), Some(STRANGER), None).unwrap();
    fs::hard_link(env.path("twice"), env.path("again")).unwrap();
    for (file, why) in [
        (env.path("closed"), "nobody may write to it"),
        (env.path("theirs"), "belongs to user 4242"),
        (env.path("twice"), "has 2 names"),
        (PathBuf::from("/dev/full"), "is a device"),
    ] {
        refused(&env, &SERVE, &file, why);
    }
    for name in ["closed", "theirs", "twice"] {
        assert_eq!(fs::read(env.path(name)).unwrap(), b"kept\n");
    }
    let metrics = ["gc", "--metrics-file"];
    refused(
        &env,
        &metrics,
        Path::new("/dev/stdout"),
        "is no regular file",
    );
    // What is for lines takes them, also in a container, where only the standard streams are.
    for log in ["/dev/null", "/dev/stdout", "/dev/stderr", "new.log"] {
        let mut server = env
            .command(["--store", "S"].into_iter().chain(SERVE).chain([log]))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let first = lines.next().transpose().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
        assert!(
            first.is_some_and(|line| line.contains("listening on")),
            "{log}"
        );
    }
}
