//! contents: which contents belong only to certain versions, so that nobody has them once those versions are dropped.
//!
//! Walks each tree once, and never reads the chunk list of a file. Anything that cannot be read is an error, because
//! unused contents must not be guessed.

use std::collections::HashSet;

use crate::error::{Error, Result};
use crate::format::{Content, Node, RefName, Root};
use crate::index::Marks;
use crate::read::Reader;
use crate::remedy::Remedy;

/// Returns those of `known` that are files in the versions `own` and in no other live version.
///
/// # Errors
/// Not found and corrupt as for [`Reader`]; interrupted on request.
pub fn contents_only_of(
    reader: &Reader<'_>,
    own: &[(RefName, u64)],
    known: &HashSet<Content>,
) -> Result<HashSet<Content>> {
    let view = reader.view();
    let own: HashSet<(&RefName, u64)> = own.iter().map(|(name, number)| (name, *number)).collect();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for found in view.state.refs.iter() {
        let (name, found) = found?;
        for (number, version) in found.versions {
            match own.contains(&(&name, number)) {
                true => ours.push(version.root),
                false => theirs.push(version.root),
            }
        }
    }
    let mut unused = HashSet::new();
    each_content(reader, &ours, &mut |content| {
        if known.contains(content) {
            unused.insert(*content);
        }
        true
    })?;
    each_content(reader, &theirs, &mut |content| {
        unused.remove(content);
        !unused.is_empty()
    })?;
    Ok(unused)
}

/// Calls `each` with the contents of files below `roots`, until it returns false.
fn each_content(
    reader: &Reader<'_>,
    roots: &[Root],
    each: &mut dyn FnMut(&Content) -> bool,
) -> Result<()> {
    let view = reader.view();
    let trees = view.index.marks();
    let mut nodes: Vec<Node> = Vec::new();
    for root in roots {
        nodes.push((*root).into());
        while let Some(node) = nodes.pop() {
            match node {
                Node::Symlink { .. } => {}
                Node::File { content, .. } => {
                    if !each(&content) {
                        return Ok(());
                    }
                }
                Node::Tree { content, .. } if is_new(&view.index, &trees, &content)? => {
                    reader.store().host().check_stop()?;
                    let entries = reader.tree(&content)?;
                    nodes.extend(entries.into_iter().map(|entry| entry.node));
                }
                Node::Tree { .. } => {}
            }
        }
    }
    Ok(())
}

/// Whether a tree is not empty and was not met before.
fn is_new(index: &crate::index::Index, trees: &Marks, content: &Content) -> Result<bool> {
    if content.size == 0 {
        return Ok(false);
    }
    let at = index.position(&content.root)?.ok_or_else(|| {
        Error::not_found(format!("chunk {}: no live segment offers it", content.root))
            .hint(Remedy::Verify)
    })?;
    Ok(trees.set(at))
}
