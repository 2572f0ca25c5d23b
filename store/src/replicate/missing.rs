//! What the destination lacks of some versions: one walk over their metadata at the source.
//!
//! What was seen once is not walked again, so the cost follows the unique metadata, which is read in the order
//! in which it was put. Marks are positions in the source's index: half a byte for each chunk of the source.
//! What the destination has is counted on until the commit.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use crate::error::{Error, Kind, Result};
use crate::format::{Content, ListNode, Node, Root, Version};
use crate::id::ChunkId;
use crate::index::{Index, Location, Marks};
use crate::read::Reader;
use crate::session::Relied;

/// Chunks that could not be had from the source, and why.
pub(super) type Unreadable = HashMap<ChunkId, (Kind, String)>;

static NOTHING_LEFT: LazyLock<HashSet<ChunkId>> = LazyLock::new(HashSet::new);

/// One walk over the versions of a batch.
pub(super) struct Walk<'w> {
    reader: &'w Reader<'w>,
    there: &'w Relied,
    /// What is not to be counted although `there` does not offer it.
    left: &'w HashSet<ChunkId>,
    /// Versions that reach one of these fail.
    unreadable: &'w Unreadable,
    reached: Marks,
    lists: Marks,
    trees: Marks,
    wants: Wants,
    /// Whether a chunk that is missing ends the walk.
    ends_at_missing: bool,
}

/// Chunks that the destination lacks.
#[derive(Debug)]
pub(super) struct Wants {
    /// The source's index, of which `missing` are positions.
    pub(super) index: Index,
    pub(super) missing: Marks,
    pub(super) chunks: u64,
    pub(super) raw_bytes: u64,
    /// Their share of their frames.
    pub(super) stored_bytes: u64,
}

impl<'w> Walk<'w> {
    /// Nothing walked so far; what `reader` reads must be of its own newest state.
    pub(super) fn new(
        reader: &'w Reader<'w>,
        there: &'w Relied,
        unreadable: &'w Unreadable,
    ) -> Self {
        let index = reader.view().index.clone();
        Self {
            reader,
            there,
            left: &NOTHING_LEFT,
            unreadable,
            reached: index.marks(),
            lists: index.marks(),
            trees: index.marks(),
            wants: Wants {
                missing: index.marks(),
                index,
                chunks: 0,
                raw_bytes: 0,
                stored_bytes: 0,
            },
            ends_at_missing: false,
        }
    }

    /// The same, to which `left` is not missing.
    pub(super) fn beside(self, left: &'w HashSet<ChunkId>) -> Self {
        Self { left, ..self }
    }

    /// What is missing by now.
    pub(super) fn wants(&self) -> &Wants {
        &self.wants
    }

    pub(super) fn finish(self) -> Wants {
        self.wants
    }

    /// Walks a version. Every chunk of it is looked up, also where the destination has a version that is much the
    /// same: that one may have lost chunks to damage.
    ///
    /// # Errors
    /// Not found or corrupt, naming what cannot be read.
    pub(super) fn version(&mut self, version: &Version) -> Result<()> {
        self.content(&version.times)?;
        match &version.root {
            Root::File { content, .. } => self.content(content),
            Root::Tree { content, .. } => self.trees(*content),
        }
    }

    /// Itself, when the destination has all of a version; else none, since it is of no more use.
    ///
    /// # Errors
    /// When a store does not answer.
    pub(super) fn complete(mut self, version: &Version) -> Result<Option<Self>> {
        self.ends_at_missing = true;
        match self.version(version) {
            Ok(()) => Ok(Some(self)),
            Err(_) if self.wants.chunks > 0 => Ok(None),
            Err(error) if is_its_own(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A tree and those below it, in the order in which they were put; depth costs no stack.
    fn trees(&mut self, root: Content) -> Result<()> {
        let mut stack = vec![root];
        while let Some(tree) = stack.pop() {
            self.reader.store().host().check_stop()?;
            let first = stack.len();
            self.tree(&tree, &mut stack)?;
            // The last one is taken first.
            stack.get_mut(first..).unwrap_or_default().reverse();
        }
        Ok(())
    }

    /// One tree: its bytes and its files, and onto the stack the trees in it.
    fn tree(&mut self, content: &Content, stack: &mut Vec<Content>) -> Result<()> {
        self.content(content)?;
        let position = self.wants.index.position(&content.root)?;
        if !position.is_some_and(|position| self.trees.set(position)) {
            return Ok(());
        }
        for entry in self.reader.tree(content)? {
            match &entry.node {
                Node::Tree { content, .. } => stack.push(*content),
                Node::File { content, .. } => self
                    .content(content)
                    .map_err(|error| error.within(entry.name.escape_ascii()))?,
                Node::Symlink { .. } => {}
            }
        }
        Ok(())
    }

    fn content(&mut self, content: &Content) -> Result<()> {
        if content.size == 0 {
            return Ok(());
        }
        self.chunk(&content.root, content.depth, content.size)
    }

    /// A chunk with `size` bytes of content below it: itself at depth 0, else as a list node.
    fn chunk(&mut self, id: &ChunkId, depth: u8, size: u64) -> Result<()> {
        let location = self.reach(id)?;
        let Some(level) = depth.checked_sub(1) else {
            return match location {
                Some(location) if u64::from(location.len) != size => Err(Error::corrupt(format!(
                    "chunk {id}: has {} bytes, expected {size}",
                    location.len
                ))),
                _ => Ok(()),
            };
        };
        let position = self.wants.index.position(id)?;
        if !position.is_some_and(|position| self.lists.set(position)) {
            return Ok(());
        }
        self.reader.store().host().check_stop()?;
        let node: ListNode = self.reader.list_node(id, level, size)?;
        node.children
            .iter()
            .try_for_each(|child| self.chunk(&child.id, level, child.size))
    }

    /// Where a chunk lies at the source, when it was not reached before.
    fn reach(&mut self, id: &ChunkId) -> Result<Option<Location>> {
        if let Some((kind, why)) = self.unreadable.get(id) {
            return Err(Error::new(*kind, why.clone()));
        }
        let Some(position) = self.wants.index.position(id)? else {
            return Err(Error::not_found(format!(
                "chunk {id}: no live segment of the source offers it"
            ))
            .hint("run `store verify` at the source if the ref is still listed there"));
        };
        if !self.reached.set(position) {
            return Ok(None);
        }
        let (_, location) = self.wants.index.at(position)?;
        let is_there = self.left.contains(id) || self.there.is_offered(id)?;
        if !is_there && self.wants.missing.set(position) {
            self.wants.chunks += 1;
            self.wants.raw_bytes += u64::from(location.len);
            self.wants.stored_bytes += location.stored_share();
            if self.ends_at_missing {
                return Err(Error::not_found(format!("chunk {id}: is not there yet")));
            }
        }
        Ok(Some(location))
    }
}

/// Whether an error says something about one version, rather than about a store that does not answer.
pub(super) fn is_its_own(error: &Error) -> bool {
    matches!(
        error.kind(),
        Kind::NotFound | Kind::Corrupt | Kind::Unsupported
    )
}
