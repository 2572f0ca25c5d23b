//! What a put relies on may be gone or known as damaged: then it is stored again, before any repair.

use std::fs;
use std::path::Path;

use store::check::ReadData;
use store::format::{PackKind, pack_key};
use store::{PutRequest, Unwatched, put};

use crate::damaged::{Damaged, REF, flip};
use crate::stores::{assert_same_tree, name, put_tree};

const OTHER: &str = "project/demo/other";

/// Copies the source, so that its files are not in the stat cache.
fn copy(damaged: &Damaged) -> std::path::PathBuf {
    let copy = damaged.dir.path().join("copy");
    crate::stores::shell(&format!(
        "cp -a '{}' '{}'",
        damaged.source().display(),
        copy.display()
    ));
    copy
}

fn all_is_well(damaged: &Damaged, source: &Path) {
    let report = damaged.verify(ReadData::Everything);
    assert!(report.is_clean(), "{report:#?}");
    for what in [REF, OTHER] {
        let out = damaged.dir.path().join("out");
        if crate::lost::get_to(&damaged.store, what, &out).is_ok() {
            assert_same_tree(source, &out);
        }
    }
}

#[test]
fn a_pack_that_is_gone_is_not_relied_on() {
    for kind in [PackKind::Data, PackKind::Meta] {
        let damaged = Damaged::new();
        fs::remove_file(damaged.object(&damaged.pack(kind))).unwrap();
        let copy = copy(&damaged);
        put_tree(&damaged.store, &copy, OTHER);
        let warnings = damaged.store.warnings();
        assert!(
            warnings[0].text.contains("was gone or damaged"),
            "{warnings:?}"
        );
        all_is_well(&damaged, &damaged.source());
    }
}

#[test]
fn a_put_of_files_that_are_known_as_unchanged_heals_a_pack_that_is_gone() {
    for kind in [PackKind::Data, PackKind::Meta] {
        let damaged = Damaged::new();
        fs::remove_file(damaged.object(&damaged.pack(kind))).unwrap();
        let request = PutRequest::new(damaged.source(), name(REF));
        let report = put(&damaged.store, &request, &Unwatched).unwrap();
        assert_eq!(
            (report.version, report.unchanged),
            (Some(1), true),
            "{kind:?}"
        );
        all_is_well(&damaged, &damaged.source());
        let number = damaged.store.state().unwrap().number;
        put(&damaged.store, &request, &Unwatched).unwrap();
        assert_eq!(
            damaged.store.state().unwrap().number,
            number,
            "nothing is left to do"
        );
    }
}

/// A flipped bit in a chunk's location leads to other bytes, so a version that relies on it could not be read.
#[test]
fn a_segment_that_is_damaged_is_not_relied_on() {
    let damaged = Damaged::new();
    let segment = damaged.object(&damaged.segment());
    let len = fs::metadata(&segment).unwrap().len();
    let copy = copy(&damaged);
    let sound = fs::read(&segment).unwrap();
    for at in (0..24).map(|part| len * (2 * part + 1) / 48) {
        flip(&segment, at);
        let done = put(
            &damaged.store,
            &PutRequest::new(&copy, name(OTHER)),
            &Unwatched,
        );
        if let Ok(report) = done {
            let out = tempfile::tempdir().unwrap();
            let what = format!("{OTHER}@{}", report.version.unwrap());
            fs::write(&segment, &sound).unwrap();
            crate::lost::get_to(&damaged.store, &what, &out.path().join("tree")).unwrap();
            panic!("byte {at}: a put relied on a damaged segment");
        }
        let error = done.unwrap_err();
        assert_eq!(
            error.kind(),
            store::ErrorKind::Corrupt,
            "byte {at}: {error:?}"
        );
        fs::write(&segment, &sound).unwrap();
    }
    put_tree(&damaged.store, &copy, OTHER);
    all_is_well(&damaged, &damaged.source());
}

#[test]
fn a_pack_that_a_verification_found_damaged_is_not_relied_on() {
    for is_copy in [false, true] {
        let damaged = Damaged::new();
        let location = damaged.first_chunk("text");
        let path = damaged.object(&pack_key(location.pack));
        flip(&path, u64::from(location.frame_offset) + 20);
        // Nobody has read the damaged bytes yet.
        let number = damaged.store.state().unwrap().number;
        put_tree(&damaged.store, &damaged.source(), REF);
        assert_eq!(damaged.store.state().unwrap().number, number + 1);
        assert!(!damaged.verify(ReadData::Everything).is_clean());
        match is_copy {
            true => put_tree(&damaged.store, &copy(&damaged), OTHER),
            false => put_tree(&damaged.store, &damaged.source(), REF),
        };
        all_is_well(&damaged, &damaged.source());
    }
}

#[test]
fn a_pack_that_is_well_again_stays() {
    let damaged = Damaged::new();
    let location = damaged.first_chunk("text");
    let path = damaged.object(&pack_key(location.pack));
    flip(&path, u64::from(location.frame_offset) + 20);
    assert!(!damaged.verify(ReadData::Everything).is_clean());
    flip(&path, u64::from(location.frame_offset) + 20);
    put_tree(&damaged.store, &copy(&damaged), OTHER);
    assert!(damaged.store.state().unwrap().condemned.is_empty());
    all_is_well(&damaged, &damaged.source());
}
