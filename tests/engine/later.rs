//! What later programs may add to a store: unknown features, changes, fields and side objects. This program refuses by
//! name what it must, preserves the rest, and never takes any of it for damage.

use std::sync::Arc;

use gc::collect;
use store::GetRequest;
use store::check::{ReadData, RepairRequest, repair};
use store::format::{
    Change, Content, Extra, FeatureKind, FrameKind, LogEntry, Side, Sides, State, Who, log_key,
    pack_key, segment_key,
};
use store::remote::{Prune, Read};
use store::{
    CommitId, Error, ErrorKind, PutRequest, Result, Store, Unwatched, get, log, put, refs,
};
use support::trees;

use crate::collect::eager;
use crate::damaged::verify_target;
use crate::replicate::{bring, empty, latest};
use crate::stores::{name, noise, spec};
use crate::world::World;

const REF: &str = "project/a/data";

fn world() -> World {
    let mut world = World::new();
    trees::write(&world.tree("one").join("file"), &noise(1, 100_000));
    trees::write(&world.tree("two").join("file"), &noise(2, 100_000));
    world.prepare("one", REF);
    world
}

/// Adds an entry with a change in JSON that this program would not write.
fn add_raw(remote: &dyn Prune, change: &str) -> LogEntry {
    let mut state = log::load(remote).unwrap();
    let now = jiff::Timestamp::UNIX_EPOCH;
    let entry = state.next(CommitId([7; 16]), now, Who::default(), Vec::new());
    let text = String::from_utf8(entry.encode().unwrap()).unwrap();
    let line = text.lines().next().unwrap();
    let line = line.replace("\"changes\":[]", &format!("\"changes\":[{change}]"));
    let seal = blake3::hash(line.as_bytes()).to_hex();
    let bytes = format!("{line}\nblake3 {seal}\n");
    remote.put(&log_key(entry.number), bytes.into()).unwrap();
    drop(state.apply(&entry));
    entry
}

fn learn(store: &Store, kind: FeatureKind, feature: &str) {
    let change = Change::SetFeature {
        kind,
        name: feature.to_owned(),
    };
    let mut state = store.state().unwrap();
    let who = &store.host().who;
    log::commit(store.remote().as_ref(), &mut state, who, &mut |_, _| {
        Ok(vec![change.clone()])
    })
    .unwrap();
}

fn got(world: &World, store: &Store, version: &str) -> Result<()> {
    let dir = tempfile::tempdir_in(world.tree(".")).unwrap();
    let request = GetRequest::new(spec(version), dir.path().join("out"));
    get(store, &request, &Unwatched).map(drop)
}

/// All operations that write, each on a new handle.
fn written(world: &World, remote: &Arc<dyn Prune>) -> Vec<(&'static str, Option<Error>)> {
    let open = || world.open(remote.clone()).unwrap();
    vec![
        ("put", world.put(remote.clone(), "two", REF).err()),
        (
            "drop",
            refs::drop_versions(&open(), &name(REF), Some(1)).err(),
        ),
        ("collect", collect(&open(), &**remote, &eager()).err()),
        (
            "repair",
            repair(&open(), RepairRequest::default(), &Unwatched).err(),
        ),
    ]
}

fn keys(remote: &dyn Read) -> Vec<String> {
    let listed = remote.list("").unwrap();
    listed.into_iter().map(|info| info.key).collect()
}

#[test]
fn a_feature_that_is_learned_later_forbids_what_it_must_by_name() {
    let world = world();
    let remote = world.memory();
    let open = || world.open(remote.clone()).unwrap();
    let mut before = open().state().unwrap();
    learn(&open(), FeatureKind::Compatible, "labels");
    got(&world, &open(), "project/a/data@1").unwrap();
    world.put(remote.clone(), "two", REF).unwrap();
    learn(&open(), FeatureKind::ReadOnly, "warp");
    let state = open().state().unwrap();
    assert_eq!(state.features.compatible, ["labels"]);
    assert_eq!(state.features.read_only, ["warp"]);
    got(&world, &open(), "project/a/data@2").unwrap();
    assert!(
        verify_target(&open(), ReadData::Everything, None)
            .unwrap()
            .is_clean()
    );
    let there = keys(&*remote);
    for (what, error) in written(&world, &remote) {
        let error = error.unwrap_or_else(|| panic!("{what}"));
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{what}: {error:?}");
        assert!(
            error
                .to_string()
                .ends_with("feature \"warp\" is unknown, so this program can only read the store"),
            "{what}: {error}"
        );
    }
    // Also for a writer that began before the feature was learned.
    let pin = Change::Pin {
        name: name(REF),
        version: 1,
        pinned: true,
    };
    let error = log::commit(&*remote, &mut before, &Who::default(), &mut |_, _| {
        Ok(vec![pin.clone()])
    });
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(keys(&*remote), there);
}

#[test]
fn what_this_program_cannot_read_is_no_damage() {
    let feature = r#"{"op":"set_feature","kind":"incompatible","name":"warp"}"#;
    let told = "feature \"warp\" is unknown, so this program cannot use the store";
    let change = r#"{"op":"warp","speed":9}"#;
    let told_change =
        "change \"warp\" is unknown, so this program cannot know the state of the store";
    for (change, told) in [(feature, told), (change, told_change)] {
        let world = world();
        let remote = world.memory();
        let open = || world.open(remote.clone()).unwrap();
        let entry = add_raw(&*remote, change);
        let there = keys(&*remote);
        let mut errors = written(&world, &remote);
        errors.push(("get", got(&world, &open(), REF).err()));
        errors.push((
            "verify",
            verify_target(&open(), ReadData::Nothing, None).err(),
        ));
        for (what, error) in errors {
            let error = error.unwrap_or_else(|| panic!("{what}"));
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{what}: {error:?}");
            let expected = format!("{}: {told}", log_key(entry.number));
            assert_eq!(error.to_string(), expected, "{what}");
            assert_eq!(
                error.remedy(),
                Some(&"update this program".into()),
                "{what}"
            );
        }
        assert_eq!(keys(&*remote), there);
    }
}

#[test]
fn a_field_of_a_version_goes_along_to_another_store() {
    let world = world();
    let remote = world.memory();
    let mut extra = Extra::new();
    extra.insert(
        "labels".to_owned(),
        serde_json::json!({ "stage": ["a", 1] }),
    );
    let again = with(&world, &remote, |_, change| {
        if let Change::SetRef { extra: found, .. } = change {
            found.clone_from(&extra);
        }
    });
    assert_eq!(newest(&again).extra, extra);
    let there = empty(&world);
    bring(&world, &remote, &there, &latest(&[REF]));
    let state = world.open(there).unwrap().state().unwrap();
    assert_eq!(newest(&state).extra, extra);
}

/// Side objects of an unknown kind are kept, verified, copied and repaired like others.
#[test]
fn side_objects_of_an_unknown_kind_survive_collecting_pushing_and_repairing() {
    let mut world = world();
    trees::write(&world.tree("side"), &noise(9, 50_000));
    world.prepare("side", "team/b/side");
    let remote = world.memory();
    let open = || world.open(remote.clone()).unwrap();
    let side = {
        let state = open().state().unwrap();
        let (_, version) = state.version(&name("team/b/side"), None).unwrap();
        Side {
            kind: "labels".to_owned(),
            content: *version.root.content(),
        }
    };
    let state = with(&world, &remote, |_, change| {
        if let Change::SetRef { sides, .. } = change {
            *sides = sides.clone().with(side.clone());
        }
    });
    assert_eq!(newest(&state).sides.others().collect::<Vec<_>>(), [&side]);
    refs::drop_versions(&open(), &name("team/b/side"), None).unwrap();
    refs::drop_versions(&open(), &name(REF), Some(1)).unwrap();
    for _ in 0..2 {
        collect(&open(), &*remote, &eager()).unwrap();
    }
    assert_whole(&open(), &side.content);
    // The same tree makes no new version.
    let request = PutRequest::new(world.tree("one"), name(REF));
    assert!(put(&open(), &request, &Unwatched).unwrap().unchanged);

    let there = empty(&world);
    bring(&world, &remote, &there, &latest(&[REF]));
    let reopened = || world.open(there.clone()).unwrap();
    assert_eq!(
        newest(&reopened().state().unwrap()).sides,
        newest(&state).sides
    );
    collect(&reopened(), &*there, &eager()).unwrap();
    assert_whole(&reopened(), &side.content);

    let segments: Vec<String> = reopened()
        .state()
        .unwrap()
        .segments
        .keys()
        .map(|id| segment_key(*id))
        .collect();
    there.delete(&segments).unwrap();
    let report = repair(&reopened(), RepairRequest::default(), &Unwatched).unwrap();
    assert_eq!(
        (report.hits.len(), report.chunks_lost),
        (0, 0),
        "{report:?}"
    );
    assert_whole(&reopened(), &side.content);

    // If part of it is lost, verify finds that, and nothing is collected.
    let index = reopened().view().unwrap().index;
    let lost = index
        .find(&chunk_of(&reopened(), &side.content))
        .unwrap()
        .unwrap()
        .pack;
    there.delete(&[pack_key(lost)]).unwrap();
    assert!(
        !verify_target(&reopened(), ReadData::Nothing, None)
            .unwrap()
            .hits
            .is_empty()
    );
    let error = collect(&reopened(), &*there, &eager()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
}

/// Adds a second version that equals the first except for `change`.
fn with(world: &World, remote: &Arc<dyn Prune>, change: impl Fn(&State, &mut Change)) -> State {
    let store = world.open(remote.clone()).unwrap();
    let mut state = store.state().unwrap();
    let (_, first) = state.version(&name(REF), None).unwrap();
    let mut set = Change::SetRef {
        name: name(REF),
        version: 2,
        root: first.root,
        sides: Sides::of_times(first.times()),
        message: "again".to_owned(),
        expires: None,
        origin: None,
        ends: Vec::new(),
        private: false,
        extra: Extra::new(),
    };
    change(&state, &mut set);
    let who = &store.host().who;
    log::commit(&**remote, &mut state, who, &mut |_, _| {
        Ok(vec![set.clone()])
    })
    .unwrap();
    world.open(remote.clone()).unwrap().state().unwrap()
}

fn newest(state: &State) -> store::format::Version {
    state.version(&name(REF), None).unwrap().1
}

/// Asserts that the store is clean and that all of `content` exists.
fn assert_whole(store: &Store, content: &Content) {
    let report = verify_target(store, ReadData::Everything, None).unwrap();
    assert!(report.is_clean(), "{report:#?}");
    let view = store.view().unwrap();
    let reader = store::read::Reader::at(store, view.clone());
    let mut bytes = 0;
    reader
        .chunks(content, &mut |id, len| {
            assert!(view.index.find(&id)?.is_some(), "{id}");
            bytes += len;
            Ok(())
        })
        .unwrap();
    assert_eq!(bytes, 50_000);
}

/// A chunk of file data below `content`.
fn chunk_of(store: &Store, content: &Content) -> store::ChunkId {
    let view = store.view().unwrap();
    let reader = store::read::Reader::at(store, view.clone());
    let mut found = None;
    reader
        .chunks(content, &mut |id, _| {
            let location = view.index.find(&id)?.unwrap();
            assert_eq!(location.kind, FrameKind::Data);
            found = Some(id);
            Ok(())
        })
        .unwrap();
    found.unwrap()
}
