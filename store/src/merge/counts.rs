//! Counts the changes between two trees. Only directories that differ are opened.

use serde::Serialize;

use super::{Trees, entries, is_same, is_tree, push_name};
use crate::error::Result;
use crate::format::{Content, Node, TreeEntry};

/// Numbers of changed paths. Entries of an added or removed directory count as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// New paths.
    pub added: u64,
    /// Paths that are something else now.
    pub changed: u64,
    /// Paths that are gone.
    pub removed: u64,
}

/// Counts the changes from `base` to `ours`. Without a base, everything is new.
pub(crate) fn count(
    trees: &dyn Trees,
    base: Option<&Content>,
    ours: (&Content, u64),
) -> Result<Counts> {
    let mut counts = Counts::default();
    let Some(base) = base else {
        counts.added = ours.1;
        return Ok(counts);
    };
    let mut open = Vec::new();
    if base != ours.0 {
        open.push((*base, *ours.0, Vec::new()));
    }
    while let Some((base, ours, path)) = open.pop() {
        let mut base = trees.read(&base)?.into_iter().peekable();
        let mut ours = trees.read(&ours)?.into_iter().peekable();
        loop {
            let names = [base.peek(), ours.peek()].into_iter().flatten();
            let Some(name) = names.map(|entry| &entry.name).min().cloned() else {
                break;
            };
            let before = base.next_if(|entry| entry.name == name);
            let after = ours.next_if(|entry| entry.name == name);
            let mut path = path.clone();
            push_name(&mut path, &name);
            counts.add(trees, &mut open, path, (before, after))?;
        }
    }
    Ok(counts)
}

impl Counts {
    fn add(
        &mut self,
        trees: &dyn Trees,
        open: &mut Vec<(Content, Content, Vec<u8>)>,
        path: Vec<u8>,
        (before, after): (Option<TreeEntry>, Option<TreeEntry>),
    ) -> Result<()> {
        let (before, after) = (
            before.map(|entry| entry.node),
            after.map(|entry| entry.node),
        );
        match (before, after) {
            (before, after) if is_same(before.as_ref(), after.as_ref()) => {}
            (
                Some(Node::Tree {
                    content: before, ..
                }),
                Some(Node::Tree { content, .. }),
            ) => {
                open.push((before, content, path));
            }
            (Some(_), Some(_)) => self.changed += 1,
            (Some(node), None) => self.removed += removed(trees, &node, path)?,
            (None, Some(node)) => self.added += entries(&node),
            (None, None) => {}
        }
        Ok(())
    }
}

/// Counts the entries that are gone with a node. Left-out entries stay, and so do the directories above them.
fn removed(trees: &dyn Trees, node: &Node, path: Vec<u8>) -> Result<u64> {
    if trees.is_left_out(&path, is_tree(node)) {
        return Ok(0);
    }
    let Node::Tree { content, .. } = node else {
        return Ok(1);
    };
    if !trees.leaves_out() {
        return Ok(entries(node));
    }
    let mut gone = 0;
    let mut open = vec![(trees.read(content)?.into_iter(), path, false)];
    while let Some((level, path, stays)) = open.last_mut() {
        let Some(TreeEntry { name, node }) = level.next() else {
            let stays = *stays;
            open.pop();
            match open.last_mut() {
                Some((_, _, above)) if stays => *above = true,
                _ => gone += u64::from(!stays),
            }
            continue;
        };
        let mut path = path.clone();
        push_name(&mut path, &name);
        match &node {
            node if trees.is_left_out(&path, is_tree(node)) => *stays = true,
            Node::Tree { content, .. } => {
                open.push((trees.read(content)?.into_iter(), path, false));
            }
            _ => gone += 1,
        }
    }
    Ok(gone)
}
