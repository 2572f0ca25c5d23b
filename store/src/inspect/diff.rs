//! diff: what was added, removed and changed between two trees, in the order of paths.
//!
//! Merges two sorted streams of entries. Directories of equal content are skipped on both sides without reading them,
//! and nothing is read twice. Times are not compared, because they are not part of a tree's identity. Attributes kept
//! beside the trees are compared if both sides have them. A directory of this host has them, unless it was made from a
//! pool, which gives files modes and owners of its own.

use std::cmp::Ordering;
use std::path::Path;

use super::Entry;
use super::disk::DiskSide;
use super::kept::{Differing, KeptChange, KeptPairs, Second};
use super::side::{Side, Step, Thing};
use crate::error::Result;
use crate::format::{Content, Node, RefSpec, TreeEntry};
use crate::host::pool::is_in_tree;
use crate::host::walk::{WalkOptions, compare_paths};
use crate::read::Reader;

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The path from the roots; empty for the roots themselves.
    pub path: Vec<u8>,
    /// The difference.
    pub difference: Difference,
}

/// The kind of a difference at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// Only the second side has it.
    Added(Entry),
    /// Only the first side has it.
    Removed(Entry),
    /// Both sides have it, but it differs.
    Changed {
        /// On the first side.
        before: Entry,
        /// On the second side.
        after: Entry,
        /// What differs; never empty.
        aspects: Vec<Aspect>,
        /// Kept attributes that differ.
        kept: Vec<KeptChange>,
    },
}

/// An aspect in which two entries of the same path differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Aspect {
    /// One is a file and the other a directory or a link, for example; nothing else is compared.
    Kind,
    /// Bytes of a file.
    Content,
    /// The executable bit of a file.
    Executable,
    /// The target of a link.
    Target,
    /// Kept permissions.
    Modes,
    /// Kept user and group.
    Owners,
    /// Kept extended attributes.
    Xattrs,
}

impl From<&KeptChange> for Aspect {
    fn from(change: &KeptChange) -> Self {
        match change {
            KeptChange::Mode { .. } => Self::Modes,
            KeptChange::Owner { .. } => Self::Owners,
            KeptChange::Xattrs { .. } => Self::Xattrs,
        }
    }
}

/// Calls `each` with every difference between two refs, or paths in them; returns the number of differences.
///
/// # Errors
/// Not found and corrupt as for [`Reader`]; any error of `each`.
pub fn diff(
    reader: &Reader<'_>,
    before: &RefSpec,
    after: &RefSpec,
    each: &mut dyn FnMut(Event) -> Result<()>,
) -> Result<u64> {
    let (before, after) = (reader.resolve(before)?, reader.resolve(after)?);
    let merge = Merge {
        reader,
        each,
        kept: KeptPairs::new(reader, &before, &after)?,
    };
    let mut before = RefSide::new(reader, before.node);
    let mut after = RefSide::new(reader, after.node);
    merge.run(&mut before, &mut after)
}

/// Calls `each` with every difference between a ref, or a path in it, and a directory or file of this host; returns the
/// number of differences. Files of equal size are read and compared chunk by chunk.
/// Modes, owners and extended attributes are compared with those that the version kept, unless the directory was made
/// from a pool or is inside one that was.
///
/// # Errors
/// As for [`diff`]; names what cannot be read or changes while it is read.
pub fn diff_with_directory(
    reader: &Reader<'_>,
    before: &RefSpec,
    after: &Path,
    options: WalkOptions,
    each: &mut dyn FnMut(Event) -> Result<()>,
) -> Result<u64> {
    let found = reader.resolve(before)?;
    let kept = match is_in_tree(after) {
        true => KeptPairs::none(reader),
        false => KeptPairs::with_directory(reader, &found)?,
    };
    let mut before = RefSide::new(reader, found.node);
    let mut after = DiskSide::new(after, options)?;
    Merge { reader, each, kept }.run(&mut before, &mut after)
}

struct Merge<'m> {
    reader: &'m Reader<'m>,
    each: &'m mut dyn FnMut(Event) -> Result<()>,
    kept: KeptPairs<'m>,
}

impl Merge<'_> {
    fn run(mut self, before: &mut dyn Side, after: &mut dyn Side) -> Result<u64> {
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
            let second = Second::of(from_right.as_ref());
            let kept = self.kept.next(from_left.is_some(), &second)?;
            let same = match (&from_left, &from_right) {
                (Some(left), Some(right)) => same_tree(&left.thing, &right.thing),
                _ => None,
            };
            if same.is_some() {
                before.skip_below();
                after.skip_below();
            }
            let is_same = same.is_some() && kept.is_empty();
            let same = same.filter(|_| !self.kept.is_empty()).cloned();
            let below = same.zip(from_left.as_ref().map(|left| left.path.clone()));
            if !is_same && let Some(event) = self.event(from_left, from_right, kept)? {
                count += 1;
                (self.each)(event)?;
            }
            if let Some((tree, path)) = below {
                count += self.below(tree, &path)?;
            }
            if order.is_le() {
                left = before.next()?;
            }
            if order.is_ge() {
                right = after.next()?;
            }
        }
    }

    /// Reports kept attributes that differ in a directory that both sides have.
    fn below(&mut self, tree: Node, path: &[u8]) -> Result<u64> {
        let Node::Tree { totals, .. } = &tree else {
            return Ok(0);
        };
        let entries = totals.entries;
        let mut walk = RefSide::new(self.reader, tree);
        // The directory itself has already been reported.
        walk.next()?;
        let (mut at, mut count, mut differing) = (0, 0, Differing::default());
        while differing.look(at, entries, &mut self.kept)? {
            let Some(Step {
                path: inside,
                thing,
            }) = walk.next()?
            else {
                break;
            };
            if let Some(kept) = differing.take(at) {
                count += 1;
                let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
                (self.each)(Event {
                    path: [path, slash, &inside].concat(),
                    difference: Difference::Changed {
                        before: thing.entry(),
                        after: thing.entry(),
                        aspects: kept.iter().map(Aspect::from).collect(),
                        kept,
                    },
                })?;
            }
            at += 1;
            if let Thing::Stored(Node::Tree { totals, .. }) = thing
                && differing.is_done_before(at + totals.entries)
            {
                walk.skip_below();
                at += totals.entries;
            }
        }
        Ok(count)
    }

    fn event(
        &self,
        left: Option<Step>,
        right: Option<Step>,
        mut kept: Vec<KeptChange>,
    ) -> Result<Option<Event>> {
        let (path, difference) = match (left, right) {
            (Some(left), None) => (left.path, Difference::Removed(left.thing.entry())),
            (None, Some(right)) => (right.path, Difference::Added(right.thing.entry())),
            (Some(left), Some(right)) => {
                let mut aspects = self.aspects(&left.thing, &right.thing)?;
                if aspects.contains(&Aspect::Kind) {
                    kept.clear();
                }
                aspects.extend(kept.iter().map(Aspect::from));
                if aspects.is_empty() {
                    return Ok(None);
                }
                let (before, after) = (left.thing.entry(), right.thing.entry());
                let changed = Difference::Changed {
                    before,
                    after,
                    aspects,
                    kept,
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

/// Returns the directory if both sides have the same one.
fn same_tree<'t>(left: &'t Thing, right: &Thing) -> Option<&'t Node> {
    match (left, right) {
        (
            Thing::Stored(node @ Node::Tree { content: left, .. }),
            Thing::Stored(Node::Tree { content: right, .. }),
        ) if left == right => Some(node),
        _ => None,
    }
}

/// A tree in a store.
struct RefSide<'d> {
    reader: &'d Reader<'d>,
    first: Option<Node>,
    /// The directory that was returned last and has not been entered.
    below: Option<Content>,
    /// The remaining entries of each directory on the path, and the length of its path.
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
