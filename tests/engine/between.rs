//! What others do between two steps of a collection, scripted: one test for each rule of the collector.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use gc::{CollectReport, Request, collect};
use store::codec::Encoder;
use store::format::{
    Change, Extra, FORMAT_KEY, Format, LOG_PREFIX, PackChunk, PackKind, Provenance, State, Who,
    log_key, pack_key,
};
use store::log;
use store::pack::{EncodedFrame, PackWriter, SegmentBuilder, WrittenPack};
use store::remote::testing::scripted::{Scripted, Step, When};
use store::remote::{Prune, Read, Write};
use store::{ChunkId, ErrorKind, PackId, Result};
use support::trees;

use crate::collect::{eager, run};
use crate::replicate::assert_sound;
use crate::stores::{name, noise, text};
use crate::world::World;

pub(crate) const REF: &str = "project/a/data";

/// A tree of several packs and a few small files.
pub(crate) fn world() -> World {
    let mut world = World::new();
    for (tree, seed) in [("one", 1), ("two", 2)] {
        trees::write(&world.tree(tree).join("large"), &noise(seed, 400_000));
        for number in 0..8 {
            let path = world.tree(tree).join(number.to_string());
            trees::write(&path, &text(100 * seed + number, 3_000));
        }
    }
    world.prepare("one", REF);
    world
}

pub(crate) fn commit(remote: &dyn Write, changes: &[Change]) -> State {
    let mut state = log::load(remote).unwrap();
    log::commit(remote, &mut state, &Who::default(), &mut |_, _| {
        Ok(changes.to_vec())
    })
    .unwrap();
    state
}

/// Runs a collection with `act` before its log entry `at`, counted from 0. Also returns how often an entry was tried.
pub(crate) fn collect_with(
    world: &World,
    remote: &Arc<dyn Prune>,
    request: &Request,
    at: usize,
    act: impl Fn() + Send + Sync + 'static,
) -> Result<(CollectReport, usize)> {
    let entries = Arc::new(AtomicUsize::new(0));
    let count = entries.clone();
    let script = move |when, step, key: &str| {
        let is_entry = when == When::Before && step == Step::Create && key.starts_with(LOG_PREFIX);
        if is_entry && count.fetch_add(1, Ordering::SeqCst) == at {
            act();
        }
    };
    let scripted = Arc::new(Scripted::new(remote.clone(), script));
    let store = world.open(scripted.clone())?;
    let report = collect(&store, scripted.as_ref(), request)?;
    Ok((report, entries.load(Ordering::SeqCst)))
}

/// Writes a pack of these chunks, durable and in no segment.
pub(crate) fn pack_of(remote: &Arc<dyn Prune>, chunks: &[Vec<u8>]) -> WrittenPack {
    let made = made(remote.as_ref());
    let remote: Arc<dyn Write> = remote.clone();
    let mut pack = PackWriter::begin(&remote, PackKind::Data, made).unwrap();
    for bytes in chunks {
        let len = u32::try_from(bytes.len()).unwrap();
        let id = ChunkId::of(bytes);
        let mut frame = EncodedFrame {
            raw_len: len,
            chunks: vec![PackChunk { id, len }],
            bases: Vec::new(),
            ..EncodedFrame::default()
        };
        Encoder::encode_raw(bytes, &mut frame.stored);
        pack.push(frame).unwrap();
    }
    pack.finish().unwrap()
}

/// Uploads a segment over these packs. Returns the change that adds it.
pub(crate) fn segment_over(remote: &dyn Write, packs: &[&WrittenPack]) -> Change {
    let mut builder = SegmentBuilder::default();
    packs.iter().for_each(|pack| builder.add(pack).unwrap());
    builder.write(remote, made(remote)).unwrap().1
}

/// The provenance of a writer that knows the store but nothing of its log.
fn made(remote: &dyn Read) -> Provenance {
    let format = Format::decode(&remote.get(FORMAT_KEY).unwrap()).unwrap();
    Provenance {
        store: format.id,
        began: 0,
    }
}

fn exists(remote: &dyn Read, pack: PackId) -> bool {
    match remote.size(&pack_key(pack)) {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) => panic!("{error:?}"),
    }
}

/// Asserts that all packs exist that live segments name and that are not condemned.
fn assert_named_packs_exist(world: &World, remote: &Arc<dyn Prune>) {
    let view = world.open(remote.clone()).unwrap().view().unwrap();
    for pack in view.index.packs() {
        let is_condemned = view.state.condemned.contains_key(&pack.id);
        assert!(is_condemned || exists(&**remote, pack.id), "{}", pack.id);
    }
}

/// The collector plans to condemn an uncommitted pack. Before the collector's entry, the pack's writer commits a
/// segment that names it.
#[test]
fn a_plan_that_takes_what_a_new_segment_names_is_void() {
    let world = world();
    let remote = world.memory();
    let pack = pack_of(&remote, &[noise(77, 9_000)]);
    let id = pack.header.id;
    let there = remote.clone();
    let act = move || {
        let add = segment_over(&*there, &[&pack]);
        drop(commit(&*there, &[add]));
    };
    let (report, _) = collect_with(&world, &remote, &eager(), 0, act).unwrap();
    assert_eq!(report.plans_void, 1, "{report:?}");
    // The next plan found the pack live but unused, so it dropped the segment, too.
    assert!(!exists(&*remote, id));
    assert_named_packs_exist(&world, &remote);
    let state = log::load(&*remote).unwrap();
    assert!(state.condemned.is_empty(), "{:?}", state.condemned);
}

/// Somebody commits a segment that names a condemned pack, which then must not be forgotten: before the condemning
/// entry is confirmed, or just before the entry that forgets the pack.
#[test]
fn a_pack_that_a_new_segment_names_is_not_forgotten() {
    let world = world();
    for at in 0..2 {
        let remote = world.memory();
        let (dead, other) = (
            pack_of(&remote, &[noise(77, 9_000)]),
            pack_of(&remote, &[noise(78, 9_000)]),
        );
        let id = dead.header.id;
        commit(&*remote, &[Change::CondemnPacks { packs: vec![id] }]);
        let add = segment_over(&*remote, &[&dead, &other]);
        let there = remote.clone();
        let act = move || drop(commit(&*there, std::slice::from_ref(&add)));
        let mut request = eager();
        // At this age, only the condemned pack may be collected.
        request.options.min_age_secs = 24 * 3600;
        let (report, _) = collect_with(&world, &remote, &request, at, act).unwrap();
        assert_eq!(report.plans_void, 1, "before entry {at}: {report:?}");
        assert_named_packs_exist(&world, &remote);
    }
}

/// A new version stores nothing: all of its chunks are in packs that the plan condemns.
#[test]
fn a_plan_that_takes_what_a_new_version_relies_on_is_void() {
    let world = world();
    let remote = world.memory();
    let store = world.open(remote.clone()).unwrap();
    store::refs::drop_versions(&store, &name(REF), None).unwrap();
    let root = {
        let entry = log::entry(&*remote, 1).unwrap().unwrap();
        let set = |change: &Change| match change {
            Change::SetRef {
                root,
                sides,
                message,
                ..
            } => Some((*root, sides.clone(), message.clone())),
            _ => None,
        };
        entry.changes.iter().find_map(set).unwrap()
    };
    let there = remote.clone();
    let act = move || {
        let (root, sides, message) = root.clone();
        let set = Change::SetRef {
            name: name(REF),
            version: 2,
            root,
            sides,
            message,
            expires: None,
            origin: None,
            ends: Vec::new(),
            private: false,
            extra: Extra::new(),
        };
        drop(commit(&*there, &[set]));
    };
    let (report, _) = collect_with(&world, &remote, &eager(), 0, act).unwrap();
    assert_eq!(report.plans_void, 1, "{report:?}");
    assert_eq!(world.check(remote, "set between"), [format!("{REF}@2")]);
}

/// A sparse pack has live chunks. While they are copied, a new version comes that needs one of the others.
#[test]
fn a_chunk_that_only_a_newer_version_needs_is_not_left_behind() {
    let mut world = world();
    trees::write(&world.tree("part/large"), &noise(1, 100_000));
    world.prepare("part", "project/a/part");
    let remote = world.memory();
    let store = world.open(remote.clone()).unwrap();
    store::refs::drop_versions(&store, &name(REF), None).unwrap();
    for at in 0..3 {
        let remote = copy_of(&world, &remote);
        let there = remote.clone();
        let tree = world.tree("one");
        let host = world.host();
        let act = move || {
            let store = store::Store::open(there.clone(), host.clone()).unwrap();
            let mut request = crate::stores::request(&tree, REF);
            "one".clone_into(&mut request.message);
            store::put(&store, &request, &store::Unwatched).unwrap();
        };
        collect_with(&world, &remote, &eager(), at, act).unwrap();
        assert_sound(&world, &remote, &format!("put before entry {at}"));
        world.check(remote, &format!("put before entry {at}"));
    }
}

fn copy_of(world: &World, remote: &Arc<dyn Prune>) -> Arc<dyn Prune> {
    let copy: Arc<dyn Prune> = Arc::new(store::remote::Objects::memory());
    for info in remote.list("").unwrap() {
        copy.put(&info.key, remote.get(&info.key).unwrap()).unwrap();
    }
    world.open(copy.clone()).unwrap();
    copy
}

/// A listing was late and did not show a pack. The pack is deleted before it is forgotten.
#[test]
fn what_no_listing_showed_is_deleted_before_it_is_forgotten() {
    let world = world();
    let remote = world.memory();
    let pack = pack_of(&remote, &[noise(77, 9_000)]);
    let id = pack.header.id;
    commit(&*remote, &[Change::CondemnPacks { packs: vec![id] }]);
    let key = pack_key(id);
    let bytes = remote.get(&key).unwrap();
    let (there, late) = (remote.clone(), key.clone());
    let script = move |when, step, prefix: &str| match (when, step) {
        (When::Before, Step::List) if prefix == "packs" => {
            there.delete(std::slice::from_ref(&late)).unwrap();
        }
        (When::After, Step::List) if prefix == "packs" => there.put(&late, bytes.clone()).unwrap(),
        _ => {}
    };
    let scripted = Arc::new(Scripted::new(remote.clone(), script));
    let store = world.open(scripted.clone()).unwrap();
    collect(&store, scripted.as_ref(), &eager()).unwrap();
    assert!(log::load(&*remote).unwrap().condemned.is_empty());
    assert!(!exists(&*remote, id), "forgotten and still there");
}

/// A live segment names a condemned pack beside a live one. The chunks of the condemned pack are withheld only while it
/// is condemned, so the pack must not be forgotten.
#[test]
fn a_pack_that_a_live_segment_names_is_never_forgotten() {
    let mut world = world();
    let files: Vec<Vec<u8>> = (0..8).map(|number| text(900 + number, 3_000)).collect();
    let lost = noise(77, 9_000);
    world.change(|store| {
        let remote: Arc<dyn Write> = store.remote().clone();
        let mut builder = SegmentBuilder::default();
        let mut write = |chunks: &[Vec<u8>]| {
            let made = store.provenance();
            let mut pack = PackWriter::begin(&remote, PackKind::Data, made).unwrap();
            for bytes in chunks {
                let len = u32::try_from(bytes.len()).unwrap();
                let id = ChunkId::of(bytes);
                let mut frame = EncodedFrame {
                    raw_len: len,
                    chunks: vec![PackChunk { id, len }],
                    bases: Vec::new(),
                    ..EncodedFrame::default()
                };
                Encoder::encode_raw(bytes, &mut frame.stored);
                pack.push(frame).unwrap();
            }
            let pack = pack.finish().unwrap();
            builder.add(&pack).unwrap();
            pack.header.id
        };
        write(&files);
        let dead = write(std::slice::from_ref(&lost));
        let (_, add) = builder.write(remote.as_ref(), store.provenance()).unwrap();
        commit(
            remote.as_ref(),
            &[add, Change::CondemnPacks { packs: vec![dead] }],
        );
    });
    for (number, bytes) in files.iter().enumerate() {
        trees::write(&world.tree("known").join(number.to_string()), bytes);
    }
    world.prepare("known", "project/a/known");
    let remote = world.memory();
    run(&world, &remote, &eager()).unwrap();
    let store = world.open(remote.clone()).unwrap();
    let view = store.view().unwrap();
    let named: Vec<PackId> = view.index.packs().map(|pack| pack.id).collect();
    let left: Vec<_> = view.state.condemned.keys().collect();
    assert_eq!(left.len(), 1, "named and gone: {left:?}");
    assert!(named.contains(left[0]) && !exists(&*remote, *left[0]));
    assert!(view.index.find(&ChunkId::of(&lost)).unwrap().is_none());
    assert_sound(&world, &remote, "named");
}

/// An entry by another process may not be on disk yet, so the collector makes it durable before the first delete.
#[test]
fn the_entry_that_condemns_is_confirmed_before_the_first_delete() {
    let world = world();
    let remote = world.memory();
    let pack = pack_of(&remote, &[noise(77, 9_000)]);
    let state = commit(
        &*remote,
        &[Change::CondemnPacks {
            packs: vec![pack.header.id],
        }],
    );
    let entry = log_key(state.number);
    let steps = Arc::new(Mutex::new(Vec::new()));
    let seen = steps.clone();
    let script = move |when, step, key: &str| {
        if when == When::Before {
            seen.lock().unwrap().push((step, key.to_owned()));
        }
    };
    let scripted = Arc::new(Scripted::new(remote.clone(), script));
    let store = world.open(scripted.clone()).unwrap();
    collect(&store, scripted.as_ref(), &eager()).unwrap();
    let steps = steps.lock().unwrap();
    let at = |wanted: &(Step, String)| steps.iter().position(|step| step == wanted);
    let deleted = at(&(Step::Delete, pack_key(pack.header.id))).expect("it was deleted");
    let confirmed = at(&(Step::Create, entry)).expect("the entry was made durable");
    assert!(confirmed < deleted, "{steps:?}");
}

/// A live chunk in a sparse pack has a flipped bit. A copy must not give it a valid checksum.
#[test]
fn a_sparse_pack_with_a_flipped_bit_is_named_and_stays() {
    let mut world = world();
    trees::write(&world.tree("part/large"), &noise(1, 100_000));
    world.prepare("part", "project/a/part");
    let remote = world.memory();
    let store = world.open(remote.clone()).unwrap();
    store::refs::drop_versions(&store, &name(REF), None).unwrap();
    let mut dry = eager();
    dry.dry_run = true;
    let plan = run(&world, &remote, &dry).unwrap().plan;
    let index = store.view().unwrap().index;
    let first = noise(1, 100_000);
    let len = store.chunker().cut(&first, true).unwrap();
    let place = index.find(&ChunkId::of(&first[..len])).unwrap().unwrap();
    assert!(
        plan.repack.iter().any(|pack| pack.pack == place.pack),
        "{plan:?}"
    );
    let key = pack_key(place.pack);
    let mut bytes = remote.get(&key).unwrap().to_vec();
    bytes[place.frame_offset as usize + 1 + place.offset as usize] ^= 1;
    remote.put(&key, bytes.into()).unwrap();
    let error = run(&world, &remote, &eager()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
    assert!(
        format!("{error:?}").contains(&place.pack.to_string()),
        "{error:?}"
    );
    assert!(exists(&*remote, place.pack));
    assert!(
        !log::load(&*remote)
            .unwrap()
            .condemned
            .contains_key(&place.pack)
    );
}

/// Uploads during a run are left to the next run: beside busy writers, every plan would be void otherwise.
#[test]
fn what_appears_while_a_run_goes_on_is_not_old() {
    let world = world();
    let remote = world.memory();
    let store = world.open(remote.clone()).unwrap();
    store::refs::drop_versions(&store, &name(REF), None).unwrap();
    let packs = Arc::new(Mutex::new(BTreeMap::new()));
    let (there, written) = (remote.clone(), packs.clone());
    // Before each entry of the collector, somebody commits the previous upload and uploads another pack.
    let script = move |when, step, key: &str| {
        if when != When::Before || step != Step::Create || !key.starts_with(LOG_PREFIX) {
            return;
        }
        let mut packs = written.lock().unwrap();
        if packs.len() > 100 {
            return;
        }
        let number = packs.len() as u64;
        if let Some((_, add)) = packs.last_key_value() {
            commit(&*there, std::slice::from_ref(add));
        }
        let pack = pack_of(&there, &[noise(1000 + number, 5_000)]);
        packs.insert(number, segment_over(&*there, &[&pack]));
    };
    let scripted = Arc::new(Scripted::new(remote.clone(), script));
    let store = world.open(scripted.clone()).unwrap();
    let report = collect(&store, scripted.as_ref(), &eager()).unwrap();
    assert!(
        !report.stopped && report.freed_bytes > 400_000,
        "{report:?}"
    );
    assert!(report.plans_void <= 3, "{report:?}");
    assert_named_packs_exist(&world, &remote);
}
