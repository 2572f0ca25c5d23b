//! Shows the progress of a put, which can be stopped from outside.

use std::sync::atomic::{AtomicU64, Ordering};

use store::{Host, Progress, PutRequest, Result, Store, put, remote};

/// The threads of a put call it often.
#[derive(Default)]
struct Watch(AtomicU64);

impl Progress for Watch {
    fn total(&self, files: u64, bytes: u64) {
        println!("{bytes} bytes in {files} files so far");
    }

    fn advance(&self, _files: u64, bytes: u64) {
        let done = self.0.fetch_add(bytes, Ordering::Relaxed) + bytes;
        println!("{done} bytes done");
    }
}

fn main() -> Result<()> {
    let scratch =
        tempfile::tempdir().map_err(|error| store::Error::io("make", "a directory", error))?;
    let file = scratch.path().join("data.bin");
    std::fs::write(&file, vec![7; 3_000_000])
        .map_err(|error| store::Error::io("write", &file, error))?;

    // To stop the put, set `host.stop`: it ends with `ErrorKind::Interrupted`.
    let host = Host::default();
    let store = Store::create(&remote::open("memory:", &remote::Options::default())?, host)?;
    put(
        &store,
        &PutRequest::new(&file, "project/demo/file".parse()?),
        &Watch::default(),
    )?;
    Ok(())
}
