//! Remote: bytes by key, wherever a store is; the only room that knows a backend.
//!
//! Three capabilities, each a trait that contains the one before: [`Read`], [`Write`], [`Prune`]. Pipelines hold the
//! weakest trait that is enough; only crate `gc` is given [`Prune`]. The traits are synchronous and shared by threads;
//! async stays inside this room.
//!
//! Invariants: what `create`, `put` and `finish` acknowledged survives a power cut; nothing is
//! visible before it is whole; no key ends in `#` and digits (those are uploads in progress).

use std::collections::HashSet;
use std::fmt::Debug;
use std::ops::Range;
use std::path::PathBuf;

use bytes::Bytes;
use jiff::Timestamp;
use rayon::prelude::*;

use crate::error::{Kind, Result};
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
pub use open::{Options, open, takes};
pub(crate) use single_writer::SingleWriter;
pub use single_writer::{keeps_first, overwrites};
#[cfg(any(test, feature = "testing"))]
pub use testing::faulty::Faulty;

/// One object of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Its key.
    pub key: String,
    /// Its bytes.
    pub size: u64,
    /// When it was last written, by the clock of whoever keeps it; never for safety.
    pub modified: Timestamp,
}

/// What became of a put-if-absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// The object is new, and durable.
    Created,
    /// Somebody's object is there, and durable; perhaps the caller's own, whose answer was lost.
    Exists,
}

/// Reads objects.
pub trait Read: Send + Sync + Debug {
    /// Where this is, without credentials, for messages.
    fn url(&self) -> String;

    /// All bytes of an object.
    ///
    /// # Errors
    /// Not found, when there is no such object.
    fn get(&self, key: &str) -> Result<Bytes>;

    /// The objects under `keys` in order, up to the first that does not exist. Where answers take long, all are
    /// asked for at once.
    ///
    /// # Errors
    /// As [`Self::get`], but for a missing object.
    fn get_run(&self, keys: &[String]) -> Result<Vec<Bytes>>;

    /// Bytes of several ranges, each of exactly the length that was asked for.
    ///
    /// # Errors
    /// Not found, when there is no such object; corrupt, when it ends before a range does.
    fn get_ranges(&self, key: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>>;

    /// How many bytes an object has.
    ///
    /// # Errors
    /// Not found, when there is no such object.
    fn size(&self, key: &str) -> Result<u64>;

    /// The objects below `prefix`, at every depth, sorted by key. The prefix is a directory: `a/b` lists
    /// `a/b/c` and never `a/bc`; empty lists all. A listing is a hint: an object may be missing from it.
    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>>;

    /// The keys below `prefix` that come behind `after` by their bytes, sorted. Asks for no more than their names,
    /// and reads no directory that lies before `after` as a whole. A hint, as a listing is.
    fn keys_after(&self, prefix: &str, after: &str) -> Result<Vec<String>>;

    /// Where a local directory keeps an object, so that it can be mapped; `None` elsewhere.
    fn local_path(&self, key: &str) -> Option<PathBuf>;
}

/// Whether what is at `url` ends with a process, or is a file that people copy about.
pub(crate) fn is_passing(url: &str) -> bool {
    ["memory:", "bundle:"]
        .iter()
        .any(|passing| url.starts_with(passing))
}

/// [`Read::get_run`] where answers come at once.
///
/// # Errors
/// As there.
pub fn one_by_one<R: Read + ?Sized>(remote: &R, keys: &[String]) -> Result<Vec<Bytes>> {
    let mut found = Vec::new();
    for key in keys {
        match remote.get(key) {
            Ok(bytes) => found.push(bytes),
            Err(error) if error.kind() == Kind::NotFound => break,
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Whether every read crosses a network, so that few large ones beat many small ones.
pub(crate) fn is_far(remote: &(impl Read + ?Sized)) -> bool {
    remote.local_path(FORMAT_KEY).is_none()
}

/// What `ask` says of each of `items`. Threads gain nothing where an answer comes at once.
///
/// # Errors
/// The first of `ask`.
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
    /// Put-if-absent: of any number of callers exactly one creates. Durable when it returns, either way.
    ///
    /// # Errors
    /// After an error the object may or may not exist: create it again, or read it, to find out.
    fn create(&self, key: &str, bytes: Bytes) -> Result<Created>;

    /// Writes an object whole or not at all; durable when it returns. For names that are never used twice, and
    /// for objects that anyone may replace at any time.
    fn put(&self, key: &str, bytes: Bytes) -> Result<()>;

    /// Sees to it that there is an object under `key`, an empty one where there was none, in a moment or not at
    /// all: what takes longer is given up, and nothing waits for a disk. For objects that nobody misses.
    ///
    /// # Errors
    /// When it is not known to be there.
    fn touch(&self, key: &str) -> Result<()>;

    /// Removes a piece of the reserve, which means nothing to anybody, durably; a missing one is fine. What this
    /// frees is free when it returns. Whatever else is in a store only [`Prune`] takes away.
    ///
    /// # Errors
    /// Invalid input, when `key` is that of something else.
    fn give_up(&self, key: &str) -> Result<()>;

    /// A put that is written piece by piece.
    fn upload(&self, key: &str) -> Result<Box<dyn Upload>>;
}

/// An object in the making: visible and durable when it is finished, gone when it is dropped before.
pub trait Upload: Send {
    /// Appends; blocks while too much is on its way.
    fn write(&mut self, bytes: Bytes) -> Result<()>;

    /// Waits until all that was written has arrived, as far as that can be known; nothing may be written after it.
    /// What [`Self::finish`] has left to do then moves few bytes.
    fn seal(&mut self) -> Result<()>;

    /// Makes the object visible and durable.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// Reads, adds and deletes objects.
pub trait Prune: Write {
    /// Deletes objects, and durably so; a key that is missing is fine. After an error some are deleted.
    fn delete(&self, keys: &[String]) -> Result<()>;

    /// What uploads below `prefix` left behind when their process died, as keys for [`Prune::delete`]. Some
    /// may still be in progress: take the old ones, and only below prefixes whose names are never used twice
    /// (packs, segments). Elsewhere two writers share such a name, and deleting it is not safe.
    fn stale_uploads(&self, prefix: &str) -> Result<Vec<ObjectInfo>>;

    /// Those of these uploads that nobody writes any more, as far as this host can know; where it cannot, none.
    fn abandoned(&self, uploads: &[ObjectInfo]) -> HashSet<String> {
        let _unknown = uploads;
        HashSet::new()
    }
}
