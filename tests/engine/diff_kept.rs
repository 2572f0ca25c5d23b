//! How a diff shows what two versions keep beside their trees.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use rustix::fs::XattrFlags;
use store::Keep;
use store::WalkOptions;
use store::inspect::{Aspect, Difference, Event, KeptChange, diff, diff_with_directory};
use store::read::Reader;
use store::remote::Prune;
use support::trees;

use crate::modes::{REF, put_keeping};
use crate::stores::spec;
use crate::world::World;

const KEEP: [Keep; 2] = [Keep::Modes, Keep::Xattrs];
/// More entries than a diff compares at once.
const MANY: usize = 1500;

fn world() -> World {
    let world = World::new();
    let tree = world.tree("in");
    for number in 0..MANY {
        trees::write(&tree.join(format!("many/{}/{number:04}", number % 3)), b"1");
    }
    trees::write(&tree.join("same/deep/file"), b"bytes");
    trees::write(&tree.join("same/deep/other"), b"bytes");
    trees::write(&tree.join("z"), b"bytes");
    world
}

fn set_mode(world: &World, path: &str, mode: u32) {
    fs::set_permissions(world.tree("in").join(path), Permissions::from_mode(mode)).unwrap();
}

/// Each difference between two refs, or a ref and a directory that begins with `./`: its path and its aspects.
fn told(world: &World, remote: &Arc<dyn Prune>, before: &str, after: &str) -> Vec<String> {
    let store = world.open(remote.clone()).unwrap();
    let reader = Reader::new(&store).unwrap();
    let mut all = Vec::new();
    let each: &mut dyn FnMut(Event) -> store::Result<()> = &mut |event| {
        let how = match event.difference {
            Difference::Changed { aspects, kept, .. } => {
                let of_kept: Vec<Aspect> = kept.iter().map(Aspect::from).collect();
                assert!(aspects.ends_with(&of_kept) && !aspects.is_empty());
                format!("{aspects:?}")
            }
            Difference::Added(_) => "+".to_owned(),
            Difference::Removed(_) => "-".to_owned(),
        };
        all.push(format!("{} {how}", String::from_utf8(event.path).unwrap()));
        Ok(())
    };
    let count = match after.strip_prefix("./") {
        None => diff(&reader, &spec(before), &spec(after), each),
        Some(dir) => {
            let dir = world.tree(dir);
            diff_with_directory(&reader, &spec(before), &dir, WalkOptions::default(), each)
        }
    };
    assert_eq!(count.unwrap(), all.len() as u64);
    assert!(store.warnings().is_empty(), "{:?}", store.warnings());
    all
}

#[test]
fn what_was_kept_otherwise_is_told_also_where_the_trees_are_the_same() {
    let world = world();
    let remote = world.memory();
    put_keeping(&world, &remote, &[]);
    put_keeping(&world, &remote, &KEEP);
    set_mode(&world, "same/deep/other", 0o600);
    set_mode(&world, "same", 0o700);
    let file = world.tree("in/same/deep/file");
    rustix::fs::setxattr(&file, "user.a", b"1", XattrFlags::empty()).unwrap();
    put_keeping(&world, &remote, &KEEP);
    let at = |number: u64, path: &str| format!("{REF}@{number}{path}");
    let expected = [
        "same [Modes]",
        "same/deep/file [Xattrs]",
        "same/deep/other [Modes]",
    ];
    assert_eq!(told(&world, &remote, &at(2, ""), &at(3, "")), expected);
    let expected = ["file [Xattrs]", "other [Modes]"];
    let found = told(&world, &remote, &at(2, ":same/deep"), &at(3, ":same/deep"));
    assert_eq!(found, expected);
    for (before, after) in [(1, 2), (1, 3), (3, 1), (3, 3)] {
        let found = told(&world, &remote, &at(before, ""), &at(after, ""));
        assert!(found.is_empty(), "{before} and {after}: {found:?}");
    }
}

/// Added and removed entries shift all others in the lists.
#[test]
fn what_is_on_one_side_only_moves_nothing_that_was_kept() {
    let world = world();
    let remote = world.memory();
    put_keeping(&world, &remote, &KEEP);
    trees::write(&world.tree("in/a/new/file"), b"new");
    fs::remove_dir_all(world.tree("in/many/1")).unwrap();
    trees::write(&world.tree("in/many/1"), b"a file");
    set_mode(&world, "many/1", 0o600);
    fs::write(world.tree("in/same/deep/other"), b"other").unwrap();
    set_mode(&world, "same/deep/other", 0o640);
    set_mode(&world, "z", 0o600);
    put_keeping(&world, &remote, &KEEP);
    let mut found = told(&world, &remote, &format!("{REF}@1"), REF);
    found.retain(|line| !line.ends_with(" -"));
    let expected = [
        "a +",
        "a/new +",
        "a/new/file +",
        "many/1 [Kind]",
        "same/deep/other [Content, Modes]",
        "z [Modes]",
    ];
    assert_eq!(found, expected);
}

#[test]
fn of_many_that_differ_each_is_told() {
    let world = world();
    let remote = world.memory();
    put_keeping(&world, &remote, &KEEP);
    for number in 0..MANY {
        set_mode(&world, &format!("many/{}/{number:04}", number % 3), 0o600);
    }
    set_mode(&world, "z", 0o600);
    put_keeping(&world, &remote, &KEEP);
    let found = told(&world, &remote, &format!("{REF}@1"), REF);
    assert_eq!(found.len(), MANY + 1);
    assert_eq!(found[0], "many/0/0000 [Modes]");
    assert_eq!(found[MANY - 1], format!("many/2/{:04} [Modes]", MANY - 1));
    assert_eq!(found[MANY], "z [Modes]");
}

#[test]
fn owners_and_attributes_are_told_as_they_are() {
    let store_of = |text: &str| text.as_bytes().to_vec();
    let world = world();
    let remote = world.memory();
    let file = world.tree("in/z");
    let set = |name: &str, value: &[u8]| {
        rustix::fs::setxattr(&file, name, value, XattrFlags::empty()).unwrap();
    };
    set("user.same", b"1");
    set("user.goes", b"1");
    set("user.other", b"1");
    put_keeping(&world, &remote, &Keep::ALL);
    rustix::fs::removexattr(&file, "user.goes").unwrap();
    set("user.other", b"2");
    set("user.new", b"1");
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        std::os::unix::fs::chown(&file, Some(1234), Some(4321)).unwrap();
    }
    put_keeping(&world, &remote, &Keep::ALL);
    let store = world.open(remote.clone()).unwrap();
    let reader = Reader::new(&store).unwrap();
    let mut found = Vec::new();
    let (before, after) = (spec(&format!("{REF}@1:z")), spec(&format!("{REF}:z")));
    diff(&reader, &before, &after, &mut |event| {
        if let Difference::Changed { kept, .. } = event.difference {
            found.extend(kept);
        }
        Ok(())
    })
    .unwrap();
    let xattrs = KeptChange::Xattrs {
        before: ["user.goes", "user.other"].map(store_of).to_vec(),
        after: ["user.new", "user.other"].map(store_of).to_vec(),
    };
    let owner = KeptChange::Owner {
        before: (0, 0),
        after: (1234, 4321),
    };
    let expected = [is_root.then_some(owner), Some(xattrs)];
    assert_eq!(found, Vec::from_iter(expected.into_iter().flatten()));
}

#[test]
fn a_directory_is_compared_with_what_a_version_kept() {
    let world = world();
    let remote = world.memory();
    put_keeping(&world, &remote, &[]);
    put_keeping(&world, &remote, &Keep::ALL);
    assert!(told(&world, &remote, REF, "./in").is_empty());
    set_mode(&world, "same/deep/other", 0o600);
    set_mode(&world, "same", 0o700);
    for path in ["in/same/deep/file", "in/many/1"] {
        rustix::fs::setxattr(world.tree(path), "user.a", b"1", XattrFlags::empty()).unwrap();
    }
    // Entries on one side only move nothing that was kept.
    trees::write(&world.tree("in/a/new"), b"new");
    fs::remove_dir_all(world.tree("in/many/0")).unwrap();
    fs::remove_file(world.tree("in/z")).unwrap();
    std::os::unix::fs::symlink("same", world.tree("in/z")).unwrap();
    let mut expected = vec!["a +", "a/new +"];
    let mut found = told(&world, &remote, REF, "./in");
    found.retain(|line| !line.starts_with("many/0"));
    expected.extend([
        "many/1 [Xattrs]",
        "same [Modes]",
        "same/deep/file [Xattrs]",
        "same/deep/other [Modes]",
        "z [Kind]",
    ]);
    assert_eq!(found, expected);
    let found = told(
        &world,
        &remote,
        &format!("{REF}:same/deep"),
        "./in/same/deep",
    );
    assert_eq!(found, ["file [Xattrs]", "other [Modes]"]);
    // A version that kept nothing has nothing to compare with.
    let found = told(&world, &remote, &format!("{REF}@1:same"), "./in/same");
    assert!(found.is_empty(), "{found:?}");
}
