//! The walk over what versions reach: version -> tree -> list -> chunk, in order or on all threads.
//!
//! A visitor defines the purpose of the walk and remembers what was seen, so nothing is read twice and the cost depends
//! on the unique metadata. Chunk lengths are checked against their lists. Deep trees and long lists do not overflow the
//! stack. Only `check` has a walk of its own, which continues after damage and names paths.

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::format::{Content, ListChild, Node, Root, SIDE_TIMES, Version};
use crate::id::ChunkId;
use crate::index::{Index, Marks, Position, SparseMarks};
use crate::read::Reader;

/// A role of a chunk other than file data. The same bytes may have all roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// A node of a chunk list.
    List,
    /// The root of a tree object.
    Tree,
}

/// What could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// The times of a version, which are not part of its identity.
    Times,
    /// A tree, or the content of a file.
    Node,
}

/// Receives what a walk meets; shared by its threads.
pub trait Visit: Sync {
    /// Called for each chunk that a version needs. Returns its length if the chunk is new.
    ///
    /// # Errors
    /// Any error ends the walk.
    fn chunk(&self, id: &ChunkId) -> Result<Option<u32>>;

    /// Whether to read a chunk in this role and walk what is below it; false if that was done before.
    ///
    /// # Errors
    /// Any error ends the walk.
    fn enter(&self, id: &ChunkId, part: Part) -> Result<bool>;

    /// Called when `error` prevents reading something. The walk continues if this returns `Ok`.
    ///
    /// # Errors
    /// `error`, unless the visitor can do without the missing part; any error ends the walk.
    fn unread(&self, _what: Unread, error: Error) -> Result<()> {
        Err(error)
    }
}

/// The order of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// Depth first, in the order of the put, so that metadata is read sequentially from its packs.
    AsPut,
    /// Level by level, on all threads.
    Parallel,
}

/// A walk.
#[derive(Debug)]
pub struct Walk<'w, V> {
    reader: &'w Reader<'w>,
    visit: &'w V,
    order: Order,
}

impl<'w, V: Visit> Walk<'w, V> {
    /// Creates a walk in the order in which trees were put, on this thread.
    pub fn in_order(reader: &'w Reader<'w>, visit: &'w V) -> Self {
        Self {
            reader,
            visit,
            order: Order::AsPut,
        }
    }

    /// Creates a walk in no particular order, on all threads.
    pub fn parallel(reader: &'w Reader<'w>, visit: &'w V) -> Self {
        Self {
            reader,
            visit,
            order: Order::Parallel,
        }
    }

    /// Walks everything that `version` reaches.
    ///
    /// # Errors
    /// Errors of the visitor; corrupt or not found, naming what cannot be read; interrupted on request.
    pub fn version(&self, version: &Version) -> Result<()> {
        for side in version.sides.iter() {
            let what = match side.kind == SIDE_TIMES {
                true => Unread::Times,
                // Its purpose is unknown, so it matters as much as a file.
                false => Unread::Node,
            };
            if let Err(error) = self.chunks(&side.content) {
                self.visit.unread(what, error)?;
            }
        }
        self.root(&version.root)
    }

    /// Walks everything below `root`.
    ///
    /// # Errors
    /// As for [`Self::version`].
    pub fn root(&self, root: &Root) -> Result<()> {
        match (root, self.order) {
            (Root::File { content, .. }, _) => self.content(content),
            (Root::Tree { content, .. }, Order::AsPut) => self.trees_as_put(*content),
            (Root::Tree { content, .. }, Order::Parallel) => self.trees_in_parallel(*content),
        }
    }

    fn trees_as_put(&self, root: Content) -> Result<()> {
        let mut stack = vec![root];
        while let Some(tree) = stack.pop() {
            let mut below = self.tree(&tree)?;
            // The last tree on the stack is taken first.
            below.reverse();
            stack.extend(below);
        }
        Ok(())
    }

    fn trees_in_parallel(&self, root: Content) -> Result<()> {
        let mut level = vec![root];
        while !level.is_empty() {
            let below: Vec<Vec<Content>> = level
                .par_iter()
                .map(|tree| self.tree(tree))
                .collect::<Result<_>>()?;
            level = below.concat();
        }
        Ok(())
    }

    /// Walks a tree object and the files in it; returns the trees in it.
    fn tree(&self, tree: &Content) -> Result<Vec<Content>> {
        self.reader.store().host().check_stop()?;
        match self.entries(tree) {
            Err(error) => self.visit.unread(Unread::Node, error).map(|()| Vec::new()),
            entered => entered,
        }
    }

    fn entries(&self, tree: &Content) -> Result<Vec<Content>> {
        self.chunks(tree)?;
        if tree.size > 0 && !self.visit.enter(&tree.root, Part::Tree)? {
            return Ok(Vec::new());
        }
        let mut below = Vec::new();
        for entry in self.reader.tree(tree)? {
            match &entry.node {
                Node::Tree { content, .. } => below.push(*content),
                Node::File { content, .. } => self.content(content).map_err(|error| {
                    error.within(format!("tree {}: {}", tree.root, entry.name.escape_ascii()))
                })?,
                Node::Symlink { .. } => {}
            }
        }
        Ok(below)
    }

    fn content(&self, content: &Content) -> Result<()> {
        match self.chunks(content) {
            Err(error) => self.visit.unread(Unread::Node, error),
            Ok(()) => Ok(()),
        }
    }

    fn chunks(&self, content: &Content) -> Result<()> {
        match content.size {
            0 => Ok(()),
            size => self.chunk(&content.root, content.depth, size),
        }
    }

    /// Walks a chunk with `size` bytes of content: at depth 0 the chunk itself, otherwise a list node.
    fn chunk(&self, id: &ChunkId, depth: u8, size: u64) -> Result<()> {
        let len = self.visit.chunk(id)?;
        let Some(level) = depth.checked_sub(1) else {
            return match len {
                Some(len) if u64::from(len) != size => Err(Error::corrupt(format!(
                    "chunk {id}: has {len} bytes, expected {size}"
                ))),
                _ => Ok(()),
            };
        };
        if !self.visit.enter(id, Part::List)? {
            return Ok(());
        }
        self.reader.store().host().check_stop()?;
        let node = self.reader.list_node(id, level, size)?;
        let below = |child: &ListChild| self.chunk(&child.id, level, child.size);
        match (level, self.order) {
            (0, _) | (_, Order::AsPut) => node.children.iter().try_for_each(below),
            // In parallel, because one file may be most of a store.
            (_, Order::Parallel) => node.children.par_iter().try_for_each(below),
        }
    }
}

/// What was met in an index: one bit per chunk, and little more for metadata.
#[derive(Debug)]
pub struct Seen {
    reached: Marks,
    lists: SparseMarks,
    trees: SparseMarks,
}

impl Seen {
    /// Starts with nothing met in `index`.
    pub fn new(index: &Index) -> Self {
        Self {
            reached: index.marks(),
            lists: SparseMarks::default(),
            trees: SparseMarks::default(),
        }
    }

    /// Returns the chunks that were reached.
    pub fn reached(&self) -> &Marks {
        &self.reached
    }

    /// Like [`Self::reached`], but consumes the value.
    pub fn into_reached(self) -> Marks {
        self.reached
    }

    /// Marks a chunk as reached, and returns whether it is new.
    pub fn reach(&self, at: Position) -> bool {
        self.reached.set(at)
    }

    /// Marks a chunk as entered in a role, and returns whether that is new.
    pub fn enter(&self, at: Position, part: Part) -> bool {
        match part {
            Part::List => self.lists.set(at),
            Part::Tree => self.trees.set(at),
        }
    }
}
