//! Watches a put, and stops it in good order from outside.

use std::sync::atomic::{AtomicU64, Ordering};

use store::{Host, Progress, PutRequest, Result, Store, put, remote};

/// Told by the threads of a put, often.
#[derive(Default)]
struct Watch {
    bytes: AtomicU64,
    total: AtomicU64,
}

impl Progress for Watch {
    fn total(&self, _files: u64, bytes: u64) {
        self.total.store(bytes, Ordering::Relaxed);
    }

    fn advance(&self, _files: u64, bytes: u64) {
        let done = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        println!("{done} of {} bytes", self.total.load(Ordering::Relaxed));
    }
}

fn main() -> Result<()> {
    let scratch =
        tempfile::tempdir().map_err(|error| store::Error::io("make", "a directory", error))?;
    let file = scratch.path().join("data.bin");
    std::fs::write(&file, vec![7; 3_000_000])
        .map_err(|error| store::Error::io("write", &file, error))?;

    // A program sets `host.stop` on a signal; the put then ends with `ErrorKind::Interrupted`.
    let host = Host::default();
    let store = Store::create(&remote::open("memory:", &remote::Options::default())?, host)?;
    put(
        &store,
        &PutRequest::new(&file, "project/demo/file".parse()?),
        &Watch::default(),
    )?;
    Ok(())
}
