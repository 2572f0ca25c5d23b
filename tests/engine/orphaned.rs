//! Packs that no live segment names: a repair adopts those that live versions need.

use std::fs;

use store::check::{ReadData, RepairReport, RepairRequest, repair};
use store::format::{PackHeader, PackKind, PackTable, PackTrailer, log_key, pack_key};
use store::{PackId, Unwatched};

use crate::damaged::Damaged;
use crate::lost::{collect, get_to};
use crate::stores::{assert_same_tree, noise, put_tree};

/// Given-up entries had added packs, which no segment names now. Versions after them still have their chunks.
#[test]
fn what_live_versions_need_is_found_in_packs_that_no_segment_names() {
    let damaged = Damaged::new();
    let later = damaged.dir.path().join("later");
    fs::write(&later, noise(9, 300_000)).unwrap();
    put_tree(&damaged.store, &later, "project/demo/later");
    // A version of the same bytes, whose chunks are only in packs of the two earlier entries.
    put_tree(&damaged.store, &later, "project/demo/again");
    put_tree(&damaged.store, &damaged.source(), "project/demo/again");
    for number in [1, 2] {
        fs::write(damaged.object(&log_key(number)), b"").unwrap();
    }
    let asked = |dry_run| RepairRequest {
        accept_loss: true,
        dry_run,
        ..RepairRequest::default()
    };
    let repaired = repair(&damaged.store, asked(false), &Unwatched).unwrap();
    // The third entry has a copy of the second.
    assert_eq!(
        (
            repaired.entries_restored.as_slice(),
            repaired.entries_lost.as_slice()
        ),
        ([2].as_slice(), [1].as_slice())
    );
    assert_eq!(
        (repaired.packs_kept, repaired.hits.len()),
        (2, 0),
        "{repaired:#?}"
    );
    assert_eq!(repaired.segments_added.len(), 1);
    let report = damaged.verify(ReadData::Everything);
    assert!(report.is_clean(), "{report:#?}");
    assert_eq!(
        repair(&damaged.store, asked(false), &Unwatched).unwrap(),
        RepairReport::default()
    );
    for _ in 0..2 {
        collect(&damaged).unwrap();
    }
    let out = damaged.dir.path().join("out");
    get_to(&damaged.store, "project/demo/again@2", &out).unwrap();
    assert_same_tree(&damaged.source(), &out);
}

/// A chunk that is damaged in one pack may also be in a pack that no segment names.
#[test]
fn a_pack_beside_makes_up_for_a_damaged_one() {
    let damaged = Damaged::new();
    let segments: Vec<_> = damaged
        .store
        .state()
        .unwrap()
        .segments
        .into_keys()
        .collect();
    let key = damaged.pack(PackKind::Data);
    let twin = PackId([9; 16]);
    let bytes = fs::read(damaged.object(&key)).unwrap();
    let remote = damaged.store.remote();
    remote
        .put(&pack_key(twin), renamed(&bytes, twin).into())
        .unwrap();
    fs::remove_file(damaged.object(&key)).unwrap();
    let repaired = damaged.repair(false);
    assert_eq!(
        (repaired.packs_kept, repaired.hits.len()),
        (1, 0),
        "{repaired:#?}"
    );
    assert_eq!(repaired.chunks_lost, 0);
    assert!(
        segments
            .iter()
            .all(|id| damaged.store.state().unwrap().segments.contains_key(id))
    );
    assert!(damaged.verify(ReadData::Everything).is_clean());
}

/// The same pack with another name.
fn renamed(bytes: &[u8], id: PackId) -> Vec<u8> {
    let trailer_at = bytes.len() - usize::try_from(PackTrailer::LEN).unwrap();
    let len = bytes.len() as u64;
    let begin = usize::try_from(PackHeader::LEN).unwrap();
    let mut header = PackHeader::decode("test", &bytes[..begin]).unwrap();
    let trailer = PackTrailer::decode("test", len, &bytes[trailer_at..]).unwrap();
    let table_at = usize::try_from(trailer.table_offset).unwrap();
    let table = PackTable::decode("test", &header, &trailer, &bytes[table_at..]).unwrap();
    header.id = id;
    let frames = &bytes[begin..table_at];
    [
        &header.encode()[..],
        frames,
        &table.encode(&header).unwrap(),
    ]
    .concat()
}
