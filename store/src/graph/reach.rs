//! Reach: which chunks of an index some versions need, and what these take as stored.
//!
//! Three bits for each chunk of the index say what has been reached, walked as a list and walked as
//! a tree (the same bytes may be all of them); what was walked once is not walked again. Anything that
//! cannot be read is an error: a number that leaves something out would be a wrong one.

use std::sync::Arc;

use crate::error::{Error, Kind, Result};
use crate::format::{Content, Node, Version};
use crate::id::ChunkId;
use crate::index::{Marks, Position};
use crate::read::Reader;
use crate::store::View;

/// What versions reach in the index of a reader's view.
pub(crate) struct Reach<'r> {
    reader: &'r Reader<'r>,
    /// Marks are positions of its index, whatever the reader reloads meanwhile.
    view: Arc<View>,
    reached: Marks,
    lists: Marks,
    trees: Marks,
}

impl<'r> Reach<'r> {
    /// Nothing so far.
    pub(crate) fn new(reader: &'r Reader<'r>) -> Self {
        let view = reader.view();
        Self {
            reader,
            reached: view.index.marks(),
            lists: view.index.marks(),
            trees: view.index.marks(),
            view,
        }
    }

    /// The chunks reached so far.
    pub(crate) fn chunks(&self) -> &Marks {
        &self.reached
    }

    /// Stored bytes of the chunks reached so far: their share of their frames, as a collector counts them.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub(crate) fn stored_bytes(&self) -> Result<u64> {
        self.reached.positions().try_fold(0u64, |sum, at| {
            let (_, location) = self.view.index.at(at)?;
            Ok(sum.saturating_add(location.stored_share()))
        })
    }

    /// Reaches all that `version` needs.
    ///
    /// # Errors
    /// Not found and corrupt as [`Reader`] has them; interrupted on request.
    pub(crate) fn version(&self, version: &Version) -> Result<()> {
        match self.list(&version.times) {
            // Times that are lost take no room, and cost nothing else.
            Err(error) if error.kind() == Kind::Corrupt => {}
            listed => listed?,
        }
        // A heap of what is still to be walked: the depth of a tree costs no stack.
        let mut nodes = vec![Node::from(version.root)];
        while let Some(node) = nodes.pop() {
            match node {
                Node::Symlink { .. } => {}
                Node::File { content, .. } => self.list(&content)?,
                Node::Tree { content, .. } => nodes.extend(self.tree(&content)?),
            }
        }
        Ok(())
    }

    /// Reaches a chunk, if the index has it.
    pub(crate) fn also(&self, id: &ChunkId) -> Result<()> {
        if let Some(at) = self.view.index.position(id)? {
            self.reached.set(at);
        }
        Ok(())
    }

    /// Reaches the bytes of a tree and returns what is in it, unless it was walked before.
    fn tree(&self, content: &Content) -> Result<Vec<Node>> {
        self.reader.store().host().check_stop()?;
        if content.size == 0 || !self.trees.set(self.position(&content.root)?) {
            return Ok(Vec::new());
        }
        self.list(content)?;
        let entries = self.reader.tree(content)?;
        Ok(entries.into_iter().map(|entry| entry.node).collect())
    }

    /// Reaches every chunk of `content`; lists that were walked before are passed over.
    fn list(&self, content: &Content) -> Result<()> {
        self.reader.visit(content, &mut |id, depth, _, _| {
            let at = self.position(&id)?;
            self.reached.set(at);
            Ok(depth > 0 && self.lists.set(at))
        })
    }

    fn position(&self, id: &ChunkId) -> Result<Position> {
        self.view.index.position(id)?.ok_or_else(|| {
            Error::corrupt(format!(
                "chunk {id}: a live version needs it and no live segment offers it"
            ))
            .hint("run `store verify` to see what is hit")
        })
    }
}
