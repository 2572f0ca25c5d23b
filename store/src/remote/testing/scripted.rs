//! A backend that lets a test act before and after each request: what others do between two steps of a
//! pipeline then happens where the test wants it, and not where luck has it.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::Result;
use crate::remote::{Created, ObjectInfo, Prune, Read, Upload, Write};

/// What is asked of the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Bytes or the size of an object, or a part of it.
    Read,
    /// A listing.
    List,
    /// An object that must not be there yet.
    Create,
    /// An object, or its end where it was uploaded in parts.
    Put,
    /// A deletion.
    Delete,
}

/// Whether a step is about to be taken, or has been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The backend has not been asked yet.
    Before,
    /// The backend has answered, whatever it said.
    After,
}

/// What a test does at a step; it may use the backend beneath.
pub type Act = dyn Fn(When, Step, &str) + Send + Sync;

/// The backend beneath, and what is done around each of its steps.
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
    /// `inner`, around each of whose steps `act` is called.
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

    /// Nothing is mapped past the script.
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
