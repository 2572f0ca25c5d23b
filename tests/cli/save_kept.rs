//! Saves to a ref that keeps modes, owners and extended attributes: what stays keeps them.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use rustix::fs::{XattrFlags, getxattr, setxattr};
use support::{TestEnvironment, environment};

const REF: &str = "project/demo/cache";
const KEEP: [&str; 2] = ["--keep", "modes,owners,xattrs"];

/// A ref that keeps everything of these files.
fn kept() -> TestEnvironment {
    let env = environment!();
    for (name, mode, user) in [
        ("in/a", 0o640, 11),
        ("in/b", 0o750, 12),
        ("in/dir/c", 0o604, 13),
        ("in/dir/deep/d", 0o660, 14),
        ("in/dir/deep/e", 0o600, 15),
        ("in/z", 0o444, 16),
    ] {
        let path = env.write(name, name);
        setxattr(&path, "user.note", name.as_bytes(), XattrFlags::empty()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        chown(&path, Some(user), Some(7)).unwrap();
    }
    fs::set_permissions(env.path("in/dir"), fs::Permissions::from_mode(0o711)).unwrap();
    env.ok([&["put", "in", REF][..], &KEEP].concat());
    for job in ["one", "other"] {
        env.ok(["materialize", REF, job]);
    }
    env
}

/// The mode, the user and the note of each file of the newest version.
fn seen(env: &TestEnvironment, names: &[&str]) -> Vec<(u32, u32, String)> {
    let out = env.path("out");
    drop(fs::remove_dir_all(&out));
    env.ok([&["get", REF, "out"][..], &KEEP].concat());
    env.ok(["verify", "--read-data"]);
    let one = |name: &&str| {
        let path = out.join(name);
        let found = fs::metadata(&path).unwrap();
        let mut note = [0; 32];
        let len = getxattr(&path, "user.note", &mut note[..]).unwrap_or(0);
        let note = String::from_utf8_lossy(&note[..len]).into_owned();
        (found.mode() & 0o7777, found.uid(), note)
    };
    names.iter().map(one).collect()
}

fn was(mode: u32, user: u32, name: &str) -> (u32, u32, String) {
    (mode, user, format!("in/{name}"))
}

#[test]
fn what_a_save_leaves_alone_keeps_what_was_kept_of_it() {
    let env = kept();
    fs::remove_file(env.path("one/a")).unwrap();
    fs::remove_file(env.path("one/dir/deep/d")).unwrap();
    // A new file and a new directory come before what stays, and a file gets other bytes.
    env.write("one/aa", "new");
    env.write("one/dir/deep/0/new", "new");
    fs::remove_file(env.path("one/z")).unwrap();
    env.write("one/z", "changed");
    let said = env.store(["save", "one"]);
    assert_eq!(said.code, Some(0), "{said}");
    assert!(!said.stderr.contains("kept beside"), "{said}");
    let names = [
        "aa",
        "b",
        "dir/c",
        "dir/deep/0/new",
        "dir/deep/e",
        "z",
        "dir",
    ];
    let new = (0o644, 0, String::new());
    let dir = (0o711, 0, String::new());
    let expected = [
        new.clone(),
        was(0o750, 12, "b"),
        was(0o604, 13, "dir/c"),
        new,
        was(0o600, 15, "dir/deep/e"),
        was(0o444, 16, "z"),
        dir,
    ];
    assert_eq!(seen(&env, &names), expected);
    // The same once more changes nothing.
    let again = env.ok(["save", "one", "--json"]);
    assert!(again.contains("\"unchanged\":true"), "{again}");
}

#[test]
fn a_merge_keeps_what_was_kept_on_both_sides() {
    let env = kept();
    env.write("one/dir/deep/of-one", "1");
    fs::remove_file(env.path("one/b")).unwrap();
    env.ok(["save", "one"]);
    env.write("other/dir/of-other", "2");
    fs::remove_file(env.path("other/dir/deep/d")).unwrap();
    let said = env.store(["save", "other"]);
    assert_eq!(said.code, Some(0), "{said}");
    assert!(
        String::from_utf8_lossy(&said.stdout).contains("merged into @2"),
        "{said}"
    );
    let names = [
        "a",
        "dir/c",
        "dir/deep/e",
        "dir/deep/of-one",
        "dir/of-other",
        "z",
    ];
    let new = (0o644, 0, String::new());
    let expected = [
        was(0o640, 11, "a"),
        was(0o604, 13, "dir/c"),
        was(0o600, 15, "dir/deep/e"),
        new.clone(),
        new,
        was(0o444, 16, "z"),
    ];
    assert_eq!(seen(&env, &names), expected);
}

#[test]
fn what_became_a_program_or_a_directory_has_a_new_mode() {
    let env = kept();
    let path = env.path("one/a");
    fs::remove_file(&path).unwrap();
    env.write("one/a", "#!/bin/sh");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    fs::remove_file(env.path("one/b")).unwrap();
    env.write("one/b/now", "a directory");
    env.ok(["save", "one"]);
    let expected = [
        (0o755, 0, String::new()),
        (0o755, 0, String::new()),
        (0o644, 0, String::new()),
        was(0o604, 13, "dir/c"),
    ];
    assert_eq!(seen(&env, &["a", "b", "b/now", "dir/c"]), expected);
}

#[test]
fn a_tree_in_a_directory_of_another_user_is_put_right_without_its_time() {
    let env = environment!();
    for (name, text) in [("in/a", "a"), ("in/dir/b", "b")] {
        env.write(name, text);
    }
    env.ok(["put", "in", REF]);
    for dir in ["", "in", "home", "group", "group/dir"] {
        let path = env.path(dir);
        fs::create_dir_all(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o2777)).unwrap();
    }
    let out = std::process::Command::new("chown")
        .args(["-R", "1001:1001"])
        .arg(env.path("home"))
        .status();
    assert!(out.unwrap().success());
    chown(env.path("group"), Some(1002), None).unwrap();
    chown(env.path("group/dir"), Some(1002), None).unwrap();
    let words = [
        "materialize",
        REF,
        "group",
        "--force",
        "--link-mode",
        "copy",
    ];
    let words = [&words[..], &["--pool", "home/pool"]].concat();
    let as_user = ["--reuid", "1001", "--regid", "1001", "--clear-groups"];
    let made: support::Finished = support::under("setpriv", as_user, &env.command(words))
        .output()
        .unwrap()
        .into();
    assert_eq!(made.code, Some(0), "{made}");
    assert_eq!(fs::read_to_string(env.path("group/dir/b")).unwrap(), "b");
}
