//! Resolves the symlinks of a tree, using the tree alone.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::{Content, Node, TreeEntry};
use crate::id::ChunkId;
use crate::read::Reader;
use crate::remedy::Remedy;

/// The most symlinks that are followed in one lookup; the same limit as in the kernel.
const HOPS_MAX: u32 = 40;
/// How many trees are cached.
const TREES_KEPT_MAX: usize = 256;

/// The target of a symlink.
#[derive(Debug)]
pub(crate) enum Leads {
    /// A file or directory in the tree, and the names on its path from the root.
    To(Node, Vec<Vec<u8>>),
    /// A name that does not exist in the tree, or a cycle.
    Nowhere,
    /// A path outside of the tree.
    Outside,
}

/// Follows symlinks in one tree.
pub(crate) struct Links<'m> {
    reader: &'m Reader<'m>,
    root: Node,
    trees: HashMap<ChunkId, Arc<Vec<TreeEntry>>>,
}

impl<'m> Links<'m> {
    /// Resolves symlinks in the tree `root`.
    pub(crate) fn new(reader: &'m Reader<'m>, root: Node) -> Self {
        Self {
            reader,
            root,
            trees: HashMap::new(),
        }
    }

    /// Whether a link with this target, `depth` directories below the root, certainly stays inside of the tree, judged
    /// without reading trees: it goes up no further than the root, and never up again after going down.
    ///
    /// Going down may pass through other symlinks, which are checked themselves.
    pub(crate) fn stays_inside(depth: usize, target: &[u8]) -> bool {
        let mut above = depth;
        let mut is_down = false;
        for name in names(target) {
            if name != b".." {
                is_down = true;
            } else if is_down || above == 0 {
                return false;
            } else {
                above -= 1;
            }
        }
        !target.starts_with(b"/")
    }

    /// Resolves a symlink in the directory `dir` with this target.
    pub(crate) fn follow(&mut self, dir: &[Vec<u8>], target: &[u8]) -> Result<Leads> {
        let mut at = Vec::new();
        // The names still to be resolved, the next one last.
        let mut rest: Vec<Vec<u8>> = Vec::new();
        push_names(&mut rest, target);
        rest.extend(dir.iter().rev().cloned());
        let mut hops = 0;
        if target.starts_with(b"/") {
            return Ok(Leads::Outside);
        }
        while let Some(name) = rest.pop() {
            if name == b".." {
                if at.pop().is_none() {
                    return Ok(Leads::Outside);
                }
                continue;
            }
            let found = self.find(&at, &name)?;
            if let Some(Node::Symlink { target }) = &found {
                hops += 1;
                if target.starts_with(b"/") {
                    return Ok(Leads::Outside);
                }
                if hops > HOPS_MAX {
                    return Ok(Leads::Nowhere);
                }
                push_names(&mut rest, target);
                continue;
            }
            at.push((name, found));
        }
        let names = at.iter().map(|(name, _)| name.clone()).collect();
        Ok(match at.pop() {
            None => Leads::To(self.root.clone(), names),
            Some((_, Some(node))) => Leads::To(node, names),
            Some((_, None)) => Leads::Nowhere,
        })
    }

    fn find(&mut self, at: &[(Vec<u8>, Option<Node>)], name: &[u8]) -> Result<Option<Node>> {
        let node = match at.last() {
            None => Some(&self.root),
            Some((_, node)) => node.as_ref(),
        };
        let Some(Node::Tree { content, .. }) = node else {
            return Ok(None);
        };
        let entries = self.tree(&content.clone())?;
        let found = entries
            .binary_search_by(|entry| entry.name.as_slice().cmp(name))
            .ok();
        Ok(found
            .and_then(|at| entries.get(at))
            .map(|entry| entry.node.clone()))
    }

    fn tree(&mut self, content: &Content) -> Result<Arc<Vec<TreeEntry>>> {
        if let Some(entries) = self.trees.get(&content.root) {
            return Ok(Arc::clone(entries));
        }
        if self.trees.len() >= TREES_KEPT_MAX {
            self.trees.clear();
        }
        let entries = Arc::new(self.reader.tree(content)?);
        self.trees.insert(content.root, Arc::clone(&entries));
        Ok(entries)
    }
}

/// Limits the entries that flattening of symlinks creates: links to directories that contain such links double the
/// number of entries at each level.
#[derive(Debug)]
pub(crate) struct FlattenLimit {
    made: u64,
    most: u64,
}

impl FlattenLimit {
    /// Entries that flattening may add to any version, and the factor for the version's own entries.
    const ANY: u64 = 10_000;
    const TIMES: u64 = 16;

    /// Returns the limit for a version with this root.
    pub(crate) fn of(root: &Node) -> Self {
        let entries = match root {
            Node::Tree { totals, .. } => totals.entries,
            _ => 1,
        };
        Self {
            made: 0,
            most: entries
                .saturating_mul(Self::TIMES)
                .saturating_add(Self::ANY),
        }
    }

    /// Counts an entry at `path` that exists because of a symlink.
    ///
    /// # Errors
    /// Invalid input, when there are far more of them than the version has entries.
    pub(crate) fn spend(&mut self, path: &[u8]) -> Result<()> {
        self.made += 1;
        if self.made <= self.most {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "{}: its symlinks would become more than {} entries, many times what the version has",
            path.escape_ascii(),
            self.most
        ))
        .hint(Remedy::FlattenLess))
    }
}

fn names(target: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    target
        .split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty() && *name != b".")
}

fn push_names(rest: &mut Vec<Vec<u8>>, target: &[u8]) {
    rest.extend(names(target).rev().map(<[u8]>::to_vec));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_inside_is_told_by_its_dots() {
        let cases: [(usize, &[u8], bool); 9] = [
            (0, b"a/b", true),
            (0, b"..", false),
            (0, b"/etc", false),
            (1, b"../a", true),
            (1, b"../../a", false),
            (2, b"../../blobs/x", true),
            (2, b"./.././a//b/", true),
            (5, b"a/../b", false),
            (0, b".", true),
        ];
        for (depth, target, inside) in cases {
            assert_eq!(
                Links::stays_inside(depth, target),
                inside,
                "{}",
                target.escape_ascii()
            );
        }
    }
}
