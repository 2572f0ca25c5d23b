//! Large files that all workers read and cut: the chunks are the same as with one worker, and a changing file is an
//! error.

use std::fs::{self, File};
use std::path::Path;

use store::{ErrorKind, GetRequest, Host, Store, Unwatched, get, put};
use support::assert_same_tree;

use crate::meddler::Meddler;
use crate::stores::{host, noise, put_tree, request, spec, store_in};

const REF: &str = "project/input/large";
/// Large enough for several workers, and not a multiple of a span.
const LARGE_BYTES: usize = (17 << 20) + 12_345;

fn store_of(dir: &Path, threads: usize) -> Store {
    let name = format!("store-{threads}");
    let place = dir.join(name);
    fs::create_dir(&place).unwrap();
    let store = store_in(&place);
    let host = Host {
        threads,
        cache_dir: None,
        ..host(&place)
    };
    Store::open(store.remote().clone(), host).unwrap()
}

/// Files in which cuts are frequent, rare, or absent.
fn tree(source: &Path) {
    fs::create_dir(source).unwrap();
    for number in 0..5u8 {
        fs::write(
            source.join(format!("noise-{number}")),
            noise(number.into(), LARGE_BYTES),
        )
        .unwrap();
    }
    let line = b"layer.0.weight\t0.0174532925\n".iter().copied();
    let mut mixed: Vec<u8> = line.cycle().take(9 << 20).collect();
    mixed.extend(vec![7; 6 << 20]);
    mixed.extend(noise(99, 5 << 20));
    // Written zeros, so that they are not a hole.
    mixed.extend(vec![0; 6 << 20]);
    fs::write(source.join("mixed"), mixed).unwrap();
}

#[test]
fn many_workers_cut_large_files_as_one_does() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    tree(&source);
    let mut ids = Vec::new();
    // One worker cuts alone. Of three, each has a file of its own and helps the others. Of sixteen, most have none.
    for threads in [1, 3, 16] {
        let store = store_of(dir.path(), threads);
        let done = put_tree(&store, &source, REF);
        ids.push((done.id, done.new_bytes));
        let out = dir.path().join(format!("out-{threads}"));
        get(&store, &GetRequest::new(spec(REF), &out), &Unwatched).unwrap();
        assert_same_tree(&source, &out);
    }
    assert!(ids.windows(2).all(|pair| pair[0] == pair[1]), "{ids:?}");
}

#[test]
fn a_large_file_that_many_read_while_it_changes_is_refused() {
    type Act = fn(&File);
    let cases: [(&str, Act); 3] = [
        ("shorter", |file| file.set_len(1 << 20).unwrap()),
        ("longer", |file| file.set_len(64 << 20).unwrap()),
        ("other", |file| {
            std::os::unix::fs::FileExt::write_all_at(file, b"other", 0).unwrap();
        }),
    ];
    for (name, act) in cases {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join(name);
        fs::write(&source, noise(1, 3 * LARGE_BYTES)).unwrap();
        let store = store_of(dir.path(), 3);
        let file = File::options().write(true).open(&source).unwrap();
        let meddler = Meddler::in_the_reading(|| act(&file));
        let error = put(&store, &request(&source, REF), &meddler).unwrap_err();
        assert!(meddler.is_done());
        assert_eq!(error.kind(), ErrorKind::Conflict, "{name}: {error:?}");
        let expected = format!("{}: it changed while it was read", source.display());
        assert_eq!(error.to_string(), expected);
        assert!(store.state().unwrap().refs.is_empty());
    }
}
