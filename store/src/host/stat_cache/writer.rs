//! Writes the new cache beside the old one, and renames it over that.

use std::cmp::Ordering;
use std::fs::{self, DirBuilder};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tempfile::NamedTempFile;

use super::layout::{self, ENTRY_BYTES_MAX, EntryEncoder, Footer, Link};
use super::{BLOCK_BYTES_MAX, CacheBase, Cached, is_settled};
use crate::error::{Error, Result};
use crate::format::{Content, seal};
use crate::host::walk::{Stat, compare_paths};
use crate::id::ChunkId;

/// A temporary file of this age was abandoned.
const ABANDONED: Duration = Duration::from_secs(24 * 60 * 60);
const TEMPORARY_SUFFIX: &str = ".tmp";

/// Entries of this put, in the order of its walk. Without a commit, it leaves nothing behind.
#[derive(Debug)]
pub struct StatCacheWriter {
    dir: PathBuf,
    name: String,
    header: Vec<u8>,
    /// Opened when the first block is full.
    out: Option<BufWriter<NamedTempFile>>,
    link: Link,
    block: Vec<u8>,
    encoder: EntryEncoder,
    last: Option<Vec<u8>>,
    /// The first error; nothing more is written after it.
    failed: Option<Error>,
}

impl StatCacheWriter {
    pub(super) fn new(dir: &Path, name: String, header: Vec<u8>) -> Self {
        let link = header.last_chunk().copied().unwrap_or_default();
        Self {
            dir: dir.to_path_buf(),
            name,
            header,
            out: None,
            link,
            block: Vec::new(),
            encoder: EntryEncoder::default(),
            last: None,
            failed: None,
        }
    }

    /// Records the content of the file at `path`, relative to the root. Must be called in the order of a walk. `stat`
    /// must have been the same before and after the file was read; `read_began` is when that was (for a file that was
    /// looked up instead: any time since the walk began). Files that changed shortly before are left out; see the head
    /// of this module. [`Self::commit`] reports errors.
    pub fn record(&mut self, path: &[u8], stat: &Stat, content: Content, read_began: SystemTime) {
        if self.failed.is_some() || content.size != stat.size || !is_settled(stat, read_began) {
            return;
        }
        if let Err(error) = self.push(
            path,
            &Cached {
                key: stat.into(),
                content,
            },
        ) {
            self.failed = Some(error);
            self.out = None;
        }
    }

    /// Replaces the cache on disk.
    ///
    /// # Errors
    /// When it, or an earlier entry, could not be written; the old cache is then unchanged.
    pub fn commit(mut self, base: CacheBase) -> Result<()> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.write_block()?;
        let footer = seal(&Footer {
            chain: ChunkId(self.link),
            base,
        })?;
        // The footer has a few hundred bytes, since the length of a ref's name is limited.
        let footer_len = u32::try_from(footer.len()).unwrap_or(u32::MAX);
        let to = self.dir.join(&self.name);
        let failed = |source| Error::io("write stat cache", &to, source);
        self.write(&[&[0; 4], &footer, &footer_len.to_le_bytes()])
            .map_err(failed)?;
        let Some(out) = self.out.take() else {
            return Ok(());
        };
        let temporary = out
            .into_inner()
            .map_err(|error| failed(error.into_error()))?;
        temporary
            .persist(&to)
            .map_err(|error| failed(error.error))?;
        Ok(())
    }

    fn push(&mut self, path: &[u8], cached: &Cached) -> Result<()> {
        if self
            .last
            .as_ref()
            .is_some_and(|last| compare_paths(last, path) != Ordering::Less)
        {
            let message = format!(
                "stat cache: path {}: expected one behind the last",
                path.escape_ascii()
            );
            return Err(Error::invalid(message));
        }
        if self.block.len() + ENTRY_BYTES_MAX > BLOCK_BYTES_MAX {
            self.write_block()?;
        }
        if self.encoder.push(path, cached, &mut self.block).is_some() {
            let last = self.last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(path);
        }
        Ok(())
    }

    fn write_block(&mut self) -> Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let block = std::mem::take(&mut self.block);
        self.link = layout::next_link(&self.link, &block);
        // A block has at most BLOCK_BYTES_MAX bytes.
        let len = u32::try_from(block.len()).unwrap_or(u32::MAX);
        let link = self.link;
        let written = self.write(&[&len.to_le_bytes(), &block, &link]);
        self.block = block;
        self.block.clear();
        written.map_err(|source| Error::io("write stat cache in", &self.dir, source))
    }

    fn write(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        if self.out.is_none() {
            self.out = Some(self.create()?);
        }
        let Some(out) = &mut self.out else {
            return Ok(());
        };
        parts.iter().try_for_each(|part| out.write_all(part))
    }

    fn create(&self) -> io::Result<BufWriter<NamedTempFile>> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.dir)?;
        let prefix = format!("{}.", self.name);
        let temporary = tempfile::Builder::new()
            .prefix(&prefix)
            .suffix(TEMPORARY_SUFFIX)
            .tempfile_in(&self.dir)?;
        // The time of the new file comes from the clock of that file system.
        let now = temporary.as_file().metadata()?.modified()?;
        remove_abandoned(&self.dir, &prefix, now);
        let mut out = BufWriter::with_capacity(64 << 10, temporary);
        out.write_all(&self.header)?;
        Ok(out)
    }
}

/// Removes what killed processes left. If a process is merely slow, it cannot commit its cache. Another process may
/// remove the same file at the same time.
fn remove_abandoned(dir: &Path, prefix: &str, now: SystemTime) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.as_encoded_bytes();
        if !name.starts_with(prefix.as_bytes()) || !name.ends_with(TEMPORARY_SUFFIX.as_bytes()) {
            continue;
        }
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        let age = modified
            .ok()
            .and_then(|modified| now.duration_since(modified).ok());
        if age.is_some_and(|age| age > ABANDONED) {
            drop(fs::remove_file(entry.path()));
        }
    }
}
