//! A golden store with a long log: every kind of change, a checkpoint on layers, and later entries.
//!
//! `fixtures/v2/long` was made a day after the others, in the same way, and is never edited either.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use gc::collect;
use rustix::fs::{XattrFlags, setxattr};
use store::check::{RepairRequest, repair};
use store::format::{
    CHECKPOINTS_PREFIX, Change, FeatureKind, LOG_PREFIX, Policy, State, checkpoint_key, log_key,
    parse_checkpoint_key,
};
use store::log::{self, CHECKPOINT_EVERY};
use store::remote::{Objects, Prune, Write};
use store::replicate::{Memory, undo};
use store::{Keep, Portions, PutRequest, Store, Unwatched, put, refs, replicate};
use support::trees;

use crate::collect::eager;
use crate::golden::{Copy, make_where_missing, new_store, write_listing};
use crate::replicate::latest;
use crate::stores::{name, put_tree};

const TREE: &str = "project/long/tree";
/// The listings of its versions are numbered after those of the other golden stores.
const FIRST: usize = 6;
const VERSIONS: [&str; 3] = [
    "project/long/tree@4",
    "team/long/shared@1",
    "team/other/data@1",
];
const OPS: [&str; 9] = [
    "add_segment",
    "condemn_packs",
    "drop_ref",
    "drop_segment",
    "forget",
    "pin",
    "set_feature",
    "set_policy",
    "set_ref",
];
/// Optional fields of entries and changes, all of which occur.
const FIELDS: [&str; 17] = [
    r#""pass":""#,
    r#""into":""#,
    r#""ends":[""#,
    r#""origin":{"#,
    r#""private":true"#,
    r#""expires":"9000"#,
    r#""was":{"#,
    r#""step":{"#,
    r#""colour":"blue""#,
    r#""pinned":true"#,
    r#""pinned":false"#,
    r#""kind":"modes""#,
    r#""kind":"owners""#,
    r#""kind":"times""#,
    r#""kind":"xattrs""#,
    r#""lost":"#,
    r#""until":"#,
];

/// The numbers of a copy's checkpoints, in order.
fn checkpoints(golden: &Copy) -> Vec<u64> {
    let listed = golden.remote.list(CHECKPOINTS_PREFIX).unwrap();
    let numbers = listed.iter();
    numbers
        .map(|info| parse_checkpoint_key(&info.key).unwrap())
        .collect()
}

#[test]
fn the_long_log_of_version_2_reads_as_it_was_written() {
    make_where_missing("long", make);
    let golden = Copy::of("long");
    golden.reads(&VERSIONS, FIRST);
    let (mut ops, mut text) = (BTreeSet::new(), String::new());
    let entries = golden.remote.list(LOG_PREFIX).unwrap();
    assert!(entries.len() > 64, "{}", entries.len());
    for info in &entries {
        let bytes = golden.remote.get(&info.key).unwrap();
        let line = String::from_utf8(bytes.split(|byte| *byte == b'\n').next().unwrap().into());
        let entry: serde_json::Value = serde_json::from_str(line.as_ref().unwrap()).unwrap();
        for change in entry["changes"].as_array().unwrap() {
            ops.insert(change["op"].as_str().unwrap().to_owned());
        }
        text += &line.unwrap();
    }
    assert_eq!(ops, OPS.map(str::to_owned).into());
    for field in FIELDS {
        assert!(text.contains(field), "{field}");
    }
    golden.is_clean();
}

#[test]
fn the_state_of_the_long_log_is_that_of_its_checkpoint_and_of_the_fold() {
    let golden = Copy::of("long");
    let state = golden.store.state().unwrap();
    let mut folded = State::default();
    log::read_after(&*golden.remote, &mut folded).unwrap();
    assert!(state == folded, "another state than the log says");
    assert_eq!(state.features.compatible, ["golden-labels"]);
    let there = checkpoints(&golden);
    let [first, second, newest] = there[..] else {
        panic!("{there:?}")
    };
    assert_eq!(golden.store.layers_of(newest).unwrap(), [second, first]);
    assert!(newest < state.number, "entries behind it");
    // Without the earlier entries, only the checkpoint has their state, and it needs its layers.
    let before: Vec<String> = (1..newest).map(log_key).collect();
    golden.remote.delete(&before).unwrap();
    let golden = golden.anew();
    assert!(golden.store.state().unwrap() == state);
    golden.reads(&VERSIONS, FIRST);
    let layers = [first, second].map(checkpoint_key);
    golden.remote.delete(&layers).unwrap();
    golden.anew().store.state().unwrap_err();
}

#[test]
fn the_store_of_the_long_log_is_written_to_and_collected() {
    let golden = Copy::of("long");
    let tree = golden.dir.path().join("tree");
    trees::version(&tree, 7, 3, 20_000);
    let report = put_tree(&golden.store, &tree, TREE);
    assert_eq!(report.version, Some(5));
    let golden = golden.anew();
    golden.reads(&VERSIONS, FIRST);
    // Drops an old version, and one that was added just now.
    refs::drop_versions(&golden.store, &name("team/long/shared"), None).unwrap();
    refs::drop_versions(&golden.store, &name(TREE), Some(5)).unwrap();
    let report = collect(&golden.store, golden.remote.as_ref(), &eager()).unwrap();
    assert!(report.freed_objects > 0, "{report:?}");
    let golden = golden.anew();
    golden.reads(&VERSIONS[..1], FIRST);
    golden.reads(&VERSIONS[2..], FIRST + 2);
    golden.is_clean();
}

/// Passes have several commits, which fold small segments.
fn portions() -> Portions {
    Portions {
        commit_chunks: 5,
        together_bytes: 0,
        fold: 2,
        ..Portions::default()
    }
}

fn make(fixture: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let place = fixture.join("long");
    let open = || new_store(&place, dir.path()).in_portions(portions());
    let store = open();
    let remote: Arc<dyn Prune> = Arc::new(Objects::directory(&place).unwrap());
    let tree = dir.path().join("tree");
    for at in 0..2 {
        version(&tree, at);
        put_tree(&store, &tree, TREE);
    }
    // Folds small segments.
    let folding = store.clone().in_portions(Portions {
        fold: 2,
        ..Portions::default()
    });
    for number in 0..4 {
        let small = dir.path().join("small");
        trees::write(&small, format!("{number}").as_bytes());
        put_tree(&folding, &small, "project/long/small");
    }
    make_shared(&store, dir.path());
    write_listing(&dir.path().join("shared"), fixture, FIRST + 1);
    make_other(&store, dir.path(), &tree);
    write_listing(&tree, fixture, FIRST + 2);
    let policy: Policy =
        serde_json::from_str(r#"{"keep":[{"refs":"team/*","keep_last":9}]}"#).unwrap();
    let learn = Change::SetFeature {
        kind: FeatureKind::Compatible,
        name: "golden-labels".into(),
    };
    commit(&store, &[Change::SetPolicy { policy }, learn]);
    commit(&store, &[step(&store)]);
    // The second version is restored as the third, and the first one is dropped.
    refs::drop_versions(&store, &name(TREE), Some(2)).unwrap();
    undo(&store, None, false, &Unwatched).unwrap();
    refs::drop_versions(&store, &name(TREE), Some(1)).unwrap();
    collect(&store, remote.as_ref(), &eager()).unwrap();
    // Loses an entry that this host has seen.
    pin(&store, true);
    remote
        .delete(&[log_key(store.state().unwrap().number)])
        .unwrap();
    let accept = RepairRequest {
        accept_loss: true,
        ..RepairRequest::default()
    };
    repair(&open(), accept, &Unwatched).unwrap();
    let store = open();
    let mut is_pinned = false;
    while !store
        .state()
        .unwrap()
        .number
        .is_multiple_of(CHECKPOINT_EVERY)
    {
        is_pinned = !is_pinned;
        pin(&store, is_pinned);
    }
    version(&tree, 2);
    put_tree(&store, &tree, TREE);
    write_listing(&tree, fixture, FIRST);
    write_layered(&store, remote.as_ref());
    refs::drop_versions(&store, &name(TREE), Some(3)).unwrap();
    write_layered(&store, remote.as_ref());
    pin(&store, true);
    pin(&store, false);
    // The reserve has no meaning and would be most of the fixture.
    fs::remove_dir_all(place.join("reserve")).unwrap();
}

fn version(tree: &Path, number: u64) {
    if tree.exists() {
        fs::remove_dir_all(tree).unwrap();
    }
    trees::version(tree, 7, number, 20_000);
    trees::settle_times(tree, number);
}

/// Makes a directory with everything that can be kept, which only its owner may read.
fn make_shared(store: &Store, dir: &Path) {
    let shared = dir.join("shared");
    trees::write(&shared.join("note"), b"a note");
    let note: &Path = &shared.join("note");
    setxattr(note, "user.colour", b"blue", XattrFlags::empty()).unwrap();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(note, private).unwrap();
    trees::settle_times(&shared, 1);
    let request = PutRequest {
        keep: Keep::ALL.to_vec(),
        message: "with all that is kept".into(),
        expires: Some("9000-01-01T00:00:00Z".parse().unwrap()),
        ..PutRequest::new(&shared, name("team/long/shared"))
    };
    put(store, &request, &Unwatched).unwrap();
}

/// Makes a ref that was first put into another store.
fn make_other(store: &Store, dir: &Path, tree: &Path) {
    let other = new_store(&dir.join("other"), dir);
    put_tree(&other, tree, "team/other/data");
    let request = latest(&["team/other/data"]);
    replicate(&other, store, &request, &Memory::default(), &Unwatched).unwrap();
}

/// A version of a training job's checkpoint, with an unknown field.
fn step(store: &Store) -> Change {
    let state = store.state().unwrap();
    let (_, shared) = state.version(&name("team/long/shared"), None).unwrap();
    let extra = r#"{"colour":"blue","step":{"newest":[1,2],"marked":[3,4]}}"#;
    Change::SetRef {
        name: name("project/long/steps"),
        version: 1,
        root: shared.root,
        sides: shared.sides.clone(),
        message: "step-1".into(),
        expires: None,
        origin: None,
        ends: Vec::new(),
        private: true,
        extra: serde_json::from_str(extra).unwrap(),
    }
}

fn pin(store: &Store, pinned: bool) {
    refs::pin(store, &name("team/other/data"), Some(1), pinned).unwrap();
}

fn commit(store: &Store, changes: &[Change]) {
    let mut state = store.state().unwrap();
    let done = store.commit(&mut state, &mut |_, _| Ok(changes.to_vec()));
    done.unwrap().unwrap();
}

/// Writes a checkpoint on the existing ones, as happens when there is more in them.
fn write_layered(store: &Store, remote: &dyn Write) {
    let state = store.state().unwrap();
    let tables = state.refs.tables().iter();
    let layers: Vec<_> = tables.map(|table| table.layer().unwrap()).collect();
    let mut bytes = Vec::new();
    let mut take = |piece: bytes::Bytes| {
        bytes.extend_from_slice(&piece);
        Ok(())
    };
    state.write(&layers, &mut take).unwrap();
    remote
        .put(&checkpoint_key(state.number), bytes.into())
        .unwrap();
}
