//! The bytes of an open segment: mapped if the store has them on this host, otherwise read from a copy in the host's
//! cache. A copy is verified before it gets its final name, so a file with that name is complete.

use std::io::{Read as _, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::bytes::Bytes;
use memmap2::Mmap;

use crate::error::{Error, ErrorKind, Result};
use crate::format::{SegmentLayout, segment_key};
use crate::fs::map;
use crate::fs::{build_atomically, is_host_local, open_object};
use crate::id::SegmentId;
use crate::remedy::Remedy;
use crate::remote::Read;

/// Bytes that one request fetches, so that a segment of fifty million chunks never has to be in memory whole.
const READ_BYTES: u64 = 16 << 20;
/// Copies up to this size are compared with their checksum at each opening, which takes less time than a request.
/// Larger copies are verified only when some part of them turns out to be wrong.
const CHECKED_BYTES_MAX: u64 = 16 << 20;
/// Segments up to this size are read into memory.
pub(super) const HELD_BYTES_MAX: u64 = 64 << 10;

/// The bytes of a segment.
#[derive(Debug)]
pub(super) enum SegmentBytes {
    /// In a file on this host.
    Mapped(Mmap),
    /// In a file on this host that holds several segments.
    Gathered(Arc<Mmap>, Range<usize>),
    /// In memory.
    Held(Bytes),
}

impl SegmentBytes {
    /// Returns the path for the copy of segment `id`, or `None` if it can be opened without a copy.
    pub(super) fn copy_of(
        remote: &dyn Read,
        cache_dir: Option<&Path>,
        id: SegmentId,
    ) -> Option<PathBuf> {
        let local = remote.local_path(&segment_key(id));
        if local.is_some_and(|path| is_host_local(&path)) {
            return None;
        }
        cache_dir.map(|dir| Self::copy_in(dir, id))
    }

    /// Returns the path for the copy of segment `id` in the cache of a store.
    pub(super) fn copy_in(cache_dir: &Path, id: SegmentId) -> PathBuf {
        cache_dir.join("segments").join(id.to_string())
    }

    /// Opens the object of segment `id`, which has `len` bytes: either in place or through a `copy`. The copy is
    /// created if it is missing, and replaced if it is damaged.
    pub(super) fn open(
        remote: &dyn Read,
        copy: Option<&Path>,
        id: SegmentId,
        len: u64,
    ) -> Result<Self> {
        let key = segment_key(id);
        if let Some(copy) = copy {
            if let Ok(bytes) = Self::map(copy, &key)
                && is_whole(&key, bytes.as_slice(), len)
            {
                return Ok(bytes);
            }
            copy_segment(remote, &key, len, copy)?;
            return Self::map(copy, &key);
        }
        let bytes = match remote.local_path(&key) {
            Some(path) if is_host_local(&path) => Self::map(&path, &key)?,
            _ => {
                let bytes = remote.get(&key)?;
                SegmentLayout::parse(&key, &bytes)?.verify(&bytes)?;
                Self::Held(bytes)
            }
        };
        let found = bytes.as_slice().len() as u64;
        if len > 0 && found != len {
            let what = format!("{key}: has {found} bytes, the log says {len}");
            return Err(Error::corrupt(what).hint(Remedy::RepairSegments));
        }
        Ok(bytes)
    }

    fn map(path: &Path, key: &str) -> Result<Self> {
        let mut file =
            open_object(path, key, Remedy::RepairSegments).map_err(|error| match error.kind() {
                ErrorKind::Corrupt => error,
                _ => error.within(key),
            })?;
        // A process can have few mappings, and reading a small file is faster than mapping it.
        let failed = |source| Error::io("read", path, source).within(key);
        if file.metadata().map_err(failed)?.len() <= HELD_BYTES_MAX {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).map_err(failed)?;
            return Ok(Self::Held(bytes.into()));
        }
        Ok(Self::Mapped(map(&file, &path.display().to_string())?))
    }

    /// Returns all bytes.
    pub(super) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Gathered(map, range) => map.get(range.clone()).unwrap_or_default(),
            Self::Held(bytes) => bytes,
        }
    }
}

/// Whether a copy is what was fetched. For a large copy, checks only the length and the header.
fn is_whole(key: &str, bytes: &[u8], len: u64) -> bool {
    if bytes.len() as u64 != len {
        return false;
    }
    SegmentLayout::parse(key, bytes)
        .is_ok_and(|layout| len > CHECKED_BYTES_MAX || layout.verify(bytes).is_ok())
}

fn copy_segment(remote: &dyn Read, key: &str, len: u64, copy: &Path) -> Result<()> {
    build_atomically(copy, |file| {
        let failed = |source| Error::io("write", copy, source);
        let mut start = 0;
        while start < len {
            let end = len.min(start + READ_BYTES);
            let range = start..end;
            for bytes in remote.get_ranges(key, std::slice::from_ref(&range))? {
                file.write_all(&bytes).map_err(failed)?;
            }
            start = end;
        }
        file.flush().map_err(failed)?;
        let bytes = map(file, key)?;
        SegmentLayout::parse(key, &bytes)?.verify(&bytes)
    })
}
