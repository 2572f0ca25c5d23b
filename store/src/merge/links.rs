//! What must stay for the links that one side added: files that the other side removed, so that a new link of a merged
//! tree leads to what it led to where it was made.
//!
//! A cache of Hugging Face shares the files of a repository among its snapshots by links. If one job removes a repository
//! while another one adds a snapshot of it, only the files that both have in common would be lost.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use super::{Trees, is_same, is_tree, push_name};
use crate::error::Result;
use crate::format::{Content, Node, TreeEntry};

/// Most links that lead from one to another.
const HOPS_MAX: usize = 40;

type Entries = Rc<Vec<TreeEntry>>;

/// Paths that stay though one side removed them.
#[derive(Debug, Default)]
pub(super) struct Kept(BTreeSet<Vec<u8>>);

impl Kept {
    pub(super) fn has(&self, path: &[u8]) -> bool {
        self.0.contains(path)
    }

    /// Whether something below `path` stays.
    pub(super) fn is_below(&self, path: &[u8]) -> bool {
        let behind = self.0.range(path.to_vec()..);
        let mut below = behind.take_while(|kept| kept.starts_with(path));
        // `a.b` is between `a` and `a/b`.
        below.any(|kept| path.is_empty() || kept.get(path.len()) == Some(&b'/'))
    }

    /// The paths that are not in `merged` all the same: the other side has something else in the place of a directory.
    pub(super) fn lost(&self, trees: &dyn Trees, merged: &Content) -> Result<Vec<Vec<u8>>> {
        let mut merged = Lookup::new(trees, merged);
        let mut lost = Vec::new();
        for path in &self.0 {
            if merged.find(path)?.is_none() {
                lost.push(path.clone());
            }
        }
        Ok(lost)
    }

    /// Adds what the links that `sides` added to `base` miss in `merged`. Returns whether that is more than before.
    pub(super) fn add(
        &mut self,
        trees: &dyn Trees,
        base: Option<&Content>,
        sides: [&Content; 2],
        merged: &Content,
    ) -> Result<bool> {
        let before = self.0.len();
        let mut merged_tree = Lookup::new(trees, merged);
        let [ours, theirs] = sides;
        // A side that changed nothing neither added nor removed anything.
        if [ours, theirs].into_iter().any(|side| base == Some(side)) {
            return Ok(false);
        }
        let our_changes = Changes::of(trees, base, ours)?;
        // All of theirs may be much.
        let their_links = match our_changes.has_removed {
            true => Changes::of(trees, base, theirs)?.links,
            false => Vec::new(),
        };
        for (side, links) in [(ours, our_changes.links), (theirs, their_links)] {
            let mut own = Lookup::new(trees, side);
            for (path, target) in links {
                let is_there = matches!(
                    merged_tree.find(&path)?,
                    Some(Node::Symlink { target: there }) if there == target
                );
                if is_there {
                    self.follow((path, target), &mut own, &mut merged_tree)?;
                }
            }
        }
        Ok(self.0.len() > before)
    }

    /// Keeps what a link leads to on its own side and not in the merged tree.
    fn follow(
        &mut self,
        (mut path, mut target): (Vec<u8>, Vec<u8>),
        own: &mut Lookup<'_>,
        merged: &mut Lookup<'_>,
    ) -> Result<()> {
        for _ in 0..HOPS_MAX {
            let Some(place) = led_to(&path, &target) else {
                break;
            };
            let Some(node) = own.find(&place)? else {
                break;
            };
            if merged.find(&place)?.is_none() {
                self.0.insert(place.clone());
            }
            match node {
                Node::Symlink { target: next } => (path, target) = (place, next),
                _ => break,
            }
        }
        Ok(())
    }
}

/// The path that a link at `path` leads to; none, if that is not inside of the tree.
fn led_to(path: &[u8], target: &[u8]) -> Option<Vec<u8>> {
    let mut names: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    names.pop();
    if target.starts_with(b"/") {
        return None;
    }
    for name in target.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => drop(names.pop()?),
            name => names.push(name),
        }
    }
    (!names.is_empty()).then(|| names.join(&b'/'))
}

/// What a side did, as far as links are concerned.
#[derive(Default)]
struct Changes {
    /// The links that the base does not have: their paths and targets.
    links: Vec<(Vec<u8>, Vec<u8>)>,
    has_removed: bool,
}

impl Changes {
    fn of(trees: &dyn Trees, base: Option<&Content>, side: &Content) -> Result<Self> {
        let mut changes = Self::default();
        let mut open = vec![(Vec::new(), base.copied(), *side)];
        while let Some((above, base, side)) = open.pop() {
            let before = base.map(|base| trees.read(&base)).transpose()?;
            let before = before.unwrap_or_default();
            let mut stayed = 0;
            for entry in trees.read(&side)? {
                let was = before
                    .binary_search_by(|other| other.name.cmp(&entry.name))
                    .ok()
                    .and_then(|at| before.get(at))
                    .map(|other| &other.node);
                stayed += usize::from(was.is_some());
                if is_same(was, Some(&entry.node)) {
                    continue;
                }
                let mut path = above.clone();
                push_name(&mut path, &entry.name);
                let was_tree = match was {
                    Some(Node::Tree { content, .. }) => Some(*content),
                    _ => None,
                };
                changes.has_removed |= was_tree.is_some() && !is_tree(&entry.node);
                match entry.node {
                    Node::Symlink { target } => changes.links.push((path, target)),
                    Node::Tree { content, .. } => open.push((path, was_tree, content)),
                    Node::File { .. } => {}
                }
            }
            changes.has_removed |= stayed < before.len();
        }
        Ok(changes)
    }
}

/// Finds paths in a tree. Directories that were opened are remembered: new links tend to lead to a few.
struct Lookup<'t> {
    trees: &'t dyn Trees,
    root: Content,
    opened: HashMap<Content, Entries>,
}

impl<'t> Lookup<'t> {
    fn new(trees: &'t dyn Trees, root: &Content) -> Self {
        Self {
            trees,
            root: *root,
            opened: HashMap::new(),
        }
    }

    fn find(&mut self, path: &[u8]) -> Result<Option<Node>> {
        let mut above = self.root;
        let mut names = path.split(|byte| *byte == b'/').peekable();
        while let Some(name) = names.next() {
            let entries = self.open(&above)?;
            let at = entries.binary_search_by(|entry| entry.name.as_slice().cmp(name));
            let node = at
                .ok()
                .and_then(|at| entries.get(at))
                .map(|entry| &entry.node);
            match (node, names.peek()) {
                (node, None) => return Ok(node.cloned()),
                (Some(Node::Tree { content, .. }), Some(_)) => above = *content,
                (_, Some(_)) => break,
            }
        }
        Ok(None)
    }

    fn open(&mut self, content: &Content) -> Result<Entries> {
        if let Some(opened) = self.opened.get(content) {
            return Ok(Rc::clone(opened));
        }
        let entries: Entries = Rc::new(self.trees.read(content)?);
        self.opened.insert(*content, Rc::clone(&entries));
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_leads_from_its_own_directory() {
        let led = |path: &str, target: &str| {
            led_to(path.as_bytes(), target.as_bytes()).map(|to| String::from_utf8(to).unwrap())
        };
        assert_eq!(led("a/s/link", "../b/x").as_deref(), Some("a/b/x"));
        assert_eq!(led("link", "./x//y").as_deref(), Some("x/y"));
        assert_eq!(led("a/link", "../../x"), None);
        assert_eq!(led("a/link", "/x"), None);
        assert_eq!(led("a/link", ".."), None);
    }

    #[test]
    fn what_stays_is_found_from_above() {
        let kept = Kept([b"a/b/c".to_vec(), b"a.b".to_vec()].into());
        for above in ["", "a", "a/b"] {
            assert!(kept.is_below(above.as_bytes()), "{above}");
        }
        for other in ["a/b/c", "a.b", "a.", "b", "a/"] {
            assert!(!kept.is_below(other.as_bytes()), "{other}");
        }
    }
}
