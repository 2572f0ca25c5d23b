//! diff: what was added, removed and changed between two trees, in the order of paths.
//!
//! Two sorted streams of entries are merged. Directories of equal content are passed over unread on
//! both sides; what is read is read once. Times are not compared: they are not part of a tree's identity.

use std::cmp::Ordering;
use std::path::Path;

use super::Entry;
use super::disk::{DiskFile, DiskSide};
use crate::error::Result;
use crate::format::{Content, Node, RefSpec, TreeEntry};
use crate::host::walk::{WalkOptions, compare_paths};
use crate::read::Reader;

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// From the roots on; empty for the roots themselves.
    pub path: Vec<u8>,
    /// What is different.
    pub difference: Difference,
}

/// What is different at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// Only the second side has it.
    Added(Entry),
    /// Only the first side has it.
    Removed(Entry),
    /// Both have it, not as the same.
    Changed {
        /// On the first side.
        before: Entry,
        /// On the second side.
        after: Entry,
        /// In what they differ; never empty.
        aspects: Vec<Aspect>,
    },
}

/// In what two entries of one path differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Aspect {
    /// A file here is a directory or a link there; nothing else is compared then.
    Kind,
    /// Bytes of a file.
    Content,
    /// The executable bit of a file.
    Executable,
    /// The target of a link.
    Target,
}

/// Calls `each` with every difference between two refs, or paths in them; returns how many there are.
///
/// # Errors
/// Not found and corrupt as [`Reader`] has them, and what `each` says.
pub fn diff(
    reader: &Reader<'_>,
    before: &RefSpec,
    after: &RefSpec,
    each: &mut dyn FnMut(Event) -> Result<()>,
) -> Result<u64> {
    let mut before = RefSide::new(reader, reader.resolve(before)?.node);
    let mut after = RefSide::new(reader, reader.resolve(after)?.node);
    Merge { reader, each }.run(&mut before, &mut after)
}

/// Calls `each` with every difference between a ref, or a path in it, and a directory or file of this
/// host; returns how many there are. Files of equal size are read and compared chunk by chunk.
///
/// # Errors
/// As [`diff`]; what cannot be read, or changes while it is read, is named.
pub fn diff_with_directory(
    reader: &Reader<'_>,
    before: &RefSpec,
    after: &Path,
    options: WalkOptions,
    each: &mut dyn FnMut(Event) -> Result<()>,
) -> Result<u64> {
    let mut before = RefSide::new(reader, reader.resolve(before)?.node);
    let mut after = DiskSide::new(after, options)?;
    Merge { reader, each }.run(&mut before, &mut after)
}

/// A tree as a stream of its entries, each directory before what is in it.
pub(super) trait Side {
    /// The next entry; below the last one first, if that was a directory.
    fn next(&mut self) -> Result<Option<Step>>;

    /// Passes over what is below the last entry.
    fn skip_below(&mut self);
}

/// One entry of a side.
pub(super) struct Step {
    pub(super) path: Vec<u8>,
    pub(super) thing: Thing,
}

/// What an entry is on its side.
pub(super) enum Thing {
    Stored(Node),
    File(DiskFile),
    Symlink {
        target: Vec<u8>,
        /// The target that a put keeps in its stead.
        put_as: Option<Vec<u8>>,
    },
    Directory,
}

impl Thing {
    fn entry(&self) -> Entry {
        match self {
            Self::Stored(node) => node.into(),
            Self::File(file) => Entry::File {
                size: file.stat.size,
                executable: file.stat.is_executable(),
            },
            Self::Symlink { target, .. } => Entry::Symlink {
                target: target.clone(),
            },
            Self::Directory => Entry::Directory,
        }
    }

    fn content(&self) -> Option<&Content> {
        match self {
            Self::Stored(Node::File { content, .. } | Node::Tree { content, .. }) => Some(content),
            _ => None,
        }
    }
}

struct Merge<'m> {
    reader: &'m Reader<'m>,
    each: &'m mut dyn FnMut(Event) -> Result<()>,
}

impl Merge<'_> {
    fn run(self, before: &mut dyn Side, after: &mut dyn Side) -> Result<u64> {
        let (mut left, mut right) = (before.next()?, after.next()?);
        let mut count = 0;
        loop {
            self.reader.store().host().check_stop()?;
            let order = match (&left, &right) {
                (None, None) => return Ok(count),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(left), Some(right)) => compare_paths(&left.path, &right.path),
            };
            let (mut from_left, mut from_right) = (None, None);
            if order.is_le() {
                from_left = left.take();
            }
            if order.is_ge() {
                from_right = right.take();
            }
            if let (Some(left), Some(right)) = (&from_left, &from_right)
                && is_same_tree(&left.thing, &right.thing)
            {
                before.skip_below();
                after.skip_below();
            } else if let Some(event) = self.event(from_left, from_right)? {
                count += 1;
                (self.each)(event)?;
            }
            if order.is_le() {
                left = before.next()?;
            }
            if order.is_ge() {
                right = after.next()?;
            }
        }
    }

    fn event(&self, left: Option<Step>, right: Option<Step>) -> Result<Option<Event>> {
        let (path, difference) = match (left, right) {
            (Some(left), None) => (left.path, Difference::Removed(left.thing.entry())),
            (None, Some(right)) => (right.path, Difference::Added(right.thing.entry())),
            (Some(left), Some(right)) => {
                let aspects = self.aspects(&left.thing, &right.thing)?;
                if aspects.is_empty() {
                    return Ok(None);
                }
                let (before, after) = (left.thing.entry(), right.thing.entry());
                let changed = Difference::Changed {
                    before,
                    after,
                    aspects,
                };
                (left.path, changed)
            }
            (None, None) => return Ok(None),
        };
        Ok(Some(Event { path, difference }))
    }

    fn aspects(&self, left: &Thing, right: &Thing) -> Result<Vec<Aspect>> {
        let mut aspects = Vec::new();
        match (left.entry(), right.entry()) {
            (
                Entry::File {
                    executable: before, ..
                },
                Entry::File {
                    executable: after, ..
                },
            ) => {
                if !self.is_same_file(left, right)? {
                    aspects.push(Aspect::Content);
                }
                if before != after {
                    aspects.push(Aspect::Executable);
                }
            }
            (Entry::Symlink { target: before }, Entry::Symlink { target: after }) => {
                let is_put_so = matches!(
                    right,
                    Thing::Symlink { put_as: Some(put_as), .. } if *put_as == before
                );
                if before != after && !is_put_so {
                    aspects.push(Aspect::Target);
                }
            }
            (Entry::Directory, Entry::Directory) => {}
            _ => aspects.push(Aspect::Kind),
        }
        Ok(aspects)
    }

    fn is_same_file(&self, left: &Thing, right: &Thing) -> Result<bool> {
        match (left.content(), right) {
            (Some(content), Thing::File(file)) => file.has(self.reader, content),
            (Some(left), right) => Ok(right.content() == Some(left)),
            (None, _) => Ok(false),
        }
    }
}

fn is_same_tree(left: &Thing, right: &Thing) -> bool {
    match (left, right) {
        (
            Thing::Stored(Node::Tree { content: left, .. }),
            Thing::Stored(Node::Tree { content: right, .. }),
        ) => left == right,
        _ => false,
    }
}

/// A tree in a store.
struct RefSide<'d> {
    reader: &'d Reader<'d>,
    first: Option<Node>,
    /// The directory that was handed out last, not entered yet.
    below: Option<Content>,
    /// Entries that are left of each directory on the way down, and the length of its path.
    open: Vec<(std::vec::IntoIter<TreeEntry>, usize)>,
    path: Vec<u8>,
}

impl<'d> RefSide<'d> {
    fn new(reader: &'d Reader<'d>, root: Node) -> Self {
        Self {
            reader,
            first: Some(root),
            below: None,
            open: Vec::new(),
            path: Vec::new(),
        }
    }

    fn step(&mut self, node: Node) -> Step {
        if let Node::Tree { content, .. } = &node {
            self.below = Some(*content);
        }
        Step {
            path: self.path.clone(),
            thing: Thing::Stored(node),
        }
    }
}

impl Side for RefSide<'_> {
    fn next(&mut self) -> Result<Option<Step>> {
        if let Some(root) = self.first.take() {
            return Ok(Some(self.step(root)));
        }
        if let Some(content) = self.below.take() {
            let entries = self.reader.tree(&content)?;
            self.open.push((entries.into_iter(), self.path.len()));
        }
        while let Some((entries, length)) = self.open.last_mut() {
            self.path.truncate(*length);
            let Some(entry) = entries.next() else {
                self.open.pop();
                continue;
            };
            if !self.path.is_empty() {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(&entry.name);
            return Ok(Some(self.step(entry.node)));
        }
        Ok(None)
    }

    fn skip_below(&mut self) {
        self.below = None;
    }
}
