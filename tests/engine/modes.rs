//! Modes and owners that a put keeps beside a tree: they change no id, are restored on request, and are verified,
//! copied and collected like other data.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::XattrFlags;
use store::check::ReadData;
use store::format::{Change, Content, Extra, Id, Side};
use store::remote::Prune;
use store::{
    ErrorKind, GetReport, GetRequest, Keep, PutReport, PutRequest, Result, TrimFilter, TrimRequest,
    Unwatched, get, log, put, trim,
};
use support::trees;

use crate::collect::eager;
use crate::damaged::verify_target;
use crate::replicate::{bring, empty, latest};
use crate::stores::{name, noise, spec};
use crate::world::World;

pub(crate) const REF: &str = "project/a/shared";
const BOTH: [Keep; 2] = [Keep::Modes, Keep::Owners];

/// Modes that no umask would produce.
const MODES: [(&str, u32); 6] = [
    ("data", 0o2770),
    ("data/open", 0o666),
    ("data/group", 0o640),
    ("data/tool", 0o4755),
    ("data/done", 0o550),
    ("data/done/last", 0o400),
];

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn world() -> World {
    let world = World::new();
    let tree = world.tree("in");
    for (path, _) in MODES {
        if !matches!(path, "data" | "data/done") {
            trees::write(&tree.join(path), &noise(1, 3000));
        }
    }
    symlink("open", tree.join("data/link")).unwrap();
    for (path, mode) in MODES.iter().rev() {
        set_mode(&tree.join(path), *mode);
    }
    world
}

pub(crate) fn put_keeping(world: &World, remote: &Arc<dyn Prune>, keep: &[Keep]) -> PutReport {
    let request = PutRequest {
        keep: keep.to_vec(),
        ..PutRequest::new(world.tree("in"), name(REF))
    };
    put(&world.open(remote.clone()).unwrap(), &request, &Unwatched).unwrap()
}

pub(crate) fn get_keeping(
    world: &World,
    remote: &Arc<dyn Prune>,
    keep: &[Keep],
    from: &str,
    to: &str,
) -> Result<GetReport> {
    let request = GetRequest {
        keep: keep.to_vec(),
        readable: true,
        ..GetRequest::new(spec(from), world.tree(to))
    };
    get(&world.open(remote.clone()).unwrap(), &request, &Unwatched)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn modes_come_back_where_they_are_asked_for() {
    let world = world();
    let remote = world.memory();
    put_keeping(&world, &remote, &BOTH);
    get_keeping(&world, &remote, &BOTH, REF, "all").unwrap();
    for (path, expected) in MODES {
        assert_eq!(mode(&world.tree("all").join(path)), expected, "{path}");
    }
    // Without owners, setuid bits are not restored.
    get_keeping(&world, &remote, &[Keep::Modes], REF, "modes").unwrap();
    assert_eq!(mode(&world.tree("modes/data/tool")), 0o755);
    assert_eq!(mode(&world.tree("modes/data")), 0o2770);
    get_keeping(&world, &remote, &[], REF, "none").unwrap();
    assert_ne!(mode(&world.tree("none/data/open")), 0o666);
    // A path in the middle of the list.
    let part = format!("{REF}:data/done");
    get_keeping(&world, &remote, &BOTH, &part, "part").unwrap();
    assert_eq!(mode(&world.tree("part")), 0o550);
    assert_eq!(mode(&world.tree("part/last")), 0o400);
}

#[test]
fn owners_come_back_for_root_and_are_told_to_others() {
    if !is_root() {
        // Only root can make files of other users. For others, the kept owners are the user's own.
        let world = world();
        let remote = world.memory();
        put_keeping(&world, &remote, &BOTH);
        let report = get_keeping(&world, &remote, &BOTH, REF, "out").unwrap();
        assert!(report.notes.is_empty(), "{:?}", report.notes);
        return;
    }
    let world = world();
    let (remote, tree) = (world.memory(), world.tree("in"));
    lchown(tree.join("data/group"), Some(1234), Some(4321)).unwrap();
    lchown(tree.join("data/link"), Some(77), Some(78)).unwrap();
    lchown(tree.join("data/done"), Some(1), Some(2)).unwrap();
    set_mode(&tree.join("data/group"), 0o640);
    put_keeping(&world, &remote, &BOTH);
    let report = get_keeping(&world, &remote, &[Keep::Owners], REF, "out").unwrap();
    assert!(report.notes.is_empty(), "{:?}", report.notes);
    let owner = |path: &str| {
        let found = fs::symlink_metadata(world.tree("out").join(path)).unwrap();
        (found.uid(), found.gid())
    };
    assert_eq!(owner("data/group"), (1234, 4321));
    assert_eq!(owner("data/link"), (77, 78));
    assert_eq!(owner("data/done"), (1, 2));
    assert_eq!(owner("data/open"), (0, 0));
}

#[test]
fn what_is_kept_changes_no_id_and_is_something_new() {
    let world = world();
    let remote = world.memory();
    let id = |report: &PutReport| report.id.as_ref().map(Id::to_string);
    let plain = put_keeping(&world, &remote, &[]);
    let kept = put_keeping(&world, &remote, &BOTH);
    assert_eq!((kept.version, kept.unchanged), (Some(2), false));
    assert_eq!(id(&plain), id(&kept));
    assert!(put_keeping(&world, &remote, &BOTH).unchanged);
    // Keeping less makes no new version.
    assert!(put_keeping(&world, &remote, &[Keep::Owners]).unchanged);
    assert!(put_keeping(&world, &remote, &[]).unchanged);
    set_mode(&world.tree("in/data/open"), 0o664);
    assert!(put_keeping(&world, &remote, &[Keep::Owners]).unchanged);
    let changed = put_keeping(&world, &remote, &BOTH);
    assert_eq!((changed.version, changed.unchanged), (Some(3), false));
    assert_eq!(id(&plain), id(&changed));
    let error = get_keeping(&world, &remote, &BOTH, &format!("{REF}@1"), "out").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(error.to_string(), format!("{REF}@1: has no modes to keep"));
}

#[test]
fn what_is_kept_is_collected_and_replicated_with_its_version() {
    let world = world();
    let (remote, there) = (world.memory(), empty(&world));
    put_keeping(&world, &remote, &BOTH);
    for _ in 0..2 {
        gc::collect(&world.open(remote.clone()).unwrap(), &*remote, &eager()).unwrap();
    }
    bring(&world, &remote, &there, &latest(&[REF]));
    for (at, remote) in [("here", &remote), ("there", &there)] {
        let store = world.open(remote.clone()).unwrap();
        let report = verify_target(&store, ReadData::Everything, None).unwrap();
        assert!(report.hits.is_empty(), "{report:?}");
        get_keeping(&world, remote, &BOTH, REF, at).unwrap();
        assert_eq!(mode(&world.tree(at).join("data/group")), 0o640);
    }
}

/// Verify names a list of another length or kind, and no copy is made with it.
#[test]
fn a_list_that_does_not_fit_its_tree_is_damage() {
    let world = world();
    let remote = world.memory();
    put_keeping(&world, &remote, &BOTH);
    let store = world.open(remote.clone()).unwrap();
    let mut state = store.state().unwrap();
    let first = state.version(&name(REF), None).unwrap().1.clone();
    let content_of = |kind: &str| -> Content {
        first
            .sides
            .iter()
            .find(|side| side.kind == kind)
            .unwrap()
            .content
    };
    trees::write(&world.tree("other/file"), b"1");
    let shorter = {
        let request = PutRequest {
            keep: BOTH.to_vec(),
            ..PutRequest::new(world.tree("other"), name("project/a/other"))
        };
        put(&store, &request, &Unwatched).unwrap();
        state = store.state().unwrap();
        let other = state.version(&name("project/a/other"), None).unwrap().1;
        other
            .sides
            .iter()
            .find(|side| side.kind == "modes")
            .unwrap()
            .content
    };
    for (number, content, words) in [
        (
            2,
            shorter,
            "list of modes: ends before the last entry of its tree",
        ),
        (3, content_of("owners"), "magic"),
    ] {
        let set = Change::SetRef {
            name: name(REF),
            version: number,
            root: first.root,
            sides: first
                .sides
                .clone()
                .with(Side {
                    kind: "modes".into(),
                    content,
                })
                .with(Side {
                    kind: "acls".into(),
                    content,
                }),
            message: String::new(),
            expires: None,
            origin: None,
            ends: Vec::new(),
            private: false,
            extra: Extra::new(),
        };
        let who = &store.host().who;
        log::commit(&*remote, &mut state, who, &mut |_, _| Ok(vec![set.clone()])).unwrap();
        let target = format!("{REF}@{number}");
        let reopened = world.open(remote.clone()).unwrap();
        let report = verify_target(&reopened, ReadData::Nothing, Some(&target)).unwrap();
        assert!(
            report.hits.iter().any(|hit| hit.what.contains(words)),
            "{report:?}"
        );
        let out = format!("out-{number}");
        let error = get_keeping(&world, &remote, &[Keep::Modes], &target, &out).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
        assert!(!world.tree(&out).exists());
        get_keeping(&world, &remote, &[], &target, &out).unwrap();
    }
    assert_left_has_the_others(&world, &remote);
}

/// Asserts what is left of such a version after paths are removed.
fn assert_left_has_the_others(world: &World, remote: &Arc<dyn Prune>) {
    let store = world.open(remote.clone()).unwrap();
    trim(&store, &without("data/done")).unwrap();
    let told = store.warnings();
    let is_told = |text: &str| told.iter().any(|one| one.text.contains(text));
    assert!(
        is_told(&format!("the modes of {REF}@3 are lost")),
        "{told:?}"
    );
    assert!(is_told("acls were kept beside its tree"), "{told:?}");
    let (_, left) = store.state().unwrap().version(&name(REF), None).unwrap();
    let kinds: Vec<&str> = left.sides.iter().map(|side| &*side.kind).collect();
    assert_eq!(kinds, ["owners", "times"]);
}

fn without(path: &str) -> TrimRequest {
    TrimRequest {
        target: name(REF),
        paths: vec![path.into()],
        filter: TrimFilter::default(),
        message: String::new(),
        dry_run: false,
    }
}

#[test]
fn what_is_left_when_paths_are_removed_has_what_was_kept_of_it() {
    let world = world();
    let remote = world.memory();
    let tool = world.tree("in/data/tool");
    rustix::fs::setxattr(&tool, "user.of", b"tool", XattrFlags::empty()).unwrap();
    put_keeping(&world, &remote, &Keep::ALL);
    let store = world.open(remote.clone()).unwrap();
    for path in ["data/done", "data/group"] {
        trim(&store, &without(path)).unwrap();
    }
    assert!(store.warnings().is_empty(), "{:?}", store.warnings());
    let report = verify_target(&store, ReadData::Everything, None).unwrap();
    assert!(report.hits.is_empty(), "{report:?}");
    get_keeping(&world, &remote, &Keep::ALL, REF, "out").unwrap();
    let out = world.tree("out");
    for path in ["data", "data/open", "data/tool"] {
        let expected = mode(&world.tree("in").join(path));
        assert_eq!(mode(&out.join(path)), expected, "{path}");
    }
    let mut value = [0; 8];
    let len = rustix::fs::lgetxattr(out.join("data/tool"), "user.of", &mut value).unwrap();
    assert_eq!(&value[..len], b"tool");
}
