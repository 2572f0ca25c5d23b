//! Contents from bytes and chunks (pure): builds the chunk list of a file chunk by chunk, and cuts the canonical bytes
//! of a tree or of a list of times while they are being appended.
//!
//! Every metadata chunk goes to the caller's sink, which returns its id.

use crate::chunk::Chunker;
use crate::error::{Error, Result};
use crate::format::{Content, ListChild, ListNode, Node, Root, Totals, TreeEncoder, TreeEntry};
use crate::id::ChunkId;

/// Takes a metadata chunk (list node, part of a tree, part of a list of times) and returns its id.
pub type MetaSink<'a> = dyn FnMut(&[u8]) -> Result<ChunkId> + 'a;

/// Builds the chunk list of one content from its data chunks, first to last.
///
/// Keeps at most one unfinished node per level in memory.
#[derive(Debug, Default)]
pub struct ListBuilder {
    size: u64,
    /// The children of the unfinished node of each level; the first level holds data chunks.
    levels: Vec<Vec<ListChild>>,
}

impl ListBuilder {
    /// Appends a data chunk.
    ///
    /// # Errors
    /// The errors of the sink.
    pub fn push(&mut self, id: ChunkId, len: u32, sink: &mut MetaSink<'_>) -> Result<()> {
        let size = u64::from(len);
        self.size = self.size.checked_add(size).ok_or_else(too_large)?;
        self.push_at(0, ListChild { id, size }, sink)
    }

    /// Returns the finished content.
    ///
    /// # Errors
    /// The errors of the sink.
    pub fn finish(mut self, sink: &mut MetaSink<'_>) -> Result<Content> {
        let mut level = 0;
        while let Some(children) = self.levels.get_mut(level) {
            let children = std::mem::take(children);
            match children.as_slice() {
                [only] if level + 1 == self.levels.len() => {
                    return Ok(Content {
                        size: self.size,
                        depth: depth(level)?,
                        root: only.id,
                    });
                }
                [] => {}
                _ => self.flush(level, children, sink)?,
            }
            level += 1;
        }
        Ok(Content::empty())
    }

    fn push_at(&mut self, level: usize, child: ListChild, sink: &mut MetaSink<'_>) -> Result<()> {
        if self.levels.len() == level {
            self.levels.push(Vec::new());
        }
        let Some(children) = self.levels.get_mut(level) else {
            return Err(too_large());
        };
        children.push(child);
        if ListNode::is_full(children) {
            let children = std::mem::take(children);
            self.flush(level, children, sink)?;
        }
        Ok(())
    }

    /// Writes a node of `level` and adds it to the level above.
    fn flush(
        &mut self,
        level: usize,
        children: Vec<ListChild>,
        sink: &mut MetaSink<'_>,
    ) -> Result<()> {
        let size = children.iter().map(|child| child.size).sum();
        let node = ListNode {
            level: depth(level)?,
            children,
        };
        let id = sink(&node.encode())?;
        self.push_at(level + 1, ListChild { id, size }, sink)
    }
}

/// Cuts canonical bytes into chunks while they are being appended.
#[derive(Debug)]
pub struct MetaBuilder {
    chunker: Chunker,
    /// Bytes that are not cut yet; encoders append here.
    pub bytes: Vec<u8>,
    list: ListBuilder,
}

impl MetaBuilder {
    /// Starts without bytes.
    pub fn new(chunker: Chunker) -> Self {
        Self {
            chunker,
            bytes: Vec::new(),
            list: ListBuilder::default(),
        }
    }

    /// Builds the content of a tree of these entries.
    ///
    /// # Errors
    /// Invalid input, when they do not form a valid tree; those of the sink.
    pub fn tree(
        chunker: Chunker,
        entries: &[TreeEntry],
        sink: &mut MetaSink<'_>,
    ) -> Result<Content> {
        let mut bytes = Self::new(chunker);
        let mut encoder = TreeEncoder::new(&mut bytes.bytes);
        for entry in entries {
            encoder.push(entry, &mut bytes.bytes)?;
            bytes.cut(sink)?;
        }
        bytes.finish(sink)
    }

    /// Passes on the chunks whose ends are certain by now. Call it after appending.
    ///
    /// # Errors
    /// The errors of the sink.
    pub fn cut(&mut self, sink: &mut MetaSink<'_>) -> Result<()> {
        self.cut_up_to(false, sink)
    }

    /// Returns the finished content.
    ///
    /// # Errors
    /// The errors of the sink.
    pub fn finish(mut self, sink: &mut MetaSink<'_>) -> Result<Content> {
        self.cut_up_to(true, sink)?;
        self.list.finish(sink)
    }

    fn cut_up_to(&mut self, end: bool, sink: &mut MetaSink<'_>) -> Result<()> {
        let mut done = 0;
        while let Some(rest) = self.bytes.get(done..).filter(|rest| !rest.is_empty()) {
            let Some(chunk) = self.chunker.cut(rest, end).and_then(|len| rest.get(..len)) else {
                break;
            };
            let len = u32::try_from(chunk.len()).map_err(|_| too_large())?;
            self.list.push(sink(chunk)?, len, sink)?;
            done += chunk.len();
        }
        self.bytes.drain(..done);
        Ok(())
    }
}

impl Totals {
    /// Adds an entry and what is below it.
    pub fn add(&mut self, node: &Node) {
        let (entries, bytes) = match node {
            Node::File { content, .. } => (0, content.size),
            Node::Symlink { .. } => (0, 0),
            Node::Tree { totals, .. } => (totals.entries, totals.bytes),
        };
        self.entries = self.entries.saturating_add(entries).saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

impl TryFrom<Node> for Root {
    type Error = Error;

    fn try_from(node: Node) -> Result<Self> {
        match node {
            Node::File {
                content,
                executable,
            } => Ok(Self::File {
                content,
                executable,
            }),
            Node::Tree { content, totals } => Ok(Self::Tree { content, totals }),
            Node::Symlink { .. } => Err(Error::invalid(
                "a symlink alone cannot be put: name what it points to",
            )),
        }
    }
}

fn depth(level: usize) -> Result<u8> {
    u8::try_from(level).map_err(|_| too_large())
}

fn too_large() -> Error {
    Error::invalid("content is larger than the format can say")
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::format::Format;
    use crate::id::StoreId;

    fn leaves(root: ChunkId, depth: u8, nodes: &HashMap<ChunkId, Vec<u8>>, out: &mut Vec<ChunkId>) {
        if depth == 0 {
            return out.push(root);
        }
        let node = ListNode::decode("node", &nodes[&root]).unwrap();
        assert_eq!(node.level, depth - 1);
        node.children
            .iter()
            .for_each(|child| leaves(child.id, depth - 1, nodes, out));
    }

    fn build(ids: &[ChunkId]) -> (Content, HashMap<ChunkId, Vec<u8>>) {
        let mut nodes = HashMap::new();
        let mut sink = |bytes: &[u8]| {
            nodes.insert(ChunkId::of(bytes), bytes.to_vec());
            Ok(ChunkId::of(bytes))
        };
        let mut list = ListBuilder::default();
        ids.iter()
            .for_each(|id| list.push(*id, 7, &mut sink).unwrap());
        let content = list.finish(&mut sink).unwrap();
        (content, nodes)
    }

    fn ids(count: u32) -> Vec<ChunkId> {
        (0..count).map(|n| ChunkId::of(&n.to_le_bytes())).collect()
    }

    #[test]
    fn a_list_of_any_length_leads_to_its_chunks_in_order() {
        for (count, depth) in [(0, 0), (1, 0), (2, 1), (63, 1), (5_000, 2), (400_000, 3)] {
            let ids = ids(count);
            let (content, nodes) = build(&ids);
            assert_eq!(
                (content.size, content.depth),
                (7 * u64::from(count), depth),
                "{count} chunks"
            );
            let mut found = Vec::new();
            if count > 0 {
                leaves(content.root, content.depth, &nodes, &mut found);
            }
            assert_eq!(found, ids);
        }
    }

    #[test]
    fn an_insertion_moves_few_nodes() {
        let before = ids(50_000);
        let mut after = before.clone();
        after.insert(20_000, ChunkId::of(b"inserted"));
        let (_, old) = build(&before);
        let (_, new) = build(&after);
        let fresh = new.keys().filter(|id| !old.contains_key(*id)).count();
        assert!(
            (1..=5).contains(&fresh),
            "{fresh} of {} nodes are new",
            new.len()
        );
    }

    #[test]
    fn cutting_while_appending_equals_cutting_the_whole() {
        let chunker = Chunker::new(&Format::new(StoreId([0; 16])).chunker).unwrap();
        let bytes: Vec<u8> = (0..2_000_000u32)
            .flat_map(|n| (n.wrapping_mul(n)).to_le_bytes())
            .collect();
        let mut chunks = Vec::new();
        let mut sink = |bytes: &[u8]| {
            chunks.push(bytes.to_vec());
            Ok(ChunkId::of(bytes))
        };
        let mut whole = MetaBuilder::new(chunker.clone());
        whole.bytes.extend_from_slice(&bytes);
        let expected = whole.finish(&mut sink).unwrap();
        let mut pieces = MetaBuilder::new(chunker);
        for piece in bytes.chunks(10_007) {
            pieces.bytes.extend_from_slice(piece);
            pieces.cut(&mut sink).unwrap();
        }
        assert_eq!(pieces.finish(&mut sink).unwrap(), expected);
        assert_eq!(expected.size, 8_000_000);
    }
}
