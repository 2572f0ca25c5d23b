//! Metadata that a put stores: trees, lists and times, of its walk or made from others.

use crossbeam_channel::Sender;

use super::dedup::Dedup;
use crate::error::Result;
use crate::format::{Content, TreeEntry};
use crate::id::ChunkId;
use crate::pack::{Framer, KindFrame};
use crate::read::Reader;
use crate::store::Store;
use crate::tree::MetaBuilder;

/// Stores metadata chunks.
pub(super) struct Meta<'p> {
    pub(super) store: &'p Store,
    pub(super) dedup: &'p Dedup,
    pub(super) framer: Framer<Sender<KindFrame>>,
    /// Chunks that the store did not have.
    pub(super) claimed: u64,
    /// The reader that keeps new chunks, and how many more bytes it may keep.
    pub(super) known: Option<&'p Reader<'p>>,
    pub(super) known_bytes_left: usize,
}

impl Meta<'_> {
    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<ChunkId> {
        let id = ChunkId::of(bytes);
        if self.dedup.claim(&id)? {
            self.claimed += 1;
            self.framer.push(id, bytes)?;
            if let Some(reader) = self.known {
                self.known_bytes_left = self.known_bytes_left.saturating_sub(bytes.len());
                if self.known_bytes_left > 0 {
                    reader.know(id, bytes);
                }
            }
        }
        Ok(id)
    }
}

/// Stores a chunk, if the store lacks it.
pub(super) fn put_meta(
    dedup: &Dedup,
    framer: &mut Framer<Sender<KindFrame>>,
    bytes: &[u8],
) -> Result<ChunkId> {
    let id = ChunkId::of(bytes);
    if dedup.claim(&id)? {
        framer.push(id, bytes)?;
    }
    Ok(id)
}

/// Stores a tree of these entries.
pub(super) fn put_tree(
    (store, dedup): (&Store, &Dedup),
    framer: &mut Framer<Sender<KindFrame>>,
    entries: &[TreeEntry],
) -> Result<Content> {
    let mut sink = |bytes: &[u8]| put_meta(dedup, framer, bytes);
    MetaBuilder::tree(store.chunker().clone(), entries, &mut sink)
}
