//! Destinations that hold something precious: refused before anything is fetched, whatever the options.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use rustix::fs::{Mode, OFlags};
use support::{Finished, under};

use crate::world::{Mount, REF, World, assert_same, shell};

/// Lists everything below the root of the tests, with sizes.
fn everything(world: &World) -> String {
    shell(&format!(
        "cd '{}' && find . -mindepth 1 -printf '%P %y %s %l\\n' | LC_ALL=C sort",
        world.env.root().display()
    ))
}

/// Asserts that neither `materialize --force --exact` nor `get` changes anything.
fn untouched(world: &World, what: &str, destination: &str, says: &str) {
    let before = everything(world);
    let made: [&[&str]; 3] = [
        &["materialize", "--force", "--exact", what, destination],
        &["materialize", "--force", what, destination],
        &["get", what, destination],
    ];
    for arguments in made {
        let finished = world.env.store(arguments);
        assert_eq!(finished.code, Some(5), "{arguments:?}: {finished}");
        assert!(finished.stderr.contains(says), "{says}: {finished}");
        assert!(finished.stderr.contains("hint: "), "{finished}");
        let after = everything(world);
        assert_eq!(before, after, "{arguments:?}: {finished}");
    }
}

/// A world with a full store and pool, and a home with this program's directories.
fn settled(seed: u64) -> World {
    let world = World::with_tree(seed);
    world.make("out", &[]);
    world.env.write("home/.config/store/config.toml", "");
    world.env.write("home/.local/state/store/x", "");
    world
}

#[test]
fn what_is_precious_is_no_destination() {
    let world = settled(80);
    let root = world.env.root().display().to_string();
    world.env.ok(["init", "team/b/store"]);
    world.env.write("team/notes", "kept");
    symlink("home/.local/share", world.path("alias")).unwrap();
    symlink("home/.local/share/store", world.path("direct")).unwrap();
    let share = "home/.local/share";
    for (destination, says) in [
        ("home/.local/share/store", "is "),
        ("home/.local/share/store/", "is "),
        ("home/.local/share/store/packs/new", "lies in "),
        ("home/.local/share/store/a/b/c", "lies in "),
        (share, "holds "),
        ("alias", "holds "),
        ("alias/store", "is "),
        ("direct", "is "),
        ("source/../direct/new", "lies in "),
        ("home/.cache/store/pool", "is "),
        ("home/.cache/store/pool/files/new", "lies in "),
        ("home/.cache", "holds "),
        ("home/.config/store", "is "),
        ("home/.local/state/store/new", "lies in "),
        ("home", "holds "),
        ("team/b/store", "is a store"),
        ("team/b/store/log", "lies in a store"),
        (".", "is the directory that you are in"),
        ("source/..", "is the directory that you are in"),
        ("..", "holds "),
        (&root, "is the directory that you are in"),
        ("/", "is the root"),
    ] {
        let says = if destination == "home" { "home" } else { says };
        untouched(&world, REF, destination, says);
    }
    world.env.ok(["verify"]);
}

#[test]
fn a_directory_that_holds_a_store_is_not_forced() {
    let world = settled(81);
    world.env.ok(["init", "team/b/store"]);
    world.env.write("team/notes", "kept");
    let before = everything(&world);
    for exact in [&["--exact"][..], &[]] {
        let finished = world
            .env
            .store([&["materialize", "--force", REF, "team"], exact].concat());
        assert_eq!(finished.code, Some(5), "{finished}");
        assert!(finished.stderr.contains("holds a store, at "), "{finished}");
    }
    assert_eq!(before, everything(&world));
    // A store that a job made inside of a tree stays, also with --exact.
    world.env.ok(["init", "out/sub/mine"]);
    let finished = world.env.store(["materialize", "--exact", REF, "out"]);
    assert_eq!(finished.code, Some(5), "{finished}");
    assert!(world.path("out/sub/mine/format").exists());
    // Without --exact it stays anyway.
    world.make("out", &[]);
    assert!(world.path("out/sub/mine/format").exists());
}

/// A home is recognized by its content, whatever `$HOME` is.
#[test]
fn a_home_by_another_name_and_a_device_are_not_forced() {
    let world = settled(86);
    world.env.write("other/.ssh/key", "mine");
    for options in [&[][..], &["--force"], &["--force", "--exact"]] {
        let arguments = ["materialize", REF, "other"];
        let finished = world.env.store(arguments.iter().chain(options));
        assert_eq!(finished.code, Some(5), "{finished}");
        assert!(finished.stderr.contains("holds .ssh"), "{finished}");
        assert!(world.path("other/.ssh/key").is_file());
    }
    let pipe = world.path("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let file = format!("{REF}:big");
    for options in [&[][..], &["--force"], &["--force", "--exact"]] {
        let arguments = ["materialize", &file, "pipe"];
        let finished = world.env.store(arguments.iter().chain(options));
        assert_eq!(finished.code, Some(5), "{finished}");
        assert!(finished.stderr.contains("a device, a pipe"), "{finished}");
    }
    // The current user's home in the user list is refused before anything else is checked.
    let finished = world.env.store([
        "materialize",
        REF,
        "/root",
        "--force",
        "--exact",
        "--dry-run",
    ]);
    assert_eq!(finished.code, Some(5), "{finished}");
}

#[test]
fn a_file_never_takes_the_place_of_a_full_directory() {
    let world = settled(82);
    world.env.write("data/a", "mine");
    untouched(&world, &format!("{REF}:big"), "data", "is a directory");
    untouched(
        &world,
        &format!("{REF}:big"),
        "new/",
        "spelled as a directory",
    );
    // An empty directory may be replaced.
    fs::create_dir(world.path("empty")).unwrap();
    world
        .env
        .ok(["materialize", &format!("{REF}:big"), "empty"]);
    assert!(world.path("empty").is_file());
}

#[test]
fn what_force_takes_is_counted_first() {
    let world = settled(83);
    world.env.write("data/big", vec![1; 1500]);
    world.env.write("data/deep/mine", vec![2; 500]);
    let finished = world.env.store(["materialize", "--force", REF, "data"]);
    assert_eq!(finished.code, Some(0), "{finished}");
    assert!(
        finished.stderr.starts_with(
            "note: data: 2 files (2.00 kB) that this command did not make: those whose names the ref has are replaced"
        ),
        "{finished}"
    );
    assert!(world.path("data/deep/mine").exists());
    world.env.write("other/mine", vec![2; 500]);
    let said = world
        .env
        .ok(["materialize", "--json", "--force", "--exact", REF, "other"]);
    let report: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        report["replaced"],
        serde_json::json!({"files": 1, "bytes": 500})
    );
    assert_same(&world.path("source"), &world.path("other"));
}

#[test]
fn a_mount_point_is_filled_or_refused_before_anything_is_fetched() {
    let world = World::with_tree(84);
    let mount = Mount::new(world.path("volume"), "-t tmpfs tmpfs");
    let finished = world.env.store(["materialize", REF, "volume"]);
    assert_eq!(finished.code, Some(5), "{finished}");
    assert!(
        finished
            .stderr
            .contains("hint: name a directory in it, like volume/NAME"),
        "{finished}"
    );
    assert!(!world.pool().exists(), "not even a pool is made");
    world.env.ok(["get", REF, "volume"]);
    assert_same(&world.path("source"), &world.path("volume"));
    assert_eq!(fs::read_dir(mount.path("")).unwrap().count(), 6);
    // It is not empty any more.
    let finished = world.env.store(["get", REF, "volume"]);
    assert_eq!(finished.code, Some(5), "{finished}");
    assert_same(&world.path("source"), &world.path("volume"));
}

#[test]
fn what_is_mounted_below_a_destination_is_not_forced_away() {
    let world = World::with_tree(85);
    world.env.write("data/mine", "mine");
    let mount = Mount::new(world.path("data/volume"), "-t tmpfs tmpfs");
    fs::write(mount.path("kept"), "kept").unwrap();
    for exact in [&["--exact"][..], &[]] {
        let finished = world
            .env
            .store([&["materialize", "--force", REF, "data"], exact].concat());
        assert_eq!(finished.code, Some(5), "{finished}");
        assert!(
            finished.stderr.contains("holds something that is mounted"),
            "{finished}"
        );
    }
    assert_eq!(fs::read_to_string(mount.path("kept")).unwrap(), "kept");
    assert!(world.path("data/mine").exists());
}

fn get_in(world: &World, dir: &Path, what: &str, destination: &str) -> Finished {
    let mut command = world.env.command(["get", what, destination]);
    command.current_dir(dir).output().unwrap().into()
}

#[test]
fn the_directory_that_one_is_in_is_filled_where_it_is_empty() {
    let world = World::with_tree(86);
    let here = world.path("here");
    fs::create_dir(&here).unwrap();
    let finished = get_in(&world, &here, REF, ".");
    assert_eq!(finished.code, Some(0), "{finished}");
    assert_same(&world.path("source"), &here);
    let finished = get_in(&world, &here, REF, ".");
    assert_eq!(finished.code, Some(5), "{finished}");
    let finished = get_in(&world, &here, &format!("{REF}:big"), ".");
    assert_eq!(finished.code, Some(5), "{finished}");
    assert_same(&world.path("source"), &here);
    world.env.ok(["get", REF, "z/."]);
    assert_same(&world.path("source"), &world.path("z"));
    world.env.ok(["get", REF, "deep/er/"]);
    assert_same(&world.path("source"), &world.path("deep/er"));
}

#[test]
fn globs_that_leave_nothing_are_a_mistake() {
    let world = World::with_tree(88);
    for verb in ["get", "materialize"] {
        for globs in [&["--include", "nothing*"][..], &["--exclude", "*"]] {
            let finished = world.env.store([&[verb, REF, "none"], globs].concat());
            assert_eq!(finished.code, Some(2), "{finished}");
            assert!(
                finished.stderr.contains("leaves no file of it"),
                "{finished}"
            );
            assert!(!world.path("none").exists());
        }
        let some = format!("some-{verb}");
        world.env.ok([verb, "--include", "sub/deep/", REF, &some]);
        let listed = shell(&format!(
            "cd '{}' && find . | LC_ALL=C sort",
            world.path(&some).display()
        ));
        assert_eq!(
            listed,
            ".\n./sub\n./sub/deep\n./sub/deep/other\n./sub/deep/tiny\n./sub/deep/up\n"
        );
    }
    world.env.ok(["get", "--exclude", "deep/", REF, "without"]);
    assert!(!world.path("without/sub/deep").exists());
    assert!(world.path("without/sub/middle").exists());
}

#[test]
fn a_snapshot_is_got_as_files() {
    let world = World::new(89);
    let repo = "source/models--a--b";
    world.write(&format!("{repo}/blobs/1111"), 100_000);
    world.write(&format!("{repo}/blobs/2222"), 300);
    let snapshot = format!("{repo}/snapshots/0123");
    fs::create_dir_all(world.path(&format!("{snapshot}/onnx"))).unwrap();
    for (target, at) in [
        ("../../blobs/2222", "config.json"),
        ("../../../blobs/1111", "onnx/model"),
        ("onnx", "also"),
    ] {
        symlink(target, world.path(&snapshot).join(at)).unwrap();
    }
    world.env.ok(["put", "--profile", "none", "source", REF]);
    let snapshot_ref = format!("{REF}:models--a--b/snapshots/0123");
    let finished = world.env.store(["get", &snapshot_ref, "links"]);
    assert_eq!(finished.code, Some(0), "{finished}");
    assert_eq!(
        finished.stderr,
        "note: 2 of 3 symlinks lead to nothing that is there: links/config.json, links/onnx/model; \
         --flatten makes real files of links that lead into the ref\n"
    );
    world.env.ok(["get", "--flatten", &snapshot_ref, "flat"]);
    let by_link = format!("{REF}:models--a--b/snapshots/0123/also");
    world.env.ok(["get", "--flatten", &by_link, "one"]);
    shell(&format!(
        "diff -r '{0}' '{1}' && test -z \"$(find '{1}' -type l)\" && diff -r '{0}/onnx' '{2}'",
        world.path(&snapshot).display(),
        world.path("flat").display(),
        world.path("one").display()
    ));
    let said = world
        .env
        .ok(["get", "--json", "--flatten", &snapshot_ref, "json"]);
    assert!(said.contains("\"dangling\":0"), "{said}");
}

#[test]
fn links_that_double_level_by_level_are_not_flattened_for_ever() {
    let world = World::new(90);
    for level in 0..20 {
        let dir = world.path(&format!("source/{level}"));
        fs::create_dir_all(&dir).unwrap();
        for name in ["a", "b"] {
            symlink(format!("../{}", level + 1), dir.join(name)).unwrap();
        }
    }
    world.env.write("source/20/file", "x");
    world.put();
    for verb in ["get", "materialize"] {
        let finished = world.env.store([verb, "--flatten", REF, "flat"]);
        assert_eq!(finished.code, Some(2), "{verb}: {finished}");
        assert!(
            finished.stderr.contains("would become more than"),
            "{verb}: {finished}"
        );
        assert!(!world.path("flat").exists());
    }
}

#[test]
fn many_files_with_holes_need_few_descriptors() {
    let world = World::new(91);
    for number in 0..300 {
        let mut bytes = vec![0; 256 << 10];
        bytes.extend(format!("{number:0600}").bytes());
        world.env.write(format!("source/{number}"), bytes);
    }
    world.put();
    let get = world.env.command(["get", REF, "out"]);
    let mut limited = under("prlimit", ["--nofile=100:100"], &get);
    let finished = Finished::from(limited.output().unwrap());
    assert_eq!(finished.code, Some(0), "{finished}");
    assert_same(&world.path("source"), &world.path("out"));
}

/// The directory this many levels below `root`, created if missing.
fn descend(root: &Path, depth: usize) -> OwnedFd {
    let mut dir = OwnedFd::from(fs::File::open(root).unwrap());
    for _ in 0..depth {
        let _is_there = rustix::fs::mkdirat(&dir, "d", Mode::from(0o755));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        dir = rustix::fs::openat(&dir, "d", flags, Mode::empty()).unwrap();
    }
    dir
}

#[test]
fn a_deep_directory_of_which_nothing_is_wanted_needs_no_stack() {
    let world = World::new(94);
    world.env.write("source/keep/end", "kept");
    drop(descend(&world.path("source"), 3900));
    let put = world.env.store(["put", "source", REF]);
    assert_eq!(put.code, Some(0), "{put}");
    let made = world
        .env
        .command(["materialize", "--include", "end", REF, "out"]);
    let mut limited = under("prlimit", ["--stack=2097152"], &made);
    let finished = Finished::from(limited.output().unwrap());
    assert_eq!(finished.code, Some(0), "{finished}");
    assert_eq!(
        shell(&format!("ls '{}'", world.path("out").display())),
        "keep\n"
    );
}

#[test]
fn a_path_longer_than_the_system_takes_comes_and_goes() {
    let world = World::new(92);
    world.write("source/file", 1000);
    let end = descend(&world.path("source"), 2200);
    drop(
        rustix::fs::openat(
            &end,
            "end",
            OFlags::CREATE | OFlags::WRONLY,
            Mode::from(0o644),
        )
        .unwrap(),
    );
    let put = world.env.store(["put", "source", REF]);
    assert_eq!(put.code, Some(0), "{put}");
    assert!(
        put.stderr
            .contains("note: 153 paths are longer than the 4,096 bytes"),
        "{put}"
    );
    world.env.ok(["get", REF, "out"]);
    let end = descend(&world.path("out"), 2200);
    rustix::fs::statat(&end, "end", rustix::fs::AtFlags::empty()).unwrap();
    let count = |root: &str| {
        shell(&format!(
            "find '{}' -type d -printf x | wc -c",
            world.path(root).display()
        ))
    };
    assert_eq!(count("source"), count("out"));
    assert_eq!(count("out").trim(), "2201");
    // The error about such a path is one short line.
    let finished = world.env.store(["get", REF, "out"]);
    assert_eq!(finished.code, Some(5), "{finished}");
    assert!(finished.stderr.len() < 1000, "{finished}");
    // The removal of the temporary directory cannot handle such a path.
    shell(&format!(
        "rm -rf '{}' '{}'",
        world.path("source").display(),
        world.path("out").display()
    ));
}
