//! Progress: what pipelines report as done adds up to the announced total.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use store::GetRequest;
use store::host::stat_cache::SETTLED_SECS;
use store::{Progress, get, put};
use support::trees;

use crate::stores::{request, spec, store_in};

const REF: &str = "project/watched/data";

#[derive(Default)]
struct Counter {
    files: AtomicU64,
    bytes: AtomicU64,
    files_total: AtomicU64,
    bytes_total: AtomicU64,
}

impl Counter {
    fn seen(&self) -> [u64; 4] {
        [
            &self.files,
            &self.bytes,
            &self.files_total,
            &self.bytes_total,
        ]
        .map(|at| at.load(Ordering::Relaxed))
    }
}

impl Progress for Counter {
    fn total(&self, files: u64, bytes: u64) {
        self.files_total.store(files, Ordering::Relaxed);
        self.bytes_total.store(bytes, Ordering::Relaxed);
    }

    fn advance(&self, files: u64, bytes: u64) {
        self.files.fetch_add(files, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

fn watched_put(dir: &Path) -> (u64, [u64; 4]) {
    let counter = Counter::default();
    let report = put(&store_in(dir), &request(&dir.join("in"), REF), &counter).unwrap();
    assert_eq!(
        counter.seen(),
        [report.files, report.bytes, report.files, report.bytes]
    );
    (report.unchanged_files, counter.seen())
}

#[test]
fn what_was_done_adds_up_to_what_there_was() {
    let dir = tempfile::tempdir().unwrap();
    trees::everything(&dir.path().join("in"), 2);
    std::thread::sleep(Duration::from_secs(SETTLED_SECS) + Duration::from_millis(50));
    let (unchanged, first) = watched_put(dir.path());
    assert_eq!(unchanged, 0);
    let (unchanged, second) = watched_put(dir.path());
    assert!(unchanged > 0, "nothing was remembered");
    assert_eq!(first, second);

    let counter = Counter::default();
    get(
        &store_in(dir.path()),
        &GetRequest::new(spec(REF), dir.path().join("out")),
        &counter,
    )
    .unwrap();
    let [files, bytes, files_total, bytes_total] = counter.seen();
    assert_eq!((files, bytes), (files_total, bytes_total));
}
