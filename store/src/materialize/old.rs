//! What was materialized before, as far as the store still knows it.

use super::Mark;
use crate::error::{Kind, Result};
use crate::format::{Content, Node, TreeEntry};
use crate::read::Reader;

/// Trees that a directory may have come from.
#[derive(Clone, Debug, Default)]
pub(super) struct Old {
    trees: Vec<Content>,
    /// It came from exactly these, of which there is one then.
    is_certain: bool,
    /// A file of the old tree was there.
    was_file: bool,
}

/// The entries of such trees.
#[derive(Clone, Debug, Default)]
pub(super) struct OldDir {
    from: Old,
    /// The new tree is the old one: its entries need not be read again.
    is_same: bool,
    /// One list for each tree.
    lists: Vec<Vec<TreeEntry>>,
}

impl Old {
    /// Of a marked tree; after an update that was interrupted, of either of two.
    pub(super) fn of(mark: &Mark) -> Self {
        Self {
            trees: mark.tree.into_iter().chain(mark.next).collect(),
            is_certain: mark.next.is_none(),
            was_file: false,
        }
    }

    /// Of nobody knows what.
    pub(super) fn unknown() -> Self {
        Self::default()
    }
}

impl OldDir {
    pub(super) fn none() -> Self {
        Self::default()
    }

    /// Below a flattened symlink nothing is known.
    pub(super) fn unknown(_above: &Self) -> Self {
        Self::default()
    }

    /// Not read yet.
    pub(super) fn from_old(from: Old) -> Self {
        Self {
            from,
            is_same: false,
            lists: Vec::new(),
        }
    }

    /// Reads the old trees, unless there is one and it is `new`.
    pub(super) fn load(
        reader: &Reader<'_>,
        from: Old,
        new: &Content,
        is_same_filter: bool,
    ) -> Result<Self> {
        let is_same = is_same_filter && from.is_certain && from.trees.as_slice() == [*new];
        let dir = Self {
            from,
            is_same,
            lists: Vec::new(),
        };
        if is_same { Ok(dir) } else { dir.loaded(reader) }
    }

    pub(super) fn loaded(mut self, reader: &Reader<'_>) -> Result<Self> {
        self.is_same = false;
        for tree in &self.from.trees {
            match reader.tree(tree) {
                Ok(entries) => self.lists.push(entries),
                // The version was deleted and collected: what it had cannot be told from a job's own any more.
                Err(error) if error.kind() == Kind::NotFound => self.from.is_certain = false,
                Err(error) => return Err(error),
            }
        }
        Ok(self)
    }

    /// Whether the file under `name` was made from this content.
    pub(super) fn has_same(&self, name: &[u8], content: &Content, executable: bool) -> bool {
        let wanted = Node::File {
            content: *content,
            executable,
        };
        self.is_same
            || (self.from.is_certain
                && self
                    .lists
                    .iter()
                    .any(|list| find(list, name).is_some_and(|node| *node == wanted)))
    }

    /// What the old version had below `name`, where the new one has the directory `new`.
    pub(super) fn below_new(&self, name: &[u8], new: &Content) -> Old {
        if !self.is_same {
            return self.below(name);
        }
        Old {
            trees: vec![*new],
            is_certain: true,
            was_file: false,
        }
    }

    /// What the old version had below `name`.
    pub(super) fn below(&self, name: &[u8]) -> Old {
        let nodes = self.lists.iter().filter_map(|list| find(list, name));
        let mut old = Old {
            is_certain: self.from.is_certain,
            ..Old::default()
        };
        for node in nodes {
            match node {
                Node::Tree { content, .. } => old.trees.push(*content),
                _ => old.was_file = true,
            }
        }
        old
    }

    /// Whether the old version had a file here where a directory comes now.
    pub(super) fn was_file(&self) -> bool {
        self.from.was_file
    }

    /// Old entries that the new tree does not have in the same kind; all, where the filters differ.
    pub(super) fn gone(&self, new: &[TreeEntry], is_same_filter: bool) -> Vec<(Vec<u8>, Node)> {
        let is_kept = |name: &[u8]| is_same_filter && find(new, name).is_some();
        self.entries()
            .into_iter()
            .filter(|(name, node)| {
                let changes_kind = find(new, name).is_some_and(|new| {
                    matches!(node, Node::Tree { .. }) && !matches!(new, Node::Tree { .. })
                });
                changes_kind || !is_kept(name)
            })
            .collect()
    }

    /// All entries.
    pub(super) fn entries(&self) -> Vec<(Vec<u8>, Node)> {
        let mut entries: Vec<_> = self
            .lists
            .iter()
            .flatten()
            .map(|entry| (entry.name.clone(), entry.node.clone()))
            .collect();
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        entries.dedup();
        entries
    }
}

fn find<'e>(entries: &'e [TreeEntry], name: &[u8]) -> Option<&'e Node> {
    let at = entries
        .binary_search_by(|entry| entry.name.as_slice().cmp(name))
        .ok()?;
    entries.get(at).map(|entry| &entry.node)
}
