//! Metadata that a put stores apart from its walk: trees, lists and times that were made from others.

use crossbeam_channel::Sender;

use super::dedup::Dedup;
use crate::error::Result;
use crate::format::{Content, TreeEntry};
use crate::id::ChunkId;
use crate::pack::{Framer, KindFrame};
use crate::store::Store;
use crate::tree::MetaBuilder;

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
