//! Reads the old cache from beginning to end, in step with a walk.

use std::cmp::Ordering;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::layout::{self, EntryDecoder, FOOTER_BYTES_MAX, Footer, Link};
use super::{BLOCK_BYTES_MAX, CacheBase, Cached, STAT_CACHE_MAGIC};
use crate::error::{Error, Result};
use crate::format::{Content, unseal};
use crate::fs::open_regular;
use crate::host::walk::{Stat, compare_paths};
use crate::id::StoreId;

/// Entries of the last put, in the order of its walk.
#[derive(Debug)]
pub struct StatCacheReader {
    path: PathBuf,
    /// `None` when nothing is left to read.
    open: Option<Open>,
    base: Option<CacheBase>,
    damage: Option<Error>,
}

#[derive(Debug)]
struct Open {
    input: BufReader<File>,
    /// The checksum of what was read so far, and the one expected at the end.
    link: Link,
    last_link: Link,
    block: Vec<u8>,
    /// The offset in the block of the next entry to decode.
    at: usize,
    decoder: EntryDecoder,
    /// The last decoded entry, until the walk has passed it.
    next: Option<Cached>,
}

/// Why reading a cache ended.
enum Stop {
    /// There is no cache, or its end was reached.
    Ended,
    Damaged(String),
    Failed(io::Error),
}

impl StatCacheReader {
    pub(super) fn open(path: &Path, store: StoreId, root: &[u8]) -> Self {
        let mut reader = Self {
            path: path.to_path_buf(),
            open: None,
            base: None,
            damage: None,
        };
        match Open::new(path, &layout::encode_header(store, root)) {
            Ok((open, base)) => {
                reader.open = Some(open);
                reader.base = Some(base);
            }
            Err(stop) => reader.stop(stop),
        }
        reader
    }

    /// The version as which the entries were committed, so that the caller can check whether it is live.
    pub fn base(&self) -> Option<&CacheBase> {
        self.base.as_ref()
    }

    /// The damage of the cache, if any. Entries behind it are missing.
    pub fn damage(&self) -> Option<&Error> {
        self.damage.as_ref()
    }

    /// Drops all entries, when the store can no longer use them.
    pub fn discard(&mut self) {
        self.open = None;
        self.base = None;
    }

    /// Returns the content of the file at `path`, relative to the root, if its state is the recorded one. Must be
    /// called in the order of a walk: skipped entries are lost.
    pub fn lookup(&mut self, path: &[u8], stat: &Stat) -> Option<Content> {
        let found = self.open.as_mut()?.find(path);
        match found {
            Ok(cached) => cached
                .filter(|cached| cached.key == stat.into())
                .map(|cached| cached.content),
            Err(stop) => {
                self.stop(stop);
                None
            }
        }
    }

    fn stop(&mut self, stop: Stop) {
        self.open = None;
        let cache = || format!("stat cache {}", self.path.display());
        self.damage = match stop {
            Stop::Ended => return,
            Stop::Damaged(detail) => Some(Error::corrupt(format!("{}: {detail}", cache()))),
            Stop::Failed(source) => Some(Error::io("read stat cache", &self.path, source)),
        };
    }
}

impl Open {
    /// Opens the cache, which must begin with `header`.
    fn new(path: &Path, header: &[u8]) -> Result<(Self, CacheBase), Stop> {
        let file = open_regular(path)?;
        let mut found = vec![0; header.len()];
        if let Err(source) = file.read_exact_at(&mut found, 0) {
            return Err(damaged_or_failed(source));
        }
        if is_of_older_version(&found, header) {
            return Err(Stop::Ended);
        }
        if found != header {
            return Err(damaged(
                "header: expected that of this store, root and version, found another",
            ));
        }
        let footer = read_footer(&file)?;
        let link = *header.last_chunk().ok_or(Stop::Ended)?;
        let mut input = BufReader::with_capacity(64 << 10, file);
        input.seek(SeekFrom::Start(header.len() as u64))?;
        let open = Self {
            input,
            link,
            last_link: footer.chain.0,
            block: Vec::new(),
            at: 0,
            decoder: EntryDecoder::default(),
            next: None,
        };
        Ok((open, footer.base))
    }

    /// Returns the entry of `path`, and skips everything before it.
    fn find(&mut self, path: &[u8]) -> Result<Option<Cached>, Stop> {
        loop {
            let Some(cached) = self.next else {
                self.advance()?;
                continue;
            };
            match compare_paths(&self.decoder.path, path) {
                Ordering::Less => self.next = None,
                Ordering::Equal => {
                    self.next = None;
                    return Ok(Some(cached));
                }
                Ordering::Greater => return Ok(None),
            }
        }
    }

    fn advance(&mut self) -> Result<(), Stop> {
        let mut rest = self.block.get(self.at..).unwrap_or_default();
        if rest.is_empty() {
            self.read_block()?;
            rest = &self.block;
        }
        self.next = self.decoder.next(&mut rest);
        self.at = self.block.len() - rest.len();
        if self.next.is_none() {
            return Err(damaged("expected an entry, found other bytes"));
        }
        Ok(())
    }

    fn read_block(&mut self) -> Result<(), Stop> {
        let mut len = [0; 4];
        self.input.read_exact(&mut len).map_err(damaged_or_failed)?;
        let len = usize::try_from(u32::from_le_bytes(len)).unwrap_or(usize::MAX);
        if len == 0 {
            return Err(self.end());
        }
        if len > BLOCK_BYTES_MAX {
            return Err(damaged("block: expected at most 256 KiB, found more"));
        }
        self.block.resize(len, 0);
        self.at = 0;
        let mut link = Link::default();
        self.input
            .read_exact(&mut self.block)
            .map_err(damaged_or_failed)?;
        self.input
            .read_exact(&mut link)
            .map_err(damaged_or_failed)?;
        self.link = layout::next_link(&self.link, &self.block);
        if self.link != link {
            return Err(damaged("block: its checksum is another"));
        }
        Ok(())
    }

    fn end(&self) -> Stop {
        if self.link == self.last_link {
            Stop::Ended
        } else {
            damaged("blocks are missing at its end")
        }
    }
}

/// Whether an older program wrote the cache, which is no damage.
fn is_of_older_version(found: &[u8], expected: &[u8]) -> bool {
    let version = |header: &[u8]| {
        let rest = header.strip_prefix(&STAT_CACHE_MAGIC)?;
        rest.first_chunk().copied().map(u16::from_le_bytes)
    };
    version(found).is_some_and(|found| found > 0 && Some(found) < version(expected))
}

fn read_footer(file: &File) -> Result<Footer, Stop> {
    let end = file.metadata()?.len();
    let len_at = end
        .checked_sub(4)
        .ok_or_else(|| damaged("it is cut short"))?;
    let mut len = [0; 4];
    file.read_exact_at(&mut len, len_at)
        .map_err(damaged_or_failed)?;
    let len = u32::from_le_bytes(len);
    let at = len_at
        .checked_sub(len.into())
        .ok_or_else(|| damaged("it is cut short"))?;
    let len = usize::try_from(len)
        .ok()
        .filter(|len| *len <= FOOTER_BYTES_MAX);
    let mut footer = vec![0; len.ok_or_else(|| damaged("it is cut short"))?];
    file.read_exact_at(&mut footer, at)
        .map_err(damaged_or_failed)?;
    unseal("footer", &footer).map_err(|error| damaged(&error.to_string()))
}

fn damaged(detail: &str) -> Stop {
    Stop::Damaged(detail.to_owned())
}

fn damaged_or_failed(source: io::Error) -> Stop {
    match source.kind() {
        io::ErrorKind::UnexpectedEof => damaged("it is cut short"),
        _ => Stop::Failed(source),
    }
}

impl From<io::Error> for Stop {
    fn from(source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::NotFound => Self::Ended,
            _ => Self::Failed(source),
        }
    }
}
