//! put and get: the result equals the original.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

use support::{assert_same_tree, check, environment, trees};

const REF: &str = "project/demo/data";

fn fixtures() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/real"))
}

#[test]
fn a_tree_of_everything_comes_out_as_it_went_in() {
    let env = environment!();
    trees::everything(&env.path("in"), 1);
    env.ok(["put", "in", REF]);
    env.ok(["get", REF, "out"]);
    assert_same_tree(&env.path("in"), &env.path("out"));
    let sparse =
        std::os::unix::fs::MetadataExt::blocks(&env.path("out/sizes/sparse").metadata().unwrap());
    assert!(sparse < 1000, "64 MiB of holes take {sparse} blocks");
}

#[test]
fn put_and_get_say_what_they_did() {
    let env = environment!();
    env.write("in/a.txt", vec![b'a'; 100_000]);
    env.write("in/b/c.txt", "c");
    check!(env, env.store(["put", "in", REF]), @"
    exit code: 0
    --- stdout
    project/demo/data@1 (@[VERSION-ID]): 2 files, 100 kB in [SECS] ([RATE])
    new 100 kB, stored [SIZE]
    --- stderr
    made a store in [ROOT]/home/.local/share/store
    ");
    env.write("in/b/d.txt", "d");
    check!(env, env.store(["put", "in", REF, "--message", "with d"]), @"
    exit code: 0
    --- stdout
    project/demo/data@2 (@[VERSION-ID]): 3 files, 100 kB in [SECS] ([RATE])
    new 1 B, stored [SIZE]
    --- stderr
    ");
    check!(env, env.store(["get", REF, "out"]), @"
    exit code: 0
    --- stdout
    project/demo/data@2: 3 files, 100 kB in [SECS] ([RATE])
    --- stderr
    ");
    check!(env, env.store(["--quiet", "get", "project/demo/data@1", "old"]), @"
    exit code: 0
    --- stdout
    --- stderr
    ");
    assert!(!env.path("old/b/d.txt").exists() && env.path("out/b/d.txt").exists());
}

#[test]
fn put_and_get_for_machines() {
    let env = environment!();
    env.write("in/a.txt", "alpha");
    check!(env, env.store(["--json", "put", "in", REF]), @r#"
    exit code: 0
    --- stdout
    {"ref":"project/demo/data","version":1,"id":"[VERSION-ID]","unchanged":false,"files":1,"unchanged_files":[COUNT],"directories":1,"symlinks":0,"bytes":5,"new_bytes":5,"stored_bytes":[SIZE],"secs":[SECS],"skipped":[],"notes":[]}
    --- stderr
    "#);
    check!(env, env.store(["--json", "get", REF, "out"]), @r#"
    exit code: 0
    --- stdout
    {"ref":"project/demo/data","version":1,"files":1,"directories":1,"symlinks":0,"dangling":0,"bytes":5,"notes":[],"secs":[SECS]}
    --- stderr
    "#);
}

#[test]
fn progress_is_told_where_it_is_asked_for() {
    let env = environment!();
    env.write("in", "text");
    let quiet = env.store(["put", "in", REF]);
    let made = env.path("home/.local/share/store");
    assert_eq!(
        quiet.stderr,
        format!("made a store in {}\n", made.display())
    );
    check!(env, env.store(["--progress", "--quiet", "put", "in", REF]), @"
    exit code: 2
    --- stdout
    --- stderr
    error: the argument '--progress' cannot be used with '--quiet'

    Usage: store --progress <COMMAND>

    For more information, try '--help'.
    ");
}

#[test]
fn files_of_real_programs_keep_every_byte() {
    let env = environment!();
    env.ok([OsStr::new("put"), fixtures().as_os_str(), OsStr::new(REF)]);
    env.ok(["get", REF, "out"]);
    assert_same_tree(fixtures(), &env.path("out"));
}

#[test]
fn one_file_and_one_path_inside_of_a_tree() {
    let env = environment!();
    env.write("in/sub/file", "inside");
    env.ok(["put", "in/sub/file", "project/demo/one"]);
    env.ok(["get", "project/demo/one", "one"]);
    env.ok(["put", "in", REF]);
    env.ok(["get", "project/demo/data:sub/file", "two"]);
    env.ok(["get", "project/demo/data:sub", "three"]);
    for name in ["one", "two", "three/file"] {
        assert_eq!(
            std::fs::read_to_string(env.path(name)).unwrap(),
            "inside",
            "{name}"
        );
    }
}

#[test]
fn a_path_that_is_not_utf8_can_be_named() {
    let env = environment!();
    env.write(OsStr::from_bytes(b"in/caf\xe9"), "bytes");
    env.ok(["put", "in", REF]);
    env.ok([
        OsStr::new("get"),
        OsStr::from_bytes(b"project/demo/data:caf\xe9"),
        OsStr::new("out"),
    ]);
    assert_eq!(std::fs::read(env.path("out")).unwrap(), b"bytes");
    let missing = env.store([
        OsStr::new("get"),
        OsStr::from_bytes(b"project/demo/data:no\xff"),
        OsStr::new("x"),
    ]);
    assert_eq!(missing.code, Some(3), "{missing}");
    assert!(
        missing.stderr.contains(": no such path in version 1"),
        "{missing}"
    );
}

#[test]
fn what_is_excluded_stays_out() {
    let env = environment!();
    for name in [
        "keep.txt",
        "skip.tmp",
        "deep/skip.tmp",
        "deep/keep",
        "cache/x",
    ] {
        env.write(format!("in/{name}"), name);
    }
    env.ok(["put", "in", REF, "--exclude", "*.tmp", "--exclude", "cache"]);
    env.ok(["get", REF, "out"]);
    let names: Vec<_> = support::seen(&env.path("out")).into_keys().collect();
    assert_eq!(names, ["", "/deep", "/deep/keep", "/keep.txt"]);
}

#[test]
fn a_socket_fails_and_publishes_nothing() {
    let env = environment!();
    env.write("in/file", "text");
    let _socket = UnixListener::bind(env.path("in/socket")).unwrap();
    check!(env, env.store(["put", "in", REF]), @"
    exit code: 2
    --- stdout
    --- stderr
    made a store in [ROOT]/home/.local/share/store
    error: [ROOT]/in/socket: expected a file, directory or symlink, found a socket
    hint: exclude it, or skip what cannot be read
    ");
    assert_eq!(env.store(["history", REF]).code, Some(3));
    check!(env, env.store(["put", "in", REF, "--skip-unreadable"]), @"
    exit code: 6
    --- stdout
    project/demo/data@1 (@[VERSION-ID]): 1 file, 4 B in [SECS] ([RATE])
    new 4 B, stored [SIZE]
    --- stderr
    skipped: [ROOT]/in/socket: expected a file, directory or symlink, found a socket
    error: project/demo/data: 1 path left out
    ");
    env.ok(["get", REF, "out"]);
    assert!(env.path("out/file").exists() && !env.path("out/socket").exists());
}

#[test]
fn a_source_that_is_missing_is_3() {
    let env = environment!();
    check!(env, env.store(["put", "nowhere", REF]), @"
    exit code: 3
    --- stdout
    --- stderr
    made a store in [ROOT]/home/.local/share/store
    error: nowhere: there is no such file or directory
    hint: name what to put first, and the ref that it becomes second: `store put PATH REF`
    ");
}

#[test]
fn a_dry_run_writes_nothing() {
    let env = environment!();
    env.write("in/file", "text");
    check!(env, env.store(["put", "in", REF, "--dry-run"]), @"
    exit code: 0
    --- stdout
    project/demo/data, nothing written: 1 file, 4 B in [SECS] ([RATE])
    new 4 B, stored [SIZE]
    --- stderr
    ");
    assert!(!env.path("home/.local").exists());
    env.ok(["put", "in", REF]);
    let before = support::seen(&env.path("home/.local"));
    env.write("in/file", "other text");
    env.ok(["put", "in", REF, "--dry-run"]);
    assert_eq!(support::seen(&env.path("home/.local")), before);
}

#[test]
fn a_destination_that_exists_is_5_and_stays() {
    let env = environment!();
    env.write("in/file", "text");
    env.write("out/mine", "mine");
    env.ok(["put", "in", REF]);
    check!(env, env.store(["get", REF, "out"]), @"
    exit code: 5
    --- stdout
    --- stderr
    error: out: already exists, and is not empty
    hint: name a destination that does not exist, like out/NAME, or remove it first
    ");
    assert_eq!(std::fs::read_dir(env.path("out")).unwrap().count(), 1);
}

#[test]
fn an_empty_directory_is_a_destination() {
    let env = environment!();
    env.write("in/file", "text");
    std::fs::create_dir(env.path("out")).unwrap();
    env.ok(["put", "in", REF]);
    env.ok(["get", REF, "out"]);
    assert!(env.path("out/file").exists());
}

#[test]
fn a_store_that_somebody_named_is_not_made_by_put() {
    let env = environment!();
    env.write("in/file", "text");
    check!(env, env.store(["put", "in", REF, "--store", "elsewhere"]), @"
    exit code: 3
    --- stdout
    --- stderr
    error: elsewhere: there is no store
    hint: make one there with `store init elsewhere`
    ");
    assert!(!env.path("elsewhere").exists());
}

#[test]
fn what_this_program_writes_stays_out_of_a_home_that_is_put() {
    let env = environment!();
    env.write("home/notes.txt", "text");
    env.ok(["put", "home", REF]);
    check!(env, env.store(["put", "home", REF]), @"
    exit code: 0
    --- stdout
    project/demo/data: unchanged, still @1 (@[VERSION-ID]): 1 file, 4 B in [SECS] ([RATE])
    new 0 B, stored [SIZE]
    --- stderr
    note: .local/share/store: left out, since this program itself writes there
    note: .cache/store: left out, since this program itself writes there
    ");
    env.ok(["get", REF, "out"]);
    let names: Vec<_> = support::seen(&env.path("out")).into_keys().collect();
    assert_eq!(
        names,
        ["", "/.cache", "/.local", "/.local/share", "/notes.txt"]
    );
    check!(env, env.store(["put", "home/.local/share/store", REF]), @"
    exit code: 2
    --- stdout
    --- stderr
    error: [ROOT]/home/.local/share/store: this program itself writes there
    hint: put a directory beside it
    ");
}
