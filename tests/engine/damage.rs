//! Damage of every kind of object in a real store: who notices it, how it is named, and what is hit. A repair and a put
//! of the original files restore what can be restored.

use std::fs;
use std::path::Path;

use store::GetRequest;
use store::check::{Finding, Part, ReadData, RepairReport, RepairRequest, Subset, repair};
use store::format::{
    Change, PackHeader, PackKind, PackTable, PackTrailer, log_key, pack_key, segment_key,
};
use store::{ChunkId, ErrorKind, Store, Unwatched, get};

use crate::damaged::{
    Damaged, REF, flip, hit_paths, objects, pin_and_unpin, truncate, verify_target,
};
use crate::stores::{noise, put_tree, request, spec};

#[test]
fn a_whole_store_is_clean() {
    let damaged = Damaged::new();
    for read in [ReadData::Nothing, ReadData::Everything] {
        let report = damaged.verify(read);
        assert!(report.is_clean(), "{report:#?}");
        assert_eq!((report.segments, report.packs, report.versions), (1, 2, 1));
        let all = read == ReadData::Everything;
        assert_eq!(report.packs_read, if all { 2 } else { 0 });
        assert_eq!(report.bytes_read > 3 << 20, all);
    }
    let repaired = damaged.repair(true);
    assert_eq!(repaired, RepairReport::default(), "nothing to do");
}

#[test]
fn a_flipped_bit_in_data_is_found_by_reading_only_and_healed_by_the_originals() {
    let damaged = Damaged::new();
    let location = damaged.first_chunk("text");
    let key = pack_key(location.pack);
    let path = damaged.object(&key);
    flip(&path, u64::from(location.frame_offset) + 20);
    assert!(damaged.verify(ReadData::Nothing).is_clean());
    let report = damaged.verify(ReadData::Everything);
    assert_eq!(objects(&report), [key.as_str()]);
    assert_eq!(hit_paths(&report), ["sub/deep/copy", "text"]);
    assert!(
        report
            .hits
            .iter()
            .all(|hit| hit.cause == Part::Pack(location.pack))
    );
    let out = damaged.dir.path().join("out");
    let error = get(
        &damaged.store,
        &GetRequest::new(spec(REF), &out),
        &Unwatched,
    )
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
    assert!(
        format!("{error:?}").contains(&location.pack.to_string()),
        "{error:?}"
    );
    // The repair knows what verify found, so it need not read all data.
    let repaired = damaged.repair(false);
    assert_eq!(repaired.packs_condemned, [location.pack]);
    assert!(
        repaired.chunks_saved > 10 && repaired.chunks_lost >= 1,
        "{repaired:#?}"
    );
    assert_eq!(repaired.hits.len(), 2);
    assert!(path.exists(), "a repair deletes nothing");
    let report = damaged.verify(ReadData::Everything);
    assert_eq!(objects(&report), [""; 0]);
    assert_eq!(hit_paths(&report), ["sub/deep/copy", "text"]);
    damaged.heal();
    assert_eq!(damaged.repair(true), RepairReport::default());
}

#[test]
fn a_plain_put_heals_although_its_files_are_known_as_unchanged() {
    let damaged = Damaged::new();
    // Files enter the stat cache only after they have settled.
    std::thread::sleep(std::time::Duration::from_millis(2_100));
    put_tree(&damaged.store, &damaged.source(), REF);
    let report = put_tree(&damaged.store, &damaged.source(), REF);
    assert_eq!(report.unchanged_files, 4);
    let location = damaged.first_chunk("large");
    flip(
        &damaged.object(&pack_key(location.pack)),
        u64::from(location.frame_offset) + 20,
    );
    damaged.repair(true);
    let report = put_tree(&damaged.store, &damaged.source(), REF);
    assert_eq!((report.unchanged_files, report.new_bytes > 0), (3, true));
    damaged.heal();
}

#[test]
fn a_plain_put_heals_also_when_the_repair_is_long_ago() {
    let damaged = Damaged::new();
    // Files enter the stat cache only after they have settled.
    std::thread::sleep(std::time::Duration::from_millis(2_100));
    put_tree(&damaged.store, &damaged.source(), REF);
    let location = damaged.first_chunk("large");
    flip(
        &damaged.object(&pack_key(location.pack)),
        u64::from(location.frame_offset) + 20,
    );
    damaged.repair(true);
    // More entries than a put reads to check whether its chunks were condemned.
    let other = damaged.dir.path().join("other");
    for number in 0..40 {
        fs::write(&other, noise(100 + number, 100)).unwrap();
        put_tree(&damaged.store, &other, "project/demo/other");
    }
    let report = put_tree(&damaged.store, &damaged.source(), REF);
    assert_eq!((report.unchanged_files, report.new_bytes > 0), (3, true));
    damaged.heal();
}

#[test]
fn a_missing_pack_is_named_and_healed() {
    for kind in [PackKind::Data, PackKind::Meta] {
        let damaged = Damaged::new();
        let key = damaged.pack(kind);
        fs::remove_file(damaged.object(&key)).unwrap();
        let report = damaged.verify(ReadData::Nothing);
        assert_eq!(objects(&report), [key.as_str()]);
        assert_eq!(report.findings[0].what, "is missing");
        assert!(!report.hits.is_empty());
        let out = damaged.dir.path().join("out");
        let error = get(
            &damaged.store,
            &GetRequest::new(spec(REF), &out),
            &Unwatched,
        )
        .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
        let repaired = damaged.repair(false);
        assert_eq!(repaired.packs_condemned.len(), 1);
        assert_eq!(repaired.chunks_saved, 0);
        assert!(repaired.chunks_lost > 0);
        damaged.heal();
    }
}

#[test]
fn a_truncated_pack_keeps_what_is_left_of_it() {
    let damaged = Damaged::new();
    let key = damaged.pack(PackKind::Data);
    let len = fs::metadata(damaged.object(&key)).unwrap().len();
    truncate(&damaged.object(&key), len / 2);
    let report = damaged.verify(ReadData::Nothing);
    assert_eq!(objects(&report), [key.as_str()]);
    assert!(
        report.findings[0]
            .what
            .starts_with(&format!("has {} bytes", len / 2))
    );
    assert!(!report.hits.is_empty());
    let repaired = damaged.repair(false);
    assert!(
        repaired.chunks_saved > 5 && repaired.chunks_lost > 5,
        "{repaired:#?}"
    );
    damaged.heal();
}

#[test]
fn a_damaged_table_of_a_pack_loses_nothing() {
    let damaged = Damaged::new();
    let key = damaged.pack(PackKind::Data);
    let path = damaged.object(&key);
    let len = fs::metadata(&path).unwrap().len();
    for at in [0, 3, 20, len - 1, len - 60, len - 200] {
        flip(&path, at);
        let report = damaged.verify(ReadData::Nothing);
        assert_eq!(objects(&report), [key.as_str()], "byte {at}");
        assert_eq!(hit_paths(&report), [""; 0], "every chunk can still be read");
        flip(&path, at);
    }
    flip(&path, len - 100);
    let repaired = damaged.repair(false);
    assert_eq!(
        (repaired.packs_condemned.len(), repaired.chunks_lost),
        (1, 0)
    );
    assert!(damaged.verify(ReadData::Everything).is_clean());
}

#[test]
fn damaged_metadata_is_found_by_the_walk_and_healed() {
    let damaged = Damaged::new();
    let key = damaged.pack(PackKind::Meta);
    // Damages every frame, so that any frame that is read first is damaged.
    let path = damaged.object(&key);
    flip(&path, 108);
    let report = damaged.verify(ReadData::Nothing);
    assert_eq!(objects(&report), [key.as_str()], "{report:#?}");
    assert!(!report.hits.is_empty());
    let repaired = damaged.repair(false);
    assert_eq!(repaired.packs_condemned.len(), 1);
    damaged.heal();
}

#[test]
fn a_segment_is_made_anew_from_its_packs() {
    type Break = fn(&Path);
    let ways: [(&str, Break); 4] = [
        ("missing", |path| fs::remove_file(path).unwrap()),
        ("truncated", |path| truncate(path, 100)),
        ("flipped header", |path| flip(path, 30)),
        ("flipped entry", |path| flip(path, 400)),
    ];
    for (what, damage) in ways {
        let damaged = Damaged::new();
        let key = damaged.segment();
        damage(&damaged.object(&key));
        let report = damaged.verify(ReadData::Nothing);
        assert!(
            objects(&report).contains(&key.as_str()),
            "{what}: {report:#?}"
        );
        let repaired = damaged.repair(false);
        assert_eq!(
            (
                repaired.segments_dropped.len(),
                repaired.segments_added.len()
            ),
            (1, 1),
            "{what}"
        );
        assert_eq!((repaired.packs_kept, repaired.hits.len()), (2, 0), "{what}");
        let report = damaged.verify(ReadData::Everything);
        assert!(report.is_clean(), "{what}: {report:#?}");
        damaged.heal();
    }
}

#[test]
fn packs_that_nobody_needs_are_not_taken_in() {
    let damaged = Damaged::new();
    let other = damaged.dir.path().join("other");
    fs::write(&other, noise(9, 500_000)).unwrap();
    put_tree(&damaged.store, &other, "project/demo/other");
    let state = damaged.store.state().unwrap();
    let packs_of = |store: &Store| {
        let index = store.view().unwrap().index;
        index.packs().map(|pack| pack.id).collect::<Vec<_>>()
    };
    assert_eq!(packs_of(&damaged.store).len(), 4);
    // The packs of the other ref are not needed any more, and its segment is lost like all others.
    let spec = "project/demo/other".parse().unwrap();
    store::refs::drop_versions(&damaged.store, &spec, None).unwrap();
    for id in state.segments.keys() {
        fs::remove_file(damaged.object(&segment_key(*id))).unwrap();
    }
    let repaired = damaged.repair(false);
    assert_eq!((repaired.packs_kept, repaired.hits.len()), (2, 0));
    assert_eq!(packs_of(&damaged.store).len(), 2);
    assert!(damaged.verify(ReadData::Everything).is_clean());
}

#[test]
fn a_damaged_log_entry_is_named_and_a_checkpoint_stands_in_for_it() {
    let damaged = Damaged::new();
    let key = "log/000000/00000001";
    flip(&damaged.object(key), 40);
    let report = damaged.verify(ReadData::Nothing);
    assert_eq!(objects(&report), [key]);
    let error = repair(&damaged.store, RepairRequest::default(), &Unwatched).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let error = damaged.store.state().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().starts_with(key), "{error}");
    flip(&damaged.object(key), 40);
    for _ in 0..64 {
        pin_and_unpin(&damaged);
    }
    assert!(damaged.verify(ReadData::Nothing).is_clean());
    flip(&damaged.object(key), 40);
    let report = damaged.verify(ReadData::Nothing);
    assert_eq!(objects(&report), [key]);
    assert_eq!(report.versions, 1, "the state is known from the checkpoint");
    fs::remove_file(damaged.object("log/000000/00000009")).unwrap();
    let report = damaged.verify(ReadData::Nothing);
    assert_eq!(objects(&report), [key, "log/000000/00000009"]);
    assert_eq!(
        report.findings[1].what,
        "is missing; entry 10 says what it was"
    );
}

#[test]
fn damaged_checkpoints_are_written_again() {
    let damaged = Damaged::new();
    for _ in 0..64 {
        pin_and_unpin(&damaged);
    }
    let key = "checkpoints/00000064";
    let original = fs::read(damaged.object(key)).unwrap();
    let stale = damaged.store.state().unwrap().encode().unwrap();
    let cut = original[..original.len() / 2].to_vec();
    for broken in [cut, stale, Vec::new()] {
        fs::write(damaged.object(key), &broken).unwrap();
        let report = damaged.verify(ReadData::Nothing);
        assert_eq!(objects(&report), [key], "{report:#?}");
        assert_eq!(report.findings[0].part, Part::Checkpoint(64));
        assert_eq!(damaged.repair(false).checkpoints, [64]);
        assert_eq!(fs::read(damaged.object(key)).unwrap(), original);
        assert!(damaged.verify(ReadData::Nothing).is_clean());
    }
}

#[test]
fn a_log_that_ends_before_its_checkpoint_lacks_the_entry_after_the_last() {
    let damaged = Damaged::new();
    for _ in 0..64 {
        pin_and_unpin(&damaged);
    }
    fs::write(damaged.object("checkpoints/00000064"), "none").unwrap();
    let last = damaged.store.state().unwrap().number;
    let mut number = 60;
    while number <= last {
        fs::remove_file(damaged.object(&log_key(number))).unwrap();
        number += 1;
    }
    // By a host that has not seen the log before.
    fs::remove_dir_all(damaged.dir.path().join("cache")).unwrap();
    let report = damaged.verify(ReadData::Nothing);
    let ended = |finding: &&Finding| finding.part == Part::Log(60);
    let ended = report.findings.iter().find(ended).unwrap();
    assert_eq!(ended.object, log_key(60), "{report:#?}");
}

#[test]
fn only_what_a_ref_needs_is_verified_for_it() {
    let damaged = Damaged::new();
    let other = damaged.dir.path().join("other");
    fs::write(&other, noise(9, 500_000)).unwrap();
    put_tree(&damaged.store, &other, "team/other/file");
    let location = damaged.first_chunk("large");
    flip(
        &damaged.object(&pack_key(location.pack)),
        u64::from(location.frame_offset) + 5,
    );
    let verify = |target| verify_target(&damaged.store, ReadData::Everything, Some(target));
    let clean = verify("team/other").unwrap();
    assert!(clean.is_clean(), "{clean:#?}");
    assert_eq!((clean.packs, clean.packs_read, clean.versions), (2, 2, 1));
    for target in [REF, "project/demo", "project/demo/data@1"] {
        assert_eq!(hit_paths(&verify(target).unwrap()), ["large"], "{target}");
    }
    let error = verify("project/demo/nothing").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn a_subset_goes_on_where_the_last_one_ended() {
    let damaged = Damaged::new();
    for seed in 10..14 {
        let file = damaged.dir.path().join("file");
        fs::write(&file, noise(seed, 100_000)).unwrap();
        put_tree(&damaged.store, &file, "project/demo/file");
    }
    let mut read = 0;
    for round in 0..10 {
        let report = damaged.verify(ReadData::Some(Subset::Bytes(1)));
        assert_eq!(report.packs_read, 1, "round {round}");
        read += report.bytes_read;
    }
    let all = damaged.verify(ReadData::Everything);
    assert_eq!(
        (all.packs, read),
        (10, all.bytes_read),
        "each pack once in ten rounds"
    );
}

#[test]
fn a_dry_repair_changes_nothing() {
    let damaged = Damaged::new();
    fs::remove_file(damaged.object(&damaged.pack(PackKind::Data))).unwrap();
    let before = damaged.store.state().unwrap();
    let request = RepairRequest {
        read_data: false,
        dry_run: true,
        ..RepairRequest::default()
    };
    let report = repair(&damaged.store, request, &Unwatched).unwrap();
    assert_eq!((report.packs_condemned.len(), report.entry), (1, None));
    assert!(!report.hits.is_empty());
    assert_eq!(damaged.store.state().unwrap(), before);
}

#[test]
fn a_damaged_format_is_named_and_put_leaves_it_alone() {
    let damaged = Damaged::new();
    let path = damaged.object("format");
    flip(&path, 30);
    let remote = std::sync::Arc::clone(damaged.store.remote());
    let error = Store::open(remote, crate::stores::host(damaged.dir.path())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("format: "), "{error}");
}

#[test]
fn a_put_beside_a_broken_segment_says_so() {
    let damaged = Damaged::new();
    let key = damaged.segment();
    truncate(&damaged.object(&key), 50);
    let asked = request(&damaged.source(), REF);
    let error = store::put(&damaged.store, &asked, &Unwatched).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
    assert!(error.to_string().contains(&key), "{error}");
}

/// Replaces the segments by one with a valid checksum and a wrong row, which gives a chunk another id.
fn lie(damaged: &Damaged) -> String {
    let store = &damaged.store;
    let remote = store.remote().as_ref();
    let index = store.view().unwrap().index;
    let mut builder = store::pack::SegmentBuilder::default();
    for pack in index.packs() {
        let key = pack_key(pack.id);
        let bytes = fs::read(damaged.object(&key)).unwrap();
        let len = u64::from(pack.len);
        let header = PackHeader::decode(&key, &bytes).unwrap();
        let trailer = &bytes[bytes.len() - PackTrailer::LEN as usize..];
        let trailer = PackTrailer::decode(&key, len, trailer).unwrap();
        let table = &bytes[trailer.table_offset as usize..];
        let mut table = PackTable::decode(&key, &header, &trailer, table).unwrap();
        if pack.kind == PackKind::Data {
            table.chunks[0].id = ChunkId::of(b"a lie");
        }
        builder.add_table(header, pack.len, &table).unwrap();
    }
    let (segment, add) = builder.write(remote, store.provenance()).unwrap();
    let mut state = store.state().unwrap();
    let dropped = state.segments.keys();
    let drops = dropped.map(|id| Change::DropSegment {
        segment: *id,
        into: None,
    });
    let changes: Vec<Change> = drops.chain([add]).collect();
    let who = &store.host().who;
    store::log::commit(remote, &mut state, who, &mut |_, _| Ok(changes.clone())).unwrap();
    segment_key(segment)
}

#[test]
fn a_segment_that_lies_is_made_anew() {
    let damaged = Damaged::new();
    let key = lie(&damaged);
    let report = damaged.verify(ReadData::Everything);
    assert_eq!(objects(&report), [key.as_str()], "{report:#?}");
    assert!(report.findings[0].what.starts_with("has no chunk "));
    assert!(!report.hits.is_empty());
    let repaired = damaged.repair(false);
    assert_eq!(
        (repaired.packs_kept, repaired.packs_condemned.len()),
        (2, 0)
    );
    let report = damaged.verify(ReadData::Everything);
    assert!(report.is_clean(), "{report:#?}");
}

#[test]
fn what_is_condemned_stays_condemned() {
    let damaged = Damaged::new();
    let key = damaged.pack(PackKind::Data);
    let len = fs::metadata(damaged.object(&key)).unwrap().len();
    flip(&damaged.object(&key), len - 100);
    let condemned = damaged.repair(false).packs_condemned;
    flip(&damaged.object(&key), len - 100);
    for segment in damaged.store.state().unwrap().segments.keys() {
        fs::remove_file(damaged.object(&segment_key(*segment))).unwrap();
    }
    let repaired = damaged.repair(false);
    assert_eq!((repaired.packs_kept, repaired.hits.len()), (2, 0));
    let index = damaged.store.view().unwrap().index;
    assert!(index.packs().all(|pack| !condemned.contains(&pack.id)));
    assert!(damaged.verify(ReadData::Everything).is_clean());
}
