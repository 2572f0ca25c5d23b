//! A backend that lets a test act before and after each request, so that the test decides what others do between two
//! steps of a pipeline.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::Result;
use crate::remote::{Created, ObjectInfo, Prune, Read, Upload, Write};

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Reads an object, its size or a part of it.
    Read,
    /// Lists objects.
    List,
    /// Creates an object that must not exist yet.
    Create,
    /// Writes an object, or finishes its upload.
    Put,
    /// Deletes objects.
    Delete,
}

/// Whether a step is about to happen or has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Before the request.
    Before,
    /// After the request, whatever the answer was.
    After,
}

/// The action of a test around a step; it may use the wrapped backend.
pub type Act = dyn Fn(When, Step, &str) + Send + Sync;

/// Wraps a backend with an action around each request.
#[derive(Clone)]
pub struct Scripted {
    inner: Arc<dyn Prune>,
    act: Arc<Act>,
}

struct ScriptedUpload {
    inner: Box<dyn Upload>,
    key: String,
    act: Arc<Act>,
}

impl Scripted {
    /// Wraps `inner`, and calls `act` around each of its steps.
    pub fn new(
        inner: Arc<dyn Prune>,
        act: impl Fn(When, Step, &str) + Send + Sync + 'static,
    ) -> Self {
        let act = Arc::new(act);
        Self { inner, act }
    }

    fn around<T>(&self, step: Step, key: &str, call: impl FnOnce() -> T) -> T {
        (self.act)(When::Before, step, key);
        let answer = call();
        (self.act)(When::After, step, key);
        answer
    }
}

impl fmt::Debug for Scripted {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Scripted({:?})", self.inner)
    }
}

#[deny(clippy::missing_trait_methods)]
impl Read for Scripted {
    fn url(&self) -> String {
        self.inner.url()
    }

    fn get(&self, key: &str) -> Result<Bytes> {
        self.around(Step::Read, key, || self.inner.get(key))
    }

    fn get_run(&self, keys: &[String]) -> Result<Vec<Bytes>> {
        let key = keys.first().map_or("", String::as_str);
        self.around(Step::Read, key, || self.inner.get_run(keys))
    }

    fn get_ranges(&self, key: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.around(Step::Read, key, || self.inner.get_ranges(key, ranges))
    }

    fn size(&self, key: &str) -> Result<u64> {
        self.around(Step::Read, key, || self.inner.size(key))
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>> {
        self.around(Step::List, prefix, || self.inner.list(prefix))
    }

    fn keys_after(&self, prefix: &str, after: &str) -> Result<Vec<String>> {
        self.around(Step::List, prefix, || self.inner.keys_after(prefix, after))
    }

    /// Nothing is mapped, so that the script sees all reads.
    fn local_path(&self, _key: &str) -> Option<PathBuf> {
        None
    }
}

#[deny(clippy::missing_trait_methods)]
impl Write for Scripted {
    fn create(&self, key: &str, bytes: Bytes) -> Result<Created> {
        self.around(Step::Create, key, || self.inner.create(key, bytes))
    }

    fn put(&self, key: &str, bytes: Bytes) -> Result<()> {
        self.around(Step::Put, key, || self.inner.put(key, bytes))
    }

    fn touch(&self, key: &str) -> Result<()> {
        self.around(Step::Put, key, || self.inner.touch(key))
    }

    fn give_up(&self, key: &str) -> Result<()> {
        self.around(Step::Delete, key, || self.inner.give_up(key))
    }

    fn upload(&self, key: &str) -> Result<Box<dyn Upload>> {
        Ok(Box::new(ScriptedUpload {
            inner: self.inner.upload(key)?,
            key: key.to_owned(),
            act: Arc::clone(&self.act),
        }))
    }
}

#[deny(clippy::missing_trait_methods)]
impl Prune for Scripted {
    fn delete(&self, keys: &[String]) -> Result<()> {
        let key = keys.first().map_or("", String::as_str);
        self.around(Step::Delete, key, || self.inner.delete(keys))
    }

    fn abandoned(&self, uploads: &[ObjectInfo]) -> HashSet<String> {
        self.inner.abandoned(uploads)
    }

    fn stale_uploads(&self, prefix: &str) -> Result<Vec<ObjectInfo>> {
        self.around(Step::List, prefix, || self.inner.stale_uploads(prefix))
    }
}

#[deny(clippy::missing_trait_methods)]
impl Upload for ScriptedUpload {
    fn write(&mut self, bytes: Bytes) -> Result<()> {
        self.inner.write(bytes)
    }

    fn seal(&mut self) -> Result<()> {
        self.inner.seal()
    }

    fn finish(self: Box<Self>) -> Result<()> {
        (self.act)(When::Before, Step::Put, &self.key);
        let finished = self.inner.finish();
        (self.act)(When::After, Step::Put, &self.key);
        finished
    }
}
