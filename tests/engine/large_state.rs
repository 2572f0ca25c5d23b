//! A state whose checkpoint is too large to be read whole: looked up in place, written in layers, damaged in a block.

use std::path::Path;
use std::sync::Arc;

use store::check::{ReadData, RepairRequest, repair};
use store::format::{Change, Extra, RefName, Version, Who, checkpoint_key};
use store::log;
use store::remote::{Prune, Read};
use store::{ErrorKind, Store, Unwatched};
use support::Random;

use crate::collect::{eager, keys, run};
use crate::damaged::verify_target;
use crate::stores::noise;
use crate::world::World;

const MANY: u64 = 3000;

fn name(number: u64) -> RefName {
    format!("project/many-{}/ref-{number}", number % 10)
        .parse()
        .unwrap()
}

fn set(name: RefName, version: u64, model: &Version, random: &mut Random) -> Change {
    let noise: Vec<String> = (0..16).map(|_| format!("{:016x}", random.draw())).collect();
    Change::SetRef {
        name,
        version,
        root: model.root,
        sides: model.sides.clone(),
        message: noise.concat(),
        expires: None,
        origin: None,
        ends: Vec::new(),
        private: false,
        extra: Extra::new(),
    }
}

fn commit(store: &Store, changes: &[Change]) {
    let mut state = store.state().unwrap();
    let committed = log::commit(
        store.remote().as_ref(),
        &mut state,
        &Who::default(),
        &mut |_, _| Ok(changes.to_vec()),
    );
    assert!(committed.unwrap().unwrap().checkpoint.is_none());
}

/// Sets the next version of `count` refs from `from` on, in one entry, which is large enough for a checkpoint to
/// follow.
fn set_many(store: &Store, from: u64, count: u64) {
    let mut random = Random::new(from + count);
    let state = store.state().unwrap();
    let (_, model) = state
        .version(&"project/a/tree".parse().unwrap(), None)
        .unwrap();
    let changes = (from..from + count).map(|number| {
        let last = state.refs.last(&name(number)).unwrap();
        set(name(number), last + 1, &model, &mut random)
    });
    commit(store, &changes.collect::<Vec<_>>());
}

/// A store with one tree and very many refs to it, which entry 2 sets; that entry has a checkpoint.
fn world() -> World {
    let mut world = World::new();
    std::fs::create_dir(world.tree("tree")).unwrap();
    std::fs::write(world.tree("tree").join("file"), noise(1, 1000)).unwrap();
    world.prepare("tree", "project/a/tree");
    world.change(|store| set_many(store, 0, MANY));
    world
}

fn size(remote: &dyn Read, number: u64) -> u64 {
    remote.size(&checkpoint_key(number)).unwrap()
}

fn check(store: &Store, what: &str) {
    let mut folded = log::load_at(store.remote().as_ref(), store.format().id, 1).unwrap();
    log::read_after(store.remote().as_ref(), &mut folded).unwrap();
    assert!(
        folded.refs.tables().is_empty(),
        "{what}: from the log alone"
    );
    let state = store.state().unwrap();
    assert_eq!(state.refs.sums(), folded.refs.sums(), "{what}");
    assert!(state == folded, "{what}: another state than the log says");
    assert!(
        verify_target(store, ReadData::Nothing, None)
            .unwrap()
            .is_clean(),
        "{what}"
    );
}

#[test]
fn a_large_checkpoint_is_looked_up_where_it_is_and_written_in_layers() {
    let world = world();
    for remote in [world.directory("near"), world.memory()] {
        let cache = tempfile::tempdir().unwrap();
        let mut host = world.host();
        host.cache_dir = Some(cache.path().to_owned());
        let open = || world.open_as(remote.clone(), host.clone()).unwrap();
        assert!(size(&*remote, 2) > 300 << 10, "{}", size(&*remote, 2));
        check(&open(), "one layer");
        set_many(&open(), 100, 120);
        assert_eq!(open().layers_of(3).unwrap(), [2]);
        assert!(size(&*remote, 3) * 8 < size(&*remote, 2));
        check(&open(), "two layers");
        store::refs::drop_versions(&open(), &name(100), Some(2)).unwrap();
        store::refs::drop_versions(&open(), &name(7), None).unwrap();
        set_many(&open(), 50, 120);
        assert_eq!(open().layers_of(6).unwrap(), [2], "small ones are merged");
        let state = open().state().unwrap();
        assert_eq!(state.refs.tables().len(), 2);
        assert_eq!(state.version(&name(100), None).unwrap().0, 3);
        assert_eq!(
            state.version(&name(7), None).unwrap_err().kind(),
            ErrorKind::NotFound
        );
        check(&open(), "a layer with what is gone");
        // The collector keeps the layers of other checkpoints.
        set_many(&open(), 300, 120);
        let all = keys(&*remote, "checkpoints");
        assert_eq!(all.len(), 4, "{all:?}");
        run(&world, &remote, &eager()).unwrap();
        let left = keys(&*remote, "checkpoints");
        let expected = [2, 6, 7].map(checkpoint_key);
        assert_eq!(left, expected);
        check(&open(), "collected");
        // Without the layers, the log is read, with the same result.
        remote.delete(&[2, 7].map(checkpoint_key)).unwrap();
        let other = world.host();
        let store = world.open_as(remote.clone(), other).unwrap();
        let state = store.state().unwrap();
        assert!(state.refs.tables().is_empty());
        assert_eq!(state.version(&name(100), None).unwrap().0, 3);
    }
}

#[test]
fn damage_in_a_block_is_named_and_written_anew() {
    let world = world();
    for remote in [world.directory("near"), world.memory()] {
        let remote: Arc<dyn Prune> = remote;
        let store = world.open(remote.clone()).unwrap();
        set_many(&store, 100, 120);
        let key = checkpoint_key(2);
        let original = remote.get(&key).unwrap();
        let mut bytes = original.to_vec();
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
        remote.put(&key, bytes.into()).unwrap();
        // If only part of the log is available, a damaged block is an error with a remedy.
        let state = log::load(&*remote).unwrap();
        let results = (0..MANY).map(|number| state.version(&name(number), None));
        let (good, bad): (Vec<_>, Vec<_>) = results.partition(|found| found.is_ok());
        assert!(
            good.len() > 2000 && bad.len() > 10,
            "{} good, {} bad",
            good.len(),
            bad.len()
        );
        for error in bad {
            let error = error.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            let start = format!("{key}: block at offset ");
            assert!(error.to_string().starts_with(&start), "{error}");
            assert_eq!(error.remedy(), Some(&store::Remedy::VerifyThenRepair));
        }
        // With the whole log, the block is rebuilt, and a warning names it.
        let state = store.state().unwrap();
        assert!(store.warnings().is_empty(), "{:?}", store.warnings());
        for number in 0..MANY {
            state.version(&name(number), None).unwrap();
        }
        let told: Vec<_> = store.warnings().into_iter().map(|told| told.text).collect();
        let expected = format!("{key}: is damaged, and was made again from the log");
        assert_eq!(told, [expected]);
        // Writers continue, and new checkpoints copy nothing damaged.
        set_many(&store, 0, MANY);
        let newest = world.open(remote.clone()).unwrap();
        assert_eq!(newest.layers_of(4).unwrap(), [0; 0]);
        assert!(newest.state().unwrap().version(&name(7), Some(2)).is_ok());
        remote.delete(&[checkpoint_key(4)]).unwrap();
        let report = verify_target(&store, ReadData::Nothing, None).unwrap();
        let objects: Vec<_> = report
            .findings
            .iter()
            .map(|found| found.object.as_str())
            .collect();
        assert_eq!(objects, [key.as_str(), &checkpoint_key(3)], "{report:#?}");
        let request = RepairRequest {
            read_data: false,
            dry_run: false,
            accept_loss: false,
        };
        assert_eq!(
            repair(&store, request, &Unwatched).unwrap().checkpoints,
            [2, 3]
        );
        assert_eq!(remote.get(&key).unwrap(), original);
        check(&world.open(remote.clone()).unwrap(), "repaired");
    }
}

/// Whatever is in place of a layer, the log has what the checkpoints on it had.
#[test]
fn a_layer_that_is_no_file_is_passed_over() {
    use std::os::unix::fs::symlink;
    let world = world();
    for (what, replace) in [
        (
            "directory",
            (|path: &Path| std::fs::create_dir(path).unwrap()) as fn(&Path),
        ),
        ("dangling", |path| symlink("nowhere", path).unwrap()),
        ("loop", |path| symlink(path, path).unwrap()),
        ("missing", |_| {}),
    ] {
        let remote = world.directory(what);
        set_many(&world.open(remote.clone()).unwrap(), 100, 120);
        let newest = world.open(remote.clone()).unwrap();
        assert_eq!(newest.layers_of(3).unwrap(), [2]);
        let path = world.tree(what).join(checkpoint_key(2));
        std::fs::remove_file(&path).unwrap();
        replace(&path);
        let store = world.open(remote.clone()).unwrap();
        let mut folded = log::load_at(store.remote().as_ref(), store.format().id, 1).unwrap();
        log::read_after(store.remote().as_ref(), &mut folded).unwrap();
        assert!(store.state().unwrap() == folded, "{what}");
    }
}

#[test]
fn refs_are_listed_from_any_place_on() {
    let world = world();
    let store = world.open_as(world.memory(), world.host()).unwrap();
    // The latest changes are in a layer above the checkpoint.
    set_many(&store, MANY - 5, 10);
    let state = store.state().unwrap();
    assert!(!state.refs.tables().is_empty());
    let listed = |prefix: &str, from: &str| {
        let heads = state.refs.heads_from(prefix, from);
        heads
            .map(|head| head.unwrap().0.to_string())
            .collect::<Vec<_>>()
    };
    let all: Vec<String> = state
        .refs
        .heads(None)
        .map(|head| head.unwrap().0.to_string())
        .collect();
    assert_eq!(all.len() as u64, MANY + 6);
    for (prefix, from) in [
        ("", ""),
        ("project/many-3/", ""),
        ("project/many-3/", "project/many-3/ref-1500"),
        ("project/many-3/ref-30", "project/many-3/ref-3000"),
        ("project/many-3/", "project/a"),
        ("project/many-3/", "project/many-4"),
        ("project/none/", ""),
    ] {
        let expected = all
            .iter()
            .filter(|name| name.starts_with(prefix) && name.as_str() >= from);
        let expected: Vec<&String> = expected.collect();
        assert_eq!(
            listed(prefix, from).iter().collect::<Vec<_>>(),
            expected,
            "{prefix} {from}"
        );
    }
}
