//! Puts of trees that share files with a pool: what somebody wrote through a link is not stored, and unchanged files
//! keep the times of their version.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use support::Finished;

use crate::world::{REF, World, set_mode};

/// Writes into the middle of a file, as root can do whatever the mode.
fn scribble(path: &Path) {
    let mut file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(1000)).unwrap();
    file.write_all(b"scribbled").unwrap();
}

fn put(world: &World, source: &str, options: &[&str]) -> Finished {
    world.env.store([&["put", source, REF], options].concat())
}

fn versions(world: &World) -> usize {
    world.env.ok(["history", "--json", REF]).lines().count()
}

fn date(path: &Path) -> SystemTime {
    let file = fs::File::open(path).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_300_000_000, 123_456_789);
    file.set_modified(time).unwrap();
    time
}

fn modified(path: &Path) -> SystemTime {
    path.metadata().unwrap().modified().unwrap()
}

#[test]
fn what_was_written_through_a_link_is_not_put_as_the_trees_own() {
    let world = World::with_tree(701);
    world.make("a", &[]);
    world.make("b", &[]);
    scribble(&world.path("a/big"));
    scribble(&world.path("a/sub/middle"));
    // Nobody touched the other job's tree itself.
    let said = put(&world, "b", &[]);
    assert_eq!(said.code, Some(4), "{said}");
    for named in ["big (shared with ", "sub/middle (shared with "] {
        assert!(said.stderr.contains(named), "{said}");
    }
    let shared = world.path("a/big").display().to_string();
    assert!(said.stderr.contains(&shared), "{said}");
    assert!(said.stderr.contains("--take-written-through"), "{said}");
    assert_eq!(versions(&world), 1);
    // The job that wrote gets the same error.
    assert_eq!(put(&world, "a", &[]).code, Some(4));
    // Also after the pool has set the inode aside.
    world.env.store(["pool", "verify"]);
    let said = put(&world, "b", &[]);
    assert_eq!(said.code, Some(4), "{said}");

    let taken = put(&world, "b", &["--take-written-through"]);
    assert_eq!(taken.code, Some(0), "{taken}");
    assert!(taken.stderr.contains("sub/middle"), "{taken}");
    assert_eq!(versions(&world), 2);
    // Files in the stat cache are checked, too.
    std::thread::sleep(Duration::from_millis(2100));
    put(&world, "b", &["--take-written-through", "--always"]);
    assert_eq!(put(&world, "b", &["--always"]).code, Some(4));
}

#[test]
fn of_many_files_that_share_what_was_written_through_a_few_are_named() {
    let world = World::with_tree(703);
    for number in 0..12 {
        world.make(&format!("tree-{number:02}"), &[]);
    }
    scribble(&world.path("tree-00/big"));
    let said = put(&world, "tree-00", &[]);
    assert_eq!(said.code, Some(4), "{said}");
    assert_eq!(said.stderr.matches("/big").count(), 10, "{said}");
    assert!(said.stderr.contains("/big and 1 more)"), "{said}");
}

#[test]
fn links_whose_bytes_are_right_and_links_of_ones_own_are_put() {
    let world = World::with_tree(702);
    world.make("a", &[]);
    set_mode(&world.path("a/big"), 0o644);
    date(&world.path("a/sub/middle"));
    fs::write(world.path("a/mine"), [7; 50_000]).unwrap();
    fs::hard_link(world.path("a/mine"), world.path("a/again")).unwrap();
    // Removed and written again: another inode.
    fs::remove_file(world.path("a/sub/deep/other")).unwrap();
    fs::write(world.path("a/sub/deep/other"), [8; 50_000]).unwrap();
    let said = put(&world, "a", &[]);
    assert_eq!(said.code, Some(0), "{said}");
    assert_eq!(versions(&world), 2);
}

#[test]
fn linked_files_keep_the_times_of_their_version() {
    let world = World::with_tree(703);
    let time = date(&world.path("source/big"));
    let other = date(&world.path("source/sub/deep/other"));
    world.put();
    world.make("made", &[]);
    assert_eq!(
        world.path("made/big").metadata().unwrap().mtime(),
        315_532_800
    );
    let said = put(&world, "made", &[]);
    assert_eq!(said.code, Some(0), "{said}");
    let text = String::from_utf8(said.stdout.clone()).unwrap();
    assert!(
        text.starts_with("project/demo/data: unchanged, still @2 (@t"),
        "{said}"
    );

    world.write("made/added", 100);
    world.write("made/sub/added", 100);
    assert_eq!(put(&world, "made", &[]).code, Some(0));
    world.env.ok(["get", REF, "got"]);
    assert_eq!(modified(&world.path("got/big")), time);
    assert_eq!(modified(&world.path("got/sub/deep/other")), other);

    // For a part of the tree, and for a tree that contains it.
    fs::create_dir(world.path("above")).unwrap();
    world.env.ok(["put", "made/sub", "project/demo/part"]);
    world.env.ok(["get", "project/demo/part", "part"]);
    assert_eq!(modified(&world.path("part/deep/other")), other);
    world.make("above/below", &[]);
    world.env.ok(["put", "above", "project/demo/above"]);
    world.env.ok(["get", "project/demo/above", "got-above"]);
    assert_eq!(modified(&world.path("got-above/below/big")), time);
}

/// The pool's record of a tree has its times, even after its version was dropped.
#[test]
fn a_tree_whose_version_is_gone_keeps_its_times() {
    let world = World::with_tree(704);
    let time = date(&world.path("source/big"));
    world.put();
    world.make("made", &[]);
    date(&world.path("source/sub/middle"));
    world.write("source/more", 100);
    fs::remove_file(world.path("source/big")).unwrap();
    world.put();
    world.env.ok(["rm", "project/demo/data@1"]);
    world.env.ok(["rm", "project/demo/data@2"]);
    let said = put(&world, "made", &[]);
    assert_eq!(said.code, Some(0), "{said}");
    assert!(!said.stderr.contains("dated 1980"), "{said}");
    world.env.ok(["get", REF, "got"]);
    assert_eq!(modified(&world.path("got/big")), time);
}
