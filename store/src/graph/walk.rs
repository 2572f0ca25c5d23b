//! The walk over what versions reach: version -> tree -> list -> chunk, in order or on all threads.
//!
//! The visitor defines what a walk is for, and says what was seen before, so nothing is read twice and the cost depends
//! on the unique metadata. Everything is checked on the way: a chunk has the length that its list says. Deep trees and
//! long lists use no stack. Only `check` has a walk of its own: it continues after damage and names paths.

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::format::{Content, ListChild, Node, Root, SIDE_TIMES, Version};
use crate::id::ChunkId;
use crate::index::{Index, Marks, Position, SparseMarks};
use crate::read::Reader;

/// A part that a chunk plays beside that of plain bytes. The same bytes may play all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// A node of a chunk list.
    List,
    /// The root of a tree's bytes.
    Tree,
}

/// What a walk could not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// The times of a version. They are no part of what it is.
    Times,
    /// A tree, or the content of a file.
    Node,
}

/// What is done with what a walk meets; shared by its threads.
pub trait Visit: Sync {
    /// A version needs this chunk. Returns its length if it has not been met before.
    ///
    /// # Errors
    /// What ends the walk.
    fn chunk(&self, id: &ChunkId) -> Result<Option<u32>>;

    /// Whether a chunk is to be read in this part, to walk what is below: not where that was done before.
    ///
    /// # Errors
    /// What ends the walk.
    fn enter(&self, id: &ChunkId, part: Part) -> Result<bool>;

    /// What `error` leaves unread; the walk goes on when this is fine.
    ///
    /// # Errors
    /// What ends the walk: `error`, unless the visitor can do without.
    fn unread(&self, _what: Unread, error: Error) -> Result<()> {
        Err(error)
    }
}

/// How a walk goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// Depth first, as trees were put: metadata is read as it lies in its packs.
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
    /// A walk in the order in which trees were put, on this thread.
    pub fn in_order(reader: &'w Reader<'w>, visit: &'w V) -> Self {
        Self {
            reader,
            visit,
            order: Order::AsPut,
        }
    }

    /// A walk in no order, on all threads.
    pub fn parallel(reader: &'w Reader<'w>, visit: &'w V) -> Self {
        Self {
            reader,
            visit,
            order: Order::Parallel,
        }
    }

    /// Walks all that `version` reaches.
    ///
    /// # Errors
    /// What the visitor says; corrupt or not found, naming what cannot be read; interrupted on request.
    pub fn version(&self, version: &Version) -> Result<()> {
        for side in version.sides.iter() {
            let what = match side.kind == SIDE_TIMES {
                true => Unread::Times,
                // What it is for is not known, so it is worth what a file is.
                false => Unread::Node,
            };
            if let Err(error) = self.chunks(&side.content) {
                self.visit.unread(what, error)?;
            }
        }
        self.root(&version.root)
    }

    /// Walks all below `root`.
    ///
    /// # Errors
    /// As [`Self::version`].
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
            // The last one is taken first.
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

    /// One tree: its bytes and its files; returns the trees in it.
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

    /// A chunk with `size` bytes of content below it: itself at depth 0, else as a list node.
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
            // One file may be most of a store.
            (_, Order::Parallel) => node.children.par_iter().try_for_each(below),
        }
    }
}

/// What was met of an index: a bit for each of its chunks, and little more for each of its metadata.
#[derive(Debug)]
pub struct Seen {
    reached: Marks,
    lists: SparseMarks,
    trees: SparseMarks,
}

impl Seen {
    /// Nothing of `index`, whose positions are marked.
    pub fn new(index: &Index) -> Self {
        Self {
            reached: index.marks(),
            lists: SparseMarks::default(),
            trees: SparseMarks::default(),
        }
    }

    /// The chunks that were reached.
    pub fn reached(&self) -> &Marks {
        &self.reached
    }

    /// The same, without the rest.
    pub fn into_reached(self) -> Marks {
        self.reached
    }

    /// Marks a chunk as reached; whether it was not before.
    pub fn reach(&self, at: Position) -> bool {
        self.reached.set(at)
    }

    /// Marks a chunk as entered in a part; whether it was not before.
    pub fn enter(&self, at: Position, part: Part) -> bool {
        match part {
            Part::List => self.lists.set(at),
            Part::Tree => self.trees.set(at),
        }
    }
}
