//! What a save left out and need not name: what looks like credentials and is in the ref as it is, since somebody accepted
//! it before, and empty mounts that hide nothing.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::format::{Content, Node};
use crate::host::pool::content_of;
use crate::read::Reader;
use crate::remedy::Remedy;

/// Takes off the list what need not be named: one of the trees `roots` has the same there, or has nothing where a mount
/// hides what there was.
pub(super) fn forgive(
    skipped: &mut Vec<(PathBuf, Error)>,
    source: &Path,
    roots: &[&Content],
    reader: &Reader<'_>,
) {
    if skipped.is_empty() {
        return;
    }
    let canonical = source.canonicalize().unwrap_or_default();
    let places = [source, &canonical];
    skipped.retain(|one| {
        let mut below = places.iter().map(|place| one.0.strip_prefix(place));
        let below = below.find_map(std::result::Result::ok);
        !below.is_some_and(|below| is_accepted(one, below, roots, reader))
    });
}

fn is_accepted(
    (path, error): &(PathBuf, Error),
    below: &Path,
    roots: &[&Content],
    reader: &Reader<'_>,
) -> bool {
    // What cannot be read or compared stays on the list.
    let mut nodes = roots.iter().map(|root| node_at(root, below, reader));
    match error.remedy() {
        Some(Remedy::AllowSecret { .. }) => nodes.any(
            |node| matches!(node, Ok(Some(node)) if is_same(path, &node, reader).unwrap_or(false)),
        ),
        Some(Remedy::Unmount) => nodes.all(|node| match node {
            Ok(Some(Node::Tree { totals, .. })) => totals.entries == 0,
            Ok(node) => node.is_none(),
            Err(_) => false,
        }),
        _ => false,
    }
}

fn node_at(root: &Content, path: &Path, reader: &Reader<'_>) -> Result<Option<Node>> {
    let mut above = Some(*root);
    let mut found = None;
    for name in path {
        let Some(tree) = above else { return Ok(None) };
        let entries = reader.tree(&tree)?.into_iter();
        let mut named = entries.filter(|entry| entry.name == name.as_bytes());
        found = named.next().map(|entry| entry.node);
        above = match &found {
            Some(Node::Tree { content, .. }) => Some(*content),
            _ => None,
        };
    }
    Ok(found)
}

/// Whether what lies at `path` is what `node` describes.
fn is_same(path: &Path, node: &Node, reader: &Reader<'_>) -> Result<bool> {
    let failed = |source| Error::io("read", path, source);
    let kind = path.symlink_metadata().map_err(failed)?;
    Ok(match node {
        Node::File {
            content,
            executable,
        } => {
            let is_like = kind.is_file()
                && kind.len() == content.size
                && (kind.permissions().mode() & 0o100 != 0) == *executable;
            is_like
                && content_of(File::open(path).map_err(failed)?, reader.store().chunker())?
                    == *content
        }
        Node::Symlink { target } => {
            kind.is_symlink() && path.read_link().map_err(failed)?.as_os_str().as_bytes() == target
        }
        Node::Tree { content, .. } if kind.is_dir() => {
            let entries = reader.tree(content)?;
            let count = std::fs::read_dir(path).map_err(failed)?.count();
            let mut is_all = entries.len() == count;
            for entry in &entries {
                let below = path.join(OsStr::from_bytes(&entry.name));
                is_all = is_all && is_same(&below, &entry.node, reader)?;
            }
            is_all
        }
        Node::Tree { .. } => false,
    })
}
