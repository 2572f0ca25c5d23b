//! Lost log entries, segments and times cost only themselves.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use store::GetRequest;
use store::check::{ReadData, RepairRequest, repair};
use store::format::{
    Change, Content, Extra, LogEntry, PackKind, Root, Sides, Who, log_key, segment_key,
};
use store::inspect::usage;
use store::read::Reader;
use store::refs::drop_versions;
use store::remote::{Objects, Prune, Write};
use store::{ChunkId, ErrorKind, Remedy, Store, Unwatched, get};

use crate::collect::eager;
use crate::damaged::{Damaged, REF, flip, objects, pin_and_unpin};
use crate::stores::{assert_same_tree, host, name, noise, put_tree, request, spec, store_in};

pub(crate) fn get_to(store: &Store, what: &str, to: &Path) -> store::Result<()> {
    drop(fs::remove_dir_all(to));
    get(store, &GetRequest::new(spec(what), to), &Unwatched).map(drop)
}

pub(crate) fn collect(damaged: &Damaged) -> store::Result<gc::CollectReport> {
    let prune: Arc<dyn Prune> = Arc::new(Objects::directory(&damaged.object("")).unwrap());
    gc::collect(&damaged.store, prune.as_ref(), &eager())
}

/// All objects and their lengths.
fn inventory(damaged: &Damaged) -> Vec<(String, u64)> {
    let listed = damaged.store.remote().list("").unwrap();
    listed
        .into_iter()
        .map(|info| (info.key, info.size))
        .collect()
}

/// The entry's own text is complete and sealed, and nothing says that more followed.
#[test]
fn an_entry_that_was_cut_behind_its_own_text_is_noted() {
    let damaged = Damaged::new();
    for _ in 0..2 {
        pin_and_unpin(&damaged);
    }
    let whole = damaged.verify(ReadData::Nothing);
    assert_eq!(whole.notes, [""; 0]);
    let path = damaged.object(&log_key(3));
    let text = fs::read(&path).unwrap();
    let mut lines = (0..text.len()).filter(|at| text[*at] == b'\n');
    let end = lines.nth(1).unwrap() + 1;
    assert!(end < text.len());
    fs::write(&path, &text[..end]).unwrap();
    let cut = damaged.verify(ReadData::Nothing);
    assert!(cut.is_clean() && cut.notes.len() == 1, "{cut:#?}");
    let start = "log/000000/00000003: ends behind its own text, without the copy of entry 2";
    assert!(cut.notes[0].starts_with(start), "{cut:#?}");
}

#[test]
fn a_lost_log_stops_who_deletes_and_who_writes_and_not_who_reads() {
    let damaged = Damaged::new();
    for _ in 0..70 {
        pin_and_unpin(&damaged);
    }
    let later = damaged.dir.path().join("later");
    fs::write(&later, noise(9, 300_000)).unwrap();
    put_tree(&damaged.store, &later, "project/demo/later");
    fs::rename(damaged.object("log"), damaged.dir.path().join("log")).unwrap();
    let before = inventory(&damaged);
    assert_eq!(collect(&damaged).unwrap_err().kind(), ErrorKind::Corrupt);
    let asked = request(&later, "project/demo/later");
    let error = store::put(&damaged.store, &asked, &Unwatched).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
    assert_eq!(inventory(&damaged), before);
    let out = damaged.dir.path().join("out");
    get_to(&damaged.store, REF, &out).unwrap();
    assert_same_tree(&damaged.source(), &out);
    let warnings = damaged.store.warnings();
    assert!(
        warnings[0].text.contains("log/000000/00000064: missing"),
        "{warnings:?}"
    );
    let report = damaged.verify(ReadData::Nothing);
    assert!(!report.is_clean());
    // After the log is brought back, everything is fine.
    drop(fs::remove_dir_all(damaged.object("log")));
    fs::rename(damaged.dir.path().join("log"), damaged.object("log")).unwrap();
    assert!(damaged.verify(ReadData::Nothing).is_clean());
    collect(&damaged).unwrap();
}

#[test]
fn a_damaged_entry_is_put_back_by_a_repair_and_costs_nothing() {
    for number in [1, 2, 3] {
        let damaged = Damaged::new();
        for _ in 0..3 {
            pin_and_unpin(&damaged);
        }
        let key = log_key(number);
        flip(&damaged.object(&key), 40);
        assert_eq!(collect(&damaged).unwrap_err().kind(), ErrorKind::Corrupt);
        let out = damaged.dir.path().join("out");
        get_to(&damaged.store, REF, &out).unwrap();
        assert_eq!(objects(&damaged.verify(ReadData::Nothing)), [key.as_str()]);
        let repaired = damaged.repair(false);
        assert_eq!(
            (repaired.entries_restored, repaired.entries_lost),
            (vec![number], vec![])
        );
        assert!(damaged.verify(ReadData::Everything).is_clean());
        collect(&damaged).unwrap();
        damaged.heal();
    }
}

/// The segments of these entries still exist, and show that the log went further.
#[test]
fn neighbouring_entries_that_are_gone_or_damaged_are_named() {
    for is_gone in [true, false] {
        let damaged = Damaged::new();
        pin_and_unpin(&damaged);
        for number in 0..3_u8 {
            let later = damaged.dir.path().join(format!("later-{number}"));
            fs::write(&later, noise(number.into(), 300_000)).unwrap();
            put_tree(&damaged.store, &later, "project/demo/later");
        }
        let keys = [log_key(3), log_key(4)];
        assert!(damaged.object(&log_key(5)).exists());
        for key in &keys {
            match is_gone {
                true => fs::remove_file(damaged.object(key)).unwrap(),
                false => flip(&damaged.object(key), 40),
            }
        }
        let report = damaged.verify(ReadData::Nothing);
        let named = objects(&report);
        assert!(
            keys.iter().all(|key| named.contains(&key.as_str())),
            "{report:#?}"
        );
        // A dry run of repair says what it could do.
        let request = RepairRequest {
            dry_run: true,
            ..RepairRequest::default()
        };
        let told = repair(&damaged.store, request, &Unwatched).unwrap();
        assert_eq!(
            (told.entries_restored, told.entries_lost),
            (vec![4], vec![3])
        );
    }
}

#[test]
fn the_newest_entry_is_given_up_on_request_only() {
    let damaged = Damaged::new();
    let later = damaged.dir.path().join("later");
    fs::write(&later, noise(9, 300_000)).unwrap();
    put_tree(&damaged.store, &later, "project/demo/later");
    fs::write(damaged.object(&log_key(2)), b"").unwrap();
    let error = repair(&damaged.store, RepairRequest::default(), &Unwatched).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert_eq!(error.remedy(), Some(&Remedy::AcceptLoss));
    let request = RepairRequest {
        accept_loss: true,
        ..RepairRequest::default()
    };
    let repaired = repair(&damaged.store, request, &Unwatched).unwrap();
    assert_eq!(repaired.entries_lost, [2]);
    assert!(damaged.verify(ReadData::Everything).is_clean());
    put_tree(&damaged.store, &later, "project/demo/later");
    damaged.heal();
}

/// A ref that the damaged newest entry may have set is not reported as missing.
#[test]
fn what_a_damaged_entry_may_have_set_is_not_called_missing() {
    let damaged = Damaged::new();
    let later = damaged.dir.path().join("later");
    fs::write(&later, noise(9, 300_000)).unwrap();
    put_tree(&damaged.store, &later, "project/demo/later");
    let key = log_key(2);
    flip(&damaged.object(&key), 40);
    let out = damaged.dir.path().join("out");
    for what in [
        "project/demo/later",
        &format!("{REF}@2"),
        &format!("{REF}@t0123456789ab"),
    ] {
        let error = get_to(&damaged.store, what, &out).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error:?}");
        assert!(error.to_string().contains(&key), "{what}: {error:?}");
        assert_eq!(error.remedy(), Some(&Remedy::RepairLog), "{what}");
    }
    // A missing path in a known version is certainly missing.
    let inside = get_to(&damaged.store, &format!("{REF}@1:nowhere"), &out);
    assert_eq!(inside.unwrap_err().kind(), ErrorKind::NotFound);
    get_to(&damaged.store, REF, &out).unwrap();
}

#[test]
fn an_old_entry_that_a_checkpoint_stands_in_for_is_a_note() {
    let damaged = Damaged::new();
    for _ in 0..70 {
        pin_and_unpin(&damaged);
    }
    for number in [9, 10] {
        fs::remove_file(damaged.object(&log_key(number))).unwrap();
    }
    assert_eq!(damaged.repair(false).entries_restored, [10]);
    let report = damaged.verify(ReadData::Nothing);
    assert!(report.is_clean(), "{report:#?}");
    assert!(
        report.notes[0].contains("kept by checkpoint 64"),
        "{:?}",
        report.notes
    );
}

#[test]
fn what_a_newer_program_wrote_is_not_damaged() {
    let damaged = Damaged::new();
    let entry = r#"{"magic":"store-log","version":1,"number":2,"commit":"09090909090909090909090909090909","time":"2025-01-02T03:04:05Z","who":{"host":"","user":"","program":""},"changes":[{"op":"fold"}]}"#;
    let seal = blake3::hash(entry.as_bytes()).to_hex();
    fs::write(
        damaged.object(&log_key(2)),
        format!("{entry}\nblake3 {seal}\n"),
    )
    .unwrap();
    let error = crate::damaged::verify_target(&damaged.store, ReadData::Nothing, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let error = repair(&damaged.store, RepairRequest::default(), &Unwatched).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[test]
fn a_lost_segment_or_pack_of_a_live_version_is_corrupt_by_name() {
    for lost in ["segment", "data", "metadata"] {
        let damaged = Damaged::new();
        let key = match lost {
            "segment" => damaged.segment(),
            "data" => damaged.pack(PackKind::Data),
            _ => damaged.pack(PackKind::Meta),
        };
        fs::remove_file(damaged.object(&key)).unwrap();
        let out = damaged.dir.path().join("out");
        for error in [
            get_to(&damaged.store, REF, &out).unwrap_err(),
            collect(&damaged).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{lost}: {error:?}");
            assert!(format!("{error:?}").contains(&key), "{lost}: {error:?}");
        }
    }
}

#[test]
fn a_flipped_bit_in_a_segment_is_named_or_does_not_matter() {
    let damaged = Damaged::new();
    let key = damaged.segment();
    let path = damaged.object(&key);
    let len = fs::metadata(&path).unwrap().len();
    let out = damaged.dir.path().join("out");
    let mut refused = 0;
    for round in 0..80 {
        let at = round * len / 80;
        flip(&path, at);
        let store = store_in(damaged.dir.path());
        if let Err(error) = get_to(&store, REF, &out) {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at}: {error:?}");
            assert!(error.to_string().contains(&key), "byte {at}: {error:?}");
            refused += 1;
        } else if let [warning, ..] = store.warnings().as_slice() {
            // The damage hid the list of times.
            assert!(
                warning.is_part && warning.text.contains(&key),
                "byte {at}: {warning:?}"
            );
            refused += 1;
        } else {
            assert_same_tree(&damaged.source(), &out);
        }
        flip(&path, at);
    }
    assert!(refused > 20, "{refused} of 80");
}

#[test]
fn a_segment_under_the_name_of_another_is_refused() {
    let damaged = Damaged::new();
    let before = damaged.store.state().unwrap().segments;
    // Two segments with the same number of rows, so that only the name distinguishes them.
    for seed in [9, 10] {
        let other = damaged.dir.path().join("other");
        fs::write(&other, noise(seed, 1000)).unwrap();
        put_tree(
            &damaged.store,
            &other,
            &format!("project/demo/other-{seed}"),
        );
    }
    let added = damaged.store.state().unwrap().segments.into_keys();
    let keys: Vec<String> = added
        .filter(|id| !before.contains_key(id))
        .map(segment_key)
        .collect();
    let [first, second] = keys.as_slice() else {
        panic!("{keys:?}")
    };
    let (from, to) = (damaged.object(first), damaged.object(second));
    let len = |path: &Path| fs::metadata(path).unwrap().len();
    assert_eq!(len(&from), len(&to));
    fs::remove_file(&to).unwrap();
    fs::copy(&from, &to).unwrap();
    let error = store_in(damaged.dir.path()).view().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
    let told = format!("{second}: names itself segment ");
    assert!(error.to_string().contains(&told), "{error:?}");
}

#[test]
fn lost_times_cost_times_and_a_warning() {
    let damaged = Damaged::new();
    let state = damaged.store.state().unwrap();
    let (_, version) = state.version(&name(REF), None).unwrap();
    let (root, times) = (version.root, version.times());
    // As after the pack of the list was lost and a repair condemned it.
    let lost = Content {
        root: ChunkId::of(b"nobody has it"),
        ..times
    };
    let set = Change::SetRef {
        name: name("project/demo/timeless"),
        version: 1,
        root,
        sides: Sides::of_times(lost),
        message: String::new(),
        expires: None,
        origin: None,
        ends: Vec::new(),
        private: false,
        extra: Extra::new(),
    };
    let mut state = state.clone();
    store::log::commit(
        damaged.store.remote().as_ref(),
        &mut state,
        &Who::default(),
        &mut |_, _| Ok(vec![set.clone()]),
    )
    .unwrap();
    let out = damaged.dir.path().join("out");
    get_to(&damaged.store, "project/demo/timeless", &out).unwrap();
    for file in ["large", "sub/small"] {
        assert_eq!(
            fs::read(out.join(file)).unwrap(),
            fs::read(damaged.source().join(file)).unwrap()
        );
    }
    let warnings = damaged.store.warnings();
    assert!(
        warnings[0].is_part && warnings[0].text.contains("timeless@1"),
        "{warnings:?}"
    );
    // Lost times take no space; the space of a lost file is unknown.
    let takes = || usage(&Reader::new(&damaged.store).unwrap());
    assert_eq!(takes().unwrap().len(), 1);
    let fileless = Change::SetRef {
        name: name("project/demo/fileless"),
        version: 1,
        root: Root::File {
            content: lost,
            executable: false,
        },
        sides: Sides::default(),
        message: String::new(),
        expires: None,
        origin: None,
        ends: Vec::new(),
        private: false,
        extra: Extra::new(),
    };
    crate::between::commit(damaged.store.remote().as_ref(), &[fileless]);
    assert_eq!(takes().unwrap_err().kind(), ErrorKind::Corrupt);
    drop_versions(&damaged.store, &name("project/demo/fileless"), None).unwrap();
    let before = fs::metadata(out.join("large")).unwrap().modified().unwrap();
    assert!(
        before.elapsed().unwrap().as_secs() < 3600,
        "the time of the put"
    );
    collect(&damaged).unwrap();
    get_to(&damaged.store, "project/demo/timeless", &out).unwrap();
    let report = damaged.verify(ReadData::Nothing);
    assert!(
        !report.is_clean() && report.findings.is_empty(),
        "{report:#?}"
    );
}

#[test]
fn a_damaged_copy_of_a_segment_on_this_host_is_fetched_anew() {
    let dir = tempfile::tempdir().unwrap();
    let remote: Arc<dyn Write> = Arc::new(Objects::memory());
    let store = Store::open_or_init(remote, host(dir.path())).unwrap();
    let source = dir.path().join("source");
    fs::write(&source, noise(4, 500_000)).unwrap();
    put_tree(&store, &source, REF);
    let out = dir.path().join("out");
    get(&store, &GetRequest::new(spec(REF), &out), &Unwatched).unwrap();
    let copies = host(dir.path()).cache_dir_of(store.format().id).unwrap();
    let copy = fs::read_dir(copies.join("segments"))
        .unwrap()
        .next()
        .unwrap();
    let copy = copy.unwrap().path();
    let whole = fs::read(&copy).unwrap();
    for at in (0..whole.len()).step_by(whole.len() / 40) {
        flip(&copy, at as u64);
        fs::remove_file(&out).unwrap();
        get(&store, &GetRequest::new(spec(REF), &out), &Unwatched).unwrap();
        assert_eq!(fs::read(&copy).unwrap(), whole, "byte {at}");
    }
    fs::write(&copy, b"").unwrap();
    fs::remove_file(&out).unwrap();
    get(&store, &GetRequest::new(spec(REF), &out), &Unwatched).unwrap();
}

/// Entries by another program have no copies of others: a lost entry costs its own changes, and the rest is restored.
#[test]
fn a_lost_entry_without_a_copy_costs_its_own_version() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    let source = dir.path().join("source");
    let mut contents = Vec::new();
    for number in 1..=4 {
        contents.push(noise(number, 200_000));
        fs::write(&source, contents.last().unwrap()).unwrap();
        put_tree(&store, &source, REF);
    }
    let remote = store.remote().as_ref();
    let path = |number| dir.path().join("store").join(log_key(number));
    for number in 1..=4 {
        let entry: LogEntry = store::log::entry(remote, number).unwrap().unwrap();
        fs::write(path(number), entry.encode().unwrap()).unwrap();
    }
    flip(&path(2), 50);
    let at_one = store.readable_state().unwrap();
    assert_eq!((at_one.number, store.warnings().len()), (1, 1));
    let request = RepairRequest {
        accept_loss: true,
        ..RepairRequest::default()
    };
    let repaired = repair(&store, request, &Unwatched).unwrap();
    assert_eq!(repaired.entries_lost, [2]);
    let state = store.state().unwrap();
    let versions: Vec<u64> = state.refs.all().unwrap()[&name(REF)]
        .versions
        .keys()
        .copied()
        .collect();
    assert_eq!(versions, [1, 3, 4]);
    for number in versions {
        let out = dir.path().join(format!("out-{number}"));
        get(
            &store,
            &GetRequest::new(spec(&format!("{REF}@{number}")), &out),
            &Unwatched,
        )
        .unwrap();
        let index = usize::try_from(number - 1).unwrap();
        assert_eq!(fs::read(out).unwrap(), contents[index]);
    }
    assert!(matches!(
        state.refs.all().unwrap()[&name(REF)].versions[&1].root,
        Root::File { .. }
    ));
}
