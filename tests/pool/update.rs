//! The same destination again: it gets the newest version, a job's files stay, and readers keep their bytes.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;

use support::{Finished, under};

use crate::world::{REF, World, assert_same, conflicting, inode};

#[test]
fn the_same_again_changes_nothing() {
    let world = World::with_tree(10);
    world.make("out", &[]);
    let before = [
        inode(&world.path("out")),
        inode(&world.path("out/sub/deep/tiny")),
    ];
    let report = world.make("out", &[]);
    let changed =
        ["linked", "copied", "fetched", "removed"].map(|what| report[what].as_u64().unwrap());
    assert_eq!(changed, [0; 4]);
    assert_eq!(
        before,
        [
            inode(&world.path("out")),
            inode(&world.path("out/sub/deep/tiny"))
        ]
    );
    assert_same(&world.path("source"), &world.path("out"));
}

/// Some file systems cannot rename without replacing.
#[test]
fn a_new_version_comes_where_every_rename_replaces() {
    let world = World::with_tree(13);
    world.make("out", &[]);
    world.write("source/new", 50_000);
    world.write("source/sub/other", 500);
    world.put();
    let plain = world.quiet(&["materialize", REF, "out"]);
    let fault = "inject=renameat2:error=EINVAL";
    let words = [
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        "trace=renameat2",
        "-e",
        fault,
    ];
    assert!(under("strace", words, &plain).status().unwrap().success());
    assert_same(&world.path("source"), &world.path("out"));
}

#[test]
fn a_new_version_comes_file_by_file_under_open_readers() {
    let world = World::with_tree(11);
    world.make("out", &[]);
    fs::write(world.path("out/sub/mine"), "a job's own").unwrap();
    let old = fs::read(world.path("source/big")).unwrap();
    let mut reader = File::open(world.path("out/big")).unwrap();
    world.write("source/big", 2_000_000);
    world.write("source/sub/deep/tiny", 100);
    world.write("source/new/file", 50_000);
    fs::remove_dir_all(world.path("source/hollow")).unwrap();
    fs::remove_file(world.path("source/sub/middle")).unwrap();
    fs::remove_file(world.path("source/link")).unwrap();
    std::os::unix::fs::symlink("exe", world.path("source/link")).unwrap();
    world.put();
    let kept = inode(&world.path("out/sub/deep/other"));
    let report = world.make("out", &[]);
    assert_eq!(
        (&report["version"], &report["removed"]),
        (&2.into(), &2.into())
    );
    let mut seen = Vec::new();
    reader.read_to_end(&mut seen).unwrap();
    assert_eq!(seen, old, "an open file keeps its bytes");
    assert_eq!(
        fs::read(world.path("out/sub/mine")).unwrap(),
        b"a job's own"
    );
    assert_eq!(inode(&world.path("out/sub/deep/other")), kept);
    fs::remove_file(world.path("out/sub/mine")).unwrap();
    world.make("out", &[]);
    assert_same(&world.path("source"), &world.path("out"));
    world.assert_sound();
}

#[test]
fn kinds_may_change_between_versions() {
    let world = World::with_tree(12);
    world.make("out", &[]);
    for (name, below) in [
        ("sub/deep", None),
        ("exe", Some("exe/now/a/dir")),
        ("link", Some("link")),
    ] {
        let path = world.path("source").join(name);
        if path.is_dir() && !path.is_symlink() {
            fs::remove_dir_all(&path).unwrap();
        } else {
            fs::remove_file(&path).unwrap();
        }
        world.write(&format!("source/{}", below.unwrap_or(name)), 30_000);
    }
    world.put();
    world.make("out", &[]);
    assert_same(&world.path("source"), &world.path("out"));
    // And back to the old version.
    world.env.ok(["materialize", "project/demo/data@1", "out"]);
    world
        .env
        .ok(["materialize", "project/demo/data@1", "fresh"]);
    assert_same(&world.path("fresh"), &world.path("out"));
}

#[test]
fn what_a_job_made_in_the_way_is_kept_and_named() {
    let world = World::with_tree(13);
    world.make("out", &[]);
    fs::create_dir(world.path("out/later")).unwrap();
    fs::write(world.path("out/later/mine"), "a job's own").unwrap();
    fs::write(world.path("out/also"), "a job's own").unwrap();
    world.write("source/later", 40_000);
    world.write("source/also", 40_000);
    world.put();
    world.write("source/sub/more", 40_000);
    world.put();
    let report = world.partly(REF, "out", &[]);
    let named = |path: &str| (path.to_owned(), "in-the-way".to_owned());
    assert_eq!(conflicting(&report), [named("also"), named("later")]);
    assert!(world.path("out/sub/more").exists(), "the rest came");
    for name in ["out/later/mine", "out/also"] {
        assert_eq!(fs::read(world.path(name)).unwrap(), b"a job's own");
    }
    world.make("out", &["--force"]);
    assert_same(&world.path("source"), &world.path("out"));
}

#[test]
fn exact_removes_what_a_job_added() {
    let world = World::with_tree(14);
    world.make("out", &[]);
    fs::create_dir(world.path("out/sub/mine")).unwrap();
    fs::write(world.path("out/sub/mine/file"), "a job's own").unwrap();
    world.make("out", &[]);
    assert!(world.path("out/sub/mine/file").exists());
    world.make("out", &["--exact"]);
    assert_same(&world.path("source"), &world.path("out"));
}

#[test]
fn edited_copies_stay_and_are_named() {
    let world = World::with_tree(15);
    world.make("out", &[]);
    let tiny = world.path("out/sub/deep/tiny");
    let (mtime, size) = {
        let made = fs::metadata(&tiny).unwrap();
        (
            made.modified().unwrap(),
            usize::try_from(made.len()).unwrap(),
        )
    };
    let deep = [("sub/deep/tiny".to_owned(), "changed".to_owned())];
    // Another size; the same size; the same size with the old time.
    for (bytes, time) in [(6, None), (size, None), (size, Some(mtime))] {
        fs::write(&tiny, vec![b'e'; bytes]).unwrap();
        if let Some(time) = time {
            File::options()
                .write(true)
                .open(&tiny)
                .unwrap()
                .set_modified(time)
                .unwrap();
        }
        for _ in 0..2 {
            assert_eq!(conflicting(&world.partly(REF, "out", &[])), deep);
            assert_eq!(fs::read(&tiny).unwrap(), vec![b'e'; bytes]);
        }
        assert_eq!(world.make("out", &["--force"])["updated"], 1);
        assert_same(&world.path("source"), &world.path("out"));
    }
    // With its old bytes, it does not count as an edit.
    let bytes = fs::read(&tiny).unwrap();
    fs::write(&tiny, "edited").unwrap();
    world.partly(REF, "out", &[]);
    fs::write(&tiny, bytes).unwrap();
    world.make("out", &[]);
    assert_same(&world.path("source"), &world.path("out"));
}

/// A separate file that looks like the pool's and has its bytes: nothing is lost, and it becomes a link again.
#[test]
fn a_copy_that_looks_like_the_pools_file_becomes_a_link_again() {
    let world = World::with_tree(26);
    world.make("out", &[]);
    let big = world.path("out/big");
    let made = fs::metadata(&big).unwrap();
    let bytes = fs::read(&big).unwrap();
    fs::remove_file(&big).unwrap();
    fs::write(&big, bytes).unwrap();
    let file = File::open(&big).unwrap();
    file.set_modified(made.modified().unwrap()).unwrap();
    file.set_permissions(made.permissions()).unwrap();
    let report = world.make("out", &[]);
    assert_eq!(report["conflicts"], 0, "{report}");
    assert_same(&world.path("source"), &world.path("out"));
    let again = fs::metadata(&big).unwrap();
    assert_eq!((again.ino(), again.nlink()), (made.ino(), 2));
}

#[test]
fn what_a_job_deleted_stays_away_and_is_named() {
    let world = World::with_tree(19);
    world.make("out", &[]);
    fs::remove_file(world.path("out/big")).unwrap();
    fs::remove_dir_all(world.path("out/sub/deep")).unwrap();
    let deleted = |path: &str| (path.to_owned(), "deleted".to_owned());
    for _ in 0..2 {
        let report = world.partly(REF, "out", &[]);
        assert_eq!(conflicting(&report), [deleted("big"), deleted("sub/deep")]);
    }
    world.write("source/sub/deep/other", 90_000);
    world.put();
    assert_eq!(conflicting(&world.partly(REF, "out", &[])).len(), 2);
    assert!(!world.path("out/big").exists() && !world.path("out/sub/deep").exists());
    world.make("out", &["--force"]);
    assert_same(&world.path("source"), &world.path("out"));
}

#[test]
fn a_file_that_a_job_edited_stays_as_a_destination_too() {
    let world = World::with_tree(25);
    let tiny = "project/demo/data:sub/deep/tiny";
    world.env.ok(["materialize", tiny, "alone"]);
    fs::write(world.path("alone"), "edited").unwrap();
    let report = world.partly(tiny, "alone", &[]);
    assert_eq!(
        conflicting(&report),
        [(String::new(), "changed".to_owned())]
    );
    assert_eq!(fs::read(world.path("alone")).unwrap(), b"edited");
    // A dry run reports the same, and what would happen to it.
    let plan = world.partly(tiny, "alone", &["--dry-run"]);
    assert_eq!(plan["steps"][0]["verb"], "keep", "{plan}");
    let forced = [
        "materialize",
        "--dry-run",
        "--force",
        "--json",
        tiny,
        "alone",
    ];
    let plan: serde_json::Value = serde_json::from_str(&world.env.ok(forced)).unwrap();
    assert_ne!(plan["steps"][0]["verb"], "keep", "{plan}");
    assert_eq!(fs::read(world.path("alone")).unwrap(), b"edited");
    world.env.ok(["materialize", "--force", tiny, "alone"]);
    let bytes = |path: &str| fs::read(world.path(path)).unwrap();
    assert_eq!(bytes("alone"), bytes("source/sub/deep/tiny"));
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&world.env.ok([
            "materialize",
            "--json",
            tiny,
            "alone"
        ]))
        .unwrap()["unchanged"],
        1
    );
}

#[test]
fn a_tree_takes_the_place_of_a_file_by_force_and_a_file_that_of_none() {
    let world = World::with_tree(27);
    let big = "project/demo/data:big";
    world.env.ok(["materialize", big, "out"]);
    let refused = world.env.store(["materialize", REF, "out"]);
    assert_eq!(refused.code, Some(5), "{refused}");
    assert!(
        refused.stderr.contains("is a file, the ref is none"),
        "{refused}"
    );
    assert!(fs::read(world.path("out")).unwrap() == fs::read(world.path("source/big")).unwrap());
    world.env.ok(["materialize", "--force", REF, "out"]);
    assert_same(&world.path("source"), &world.path("out"));
    for force in [&[][..], &["--force"]] {
        let refused = world
            .env
            .store([&["materialize", big, "out"], force].concat());
        assert_eq!(refused.code, Some(5), "{refused}");
        assert_same(&world.path("source"), &world.path("out"));
    }
    world.assert_sound();
}

#[test]
fn another_content_with_the_same_size_and_time_is_seen() {
    let world = World::with_tree(16);
    let touch = || {
        crate::world::shell(&format!(
            "touch -d 2000-01-01 '{}'",
            world.path("source/sub/deep/tiny").display()
        ))
    };
    touch();
    world.put();
    world.make("out", &[]);
    world.write("source/sub/deep/tiny", 100);
    touch();
    world.put();
    world.make("out", &[]);
    assert_same(&world.path("source"), &world.path("out"));
}

#[test]
fn a_destination_of_somebody_else_is_refused() {
    let world = World::with_tree(17);
    fs::create_dir(world.path("out")).unwrap();
    fs::write(world.path("out/mine"), "mine").unwrap();
    let refused = world.env.store(["materialize", REF, "out"]);
    assert_eq!(refused.code, Some(5), "{refused}");
    assert!(
        refused
            .stderr
            .contains("was not materialized with the pool"),
        "{refused}"
    );
    world.make("out", &["--force"]);
    assert_eq!(fs::read(world.path("out/mine")).unwrap(), b"mine");
    world.make("out", &["--exact"]);
    assert_same(&world.path("source"), &world.path("out"));
    // Another directory at the same path: the mark does not apply.
    fs::remove_dir_all(world.path("out")).unwrap();
    fs::create_dir(world.path("out")).unwrap();
    fs::write(world.path("out/mine"), "mine").unwrap();
    assert_eq!(world.env.store(["materialize", REF, "out"]).code, Some(5));
    // An empty directory may be used.
    fs::create_dir(world.path("empty")).unwrap();
    world.make("empty", &[]);
    assert_same(&world.path("source"), &world.path("empty"));
}

#[test]
fn a_tree_can_end_with_its_process() {
    let world = World::with_tree(18);
    let mut child = world
        .env
        .command(["materialize", "--ephemeral", REF, "out"]);
    child
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped());
    let mut held = child.spawn().unwrap();
    let mut line = [0; 1];
    held.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
    assert_same(&world.path("source"), &world.path("out"));
    drop(held.stdin.take());
    assert!(held.wait().unwrap().success());
    assert!(!world.path("out").exists());
    let mut killed = child.spawn().unwrap();
    killed
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut line)
        .unwrap();
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(world.path("out/big").exists());
    world.env.ok(["pool", "status"]);
    assert!(
        !world.path("out").exists(),
        "the next command that uses the pool removes it"
    );
    world.assert_sound();
}

#[test]
fn an_empty_working_directory_is_filled_from_inside_and_kept_up_to_date() {
    let world = World::with_tree(89);
    let dir = world.path("work");
    fs::create_dir(&dir).unwrap();
    let inode = fs::metadata(&dir).unwrap().ino();
    let run = |destination: &str, options: &[&str]| {
        let arguments = [&["materialize", REF, destination], options].concat();
        let mut command = world.env.command(arguments);
        Finished::from(command.current_dir(&dir).output().unwrap())
    };
    for (destination, options) in [
        (".", &["--dry-run"][..]),
        (".", &[]),
        ("../work", &[]),
        (dir.to_str().unwrap(), &["--exact"]),
    ] {
        let finished = run(destination, options);
        assert_eq!(finished.code, Some(0), "{destination}: {finished}");
        match options {
            ["--dry-run"] => assert_eq!(fs::read_dir(&dir).unwrap().count(), 0),
            _ => assert_same(&world.path("source"), &dir),
        }
    }
    fs::write(dir.join("mine"), "a job's").unwrap();
    world.write("source/big", 2_000_000);
    world.put();
    let finished = run(".", &[]);
    assert_eq!(finished.code, Some(0), "{finished}");
    assert_eq!(fs::read(dir.join("mine")).unwrap(), b"a job's");
    fs::remove_file(dir.join("mine")).unwrap();
    assert_eq!(run(".", &["--exact"]).code, Some(0));
    assert_same(&world.path("source"), &dir);
    assert_eq!(fs::metadata(&dir).unwrap().ino(), inode);
    world.assert_sound();
}

#[test]
fn get_and_materialize_take_the_same_of_a_tree() {
    let world = World::with_tree(90);
    fs::create_dir_all(world.path("source/sub/deep/none")).unwrap();
    world.put();
    for (number, options) in [
        &["--include", "none"][..],
        &["--include", "none", "--include", "exe"],
        &["--include", "sub/"],
        &["--exclude", "deep/"],
        &["--include", "*e", "--exclude", "/sub/deep/none"],
    ]
    .into_iter()
    .enumerate()
    {
        let (got, made) = (format!("got-{number}"), format!("made-{number}"));
        world.env.ok([&["get", REF, &got], options].concat());
        world
            .env
            .ok([&["materialize", REF, &made], options].concat());
        assert_same(&world.path(&got), &world.path(&made));
    }
    assert!(world.path("got-0/sub/deep/none").is_dir());
}

#[test]
fn a_symlink_alone_is_made_and_found_again() {
    let world = World::with_tree(91);
    let link = format!("{REF}:link");
    for _ in 0..2 {
        world
            .env
            .ok(["materialize", &link, "out", "--allow-outside-symlinks"]);
        assert_eq!(
            fs::read_link(world.path("out")).unwrap().to_str(),
            Some("sub/middle")
        );
    }
}
