//! Bundles: an opened bundle lists objects inside of the file, and returns each in its length or an error.

use std::path::PathBuf;

use store::remote::{Options, Read, open};

use super::seal;

/// Returns whether anything was accepted.
pub fn run(data: &[u8]) -> bool {
    let place = place();
    let mut accepted = false;
    for bytes in [data, &seal::bundle(data)] {
        std::fs::write(&place, bytes).unwrap();
        let url = format!("bundle:{}", place.display());
        if let Ok(objects) = open(&url, &Options::default()) {
            read(&*objects, bytes.len() as u64);
            accepted = true;
        }
        // Reading does not change the file.
        assert_eq!(std::fs::read(&place).unwrap(), bytes);
    }
    std::fs::remove_file(place).unwrap();
    accepted
}

/// A file for this thread, in memory if possible.
fn place() -> PathBuf {
    let (process, thread) = (std::process::id(), std::thread::current().id());
    let memory = PathBuf::from("/dev/shm");
    let dir = if memory.is_dir() {
        memory
    } else {
        std::env::temp_dir()
    };
    dir.join(format!("store-fuzz-{process}-{thread:?}"))
}

fn read<R: Read + ?Sized>(objects: &R, len: u64) {
    for info in objects.list("").unwrap() {
        assert!(info.size <= len);
        let Ok(bytes) = objects.get(&info.key) else {
            continue;
        };
        assert_eq!(bytes.len() as u64, info.size);
        assert_eq!(objects.size(&info.key).unwrap(), info.size);
        let beyond = 0..info.size + 1;
        assert!(objects.get_ranges(&info.key, &[beyond]).is_err());
    }
}
