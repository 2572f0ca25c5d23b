//! Pieces of a checkpoint that is not read whole: from its file, or by ranges that are copied to this host.
//!
//! A copy is a sparse file: pieces that are missing or wrong are fetched and written to it. Losing a copy costs time.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use crate::error::{Error, ErrorKind, Result};
use crate::format::{Source, parse_checkpoint_key};
use crate::fs::open_regular_with;
use crate::remote::Read;

/// The fewest bytes that one request fetches, and the most when reads are sequential.
const REQUEST_BYTES: [u64; 2] = [128 << 10, 8 << 20];
/// How long an unused copy is kept.
const COPIES_KEPT: Duration = Duration::from_secs(24 * 3600);
/// The directory for copies, below the cache directory of a store.
const COPIES: &str = "checkpoints";

/// A checkpoint in an open file.
#[derive(Debug)]
pub(super) struct Opened(pub(super) File);

impl Source for Opened {
    fn read(&self, range: Range<u64>, _is_right: &dyn Fn(&[u8]) -> bool) -> Result<Bytes> {
        let bytes = read_at(&self.0, &range);
        let bytes = bytes.map_err(|source| match source.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                let Range { start, end } = range;
                Error::corrupt(format!("expected bytes {start} to {end}, found fewer"))
            }
            _ => Error::io("read", "a checkpoint", source),
        })?;
        Ok(bytes.into())
    }
}

fn read_at(file: &File, range: &Range<u64>) -> std::io::Result<Vec<u8>> {
    let len = range.end.saturating_sub(range.start);
    let mut bytes = vec![0; usize::try_from(len).map_err(std::io::Error::other)?];
    file.read_exact_at(&mut bytes, range.start)?;
    Ok(bytes)
}

/// A checkpoint in a bucket.
#[derive(Debug)]
pub(super) struct Ranges {
    remote: Arc<dyn Read>,
    key: String,
    len: u64,
    copy: Option<File>,
    /// A range that is fetched with one request if any part of it is needed.
    together: OnceLock<Range<u64>>,
    /// The offset and the bytes of the last response.
    last: Mutex<(u64, Bytes)>,
}

impl Ranges {
    /// Reads an object of `len` bytes, with a copy below `dir`.
    pub(super) fn new(remote: &Arc<dyn Read>, dir: Option<&Path>, key: &str, len: u64) -> Self {
        Self {
            remote: Arc::clone(remote),
            key: key.to_owned(),
            len,
            // Without a copy, reads are only slower.
            copy: dir.and_then(|dir| copy(dir, key, len).ok()),
            together: OnceLock::new(),
            last: Mutex::default(),
        }
    }

    /// Fetches all of `range` together from now on.
    pub(super) fn keep_together(&self, range: Range<u64>) {
        drop(self.together.set(range));
    }

    /// Returns the range to request for `range`: larger if it follows the last response directly.
    fn request(&self, range: &Range<u64>, last: &Range<u64>) -> Range<u64> {
        if let Some(all) = self.together.get()
            && all.start <= range.start
            && range.end <= all.end
        {
            return all.clone();
        }
        let [least, most] = REQUEST_BYTES;
        let ahead = match range.start == last.end {
            true => (2 * (last.end - last.start)).clamp(least, most),
            false => least,
        };
        let end = range.start.saturating_add(ahead).min(self.len);
        range.start..end.max(range.end)
    }
}

impl Source for Ranges {
    fn read(&self, range: Range<u64>, is_right: &dyn Fn(&[u8]) -> bool) -> Result<Bytes> {
        let copied = self
            .copy
            .as_ref()
            .and_then(|copy| read_at(copy, &range).ok());
        if let Some(bytes) = copied.filter(|bytes| is_right(bytes)) {
            return Ok(bytes.into());
        }
        // One request at a time: the response probably has what other threads need.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let there = last.0..last.0 + last.1.len() as u64;
        if there.start <= range.start && range.end <= there.end {
            let found = slice(&last.1, there.start, &range);
            if is_right(&found) {
                return Ok(found);
            }
        }
        let asked = self.request(&range, &there);
        let answers = self
            .remote
            .get_ranges(&self.key, std::slice::from_ref(&asked));
        let answers = answers.map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                let what = format!("{}: newer ones took its place while it was read", self.key);
                Error::conflict(what).hint("run it again")
            }
            _ => error,
        })?;
        let bytes = answers.into_iter().next().unwrap_or_default();
        if let Some(copy) = &self.copy {
            drop(copy.write_all_at(&bytes, asked.start));
        }
        *last = (asked.start, bytes);
        Ok(slice(&last.1, asked.start, &range))
    }
}

/// Returns the bytes of `range` from `bytes`, which begin at offset `start`.
fn slice(bytes: &Bytes, start: u64, range: &Range<u64>) -> Bytes {
    let place = |at: u64| {
        let at = usize::try_from(at.saturating_sub(start)).unwrap_or(usize::MAX);
        at.min(bytes.len())
    };
    bytes.slice(place(range.start)..place(range.end))
}

/// Opens the copy of a checkpoint, with holes for pieces that were not fetched.
fn copy(dir: &Path, key: &str, len: u64) -> Result<File> {
    let dir = dir.join(COPIES);
    std::fs::create_dir_all(&dir).map_err(|source| Error::io("create", &dir, source))?;
    forget(&dir);
    let path = dir.join(format!("{}-{len}", parse_checkpoint_key(key).unwrap_or(0)));
    let failed = |source| Error::io("open", &path, source);
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    let file = open_regular_with(&mut options, &path).map_err(failed)?;
    file.set_len(len).map_err(failed)?;
    // Marks the copy as used.
    file.set_modified(SystemTime::now()).map_err(failed)?;
    Ok(file)
}

/// Deletes copies that were not used for a day. A copy that cannot be deleted only takes space.
fn forget(dir: &Path) {
    let old = SystemTime::now().checked_sub(COPIES_KEPT);
    for copy in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let used = copy.metadata().and_then(|metadata| metadata.modified());
        if used.is_ok_and(|used| Some(used) < old) {
            drop(std::fs::remove_file(copy.path()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_shorter_than_it_was_is_damage() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("checkpoint");
        std::fs::write(&path, b"short").unwrap();
        let opened = Opened(File::open(&path).unwrap());
        assert_eq!(&opened.read(1..4, &|_| true).unwrap()[..], b"hor");
        let error = opened.read(2..6, &|_| true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
        assert_eq!(error.to_string(), "expected bytes 2 to 6, found fewer");
    }
}
