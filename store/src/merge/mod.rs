//! merge (pure): merges the changes of a directory into the newest version of its ref, path by path.
//!
//! ```text
//! base (what the directory was made from), ours (what it is), theirs (the newest version) -> one tree, and the clashes
//! ```
//!
//! A path that we did not change is taken from theirs; one that they did not change, from ours. If both changed a path,
//! ours is taken and the path is named. If we deleted a path that they changed, it stays and is named. So does one that a
//! side deleted and to which the other one added a link. Directories with
//! equal ids are never opened, so the cost of a merge depends only on the changes. This module never touches a disk:
//! trees are read and written through [`Trees`].

mod counts;
mod level;
mod links;
#[cfg(test)]
mod tests;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::format::{Content, Node, Totals, TreeEntry};

pub use counts::Counts;
pub(crate) use counts::count;
use level::{Entry, Level};
use links::Kept;

/// Most nested directories that both sides changed.
const DEPTH_MAX: usize = 100_000;
/// Most paths that a merge names; all are counted.
pub(crate) const NAMED_MAX: usize = 1000;

/// Reads and stores trees by their contents.
pub(crate) trait Trees {
    /// The entries of a tree.
    fn read(&self, content: &Content) -> Result<Vec<TreeEntry>>;
    /// Stores a tree.
    fn write(&mut self, entries: &[TreeEntry]) -> Result<Content>;
    /// Whether anything was or would be left out of ours, so that missing entries must be looked at path by path.
    fn leaves_out(&self) -> bool;
    /// Whether a path that ours lacks was or would have been left out, rather than deleted.
    fn is_left_out(&self, path: &[u8], is_dir: bool) -> bool;
    /// What happens to a path that differs between `ours` and `theirs`.
    fn both(&self, _path: &[u8], _ours: &Node, _theirs: &Node) -> Both {
        Both::AsMerged
    }
}

/// What both sides did to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Case {
    /// Both changed it differently; ours is taken.
    BothChanged,
    /// We changed it and they deleted it; ours is taken.
    DeletedThere,
    /// We deleted it and they changed it; theirs is taken.
    DeletedHere,
    /// They deleted it and we added a link to it; it stays.
    LinkedHere,
    /// We deleted it and they added a link to it; it stays.
    LinkedThere,
    /// One side added a link to it, and the other one put something else in the place of a directory above it; it is lost.
    LinkLost,
    /// They had it already, and ours may only be added; theirs is taken.
    ThereFirst,
}

/// What happens to a path that both sides have and that differs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Both {
    /// The usual rules apply.
    #[default]
    AsMerged,
    /// Theirs stays, and the path is named.
    TheirsStays,
    /// Ours replaces theirs.
    OursInstead,
}

/// A path that both sides changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Clash {
    /// The path from the root.
    #[serde(flatten, serialize_with = "crate::shown::in_tree")]
    pub path: Vec<u8>,
    /// What happened to the path.
    pub case: Case,
}

impl Clash {
    /// The path, for people.
    pub(crate) fn shown(&self) -> String {
        String::from_utf8_lossy(&self.path).into_owned()
    }
}

/// Where the entries of the merged tree come from, in depth-first order. This decides which side's times are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The next entry is a directory of both sides, and the next one of each.
    Both,
    /// The next entries are this many of ours.
    Ours(u64),
    /// The next entries are this many of theirs.
    Theirs(u64),
    /// This many entries of ours are skipped.
    PassOurs(u64),
    /// This many entries of theirs are skipped.
    PassTheirs(u64),
}

/// The result of a merge.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    /// The first paths that both sides changed.
    pub(crate) clashes: Vec<Clash>,
    /// How many such paths there are.
    pub(crate) clashed: u64,
    /// Paths of the base that were left out of ours, so that nobody knows whether we changed them.
    pub(crate) left_out: u64,
    /// Where the entries come from, beginning with the root.
    pub(crate) steps: Vec<Step>,
}

/// A merge in progress, with the directories that it is in.
struct Merge<'m> {
    trees: &'m mut dyn Trees,
    kept: &'m Kept,
    path: Vec<u8>,
    stack: Vec<Level>,
    merged: Merged,
}

/// What happens to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Theirs(Option<Case>),
    Ours(Option<Case>),
    /// Both sides, or one of them and the base, are directories, which are merged.
    Into,
}

/// Merges `ours` and `theirs`, which were both made from `base` (none: from nothing), into one tree.
pub(crate) fn merge(
    trees: &mut dyn Trees,
    base: Option<&Content>,
    ours: &(Content, Totals),
    theirs: &(Content, Totals),
) -> Result<((Content, Totals), Merged)> {
    let mut kept = Kept::default();
    loop {
        let (tree, mut merged) = merge_once(trees, base, (ours, theirs), &kept)?;
        if !kept.add(trees, base, [&ours.0, &theirs.0], &tree.0)? {
            for path in kept.lost(trees, &tree.0)? {
                merged.name(path, Case::LinkLost);
            }
            return Ok((tree, merged));
        }
    }
}

fn merge_once(
    trees: &mut dyn Trees,
    base: Option<&Content>,
    (ours, theirs): (&(Content, Totals), &(Content, Totals)),
    kept: &Kept,
) -> Result<((Content, Totals), Merged)> {
    let tree = |(content, totals): &(Content, Totals)| Node::Tree {
        content: *content,
        totals: *totals,
    };
    let mut merge = Merge {
        trees,
        kept,
        path: Vec::new(),
        stack: Vec::new(),
        merged: Merged::default(),
    };
    let base = base.map(|content| Node::Tree {
        content: *content,
        totals: Totals::default(),
    });
    let root = merge.run(Entry {
        name: Vec::new(),
        base,
        ours: Some(tree(ours)),
        theirs: Some(tree(theirs)),
    })?;
    match root {
        Some(Node::Tree { content, totals }) => Ok(((content, totals), merge.merged)),
        _ => Err(Error::invalid("a merge of two directories is one")),
    }
}

impl Merge<'_> {
    fn run(&mut self, root: Entry) -> Result<Option<Node>> {
        if let Some(node) = self.visit(root)? {
            return Ok(node);
        }
        loop {
            let Some(level) = self.stack.last_mut() else {
                return Ok(None);
            };
            match level.next() {
                Some(entry) => {
                    self.path.truncate(level.path_len);
                    push_name(&mut self.path, &entry.name);
                    let name = entry.name.clone();
                    if let Some(node) = self.visit(entry)? {
                        self.add(name, node);
                    }
                }
                None => {
                    if let Some(root) = self.leave()? {
                        return Ok(root);
                    }
                }
            }
        }
    }

    /// Returns what an entry becomes; none, if the merge descends into it.
    fn visit(&mut self, entry: Entry) -> Result<Option<Option<Node>>> {
        let missing = entry.base.as_ref().filter(|_| entry.ours.is_none());
        let is_left_out = |node| self.trees.is_left_out(&self.path, is_tree(node));
        let way = match entry.way() {
            _ if missing.is_some_and(is_left_out) => {
                self.merged.left_out += 1;
                Way::Theirs(None)
            }
            Way::Ours(None) if entry.may_hold_more() && self.trees.leaves_out() => Way::Into,
            way => self.ruled(&entry, self.linked(&entry, way)),
        };
        match way {
            Way::Theirs(case) => Ok(Some(self.take_theirs(entry, case))),
            Way::Ours(case) => Ok(Some(self.take_ours(entry, case))),
            Way::Into => {
                self.enter(entry)?;
                Ok(None)
            }
        }
    }

    /// Returns theirs whole, and skips the entries of ours.
    fn take_theirs(&mut self, entry: Entry, case: Option<Case>) -> Option<Node> {
        let taken = entry.theirs.as_ref();
        let steps = &mut self.merged.steps;
        steps.extend(pass_ours(entry.ours.as_ref()));
        steps.extend(taken.map(|node| Step::Theirs(entries(node))));
        self.name(case);
        entry.theirs
    }

    /// Returns ours whole, and skips the entries of theirs.
    fn take_ours(&mut self, entry: Entry, case: Option<Case>) -> Option<Node> {
        let taken = entry.ours.as_ref();
        let steps = &mut self.merged.steps;
        steps.extend(pass_theirs(entry.theirs.as_ref()));
        steps.extend(taken.map(|node| Step::Ours(entries(node))));
        self.name(case);
        entry.ours
    }

    /// Lets what links lead to stay.
    fn linked(&self, entry: &Entry, way: Way) -> Way {
        match (&entry.ours, &entry.theirs) {
            (Some(_), None) if self.kept.has(&self.path) => Way::Ours(Some(Case::LinkedHere)),
            (None, Some(_)) if self.kept.has(&self.path) => Way::Theirs(Some(Case::LinkedThere)),
            _ if entry.is_open() && self.kept.is_below(&self.path) => Way::Into,
            _ => way,
        }
    }

    /// Lets [`Trees::both`] decide about a path that both sides have and that differs.
    fn ruled(&self, entry: &Entry, way: Way) -> Way {
        let (Some(ours), Some(theirs)) = (&entry.ours, &entry.theirs) else {
            return way;
        };
        if !matches!(way, Way::Into | Way::Ours(Some(Case::BothChanged))) {
            return way;
        }
        match self.trees.both(&self.path, ours, theirs) {
            Both::AsMerged => way,
            Both::TheirsStays => Way::Theirs(Some(Case::ThereFirst)),
            Both::OursInstead => Way::Ours(None),
        }
    }

    fn enter(&mut self, entry: Entry) -> Result<()> {
        if self.stack.len() >= DEPTH_MAX {
            return Err(Error::invalid(format!(
                "merge: more than {DEPTH_MAX} directories one in another that both sides changed"
            )));
        }
        let first_step = self.merged.steps.len();
        let level = Level::open(self.trees, entry, (self.path.len(), first_step))?;
        self.merged.steps.extend(level.own_steps());
        self.stack.push(level);
        Ok(())
    }

    /// Ends a directory. Returns the merged root, if it was the root.
    fn leave(&mut self) -> Result<Option<Option<Node>>> {
        let Some(level) = self.stack.pop() else {
            return Ok(Some(None));
        };
        self.path.truncate(level.path_len);
        let (is_kept, is_replaced) = (level.is_kept(), level.instead().is_some());
        let name = level.entry.name.clone();
        if !is_kept || is_replaced {
            self.merged.steps.truncate(level.first_step);
        }
        let node = match (is_kept, is_replaced) {
            (true, false) => Some(level.node(self.trees)?),
            // A part of a directory is of no use: who added to it, or changed it, had all of it.
            (true, true) => self.take_ours(level.entry, Some(Case::BothChanged)),
            (false, true) => self.take_theirs(level.entry, None),
            (false, false) => {
                let Entry { ours, theirs, .. } = &level.entry;
                let skipped = pass_ours(ours.as_ref()).into_iter();
                let skipped = skipped.chain(pass_theirs(theirs.as_ref()));
                self.merged.steps.extend(skipped);
                None
            }
        };
        if self.stack.is_empty() {
            return Ok(Some(node));
        }
        self.add(name, node);
        Ok(None)
    }

    fn add(&mut self, name: Vec<u8>, node: Option<Node>) {
        if let (Some(node), Some(level)) = (node, self.stack.last_mut()) {
            level.add(TreeEntry { name, node });
        }
    }

    fn name(&mut self, case: Option<Case>) {
        if let Some(case) = case {
            self.merged.name(self.path.clone(), case);
        }
    }
}

impl Merged {
    fn name(&mut self, path: Vec<u8>, case: Case) {
        self.clashed += 1;
        if self.clashes.len() < NAMED_MAX {
            self.clashes.push(Clash { path, case });
        }
    }
}

/// The number of entries of a node in depth-first order, including itself.
fn entries(node: &Node) -> u64 {
    match node {
        Node::Tree { totals, .. } => totals.entries.saturating_add(1),
        _ => 1,
    }
}

fn is_tree(node: &Node) -> bool {
    matches!(node, Node::Tree { .. })
}

fn pass_ours(node: Option<&Node>) -> Option<Step> {
    node.map(|node| Step::PassOurs(entries(node)))
}

fn pass_theirs(node: Option<&Node>) -> Option<Step> {
    node.map(|node| Step::PassTheirs(entries(node)))
}

fn push_name(path: &mut Vec<u8>, name: &[u8]) {
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

/// Whether both are the same. Directories are compared by content alone, whatever their totals say.
fn is_same(one: Option<&Node>, other: Option<&Node>) -> bool {
    match (one, other) {
        (Some(Node::Tree { content: one, .. }), Some(Node::Tree { content: other, .. })) => {
            one == other
        }
        (one, other) => one == other,
    }
}
