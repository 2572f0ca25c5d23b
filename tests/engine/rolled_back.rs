//! A log that was rolled back with its checkpoints, objects of two stores in one place, and frames that a disk damaged:
//! found by the provenance of objects and by checksums.

use std::sync::Arc;

use gc::collect;
use store::GetRequest;
use store::check::{Part, ReadData, RepairRequest, repair, verify};
use store::codec::Encoder;
use store::format::{
    CHECKPOINTS_PREFIX, Change, LOG_PREFIX, PackChunk, PackKind, pack_key, segment_key,
};
use store::log;
use store::pack::{EncodedFrame, PackWriter, SegmentBuilder};
use store::remote::{Objects, Prune, Read, Write};
use store::{ChunkId, ErrorKind, Remedy, Result, Store, Unwatched, get, refs};
use support::trees;

use crate::collect::eager;
use crate::damaged::verify_target;
use crate::stores::{host, name, noise, put_tree, shell, spec, store_in};
use crate::world::World;

const REF: &str = "project/a/data";

/// Three versions, and the log as it was after the first.
fn rolled_back(world: &mut World) -> Arc<dyn Prune> {
    trees::write(&world.tree("one").join("file"), &noise(1, 100_000));
    trees::write(&world.tree("two").join("file"), &noise(2, 100_000));
    trees::write(&world.tree("three").join("file"), &noise(3, 100_000));
    world.prepare("one", REF);
    let remote = world.memory();
    let before = keys(&*remote, LOG_PREFIX);
    world.put(remote.clone(), "two", REF).unwrap();
    // The last pack looks like an upload of a killed process. Its provenance says that the log was longer.
    world.put(remote.clone(), "three", REF).unwrap();
    let after = [
        keys(&*remote, LOG_PREFIX),
        keys(&*remote, CHECKPOINTS_PREFIX),
    ]
    .concat();
    let gone: Vec<String> = after
        .into_iter()
        .filter(|key| !before.contains(key))
        .collect();
    assert!(!gone.is_empty());
    remote.delete(&gone).unwrap();
    remote
}

fn keys(remote: &dyn Read, prefix: &str) -> Vec<String> {
    let listed = remote.list(prefix).unwrap();
    listed.into_iter().map(|info| info.key).collect()
}

fn got(world: &World, store: &Store, version: &str) -> Result<()> {
    let dir = tempfile::tempdir_in(world.tree(".")).unwrap();
    let request = GetRequest::new(spec(version), dir.path().join("out"));
    get(store, &request, &Unwatched).map(drop)
}

/// Asserts that the text says that the log was longer, and where.
fn assert_told(text: &str) {
    assert!(text.starts_with("log/000000/0000000"), "{text}");
    assert!(
        text.contains(": missing, although who wrote segments/"),
        "{text}"
    );
    assert!(text.contains("the log was rolled back"), "{text}");
}

#[test]
fn a_log_that_was_rolled_back_is_read_with_a_warning_and_neither_added_to_nor_collected() {
    let mut world = World::new();
    let remote = rolled_back(&mut world);
    let before = keys(&*remote, "");
    let open = || world.open(remote.clone()).unwrap();
    let store = open();
    let view = store.view().unwrap_err();
    assert_eq!(view.kind(), ErrorKind::Corrupt);
    let error = world.put(remote.clone(), "two", REF).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert_told(&error.to_string());
    let error = refs::drop_versions(&open(), &name(REF), Some(1)).unwrap_err();
    assert_told(&error.to_string());
    let error = collect(&open(), &*remote, &eager()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert_told(&error.to_string());
    let report = verify_target(&open(), ReadData::Everything, None).unwrap();
    let [finding] = report.findings.as_slice() else {
        panic!("{report:#?}")
    };
    assert_eq!(
        finding.part,
        Part::Log(open().readable_state().unwrap().number + 1)
    );
    assert!(
        finding.what.contains("the log was rolled back"),
        "{finding:?}"
    );
    assert_eq!(keys(&*remote, ""), before);
}

#[test]
fn a_reader_goes_on_and_is_told_where_a_look_costs_nothing() {
    let mut world = World::new();
    let memory = rolled_back(&mut world);
    let dir = tempfile::tempdir().unwrap();
    let local = store::remote::Objects::directory(dir.path()).unwrap();
    for key in keys(&*memory, "") {
        local.put(&key, memory.get(&key).unwrap()).unwrap();
    }
    let store = world.open(Arc::new(local)).unwrap();
    got(&world, &store, "project/a/data@1").unwrap();
    let warnings = store.warnings();
    assert_told(&warnings.first().unwrap().text);
}

#[test]
fn what_a_rollback_took_can_be_given_up_on_request() {
    let mut world = World::new();
    let remote = rolled_back(&mut world);
    let open = || world.open(remote.clone()).unwrap();
    let request = |accept_loss, dry_run| RepairRequest {
        accept_loss,
        dry_run,
        ..RepairRequest::default()
    };
    let error = repair(&open(), request(false, false), &Unwatched).unwrap_err();
    assert!(
        matches!(error.remedy(), Some(Remedy::AcceptRollback { .. })),
        "{error:?}"
    );
    let number = open().readable_state().unwrap().number;
    let report = repair(&open(), request(true, true), &Unwatched).unwrap();
    assert_eq!(report.entries_lost, [number + 1]);
    assert_eq!(open().readable_state().unwrap().number, number);
    let report = repair(&open(), request(true, false), &Unwatched).unwrap();
    assert_eq!(report.entries_lost, [number + 1]);
    let state = open().state().unwrap();
    assert_eq!(state.number, number + 1);
    assert!(state.until >= number);
    assert_eq!(open().state().unwrap().until, state.until);
    world.put(remote.clone(), "two", REF).unwrap();
    let report = collect(&open(), &*remote, &eager()).unwrap();
    assert!(report.freed_objects > 0, "{report:?}");
    got(&world, &open(), "project/a/data@1").unwrap();
    got(&world, &open(), "project/a/data@2").unwrap();
    assert!(verify(&open(), &all(), &Unwatched).unwrap().is_clean());
}

fn all() -> store::check::VerifyRequest {
    store::check::VerifyRequest {
        target: None,
        read: ReadData::Stored,
        now: jiff::Timestamp::UNIX_EPOCH,
    }
}

/// Somebody copied packs and segments of one store into another.
#[test]
fn objects_of_another_store_stop_a_collector_and_no_one_else() {
    let (mut world, mut other) = (World::new(), World::new());
    for world in [&mut world, &mut other] {
        trees::write(&world.tree("one").join("file"), &noise(1, 100_000));
        world.prepare("one", REF);
    }
    let (remote, theirs) = (world.memory(), other.memory());
    let foreign: Vec<String> = ["packs", "segments"]
        .iter()
        .flat_map(|prefix| keys(&*theirs, prefix))
        .collect();
    for key in &foreign {
        remote.put(key, theirs.get(key).unwrap()).unwrap();
        let open = || world.open(remote.clone()).unwrap();
        got(&world, &open(), "project/a/data@1").unwrap();
        let before = keys(&*remote, "");
        let error = collect(&open(), &*remote, &eager()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(
            error
                .to_string()
                .starts_with(&format!("{key}: is of store ")),
            "{error}"
        );
        let report = verify_target(&open(), ReadData::Nothing, None).unwrap();
        assert_eq!(crate::damaged::objects(&report), [key.as_str()]);
        assert_eq!(keys(&*remote, ""), before);
        remote.delete(std::slice::from_ref(key)).unwrap();
    }
    collect(&world.open(remote.clone()).unwrap(), &*remote, &eager()).unwrap();
}

/// A segment or a pack with a name of this store belongs to another store.
#[test]
fn an_object_of_another_store_under_a_live_name_is_damage() {
    let mut world = World::new();
    trees::write(&world.tree("one").join("file"), &noise(1, 100_000));
    world.prepare("one", REF);
    let forged = |at: std::ops::Range<usize>, sum: usize, key: &str, remote: &dyn Prune| {
        let mut bytes = remote.get(key).unwrap().to_vec();
        bytes[at].fill(9);
        let found = blake3::hash(&bytes[..sum]);
        bytes[sum..sum + 8].copy_from_slice(&found.as_bytes()[..8]);
        let end = bytes.len() - 32;
        let covered = match key.starts_with("packs") {
            true => {
                let table = u32::from_le_bytes(bytes[end - 20..end - 16].try_into().unwrap());
                [&bytes[..80], &bytes[table as usize..end]].concat()
            }
            false => bytes[..end - 8].to_vec(),
        };
        bytes[end..].copy_from_slice(blake3::hash(&covered).as_bytes());
        remote.put(key, bytes.into()).unwrap();
    };
    let remote = world.memory();
    let state = world.open(remote.clone()).unwrap().state().unwrap();
    let segment = segment_key(*state.segments.keys().next().unwrap());
    let index = world.open(remote.clone()).unwrap().view().unwrap().index;
    let pack = pack_key(index.packs().next().unwrap().id);
    for (key, sum) in [(&segment, 88), (&pack, 72)] {
        let remote = world.memory();
        forged(32..48, sum, key, &*remote);
        let store = world.open(remote.clone()).unwrap();
        let report = verify_target(&store, ReadData::Nothing, None).unwrap();
        assert_eq!(crate::damaged::objects(&report)[0], key.as_str());
        assert!(
            report.findings[0].what.starts_with("is of store 0909"),
            "{report:?}"
        );
        if key == &segment {
            let error = got(&world, &store, "project/a/data@1").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert!(error.to_string().contains("is of store 0909"), "{error}");
        }
    }
    // The segment's writer knew more of the log than the entry that named the segment.
    let remote = world.memory();
    forged(48..49, 88, &segment, &*remote);
    let error = world.open(remote).unwrap().view().unwrap_err();
    assert!(
        error
            .to_string()
            .contains("its writer knew entry 9 of the log"),
        "{error}"
    );
}

#[test]
fn a_scrub_finds_what_a_disk_damaged_without_decoding() {
    let mut world = World::new();
    trees::write(&world.tree("one").join("file"), &noise(1, 100_000));
    world.prepare("one", REF);
    let remote = world.memory();
    let store = world.open(remote.clone()).unwrap();
    let report = verify(&store, &all(), &Unwatched).unwrap();
    assert!(report.is_clean() && report.packs_read > 0 && report.bytes_read > 100_000);
    let index = store.view().unwrap().index;
    let data = index
        .packs()
        .find(|pack| pack.kind == PackKind::Data)
        .unwrap();
    let key = pack_key(data.id);
    let mut bytes = remote.get(&key).unwrap().to_vec();
    bytes[5_000] ^= 1;
    remote.put(&key, bytes.into()).unwrap();
    let report = verify(&store, &all(), &Unwatched).unwrap();
    assert_eq!(crate::damaged::objects(&report), [key.as_str()]);
    let what = &report.findings[0].what;
    assert!(
        what.contains("chunks are damaged, first: sum of the frame at offset 80 is "),
        "{what}"
    );
    assert!(!report.hits.is_empty());
    assert!(
        verify_target(&store, ReadData::Nothing, None)
            .unwrap()
            .is_clean()
    );
}

/// A checksum proves that the bytes are those that were written. Only decoding proves that they match their ids.
#[test]
fn a_scrub_takes_what_was_written_for_right() {
    let mut world = World::new();
    world.change(|store| {
        let remote: Arc<dyn Write> = store.remote().clone();
        let (bytes, made) = (noise(3, 1000), store.provenance());
        let mut pack = PackWriter::begin(&remote, PackKind::Data, made).unwrap();
        let mut frame = EncodedFrame {
            raw_len: 1000,
            chunks: vec![PackChunk {
                id: ChunkId::of(b"other"),
                len: 1000,
            }],
            bases: Vec::new(),
            ..EncodedFrame::default()
        };
        Encoder::encode_raw(&bytes, &mut frame.stored);
        pack.push(frame).unwrap();
        let mut builder = SegmentBuilder::default();
        builder.add(&pack.finish().unwrap()).unwrap();
        let (_, add) = builder.write(remote.as_ref(), made).unwrap();
        let changes: Vec<Change> = vec![add];
        let mut state = store.state().unwrap();
        let who = &store.host().who;
        log::commit(remote.as_ref(), &mut state, who, &mut |_, _| {
            Ok(changes.clone())
        })
        .unwrap();
    });
    let store = world.open(world.memory()).unwrap();
    assert!(verify(&store, &all(), &Unwatched).unwrap().is_clean());
    let report = verify_target(&store, ReadData::Everything, None).unwrap();
    assert_eq!(report.findings.len(), 1, "{report:?}");
}

/// Segments that were put back with the log say nothing of it. Packs do, to a host that sees the store for the first time.
#[test]
fn a_new_host_finds_a_rollback_of_log_and_segments_by_the_packs() {
    let dir = tempfile::tempdir().unwrap();
    let put = |name: &str, seed: u64| {
        trees::write(&dir.path().join(name).join("file"), &noise(seed, 100_000));
        put_tree(&store_in(dir.path()), &dir.path().join(name), REF);
    };
    let root = dir.path().display();
    put("one", 1);
    shell(&format!("cp -a '{root}/store' '{root}/backup'"));
    put("two", 2);
    put("three", 3);
    shell(&format!(
        "cd '{root}/store' && rm -r log segments && cp -a ../backup/log ../backup/segments . && rm -rf checkpoints"
    ));
    let open = |place: &str, cache: &str| {
        let remote = Arc::new(Objects::directory(&dir.path().join(place)).unwrap());
        Store::open(remote, host(&dir.path().join(cache))).unwrap()
    };
    let assert_told = |text: &str| {
        assert!(
            text.contains("missing, although who wrote packs/"),
            "{text}"
        );
        assert!(text.contains("the log was rolled back"), "{text}");
    };
    let reading = open("store", "new");
    reading.readable_view().unwrap();
    assert_told(&reading.warnings().first().unwrap().text);
    // Not only once.
    for _ in 0..2 {
        let error = open("store", "new").view().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert_told(&error.to_string());
    }
    let request = RepairRequest {
        accept_loss: true,
        ..RepairRequest::default()
    };
    repair(&open("store", "new"), request, &Unwatched).unwrap();
    open("store", "new").view().unwrap();
    // The copy by itself is whole.
    let copy = open("backup", "new");
    copy.view().unwrap();
    assert!(copy.warnings().is_empty(), "{:?}", copy.warnings());
}
