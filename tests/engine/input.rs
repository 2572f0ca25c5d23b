//! Input that is odd, endless, forbidden or changing: it is stored as it is, or an error names it and nothing is
//! published.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use store::GetRequest;
use store::{Error, ErrorKind, Progress, PutReport, Result, Store, Unwatched, get, put};
use support::{assert_same_tree, effort};

use crate::meddler::Meddler;
use crate::stores::{host, noise, put_tree, request, shell, spec, store_in};

const REF: &str = "project/input/data";
/// More than the queues of a put with one worker hold, so that the file is still being read when its beginning is
/// hashed.
const LARGE_BYTES: usize = 24 << 20;

/// Puts `source` with one worker and this progress.
fn put_watched(store: &Store, source: &Path, progress: &dyn Progress) -> Result<PutReport> {
    let mut host = host(source.parent().unwrap());
    host.threads = 1;
    let store = Store::open(store.remote().clone(), host)?;
    put(&store, &request(source, REF), progress)
}

fn assert_changed(error: &Error, path: &Path) {
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
    let expected = format!("{}: it changed while it was read", path.display());
    assert_eq!(error.to_string(), expected);
    assert!(error.remedy().is_some());
}

fn assert_empty(store: &Store) {
    assert!(store.state().unwrap().refs.is_empty());
}

/// Puts a large file that `act` changes after its first bytes have been hashed.
fn put_while(act: impl Fn(&File) + Sync) -> (Result<PutReport>, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("large");
    fs::write(&source, noise(1, LARGE_BYTES)).unwrap();
    let store = store_in(dir.path());
    let file = File::options().write(true).open(&source).unwrap();
    let meddler = Meddler::in_the_reading(|| act(&file));
    let outcome = put_watched(&store, &source, &meddler);
    assert!(meddler.is_done());
    assert_empty(&store);
    // The unchanged file can be put.
    put_tree(&store, &source, REF);
    let out = dir.path().join("out");
    get(&store, &GetRequest::new(spec(REF), &out), &Unwatched).unwrap();
    assert!(fs::read(out).unwrap() == fs::read(&source).unwrap());
    (outcome, source)
}

#[test]
fn a_file_that_grows_while_it_is_read() {
    let (outcome, path) = put_while(|mut file| {
        file.write_all_at(b"more", LARGE_BYTES as u64).unwrap();
        file.flush().unwrap();
    });
    assert_changed(&outcome.unwrap_err(), &path);
}

#[test]
fn a_file_that_shrinks_while_it_is_read() {
    let (outcome, path) = put_while(|file| file.set_len(16 << 20).unwrap());
    assert_changed(&outcome.unwrap_err(), &path);
}

#[test]
fn a_file_that_is_written_to_while_it_is_read() {
    let (outcome, path) = put_while(|file| file.write_all_at(b"other", 5).unwrap());
    assert_changed(&outcome.unwrap_err(), &path);
}

/// A log that is written to all the time cannot be put, but can be excluded.
#[test]
fn a_file_that_never_stands_still() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    let log = source.join("log");
    fs::write(&log, noise(1, LARGE_BYTES)).unwrap();
    let store = store_in(dir.path());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut log = File::options().append(true).open(&log).unwrap();
            while !stop.load(Ordering::Relaxed) {
                log.write_all(b"one more line\n").unwrap();
            }
        });
        let outcome = put(&store, &request(&source, REF), &Unwatched);
        let mut skipping = request(&source, REF);
        skipping.skip_unreadable = true;
        let skipped = put(&store, &skipping, &Unwatched);
        stop.store(true, Ordering::Relaxed);
        assert_changed(&outcome.unwrap_err(), &log);
        let skipped = skipped.unwrap();
        assert_eq!((skipped.files, skipped.skipped.len()), (0, 1));
        assert_changed(&skipped.skipped[0].1, &log);
    });
}

/// A file that changes between the walk and the reading is put as it is when it is read.
#[test]
fn a_file_that_changes_before_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    for name in ["a", "b", "c"] {
        fs::write(source.join(name), name).unwrap();
    }
    let store = store_in(dir.path());
    let meddler = Meddler::in_the_walk(|| fs::write(source.join("a"), vec![7; 100_000]).unwrap());
    let report = put_watched(&store, &source, &meddler).unwrap();
    assert_eq!(report.bytes, 100_002);
    let out = dir.path().join("out");
    get(&store, &GetRequest::new(spec(REF), &out), &Unwatched).unwrap();
    assert_same_tree(&source, &out);
}

#[test]
fn a_directory_that_disappears() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    let gone = source.join("later/inside");
    let make = || {
        fs::create_dir_all(&gone).unwrap();
        fs::write(source.join("earlier"), "e").unwrap();
        fs::write(gone.join("file"), "f").unwrap();
    };
    make();
    let store = store_in(dir.path());
    let remove = || fs::remove_dir_all(source.join("later")).unwrap();
    let error = put_watched(&store, &source, &Meddler::in_the_walk(remove)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
    assert!(error.to_string().contains("source/later"), "{error}");
    assert_empty(&store);
    let report = put_tree(&store, &source, REF);
    assert_eq!((report.files, report.directories), (1, 1));
}

#[test]
fn sockets_pipes_and_devices_are_named_or_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    for (kind, make) in [
        ("a socket", ""),
        ("a pipe", "mkfifo"),
        ("a device", "mknod"),
    ] {
        let source = dir.path().join(kind);
        fs::create_dir(&source).unwrap();
        fs::write(source.join("file"), "f").unwrap();
        let special = source.join("special");
        let quoted = special.display();
        let _listener = match make {
            "" => Some(UnixListener::bind(&special).unwrap()),
            "mkfifo" => shell(&format!("mkfifo '{quoted}'"))
                .is_empty()
                .then_some(None)
                .flatten(),
            _ => shell(&format!("mknod '{quoted}' c 1 3"))
                .is_empty()
                .then_some(None)
                .flatten(),
        };
        let error = put(&store, &request(&source, REF), &Unwatched).unwrap_err();
        assert!(
            error.to_string().contains(special.to_str().unwrap()),
            "{error:?}"
        );
        // A put of a pipe without a writer does not block.
        let error = put(&store, &request(&special, REF), &Unwatched).unwrap_err();
        assert!(
            error.to_string().contains(special.to_str().unwrap()),
            "{error:?}"
        );
        assert_empty(&store);
    }
    let source = dir.path().join("a pipe");
    let mut skipping = request(&source, REF);
    skipping.skip_unreadable = true;
    let report = put(&store, &skipping, &Unwatched).unwrap();
    assert_eq!((report.files, report.skipped.len()), (1, 1));
    assert_eq!(
        report.skipped[0].0,
        source.canonicalize().unwrap().join("special")
    );
}

#[test]
fn links_in_a_circle_are_kept_and_never_followed() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::create_dir_all(source.join("sub")).unwrap();
    symlink("..", source.join("sub/up")).unwrap();
    symlink("b", source.join("a")).unwrap();
    symlink("a", source.join("b")).unwrap();
    symlink("self", source.join("self")).unwrap();
    let store = store_in(dir.path());
    let report = put_tree(&store, &source, REF);
    assert_eq!((report.symlinks, report.directories), (4, 2));
    let out = dir.path().join("out");
    get(&store, &GetRequest::new(spec(REF), &out), &Unwatched).unwrap();
    assert_same_tree(&source, &out);
    let error = put(&store, &request(&source.join("self"), REF), &Unwatched).unwrap_err();
    assert!(error.to_string().contains("source/self"), "{error:?}");
}

#[test]
fn paths_that_nobody_can_name_are_noted() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    let note = |dir: &Path| put_tree(&store_in(dir), &source, "project/a/long").notes;
    // 15 levels of 251 bytes fit into the limit; the 17th, with a file in it, does not.
    let below = |levels: usize| {
        format!(
            "python3 -c 'import os, sys\nos.chdir(sys.argv[1])\nfor _ in range({levels}):\n    \
             os.makedirs(\"d\" * 250, exist_ok=True)\n    os.chdir(\"d\" * 250)\n\
             open(\"file\", \"w\")' '{}'",
            source.display()
        )
    };
    shell(&below(15));
    assert_eq!(note(dir.path()), []);
    shell(&below(17));
    let notes = note(dir.path());
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(
        notes[0].text.starts_with(
            "2 paths are longer than the 4,096 bytes that the system takes at once: ddd"
        ),
        "{notes:?}"
    );
    // The test cannot remove it by its path either.
    shell(&format!("rm -rf '{}'", source.display()));
}

#[test]
fn directories_a_thousand_levels_deep() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    let deep: PathBuf = std::iter::repeat_n("d", 1000).collect();
    fs::create_dir_all(source.join(&deep)).unwrap();
    fs::write(source.join(&deep).join("bottom"), "b").unwrap();
    let store = store_in(dir.path());
    let report = put_tree(&store, &source, REF);
    assert_eq!((report.files, report.directories), (1, 1001));
    let out = dir.path().join("out");
    get(&store, &GetRequest::new(spec(REF), &out), &Unwatched).unwrap();
    assert_same_tree(&source, &out);
}

#[test]
fn a_directory_of_very_many_files() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    let count = effort(6_000, 300_000);
    for number in 0..count {
        fs::write(source.join(format!("{number:09}")), format!("{number}")).unwrap();
    }
    let store = store_in(dir.path());
    let report = put_tree(&store, &source, REF);
    assert_eq!(report.files, count);
    let out = dir.path().join("out");
    get(&store, &GetRequest::new(spec(REF), &out), &Unwatched).unwrap();
    assert_same_tree(&source, &out);
    fs::write(source.join("000000007"), "changed").unwrap();
    let second = put_tree(&store, &source, REF);
    assert_eq!((second.files, second.new_bytes), (count, 7));
}

/// A hole inside of a file is skipped, and cut like the zeros that it reads as.
#[test]
fn a_file_with_holes_is_that_with_zeros() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    let sparse = File::create(source.join("sparse")).unwrap();
    sparse.write_all_at(&noise(3, 3 << 20), 0).unwrap();
    // Written zeros, before and after a hole.
    sparse.write_all_at(&[0; 70_000], 3 << 20).unwrap();
    sparse.write_all_at(&[0; 70_000], 40 << 20).unwrap();
    sparse.write_all_at(&noise(4, 1 << 20), 41 << 20).unwrap();
    sparse.set_len(50 << 20).unwrap();
    let dense = fs::read(source.join("sparse")).unwrap();
    fs::write(source.join("dense"), dense).unwrap();
    let store = store_in(dir.path());
    put_tree(&store, &source.join("sparse"), REF);
    let report = put_tree(&store, &source.join("dense"), REF);
    assert_eq!(report.new_bytes, 0, "{report:?}");
    put_tree(&store, &source, REF);
    let out = dir.path().join("out");
    get(&store, &GetRequest::new(spec(REF), &out), &Unwatched).unwrap();
    assert_same_tree(&source, &out);
}

#[test]
fn names_of_every_byte() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    for byte in (1..=255_u8).filter(|byte| *byte != b'/') {
        let name = [b'n', byte];
        fs::write(source.join(std::ffi::OsStr::from_bytes(&name)), name).unwrap();
    }
    let longest = [0xff; 255];
    let longest = std::ffi::OsStr::from_bytes(&longest);
    fs::create_dir(source.join(longest)).unwrap();
    symlink("\n", source.join(longest).join(longest)).unwrap();
    let store = store_in(dir.path());
    put_tree(&store, &source, REF);
    let out = dir.path().join("out");
    get(&store, &GetRequest::new(spec(REF), &out), &Unwatched).unwrap();
    assert_same_tree(&source, &out);
}
