//! Remote: bytes by key, wherever a store is. No other module knows the backends.
//!
//! There are three capabilities, each a trait that contains the one before: [`Read`], [`Write`], [`Prune`]. Pipelines
//! hold the weakest trait that suffices; only the crate `gc` gets [`Prune`]. The traits are synchronous and shared by
//! threads; async stays inside this module.
//!
//! Invariants: what `create`, `put` and `finish` acknowledged survives a power cut; nothing is visible before it is
//! complete; no key ends in `#` and digits, which mark uploads in progress.

use std::collections::HashSet;
use std::fmt::Debug;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use rayon::prelude::*;

use crate::error::{ErrorKind, Result};
use crate::format::FORMAT_KEY;

mod abandoned;
mod bucket;
mod bundle;
mod directory;
mod failure;
mod key;
mod objects;
mod open;
mod single_writer;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod wait;

pub use bucket::{Settings, Waits, is_secret};
pub use objects::Objects;
pub use open::{open, takes};
pub(crate) use single_writer::SingleWriter;
pub use single_writer::{keeps_first, overwrites};
#[cfg(any(test, feature = "testing"))]
pub use testing::faulty::Faulty;

/// How to open a remote.
#[derive(Clone, Debug)]
pub struct Options {
    /// Create a local directory if it is missing.
    pub create: bool,
    /// Endpoint, region and credentials of a bucket; not used for directories.
    pub settings: Settings,
    /// Certificates, as PEM, that are trusted in addition to those of the host.
    pub ca_bundle: Option<Vec<u8>>,
    /// How long requests to a bucket are retried.
    pub deadline: Duration,
    /// The callback for long waits for a bucket.
    pub waits: Waits,
    /// Set to request a stop: then a bucket that does not answer is given up.
    pub stop: Arc<AtomicBool>,
    /// A shell command that prints AWS credentials, the `credential_process` of a profile. Run when credentials are
    /// needed.
    pub credential_process: Option<String>,
    /// Why no credentials were found, if known.
    pub no_credentials: Option<String>,
    /// Descriptions of proxies, by the prefix of the endpoints that are reached through them; shown when a connection
    /// fails.
    pub proxies: Vec<(&'static str, String)>,
    /// How many bytes the parts of uploads in flight to a bucket may take.
    pub upload_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            create: false,
            settings: Settings::default(),
            ca_bundle: None,
            deadline: Duration::from_secs(180),
            waits: Waits::default(),
            stop: Arc::default(),
            credential_process: None,
            no_credentials: None,
            proxies: Vec::new(),
            upload_bytes: 64 << 20,
        }
    }
}

/// One object in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Its key.
    pub key: String,
    /// Its length in bytes.
    pub size: u64,
    /// When it was last written, by the clock of the backend; never used for safety.
    pub modified: Timestamp,
}

/// The result of a put-if-absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// The object is new and durable.
    Created,
    /// An object exists and is durable. It may be the caller's own, if an earlier answer was lost.
    Exists,
}

/// Reads objects.
pub trait Read: Send + Sync + Debug {
    /// The address for messages, without credentials.
    fn url(&self) -> String;

    /// Returns all bytes of an object.
    ///
    /// # Errors
    /// Not found, when there is no such object.
    fn get(&self, key: &str) -> Result<Bytes>;

    /// Returns the objects under `keys` in order, up to the first that does not exist. If requests are slow, all are
    /// requested at once.
    ///
    /// # Errors
    /// As for [`Self::get`], except for a missing object.
    fn get_run(&self, keys: &[String]) -> Result<Vec<Bytes>>;

    /// Returns the bytes of several ranges, each of exactly the requested length.
    ///
    /// # Errors
    /// Not found, when there is no such object; corrupt, when it ends before a range does.
    fn get_ranges(&self, key: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>>;

    /// Returns the length of an object in bytes.
    ///
    /// # Errors
    /// Not found, when there is no such object.
    fn size(&self, key: &str) -> Result<u64>;

    /// Lists the objects below `prefix`, at every depth, sorted by key. The prefix is a directory: `a/b` lists `a/b/c`
    /// but never `a/bc`; an empty prefix lists everything. A listing is a hint: objects may be missing from it.
    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>>;

    /// Lists the keys below `prefix` that sort after `after`, sorted by bytes. Reads only names, and skips directories
    /// that sort before `after` as a whole. A hint, like any listing.
    fn keys_after(&self, prefix: &str, after: &str) -> Result<Vec<String>>;

    /// Returns the path of an object in a local directory, so that it can be mapped; `None` for other backends.
    fn local_path(&self, key: &str) -> Option<PathBuf>;
}

/// Whether the remote at `url` ends with a process, or is a file that people copy around.
pub(crate) fn is_passing(url: &str) -> bool {
    ["memory:", "bundle:"]
        .iter()
        .any(|passing| url.starts_with(passing))
}

/// Implements [`Read::get_run`] for backends that answer quickly.
///
/// # Errors
/// As for [`Read::get_run`].
pub fn one_by_one<R: Read + ?Sized>(remote: &R, keys: &[String]) -> Result<Vec<Bytes>> {
    let mut found = Vec::new();
    for key in keys {
        match remote.get(key) {
            Ok(bytes) => found.push(bytes),
            Err(error) if error.kind() == ErrorKind::NotFound => break,
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Whether every read crosses a network, so that few large reads are better than many small ones.
pub(crate) fn is_far(remote: &(impl Read + ?Sized)) -> bool {
    remote.local_path(FORMAT_KEY).is_none()
}

/// Calls `ask` for each of `items`, on threads if the remote is far.
///
/// # Errors
/// The first error of `ask`.
pub(crate) fn of_each<I: Sync, T: Send>(
    remote: &dyn Read,
    items: &[I],
    ask: impl Fn(&I) -> Result<T> + Send + Sync,
) -> Result<Vec<T>> {
    match is_far(remote) {
        false => items.iter().map(ask).collect(),
        true => items.par_iter().map(ask).collect(),
    }
}

/// Reads and adds objects.
pub trait Write: Read {
    /// Put-if-absent: of any number of callers exactly one creates the object. It is durable on return, whatever the
    /// result.
    ///
    /// # Errors
    /// After an error the object may or may not exist: create it again, or read it, to find out.
    fn create(&self, key: &str, bytes: Bytes) -> Result<Created>;

    /// Writes an object completely or not at all; it is durable on return. For keys that are never used twice, and for
    /// objects that anyone may replace at any time.
    fn put(&self, key: &str, bytes: Bytes) -> Result<()>;

    /// Creates an empty object under `key` unless there is one. Gives up if that takes long, and does not sync to disk.
    /// For objects whose loss does no harm.
    ///
    /// # Errors
    /// When the object may not exist.
    fn touch(&self, key: &str) -> Result<()>;

    /// Removes a piece of the reserve, durably; a missing piece is ignored. The space is free on return. All other
    /// objects can only be removed through [`Prune`].
    ///
    /// # Errors
    /// Invalid input, when `key` is not of the reserve.
    fn give_up(&self, key: &str) -> Result<()>;

    /// Starts a put that is written piece by piece.
    fn upload(&self, key: &str) -> Result<Box<dyn Upload>>;
}

/// An object that is being written. It is visible and durable once finished, and discarded if dropped before.
pub trait Upload: Send {
    /// Appends bytes; blocks while too many are in flight.
    fn write(&mut self, bytes: Bytes) -> Result<()>;

    /// Waits until everything written has arrived, as far as that can be known. Nothing may be written afterwards, so
    /// that [`Self::finish`] has little left to send.
    fn seal(&mut self) -> Result<()>;

    /// Makes the object visible and durable.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// Reads, adds and deletes objects.
pub trait Prune: Write {
    /// Deletes objects, durably; missing keys are ignored. After an error some objects may be deleted.
    fn delete(&self, keys: &[String]) -> Result<()>;

    /// Lists files of uploads below `prefix` whose process may have died, as keys for [`Prune::delete`]. Some may still
    /// be in progress: delete only old ones, and only below prefixes whose names are never used twice (packs,
    /// segments). Elsewhere two writers may share such a name, and deleting it is not safe.
    fn stale_uploads(&self, prefix: &str) -> Result<Vec<ObjectInfo>>;

    /// Returns those of these uploads that certainly have no writer any more; empty if this host cannot tell.
    fn abandoned(&self, uploads: &[ObjectInfo]) -> HashSet<String> {
        let _unknown = uploads;
        HashSet::new()
    }
}
