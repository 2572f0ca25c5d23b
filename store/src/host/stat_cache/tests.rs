//! The cache against a map, against damage, and against races.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Barrier;

use proptest::prelude::*;

use super::*;
use crate::host::walk::compare_paths;
use crate::id::ChunkId;

pub(super) const STORE: StoreId = StoreId([7; 16]);
pub(super) const ROOT: &str = "/data/set";

pub(super) fn root() -> &'static Path {
    Path::new(ROOT)
}

pub(super) fn open(dir: &Path) -> StatCache {
    StatCache::open(dir, STORE, root())
}

pub(super) fn base(version: u64) -> CacheBase {
    CacheBase {
        name: "project/demo/set".parse().unwrap(),
        version,
        root: Root::File {
            content: Content::empty(),
            executable: false,
        },
    }
}

pub(super) fn time(secs: i64, nanos: u32) -> Time {
    Time { secs, nanos }
}

pub(super) fn at(secs: u64, nanos: u32) -> SystemTime {
    UNIX_EPOCH + Duration::new(secs, nanos)
}

/// A file whose last change was 1,000 s after 1970; files differ by `seed`.
pub(super) fn stat(seed: u64) -> Stat {
    Stat {
        size: seed,
        mtime: time(900, 5),
        ctime: time(1000, 6),
        ino: seed * 3,
        dev: seed / 4,
        mode: 0o100_644,
        uid: 0,
        gid: 0,
        nlink: 1,
        blocks: 8,
    }
}

pub(super) fn content(seed: u64) -> Content {
    Content {
        size: seed,
        depth: 1,
        root: ChunkId::of(&seed.to_le_bytes()),
    }
}

pub(super) fn later() -> SystemTime {
    at(5000, 0)
}

/// Writes a cache of `count` files and returns their paths in order.
pub(super) fn fill(dir: &Path, count: u64, version: u64) -> Vec<String> {
    let paths: Vec<String> = (0..count)
        .map(|n| format!("dir{:05}/file{n:07}", n / 10))
        .collect();
    let mut cache = open(dir);
    for (seed, path) in (0..).zip(&paths) {
        cache.record(path.as_bytes(), &stat(seed), content(seed), later());
    }
    cache.commit(base(version)).unwrap();
    paths
}

pub(super) fn hits(dir: &Path, paths: &[String]) -> usize {
    let mut cache = open(dir);
    let seeds = (0..).zip(paths);
    seeds
        .filter(|(seed, path)| cache.lookup(path.as_bytes(), &stat(*seed)) == Some(content(*seed)))
        .count()
}

pub(super) fn only_file(dir: &Path) -> PathBuf {
    let mut files: Vec<PathBuf> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files.pop().unwrap()
}

#[test]
fn what_was_recorded_is_found_with_its_base() {
    let dir = tempfile::tempdir().unwrap();
    let dir = &dir.path().join("made/when/needed");
    let mut cache = open(dir);
    assert_eq!((cache.base(), cache.damage().is_none()), (None, true));
    assert_eq!(cache.lookup(b"dir00000/file0000000", &stat(0)), None);
    drop(cache);
    // More than one block.
    let paths = fill(dir, 9000, 41);
    assert!(fs::metadata(only_file(dir)).unwrap().len() > 2 * BLOCK_BYTES_MAX as u64);
    assert_eq!(hits(dir, &paths), paths.len());
    let mut cache = open(dir);
    assert_eq!(cache.base(), Some(&base(41)));
    assert_eq!(
        cache.lookup(b"dir00500/file0005000", &stat(5001)),
        None,
        "another state"
    );
    assert_eq!(
        cache.lookup(b"dir00500/file0005001", &stat(5001)),
        Some(content(5001))
    );
    assert_eq!(
        cache.lookup(b"dir00500/file0004000", &stat(4000)),
        None,
        "passed over"
    );
    cache.discard();
    assert_eq!(cache.lookup(b"dir00600/file0006000", &stat(6000)), None);
    assert_eq!(cache.base(), None);
    assert!(cache.damage().is_none());
}

#[test]
fn any_change_of_a_file_is_a_miss() {
    let dir = tempfile::tempdir().unwrap();
    let mut cache = open(dir.path());
    cache.record(b"f", &stat(9), content(9), later());
    cache.commit(base(1)).unwrap();
    let changes: [fn(&mut Stat); 7] = [
        |stat| stat.size += 1,
        |stat| stat.mtime.secs -= 1,
        |stat| stat.mtime.nanos += 1,
        |stat| stat.ctime.secs += 1,
        |stat| stat.ctime.nanos += 1,
        |stat| stat.ino += 1,
        |stat| stat.dev += 1,
    ];
    for (case, change) in changes.iter().enumerate() {
        let mut changed = stat(9);
        change(&mut changed);
        assert_eq!(open(dir.path()).lookup(b"f", &changed), None, "case {case}");
    }
    let renamed_and_linked = Stat {
        mode: 0o100_755,
        nlink: 2,
        ..stat(9)
    };
    assert_eq!(
        open(dir.path()).lookup(b"f", &renamed_and_linked),
        Some(content(9))
    );
}

#[test]
fn files_that_changed_just_before_are_not_recorded() {
    let newest = |secs, nanos| Stat {
        ctime: time(secs, nanos),
        ..stat(9)
    };
    let newest_mtime = |secs, nanos| Stat {
        mtime: time(secs, nanos),
        ..stat(9)
    };
    assert!(is_settled(&newest(2998, 499), at(3000, 500)));
    assert!(!is_settled(&newest(2998, 500), at(3000, 500)));
    assert!(!is_settled(&newest(3000, 500), at(3000, 500)));
    assert!(
        !is_settled(&newest(4000, 0), at(3000, 500)),
        "in the future"
    );
    assert!(!is_settled(&newest_mtime(2999, 0), at(3000, 500)));
    assert!(!is_settled(&newest_mtime(i64::MAX, 0), at(3000, 500)));
    assert!(is_settled(
        &Stat {
            mtime: time(-5, 0),
            ctime: time(-5, 0),
            ..stat(9)
        },
        at(3000, 0)
    ));
    assert!(!is_settled(&stat(9), at(1, 0)));
    let dir = tempfile::tempdir().unwrap();
    let mut cache = open(dir.path());
    cache.record(b"a", &newest(2999, 0), content(9), at(3000, 0));
    cache.record(b"b", &stat(9), content(8), at(3000, 0));
    cache.record(b"c", &stat(9), content(9), at(3000, 0));
    cache.commit(base(1)).unwrap();
    let mut cache = open(dir.path());
    assert_eq!(cache.lookup(b"a", &newest(2999, 0)), None);
    assert_eq!(
        cache.lookup(b"b", &stat(9)),
        None,
        "it had another size when it was read"
    );
    assert_eq!(cache.lookup(b"c", &stat(9)), Some(content(9)));
}

#[test]
fn an_edit_of_the_same_size_with_its_mtime_set_back_is_noticed() {
    let (dir, tree) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = tree.path().join("f");
    fs::write(&path, "before").unwrap();
    let see = || Stat::of_file(&fs::File::open(&path).unwrap(), &path).unwrap();
    let before = see();
    // Claims that the reading began later, instead of waiting until the file has settled.
    let began = SystemTime::now() + Duration::from_secs(60);
    let mut cache = open(dir.path());
    cache.record(b"f", &before, content(6), began);
    cache.commit(base(1)).unwrap();
    assert_eq!(open(dir.path()).lookup(b"f", &see()), Some(content(6)));
    let mtime = fs::metadata(&path).unwrap().modified().unwrap();
    // The clock of the file system ticks a few hundred times per second.
    for _ in 0..1_000_000 {
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.write_all_at(b"behind", 0).unwrap();
        file.set_modified(mtime).unwrap();
        if see().ctime != before.ctime {
            break;
        }
    }
    let after = see();
    assert_eq!(
        (after.size, after.mtime, after.ino),
        (before.size, before.mtime, before.ino)
    );
    assert_eq!(open(dir.path()).lookup(b"f", &after), None);
}

#[test]
fn what_is_no_file_is_no_cache_and_nobody_waits_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let paths = fill(dir.path(), 100, 1);
    let file = only_file(dir.path());
    fs::remove_file(&file).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &file,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o644),
        0,
    )
    .unwrap();
    assert_eq!(hits(dir.path(), &paths), 0);
}

#[test]
fn a_put_that_fails_leaves_the_old_cache() {
    let dir = tempfile::tempdir().unwrap();
    let paths = fill(dir.path(), 5000, 1);
    let mut cache = open(dir.path());
    for (seed, path) in (0..).zip(&paths) {
        cache.record(path.as_bytes(), &stat(seed + 1), content(seed + 1), later());
    }
    drop(cache);
    only_file(dir.path());
    let mut cache = open(dir.path());
    cache.record(b"b", &stat(1), content(1), later());
    cache.record(b"a", &stat(1), content(1), later());
    let error = cache.commit(base(2)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "stat cache: path a: expected one behind the last"
    );
    assert_eq!(hits(dir.path(), &paths), 5000);
}

#[test]
fn a_cache_that_cannot_be_written_is_told_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "in the way").unwrap();
    let mut cache = open(&file);
    cache.record(b"a", &stat(1), content(1), later());
    let error = cache.commit(base(1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("write stat cache in {}", file.display())
    );
}

#[test]
fn of_racing_writers_one_wins_whole() {
    let dir = tempfile::tempdir().unwrap();
    let barrier = Barrier::new(8);
    std::thread::scope(|scope| {
        for writer in 0..8u64 {
            let (dir, barrier) = (dir.path(), &barrier);
            scope.spawn(move || {
                for round in 0..5 {
                    let mut cache = open(dir);
                    assert!(cache.damage().is_none());
                    for n in 0..3000u64 {
                        let path = format!("{n:07}");
                        let found = cache.lookup(path.as_bytes(), &stat(n));
                        assert!(found.is_none_or(|found| found == content(n)));
                        cache.record(path.as_bytes(), &stat(n), content(n), later());
                    }
                    barrier.wait();
                    cache.commit(base(writer * 10 + round)).unwrap();
                }
            });
        }
    });
    let paths: Vec<String> = (0..3000).map(|n| format!("{n:07}")).collect();
    assert_eq!(hits(dir.path(), &paths), 3000);
    assert_eq!(open(dir.path()).base().unwrap().version % 10, 4);
    only_file(dir.path());
}

#[test]
fn what_killed_writers_left_is_removed_after_a_day() {
    let dir = tempfile::tempdir().unwrap();
    let name = file_name(STORE, ROOT.as_bytes());
    let old = dir.path().join(format!("{name}.old.tmp"));
    let fresh = dir.path().join(format!("{name}.fresh.tmp"));
    let foreign = dir.path().join("foreign.tmp");
    for path in [&old, &fresh, &foreign] {
        let file = fs::File::create(path).unwrap();
        let days = if path == &fresh { 0 } else { 3 };
        file.set_modified(SystemTime::now() - Duration::from_secs(days * 86400))
            .unwrap();
    }
    fill(dir.path(), 1, 1);
    assert!(!old.exists() && fresh.exists() && foreign.exists());
}

fn paths() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec("[a-c\\-.0\u{1}]{1,3}", 1..5)
        .prop_map(|names| names.join("/").into_bytes())
}

fn tree() -> impl Strategy<Value = BTreeMap<Vec<u8>, u64>> {
    proptest::collection::btree_map(paths(), 0u64..6, 0..200)
}

fn in_walk_order(tree: &BTreeMap<Vec<u8>, u64>) -> Vec<(&Vec<u8>, u64)> {
    let mut entries: Vec<_> = tree.iter().map(|(path, seed)| (path, *seed)).collect();
    entries.sort_by(|a, b| {
        a.0.split(|byte| *byte == b'/')
            .cmp(b.0.split(|byte| *byte == b'/'))
    });
    entries
}

proptest! {
    #[test]
    fn paths_compare_name_by_name(a in paths(), b in paths()) {
        let names = |path: &[u8]| path.split(|byte| *byte == b'/').map(<[u8]>::to_vec).collect::<Vec<_>>();
        prop_assert_eq!(compare_paths(&a, &b), names(&a).cmp(&names(&b)));
    }

    #[test]
    fn a_cache_is_a_map_of_the_last_put(puts in proptest::collection::vec(tree(), 1..5)) {
        let dir = tempfile::tempdir().unwrap();
        let mut last = BTreeMap::new();
        for (version, tree) in (0..).zip(&puts) {
            let mut cache = open(dir.path());
            for (path, seed) in in_walk_order(tree) {
                let expected = (last.get(path) == Some(&seed)).then(|| content(seed));
                prop_assert_eq!(cache.lookup(path, &stat(seed)), expected);
                cache.record(path, &stat(seed), content(seed), later());
            }
            prop_assert!(cache.damage().is_none());
            cache.commit(base(version)).unwrap();
            last = tree.clone();
        }
    }
}
