//! An endpoint that answers 200 to put-if-absent and overwrites. For tests.

use std::ops::Range;
use std::path::PathBuf;

use bytes::Bytes;

use crate::error::Result;
use crate::remote::{Created, ObjectInfo, Objects, Prune, Read, Upload, Write};

/// Reports every create as new, although it overwrites.
#[derive(Clone, Debug)]
pub(crate) struct Overwriting(pub(crate) Objects);

impl Read for Overwriting {
    fn url(&self) -> String {
        self.0.url()
    }

    fn get(&self, key: &str) -> Result<Bytes> {
        self.0.get(key)
    }

    fn get_run(&self, keys: &[String]) -> Result<Vec<Bytes>> {
        self.0.get_run(keys)
    }

    fn get_ranges(&self, key: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.0.get_ranges(key, ranges)
    }

    fn size(&self, key: &str) -> Result<u64> {
        self.0.size(key)
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>> {
        self.0.list(prefix)
    }

    fn keys_after(&self, prefix: &str, after: &str) -> Result<Vec<String>> {
        self.0.keys_after(prefix, after)
    }

    fn local_path(&self, key: &str) -> Option<PathBuf> {
        self.0.local_path(key)
    }
}

impl Write for Overwriting {
    fn create(&self, key: &str, bytes: Bytes) -> Result<Created> {
        self.0.put(key, bytes).map(|()| Created::Created)
    }

    fn put(&self, key: &str, bytes: Bytes) -> Result<()> {
        self.0.put(key, bytes)
    }

    fn touch(&self, key: &str) -> Result<()> {
        self.0.touch(key)
    }

    fn give_up(&self, key: &str) -> Result<()> {
        self.0.give_up(key)
    }

    fn upload(&self, key: &str) -> Result<Box<dyn Upload>> {
        self.0.upload(key)
    }
}

impl Prune for Overwriting {
    fn delete(&self, keys: &[String]) -> Result<()> {
        self.0.delete(keys)
    }

    fn stale_uploads(&self, prefix: &str) -> Result<Vec<ObjectInfo>> {
        self.0.stale_uploads(prefix)
    }
}
