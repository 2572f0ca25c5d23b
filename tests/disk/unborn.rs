//! Directories that are removed and made again get the same inode number. Where the file system has no times of birth, only
//! what the directory itself holds tells them apart.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;

use support::{Finished, TestEnvironment, environment};

use crate::mounts::Mount;

const REF: &str = "project/night/cache";

fn run(env: &TestEnvironment, base: &Path, script: &str) -> Finished {
    let script = format!("cd $STORE_PROJECT_CACHE_DIR; {script}");
    let base = base.to_str().unwrap();
    env.store([
        "run",
        "--project",
        "night",
        "--base",
        base,
        "--",
        "/bin/sh",
        "-c",
        &script,
    ])
}

fn newest(env: &TestEnvironment) -> String {
    env.ok(["ls", REF])
}

/// Removes the directory, and makes others beside it until one has its inode number. That one takes its place.
fn remake(place: &Path) {
    let wanted = place.metadata().unwrap().ino();
    fs::remove_dir_all(place).unwrap();
    for count in 0..2000 {
        let made = place.with_file_name(format!("made{count}"));
        fs::create_dir(&made).unwrap();
        if made.metadata().unwrap().ino() == wanted {
            fs::rename(made, place).unwrap();
            return;
        }
    }
    panic!("{}: no directory got the number {wanted}", place.display());
}

#[test]
fn a_directory_with_the_number_of_another_one_is_not_taken_for_it() {
    let mount = Mount::ext4(64, &["-I", "128"], "defaults");
    let env = environment!();
    let base = mount.path().join("base");
    let place = base.join("project");
    // The first night the cache begins empty, so that no pool made it.
    assert_eq!(run(&env, &base, "echo 1 > f1").code, Some(0));
    remake(&place);
    let night = run(&env, &base, "echo 2 > f2");
    assert_eq!(night.code, Some(0), "{night}");
    assert_eq!(newest(&env), "f1\nf2\n", "{night}");

    // The same while the list has it.
    let killed = run(&env, &base, "echo 3 > f3; kill -9 $PPID");
    assert_ne!(killed.code, Some(0), "{killed}");
    remake(&place);
    fs::write(place.join("foreign"), "").unwrap();
    let pending = env.store(["save", "--pending"]);
    assert_eq!(pending.code, Some(6), "{pending}");
    assert_eq!(newest(&env), "f1\nf2\n", "{pending}");
}

/// Another user can read the attributes, and give them to a directory of their own.
#[test]
fn a_directory_of_another_user_with_the_same_attributes_is_not_taken_for_it() {
    let mount = Mount::ext4(64, &["-I", "128"], "defaults");
    let env = environment!();
    let base = mount.path().join("base");
    let place = base.join("project");
    for is_killed in [false, true] {
        let end = if is_killed { "kill -9 $PPID" } else { "true" };
        run(&env, &base, &format!("echo 1 > f1; {end}"));
        let attributes = ["born", "noted", "record"].map(|name| {
            let name = format!("user.store.{name}");
            let mut text = [0; 64];
            let len = rustix::fs::getxattr(&place, &name, &mut text[..]).unwrap_or_default();
            (name, text[..len].to_vec())
        });
        remake(&place);
        for (name, text) in attributes.iter().filter(|(_, text)| !text.is_empty()) {
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(&place, name, text, flags).unwrap();
        }
        fs::write(place.join("evil"), "").unwrap();
        chown(&place, Some(1001), None).unwrap();
        let pending = env.store(["save", "--pending"]);
        assert_eq!(
            pending.code,
            Some(if is_killed { 6 } else { 0 }),
            "{pending}"
        );
        let refused = run(&env, &base, "true");
        assert_eq!(refused.code, Some(5), "{refused}");
        assert_eq!(newest(&env), "f1\n");
        fs::remove_dir_all(&place).unwrap();
    }
}

/// A file system that was set back has the same directories, with the same times of birth.
#[test]
fn a_directory_from_before_its_save_is_not_taken_for_what_was_saved() {
    let mount = Mount::ext4(64, &[], "defaults");
    let env = environment!();
    let base = mount.path().join("base");
    fs::create_dir_all(base.join("project")).unwrap();
    mount.keep_copy();
    assert_eq!(run(&env, &base, "echo 1 > f1").code, Some(0));
    mount.set_back();
    fs::write(base.join("project/x"), "").unwrap();
    let place = base.join("project");
    let refused = env.store(["save", place.to_str().unwrap(), REF]);
    assert_eq!(refused.code, Some(5), "{refused}");
    assert_eq!(newest(&env), "f1\n");
}

/// Without attributes, an empty directory may be a new one.
#[test]
fn an_empty_directory_without_attributes_is_no_deletion() {
    let mount = Mount::ext4(64, &["-I", "128"], "defaults");
    let env = environment!();
    let base = mount.path().join("base");
    let place = base.join("project");
    fs::create_dir_all(&place).unwrap();
    // There is room for no other one.
    for name in ["user.one", "user.two"] {
        let set = |len: &usize| {
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(&place, name, &vec![1; *len], flags).is_ok()
        };
        (1..1000).rev().find(set);
    }
    assert_eq!(run(&env, &base, "echo 1 > f1").code, Some(0));
    assert_eq!(run(&env, &base, "echo 2 > f2").code, Some(0));
    remake(&place);
    let night = run(&env, &base, "echo 3 > f3");
    assert_eq!(night.code, Some(0), "{night}");
    assert_eq!(newest(&env), "f1\nf2\nf3\n", "{night}");
}
