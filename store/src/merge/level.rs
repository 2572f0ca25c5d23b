//! One directory of a merge: the remaining entries of its three sides, and the merged entries so far.

use super::{Case, Step, Trees, Way, is_same, is_tree};
use crate::error::Result;
use crate::format::{Node, Totals, TreeEntry};

/// What the three sides have under one name.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: Vec<u8>,
    pub(super) base: Option<Node>,
    pub(super) ours: Option<Node>,
    pub(super) theirs: Option<Node>,
}

type Entries = std::iter::Peekable<std::vec::IntoIter<TreeEntry>>;

/// A directory that the merge is in.
pub(super) struct Level {
    /// The directory on the three sides.
    pub(super) entry: Entry,
    /// The length of its path.
    pub(super) path_len: usize,
    /// The index of its first step.
    pub(super) first_step: usize,
    base: Entries,
    ours: Entries,
    theirs: Entries,
    made: Vec<TreeEntry>,
    totals: Totals,
}

impl Entry {
    pub(super) fn way(&self) -> Way {
        let (base, ours, theirs) = (self.base.as_ref(), self.ours.as_ref(), self.theirs.as_ref());
        if is_same(ours, base) || is_same(ours, theirs) {
            return Way::Theirs(None);
        }
        if is_same(theirs, base) {
            return Way::Ours(None);
        }
        let was_tree = matches!(base, Some(Node::Tree { .. }));
        match (ours, theirs) {
            (Some(Node::Tree { .. }), Some(Node::Tree { .. })) => Way::Into,
            (Some(Node::Tree { .. }), _) | (None, Some(Node::Tree { .. })) if was_tree => Way::Into,
            (None, _) => Way::Theirs(Some(Case::DeletedHere)),
            (Some(_), None) => Way::Ours(Some(Case::DeletedThere)),
            (Some(_), Some(_)) => Way::Ours(Some(Case::BothChanged)),
        }
    }
}

impl Entry {
    /// Whether left-out entries may be in a directory of base and theirs, which is a directory in ours or missing
    /// there.
    pub(super) fn may_hold_more(&self) -> bool {
        let sides = [&self.base, &self.theirs];
        let are_trees = sides
            .into_iter()
            .all(|side| side.as_ref().is_some_and(is_tree));
        are_trees && self.ours.as_ref().is_none_or(is_tree)
    }

    /// Whether no side has anything but a directory there, so that it can be merged entry by entry.
    pub(super) fn is_open(&self) -> bool {
        let mut sides = [&self.ours, &self.theirs].into_iter().flatten();
        sides.all(is_tree)
    }
}

impl Level {
    pub(super) fn open(
        trees: &dyn Trees,
        entry: Entry,
        (path_len, first_step): (usize, usize),
    ) -> Result<Self> {
        let open = |node: &Option<Node>| -> Result<Entries> {
            let entries = match node {
                Some(Node::Tree { content, .. }) => trees.read(content)?,
                _ => Vec::new(),
            };
            Ok(entries.into_iter().peekable())
        };
        Ok(Self {
            base: open(&entry.base)?,
            ours: open(&entry.ours)?,
            theirs: open(&entry.theirs)?,
            entry,
            path_len,
            first_step,
            made: Vec::new(),
            totals: Totals::default(),
        })
    }

    /// Returns the next name of any side.
    pub(super) fn next(&mut self) -> Option<Entry> {
        let sides = [self.base.peek(), self.ours.peek(), self.theirs.peek()];
        let names = sides.into_iter().flatten().map(|entry| &entry.name);
        let name = names.min()?.clone();
        let take = |side: &mut Entries| {
            let taken = side.next_if(|entry| entry.name == name);
            taken.map(|entry| entry.node)
        };
        let (base, ours) = (take(&mut self.base), take(&mut self.ours));
        let theirs = take(&mut self.theirs);
        Some(Entry {
            name,
            base,
            ours,
            theirs,
        })
    }

    pub(super) fn add(&mut self, entry: TreeEntry) {
        self.totals.add(&entry.node);
        self.made.push(entry);
    }

    /// Where the time of the directory itself comes from.
    pub(super) fn own_steps(&self) -> impl Iterator<Item = Step> + use<> {
        let is_tree = |node: &Option<Node>| matches!(node, Some(Node::Tree { .. }));
        let steps = match (is_tree(&self.entry.ours), &self.entry.theirs) {
            (true, Some(Node::Tree { .. })) => [Some(Step::Both), None],
            (true, Some(_)) => [Some(Step::PassTheirs(1)), Some(Step::Ours(1))],
            (true, None) => [Some(Step::Ours(1)), None],
            (false, _) => [Some(Step::Theirs(1)), None],
        };
        steps.into_iter().flatten()
    }

    /// Whether the merged tree has this directory: it has entries, or is on both sides.
    pub(super) fn is_kept(&self) -> bool {
        let is_tree = |node: &Option<Node>| matches!(node, Some(Node::Tree { .. }));
        !self.made.is_empty() || (is_tree(&self.entry.ours) && is_tree(&self.entry.theirs))
    }

    /// What theirs has instead of the directory.
    pub(super) fn instead(&self) -> Option<&Node> {
        let theirs = self.entry.theirs.as_ref();
        theirs.filter(|node| !matches!(node, Node::Tree { .. }))
    }

    /// The merged directory.
    pub(super) fn node(&self, trees: &mut dyn Trees) -> Result<Node> {
        Ok(Node::Tree {
            content: trees.write(&self.made)?,
            totals: self.totals,
        })
    }
}
