//! Mark: which chunks of a state the live versions reach, as one bit for each chunk.
//!
//! Fails closed: anything that cannot be read is an error that names it, never an empty tree.
//! What was seen once is not walked again, so the cost follows the unique metadata. One chunk can
//! play several parts (a file may hold the very bytes of a tree or of a list node), so having been
//! reached, walked as a list and walked as a tree are three different bits.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;
use store::format::{Content, ListChild, Node, Root, Version};
use store::index::{Index, Location, Marks, Position};
use store::read::Reader;
use store::{ChunkId, Error, Kind, Result, Store, View};

/// The marks of one state, and what it takes to add to them.
#[derive(Debug)]
pub struct Marker<'s> {
    store: &'s Store,
    /// The index that the marks are positions of.
    index: Index,
    reached: Marks,
    lists: Marks,
    trees: Marks,
    stored_bytes: AtomicU64,
    /// Chunks that a version reached which was dropped: those reached all the same are shared.
    watched: Option<Marks>,
    watched_bytes: AtomicU64,
}

/// A part that a chunk plays beside that of plain bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Part {
    List,
    Tree,
}

/// One walk over versions: how it reads, and against which newer index it checks.
struct Walk<'w, 's> {
    marker: &'w Marker<'s>,
    reader: &'w Reader<'s>,
    after: Option<After<'w>>,
}

/// The index after a commit that is about to be made.
struct After<'w> {
    index: &'w Index,
    /// Chunks that only segments newer than the marks hold.
    seen: Mutex<HashSet<(ChunkId, Part)>>,
}

impl<'s> Marker<'s> {
    /// Nothing marked, in the index of `view`.
    pub fn new(store: &'s Store, view: &View) -> Self {
        let index = view.index.clone();
        Self {
            store,
            reached: index.marks(),
            lists: index.marks(),
            trees: index.marks(),
            index,
            stored_bytes: AtomicU64::new(0),
            watched: None,
            watched_bytes: AtomicU64::new(0),
        }
    }

    /// Counts from now on what is newly reached of `watched`, marks of the same index.
    #[must_use]
    pub fn watching(mut self, watched: Marks) -> Self {
        self.watched = Some(watched);
        self
    }

    /// Marks all that `version` reaches; `name` stands in errors.
    ///
    /// # Errors
    /// Corrupt or not found, naming what cannot be read; interrupted on request.
    pub fn version(&self, reader: &Reader<'s>, name: &str, version: &Version) -> Result<()> {
        let walk = Walk {
            marker: self,
            reader,
            after: None,
        };
        walk.version(version).map_err(|error| error.within(name))
    }

    /// Marks all that `version` reaches beyond what is marked, and makes sure that `after` offers all
    /// of that: for versions that appeared while a plan was carried out.
    ///
    /// # Errors
    /// Conflict, when `after` lacks a chunk; else as [`Self::version`].
    pub fn version_in(
        &self,
        reader: &Reader<'s>,
        name: &str,
        version: &Version,
        after: &Index,
    ) -> Result<()> {
        let walk = Walk {
            marker: self,
            reader,
            after: Some(After {
                index: after,
                seen: Mutex::default(),
            }),
        };
        walk.version(version).map_err(|error| error.within(name))
    }

    /// Whether any live version reaches the chunk at `position`.
    pub fn has(&self, position: Position) -> bool {
        self.reached.has(position)
    }

    /// The chunks reached.
    pub fn reached(&self) -> &Marks {
        &self.reached
    }

    /// The chunks reached, without the rest.
    pub fn into_reached(self) -> Marks {
        self.reached
    }

    /// The index that positions belong to.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Stored bytes of the chunks reached so far: their share of their frames.
    pub fn stored_bytes(&self) -> u64 {
        self.stored_bytes.load(Ordering::Relaxed)
    }

    /// The same, of the watched ones only.
    pub fn watched_bytes(&self) -> u64 {
        self.watched_bytes.load(Ordering::Relaxed)
    }

    fn count(&self, position: Position, location: &Location) {
        let share = location.stored_share();
        self.stored_bytes.fetch_add(share, Ordering::Relaxed);
        if self
            .watched
            .as_ref()
            .is_some_and(|watched| watched.has(position))
        {
            self.watched_bytes.fetch_add(share, Ordering::Relaxed);
        }
    }
}

impl Walk<'_, '_> {
    fn version(&self, version: &Version) -> Result<()> {
        self.times(version)?;
        match &version.root {
            Root::File { content, .. } => self.content(content),
            Root::Tree { content, .. } => self.trees(*content),
        }
    }

    /// The list of times. It is no part of what the version is, so one that is lost holds up nothing: what is left of
    /// it helps nobody.
    fn times(&self, version: &Version) -> Result<()> {
        match self.content(&version.times) {
            Err(error) if error.kind() == Kind::Corrupt => {
                let lost = format!("times of a version are lost: {error}");
                self.marker.store.warn(Error::corrupt(lost));
                Ok(())
            }
            read => read,
        }
    }

    /// A tree and those below it, one level after the other: depth costs no stack.
    fn trees(&self, root: Content) -> Result<()> {
        let mut level = vec![root];
        while !level.is_empty() {
            self.marker.store.host().check_stop()?;
            let below: Vec<Vec<Content>> = level
                .par_iter()
                .map(|tree| self.tree(tree))
                .collect::<Result<_>>()?;
            level = below.concat();
        }
        Ok(())
    }

    /// One tree: marks its bytes and its files, returns the trees in it.
    fn tree(&self, content: &Content) -> Result<Vec<Content>> {
        self.content(content)?;
        if content.size > 0 && !self.is_new(&content.root, Part::Tree)? {
            return Ok(Vec::new());
        }
        let mut below = Vec::new();
        for entry in self.reader.tree(content)? {
            match &entry.node {
                Node::File { content, .. } => self.content(content).map_err(|error| {
                    error.within(format!(
                        "tree {}: {}",
                        content.root,
                        entry.name.escape_ascii()
                    ))
                })?,
                Node::Tree { content, .. } => below.push(*content),
                Node::Symlink { .. } => {}
            }
        }
        Ok(below)
    }

    fn content(&self, content: &Content) -> Result<()> {
        if content.size == 0 {
            return Ok(());
        }
        self.chunk(&content.root, content.depth, content.size)
    }

    /// A chunk with `size` bytes of content below it: itself at depth 0, else as a list node.
    fn chunk(&self, id: &ChunkId, depth: u8, size: u64) -> Result<()> {
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
        if !self.is_new(id, Part::List)? {
            return Ok(());
        }
        let node = self.reader.list_node(id, level, size)?;
        let below = |child: &ListChild| self.chunk(&child.id, level, child.size);
        match level {
            0 => node.children.iter().try_for_each(below),
            // One file may be most of a store.
            _ => node.children.par_iter().try_for_each(below),
        }
    }

    /// Marks a chunk as reached; where it lies, when it was not marked before.
    fn reach(&self, id: &ChunkId) -> Result<Option<Location>> {
        let marker = self.marker;
        let Some(position) = marker.index.position(id)? else {
            return self.reach_newer(id);
        };
        if !marker.reached.set(position) {
            return Ok(None);
        }
        if self.after.is_some() {
            self.reach_newer(id)?;
        }
        let (_, location) = marker.index.at(position)?;
        marker.count(position, &location);
        Ok(Some(location))
    }

    fn reach_newer(&self, id: &ChunkId) -> Result<Option<Location>> {
        let Some(after) = &self.after else {
            return Err(Error::corrupt(format!(
                "chunk {id}: a live version needs it and no live segment offers it"
            ))
            .hint(
                "run `store verify` to see what is hit, and `store repair` to rebuild segments",
            ));
        };
        after.index.find(id)?.map(Some).ok_or_else(|| {
            Error::conflict(format!(
                "chunk {id}: a newer version needs it, and the plan takes it"
            ))
        })
    }

    fn is_new(&self, id: &ChunkId, part: Part) -> Result<bool> {
        let marker = self.marker;
        if let Some(position) = marker.index.position(id)? {
            return Ok(match part {
                Part::List => marker.lists.set(position),
                Part::Tree => marker.trees.set(position),
            });
        }
        let Some(after) = &self.after else {
            return Ok(true);
        };
        let mut seen = after.seen.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(seen.insert((*id, part)))
    }
}

/// What `versions` still reach, as far as it can be read: for reports, never for plans.
pub(crate) fn reached_by<'v>(
    store: &Store,
    reader: &Reader<'_>,
    view: &View,
    versions: impl Iterator<Item = &'v Version>,
) -> Marks {
    let marker = Marker::new(store, view);
    for version in versions {
        marker.as_far_as_possible(reader, version);
    }
    marker.reached
}

impl Marker<'_> {
    /// Marks what can be read of a version that is no more.
    fn as_far_as_possible(&self, reader: &Reader<'_>, version: &Version) {
        let mark = |content: &Content| {
            let is_known = content.depth > 0
                && matches!(self.index.position(&content.root), Ok(Some(at)) if !self.lists.set(at));
            if is_known {
                return;
            }
            // What is gone already is not held by anybody: the error says no more than that.
            let read = reader.list(content, &mut |id, _, _| {
                if let Some(position) = self.index.position(&id)? {
                    self.reached.set(position);
                }
                Ok(())
            });
            drop(read);
        };
        mark(&version.times);
        mark(version.root.content());
        let mut trees = match &version.root {
            Root::File { .. } => Vec::new(),
            Root::Tree { content, .. } => vec![*content],
        };
        while let Some(tree) = trees.pop() {
            let is_new = match self.index.position(&tree.root) {
                Ok(Some(position)) => self.trees.set(position),
                _ => false,
            };
            let Some(entries) = is_new.then(|| reader.tree(&tree).ok()).flatten() else {
                continue;
            };
            for entry in entries {
                match entry.node {
                    Node::File { content, .. } => mark(&content),
                    Node::Tree { content, .. } => {
                        mark(&content);
                        trees.push(content);
                    }
                    Node::Symlink { .. } => {}
                }
            }
        }
    }
}

/// Whether an error may be the work of another collector rather than damage. What is missing below a live version
/// counts as corrupt, and so does what a quicker collector has moved: only a state that stood still tells them apart.
pub(crate) fn may_be_moved(error: &Error) -> bool {
    matches!(
        error.kind(),
        Kind::NotFound | Kind::Conflict | Kind::Corrupt
    )
}
