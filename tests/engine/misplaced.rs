//! Whatever is at the path of an object: nobody hangs, damage is called damage, and it costs only itself.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use store::check::{ReadData, RepairRequest, repair};
use store::format::{PackKind, checkpoint_key, log_key};
use store::{ErrorKind, Store, Unwatched};

use crate::damaged::{Damaged, REF, objects, pin_and_unpin};
use crate::lost::{collect, get_to};
use crate::stores::host;

type Make = fn(&Path);

/// What may be at the path of an object.
const MISPLACED: [(&str, Make); 6] = [
    ("a pipe", |path| {
        let made = Command::new("mkfifo").arg(path).status().unwrap();
        assert!(made.success());
    }),
    ("a socket", |path| {
        std::os::unix::net::UnixListener::bind(path).unwrap();
    }),
    ("a sparse file", |path| {
        fs::File::create(path).unwrap().set_len(20 << 30).unwrap();
    }),
    ("a symlink to nothing", |path| {
        std::os::unix::fs::symlink("nowhere", path).unwrap();
    }),
    ("a symlink to itself", |path| {
        std::os::unix::fs::symlink(path.file_name().unwrap(), path).unwrap();
    }),
    ("a directory", |path| {
        fs::create_dir_all(path.join("with/something")).unwrap();
    }),
];

#[test]
fn what_is_no_file_or_far_too_large_is_damage_and_nobody_waits_for_it() {
    for (what, make) in MISPLACED {
        for place in ["entry", "segment", "data", "format"] {
            let damaged = Damaged::new();
            pin_and_unpin(&damaged);
            let key = match place {
                "entry" => log_key(2),
                "segment" => damaged.segment(),
                "data" => damaged.pack(PackKind::Data),
                _ => "format".to_owned(),
            };
            let path = damaged.object(&key);
            fs::remove_file(&path).unwrap();
            make(&path);
            let out = damaged.dir.path().join("out");
            let remote = Arc::clone(damaged.store.remote());
            let opened = Store::open(remote, host(damaged.dir.path()));
            let got = opened.and_then(|store| get_to(&store, REF, &out));
            // The next entry has a copy of this one. In a larger file, frames are still at their offsets.
            let error = match (got, place) {
                (Ok(()), "entry") => continue,
                (got, _) => got.unwrap_err(),
            };
            assert_eq!(
                error.kind(),
                ErrorKind::Corrupt,
                "{what} for {place}: {error:?}"
            );
            assert!(
                format!("{error:?}").contains(&key),
                "{what} for {place}: {error:?}"
            );
        }
    }
}

/// One of many entries cannot be read; the next one has a copy.
#[test]
fn an_entry_in_the_middle_that_is_no_entry_costs_nothing() {
    for (what, make) in MISPLACED {
        for number in [2, 3, 5, 7, 8] {
            let damaged = Damaged::new();
            for _ in 0..8 {
                pin_and_unpin(&damaged);
            }
            let key = log_key(number);
            let path = damaged.object(&key);
            fs::remove_file(&path).unwrap();
            make(&path);
            let what = format!("{what} for {key}");
            let out = damaged.dir.path().join("out");
            get_to(&damaged.store, REF, &out).unwrap();
            let warnings = damaged.store.warnings();
            assert!(warnings[0].text.contains(&key), "{what}: {warnings:?}");
            let error = collect(&damaged).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error:?}");
            assert!(error.to_string().contains(&key), "{what}: {error:?}");
            assert_eq!(objects(&damaged.verify(ReadData::Nothing)), [key.as_str()]);
            let repaired = repair(&damaged.store, RepairRequest::default(), &Unwatched);
            if path.is_dir() {
                // A directory may be somebody's, so nothing removes it, and the repair does not succeed.
                let error = repaired.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error:?}");
                assert!(error.to_string().contains(&key), "{what}: {error:?}");
                fs::remove_dir_all(&path).unwrap();
                damaged.repair(false);
            } else {
                assert_eq!(repaired.unwrap().entries_restored, [number], "{what}");
            }
            assert!(damaged.verify(ReadData::Everything).is_clean(), "{what}");
            collect(&damaged).unwrap();
        }
    }
}

/// Before a loss is accepted, an error names what cannot be deleted, with its path and what to do.
#[test]
fn a_repair_that_accepts_a_loss_says_first_what_is_in_its_way() {
    let damaged = Damaged::new();
    for _ in 0..3 {
        pin_and_unpin(&damaged);
    }
    let last = damaged.store.state().unwrap().number;
    let lost = [last - 1, last].map(log_key);
    let paths = [0, 1].map(|at| damaged.object(&lost[at]));
    for path in &paths {
        fs::remove_file(path).unwrap();
        fs::create_dir_all(path.join("with/something")).unwrap();
    }
    let request = RepairRequest {
        accept_loss: true,
        ..RepairRequest::default()
    };
    for dry_run in [true, false] {
        let request = RepairRequest { dry_run, ..request };
        let error = repair(&damaged.store, request, &Unwatched).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
        assert!(error.to_string().contains(&lost[0]), "{error:?}");
        assert_eq!(error.details(), [lost[1].clone()], "{error:?}");
        let hint = error.remedy().unwrap().to_string();
        assert!(hint.contains(&paths[0].display().to_string()), "{hint}");
        assert!(!damaged.object(&log_key(last + 1)).exists());
    }
    for (at, path) in paths.iter().enumerate() {
        fs::rename(path, damaged.dir.path().join(at.to_string())).unwrap();
    }
    repair(&damaged.store, request, &Unwatched).unwrap();
    assert!(damaged.verify(ReadData::Everything).is_clean());
}

#[test]
fn a_checkpoint_that_is_no_file_is_named_and_costs_nothing() {
    for (what, make) in MISPLACED {
        let damaged = Damaged::new();
        for _ in 0..70 {
            pin_and_unpin(&damaged);
        }
        let key = checkpoint_key(64);
        let path = damaged.object(&key);
        fs::remove_file(&path).unwrap();
        make(&path);
        let report = damaged.verify(ReadData::Nothing);
        assert_eq!(objects(&report), [key.as_str()], "{what}");
        let out = damaged.dir.path().join("out");
        get_to(&damaged.store, REF, &out).unwrap();
        collect(&damaged).unwrap();
        let repaired = repair(&damaged.store, RepairRequest::default(), &Unwatched);
        if path.is_dir() {
            let error = repaired.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error:?}");
            assert!(error.to_string().contains(&key), "{what}: {error:?}");
            fs::remove_dir_all(&path).unwrap();
        } else if path.exists() {
            assert_eq!(repaired.unwrap().checkpoints, [64], "{what}");
        }
        assert!(damaged.verify(ReadData::Nothing).is_clean(), "{what}");
    }
}

#[test]
fn a_pack_or_segment_that_is_no_file_is_repaired_and_a_collector_goes_on() {
    for (what, make) in MISPLACED {
        for place in ["segment", "data"] {
            let damaged = Damaged::new();
            let key = match place {
                "segment" => damaged.segment(),
                _ => damaged.pack(PackKind::Data),
            };
            let path = damaged.object(&key);
            fs::remove_file(&path).unwrap();
            make(&path);
            let what = format!("{what} for {place}");
            if place == "segment" || !path.is_file() {
                let error = collect(&damaged).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error:?}");
                assert!(error.to_string().contains(&key), "{what}: {error:?}");
            }
            let report = damaged.verify(ReadData::Nothing);
            assert!(
                objects(&report).contains(&key.as_str()),
                "{what}: {report:#?}"
            );
            let repaired = damaged.repair(false);
            assert_eq!(repaired.hits.is_empty(), place == "segment", "{what}");
            damaged.heal();
            for _ in 0..2 {
                collect(&damaged).unwrap();
            }
            assert!(damaged.verify(ReadData::Everything).is_clean(), "{what}");
        }
    }
}
