//! put and get of 1 GB, whole pipelines on all cores: `cargo bench --workspace --bench pipelines`.
//!
//! Half of the bytes are random, half are text of few words. The store is a directory, synced as always.
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on stops")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use divan::Bencher;
use divan::counter::BytesCount;
use store::GetRequest;
use store::format::Who;
use store::remote::Objects;
use store::{Host, PutRequest, Store, Unwatched, get, put};
use tempfile::TempDir;

const FILES: u64 = 16;
const FILE_BYTES: usize = 64_000_000;
const BYTES: u64 = FILES * FILE_BYTES as u64;

fn main() {
    divan::main();
}

/// A directory with a source of 1 GB.
fn source() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("source")).unwrap();
    for number in 0..FILES {
        let mut bytes = vec![0; FILE_BYTES];
        let mut hasher = blake3::Hasher::new();
        hasher.update(&number.to_le_bytes());
        hasher.finalize_xof().fill(&mut bytes);
        if number % 2 == 1 {
            bytes.iter_mut().for_each(|byte| *byte = b'a' + *byte % 7);
        }
        std::fs::write(dir.path().join(format!("source/{number}")), bytes).unwrap();
    }
    dir
}

fn store_in(dir: &Path) -> Store {
    let threads = std::thread::available_parallelism().unwrap().get();
    let host = Host {
        cache_dir: None,
        who: Who::default(),
        memory_bytes: 128 << 20,
        threads,
        stop: Arc::default(),
    };
    Store::init(Arc::new(Objects::directory(dir).unwrap()), host).unwrap()
}

fn request(source: PathBuf) -> PutRequest {
    PutRequest::new(source, "project/bench/tree".parse().unwrap())
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn put_cold(bencher: Bencher<'_, '_>) {
    let dir = source();
    let request = request(dir.path().join("source"));
    let fresh = || {
        let place = tempfile::tempdir_in(dir.path()).unwrap();
        let store = store_in(place.path());
        (place, store)
    };
    bencher
        .counter(BytesCount::new(BYTES))
        .with_inputs(fresh)
        .bench_values(|(place, store)| {
            put(&store, &request, &Unwatched).unwrap();
            place
        });
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn get_cold(bencher: Bencher<'_, '_>) {
    let dir = source();
    let store = store_in(&dir.path().join("store"));
    put(&store, &request(dir.path().join("source")), &Unwatched).unwrap();
    let spec: store::RefSpec = "project/bench/tree".parse().unwrap();
    bencher
        .counter(BytesCount::new(BYTES))
        .with_inputs(|| tempfile::tempdir_in(dir.path()).unwrap())
        .bench_values(|place| {
            get(
                &store,
                &GetRequest::new(spec.clone(), place.path().join("out")),
                &Unwatched,
            )
            .unwrap();
            place
        });
}
