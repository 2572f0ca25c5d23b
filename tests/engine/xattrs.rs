//! Extended attributes that a put keeps beside a tree, and a get restores.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{XattrFlags, lgetxattr, setxattr};
use store::check::ReadData;
use store::format::Id;
use store::remote::Prune;
use store::{Keep, PutReport};
use support::trees;

use crate::damaged::verify_target;
use crate::modes::{REF, get_keeping, put_keeping};
use crate::replicate::{bring, empty, latest};
use crate::world::World;

const LIST: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// An access control list in Linux's format: the owner reads and writes, user 1234 and the group read, others have no
/// access.
fn list() -> Vec<u8> {
    list_of(4, 4)
}

/// The same with the rights of user 1234, because of whom there is a mask, and of the group.
fn list_of(user: u16, group: u16) -> Vec<u8> {
    let entries = [
        (1, 6, u32::MAX),
        (2, user, 1234),
        (4, group, u32::MAX),
        (16, user | group, u32::MAX),
        (32, 0, u32::MAX),
    ];
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        list.extend(u16::to_le_bytes(tag));
        list.extend(u16::to_le_bytes(rights));
        list.extend(u32::to_le_bytes(id));
    }
    list
}

fn set(path: &Path, attribute: &str, value: &[u8]) {
    setxattr(path, attribute, value, XattrFlags::empty()).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn value(path: &Path, attribute: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 70_000];
    let len = lgetxattr(path, attribute, &mut value).ok()?;
    value.truncate(len);
    Some(value)
}

fn world() -> World {
    let world = World::new();
    let tree = world.tree("in");
    trees::write(&tree.join("dir/file"), b"bytes");
    trees::write(&tree.join("dir/plain"), b"bytes");
    std::os::unix::fs::symlink("file", tree.join("dir/link")).unwrap();
    let every: Vec<u8> = (0..=255).collect();
    set(&tree, "user.of the root", b"root");
    set(&tree.join("dir/file"), "user.bytes", &every);
    set(&tree.join("dir/file"), "user.empty", b"");
    set(&tree.join("dir/file"), LIST, &list());
    set(&tree.join("dir"), DEFAULT, &list());
    set(&tree.join("dir"), "user.store.nonce", b"of this host");
    world
}

fn get_all(world: &World, remote: &Arc<dyn Prune>, keep: &[Keep], to: &str) {
    let report = get_keeping(world, remote, keep, REF, to).unwrap();
    assert!(report.notes.is_empty(), "{:?}", report.notes);
}

fn assert_given(out: &Path) {
    let every: Vec<u8> = (0..=255).collect();
    let (dir, file) = (out.join("dir"), out.join("dir/file"));
    assert_eq!(value(out, "user.of the root").unwrap(), b"root");
    assert_eq!(value(&file, "user.bytes").unwrap(), every);
    assert_eq!(value(&file, "user.empty").unwrap(), b"");
    assert_eq!(value(&file, LIST).unwrap(), list());
    assert_eq!(value(&dir, DEFAULT).unwrap(), list());
    assert_eq!(value(&dir, "user.store.nonce"), None);
    // A directory's default list does not apply to files that existed before.
    assert_eq!(value(&out.join("dir/plain"), LIST), None);
}

#[test]
fn attributes_come_back_where_they_are_asked_for() {
    let world = world();
    let (remote, there) = (world.memory(), empty(&world));
    put_keeping(&world, &remote, &[Keep::Xattrs]);
    get_all(&world, &remote, &[Keep::Xattrs], "out");
    assert_given(&world.tree("out"));
    get_all(&world, &remote, &[], "none");
    assert_eq!(value(&world.tree("none/dir/file"), "user.bytes"), None);
    bring(&world, &remote, &there, &latest(&[REF]));
    for remote in [&remote, &there] {
        let store = world.open(remote.clone()).unwrap();
        let report = verify_target(&store, ReadData::Everything, None).unwrap();
        assert!(report.hits.is_empty(), "{report:?}");
    }
    get_all(&world, &there, &Keep::ALL[2..], "there");
    assert_given(&world.tree("there"));
}

/// This holds even if the file's bytes come from the stat cache and are not read again.
#[test]
fn an_attribute_that_changed_is_a_new_version_of_the_same_tree() {
    let world = world();
    let remote = world.memory();
    let id = |report: &PutReport| report.id.as_ref().map(Id::to_string);
    let plain = put_keeping(&world, &remote, &[]);
    let kept = put_keeping(&world, &remote, &Keep::ALL);
    assert_eq!((kept.version, kept.unchanged), (Some(2), false));
    assert!(put_keeping(&world, &remote, &Keep::ALL).unchanged);
    set(&world.tree("in/dir/plain"), "user.late", b"1");
    assert!(put_keeping(&world, &remote, &[Keep::Modes]).unchanged);
    let changed = put_keeping(&world, &remote, &Keep::ALL);
    assert_eq!((changed.version, changed.unchanged), (Some(3), false));
    assert_eq!((id(&plain), id(&plain)), (id(&kept), id(&changed)));
    get_all(&world, &remote, &Keep::ALL, "out");
    assert_eq!(
        value(&world.tree("out/dir/plain"), "user.late").unwrap(),
        b"1"
    );
    fs::remove_dir_all(world.tree("out")).unwrap();
}

/// Without the list, the group's bits of the mode are the maximum for everybody in the list.
#[test]
fn a_mode_without_its_list_gives_the_group_no_more_than_the_list_does() {
    let world = world();
    let remote = world.memory();
    let (plain, file) = (world.tree("in/dir/plain"), world.tree("in/dir/file"));
    set(&plain, LIST, &list_of(7, 5));
    set(&file, LIST, &list_of(6, 0));
    assert_eq!((mode(&plain), mode(&file)), (0o670, 0o660));
    put_keeping(&world, &remote, &Keep::ALL);
    let given = |to: &str| {
        let out = world.tree(to).join("dir");
        (mode(&out.join("plain")), mode(&out.join("file")))
    };
    let report = get_keeping(&world, &remote, &[Keep::Modes], REF, "modes").unwrap();
    assert_eq!(given("modes"), (0o650, 0o600));
    assert_eq!(value(&world.tree("modes/dir/file"), LIST), None);
    let notes = format!("{:?}", report.notes);
    assert!(
        notes.contains("2 entries had access control lists"),
        "{notes}"
    );
    get_all(&world, &remote, &[Keep::Xattrs, Keep::Modes], "both");
    assert_eq!(given("both"), (0o670, 0o660));
    let both = value(&world.tree("both/dir/file"), LIST).unwrap();
    assert_eq!(both, list_of(6, 0));
    // A path in the middle of the list.
    let part = format!("{REF}:dir/plain");
    get_keeping(&world, &remote, &[Keep::Modes], &part, "part").unwrap();
    assert_eq!(mode(&world.tree("part")), 0o650);
}
