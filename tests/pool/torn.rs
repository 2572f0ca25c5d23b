//! Planted remains of a power cut: names, sizes and times that are right, and bytes that never reached the disk.
//! tests/disk/power_pool.rs cuts the power itself.

use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use crate::world::{World, assert_same, files_below, inode, set_mode};

/// Replaces the bytes by zeros, and keeps size, mode and time.
fn wipe(path: &Path) {
    let before = fs::metadata(path).unwrap();
    set_mode(path, 0o644);
    let file = fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(&vec![0; usize::try_from(before.len()).unwrap()], 0)
        .unwrap();
    file.set_modified(before.modified().unwrap()).unwrap();
    fs::set_permissions(path, before.permissions()).unwrap();
}

/// The pool file of this size.
fn pooled(world: &World, size: u64) -> PathBuf {
    let files = world.pool_files();
    let has_size = |path: &&PathBuf| fs::metadata(path).unwrap().len() == size;
    files.iter().find(has_size).unwrap().clone()
}

/// Changes the marks of trees as if they were from before the last boot.
pub(crate) fn boot(world: &World) {
    let now = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    for mark in files_below(&world.pool().join("trees")) {
        if mark.extension().is_some() {
            continue;
        }
        let text = fs::read_to_string(&mark).unwrap();
        assert!(text.contains(now.trim()));
        fs::write(&mark, text.replace(now.trim(), "before")).unwrap();
    }
}

/// Makes the time at which each tree was settled later than all that was done to it: a power cut touches no file.
fn settle(world: &World) {
    for tree in fs::read_dir(world.pool().join("made")).unwrap() {
        let link = tree.unwrap().path().join("at");
        let text = fs::read_link(&link).unwrap();
        let (secs, rest) = text.to_str().unwrap().split_once('.').unwrap();
        let later = secs.parse::<u64>().unwrap() + 3600;
        fs::remove_file(&link).unwrap();
        symlink(format!("{later}.{rest}"), &link).unwrap();
    }
}

#[test]
fn a_file_that_is_only_copied_is_verified_by_whoever_copies_it() {
    let world = World::with_tree(90);
    world.make("one", &[]);
    let tiny = pooled(&world, 100);
    let old = inode(&tiny);
    // Kept open, so that its inode number is not reused.
    let _kept = fs::File::open(&tiny).unwrap();
    wipe(&tiny);
    let report = world.make("two", &[]);
    assert_eq!(
        (&report["fetched"], &report["copied"]),
        (&1.into(), &2.into())
    );
    assert_eq!(
        report["damaged"],
        serde_json::json!([]),
        "nobody wrote to it"
    );
    assert_same(&world.path("source"), &world.path("two"));
    assert_ne!(inode(&pooled(&world, 100)), old);
    // A verification of the whole pool does not report it as written to.
    let tiny = pooled(&world, 100);
    wipe(&tiny);
    let verified = world.env.store(["pool", "verify", "--json"]);
    assert_eq!(verified.code, Some(0), "{verified}");
    let said: serde_json::Value = serde_json::from_slice(&verified.stdout).unwrap();
    assert_eq!(
        (&said["lost"], &said["damaged"]),
        (&1.into(), &serde_json::json!([]))
    );
    assert!(!tiny.exists());
    world.make("after", &[]);
    let tiny = pooled(&world, 100);
    // A file that has lost its size is not used either.
    let tiny = fs::File::options().append(true).open(&tiny).unwrap();
    let time = tiny.metadata().unwrap().modified().unwrap();
    tiny.set_len(0).unwrap();
    tiny.set_modified(time).unwrap();
    let report = world.make("three", &[]);
    assert_eq!(
        (&report["fetched"], &report["damaged"]),
        (&1.into(), &serde_json::json!([]))
    );
    assert_same(&world.path("source"), &world.path("three"));
    world.assert_sound();
}

#[test]
fn what_was_only_copied_is_built_anew_before_it_is_linked() {
    let world = World::with_tree(91);
    world.make("copied", &[]);
    let linked = world.make("linked", &["--copy-below", "0"]);
    assert_eq!(
        (&linked["linked"], &linked["fetched"]),
        (&5.into(), &1.into())
    );
    let again = world.make("again", &["--copy-below", "0"]);
    assert_eq!(
        (&again["linked"], &again["fetched"]),
        (&5.into(), &0.into())
    );
    let copied = world.make("copied-again", &[]);
    assert_eq!(
        (&copied["copied"], &copied["fetched"]),
        (&2.into(), &0.into())
    );
    for tree in ["copied", "linked", "again", "copied-again"] {
        assert_same(&world.path("source"), &world.path(tree));
    }
    world.assert_sound();
}

#[test]
fn private_copies_are_read_once_after_a_boot() {
    let world = World::with_tree(92);
    world.make("out", &[]);
    let tiny = world.path("out/sub/deep/tiny");
    wipe(&tiny);
    // Without a reboot in between, it would count as a job's edit. After one, a power cut may have lost the bytes.
    boot(&world);
    settle(&world);
    let report = world.make("out", &[]);
    assert_eq!(
        (&report["copied"], &report["unchanged"]),
        (&1.into(), &10.into())
    );
    assert_same(&world.path("source"), &world.path("out"));
}
