//! What is kept beside a tree stays beside it when single files are added, changed and removed.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use rustix::fs::XattrFlags;
use store::check::ReadData;
use store::remote::Prune;
use store::{EditRequest, Keep, edit};
use support::trees;

use crate::damaged::verify_target;
use crate::modes::{REF, get_keeping, put_keeping};
use crate::stores::name;
use crate::world::World;

const FILES: [&str; 6] = [
    "a/first",
    "a/second",
    "b/dir/deep",
    "b/gone/1",
    "b/gone/2",
    "c",
];
/// All entries in depth-first order.
const ENTRIES: [&str; 11] = [
    "",
    "a",
    "a/first",
    "a/second",
    "b",
    "b/dir",
    "b/dir/deep",
    "b/gone",
    "b/gone/1",
    "b/gone/2",
    "c",
];

/// Adds, changes and removes files as a door does: bytes and names, nothing else.
fn change(world: &World, remote: &Arc<dyn Prune>, changes: &[(&str, Option<&[u8]>)]) {
    let request = EditRequest {
        target: name(REF),
        onto: None,
        message: String::new(),
        expires: None,
        time: Timestamp::UNIX_EPOCH,
    };
    let store = world.open(remote.clone()).unwrap();
    edit(&store, &request, |edit| {
        for (path, bytes) in changes {
            let Some(bytes) = bytes else {
                edit.remove(path.as_bytes())?;
                continue;
            };
            let mut file = edit.arriving(None);
            file.push(edit, bytes)?;
            let content = file.finish(edit)?;
            edit.add(path.as_bytes(), content)?;
        }
        Ok(())
    })
    .unwrap();
}

/// A tree in which every entry has other modes, owners and attributes.
fn write_tree(tree: &Path) {
    for path in FILES {
        trees::write(&tree.join(path), b"bytes");
        let mark = path.replace('/', " ");
        let set = XattrFlags::empty();
        rustix::fs::setxattr(tree.join(path), "user.mark", mark.as_bytes(), set).unwrap();
    }
    for (at, path) in (0..).zip(ENTRIES) {
        if is_root() {
            lchown(tree.join(path), Some(1000 + at), Some(2000 + at)).unwrap();
        }
        fs::set_permissions(tree.join(path), Permissions::from_mode(0o700 + at)).unwrap();
    }
}

/// Mode, owner and mark of an entry.
fn seen(path: &Path) -> (u32, (u32, u32), String) {
    let found = fs::symlink_metadata(path).unwrap();
    let mut mark = [0; 64];
    let len = rustix::fs::getxattr(path, "user.mark", &mut mark[..]).unwrap_or(0);
    let mark = String::from_utf8_lossy(&mark[..len]).into_owned();
    let owner = match is_root() {
        true => (found.uid(), found.gid()),
        false => (0, 0),
    };
    (found.mode() & 0o7777, owner, mark)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn an_edit_leaves_what_is_kept_of_all_entries_that_stay() {
    let world = World::new();
    let remote = world.memory();
    write_tree(&world.tree("in"));
    put_keeping(&world, &remote, &Keep::ALL);
    change(
        &world,
        &remote,
        &[
            ("a/second", Some(b"other bytes")),
            ("a/third", Some(b"new")),
            ("b/gone", None),
            ("b/dir", None),
            ("b/dir/deep", Some(b"made again")),
            ("c", None),
            ("c/was a file", Some(b"new")),
            ("d/new/dir", Some(b"new")),
        ],
    );
    let store = world.open(remote.clone()).unwrap();
    let report = verify_target(&store, ReadData::Everything, None).unwrap();
    assert!(report.hits.is_empty(), "{report:?}");
    get_keeping(&world, &remote, &Keep::ALL, REF, "out").unwrap();
    let out = world.tree("out");
    let owner = |at: u32| {
        if is_root() {
            (1000 + at, 2000 + at)
        } else {
            (0, 0)
        }
    };
    for (path, at, mark) in [
        ("", 0, ""),
        ("a", 1, ""),
        ("a/first", 2, "a first"),
        ("a/second", 3, "a second"),
        ("b", 4, ""),
    ] {
        assert_eq!(
            seen(&out.join(path)),
            (0o700 + at, owner(at), mark.to_owned()),
            "{path}"
        );
    }
    // What is new has the owner of the tree.
    for (path, mode) in [
        ("a/third", 0o644),
        ("b/dir", 0o755),
        ("b/dir/deep", 0o644),
        ("c", 0o755),
        ("c/was a file", 0o644),
        ("d/new", 0o755),
        ("d/new/dir", 0o644),
    ] {
        assert_eq!(
            seen(&out.join(path)),
            (mode, owner(0), String::new()),
            "{path}"
        );
    }
    assert!(!out.join("b/gone").exists());
    // The same again changes nothing, and loses nothing.
    change(&world, &remote, &[("a/third", Some(b"new"))]);
    get_keeping(&world, &remote, &Keep::ALL, REF, "again").unwrap();
}
