//! What a save remembers of a directory of which it left something out: what it saved, with the old base in the place of
//! what it did not.
//!
//! With another base the next save would take what others did to those paths for its own, or its own changes for
//! somebody else's. Stores nothing: the trees are made again from a list that this host keeps.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::ancestor::known_tree;
use crate::error::{Error, Result};
use crate::format::{Content, Node, Root, Time, Totals, TreeEntry};
use crate::host::pool::PoolKey;
use crate::host::saved::{Listing, Notes};
use crate::merge::{Trees, merge};
use crate::read::Reader;
use crate::store::Store;

/// What was built of `source`, and of what was left out what `base` had there; the list of it, where this host keeps one.
pub(super) fn graft(
    store: &Store,
    source: &Path,
    (built, base): (&Root, &Content),
    reader: &Reader<'_>,
) -> Result<(Content, Option<Listing>)> {
    let Root::Tree { content, totals } = built else {
        return Err(Error::invalid("only directories are saved"));
    };
    let source = source.canonicalize().unwrap_or_default();
    let mut trees = Graft {
        reader,
        root: source.clone(),
    };
    let theirs = (*base, Totals::default());
    let ((tree, _), _) = merge(&mut trees, Some(base), &(*content, *totals), &theirs)?;
    let notes = Notes::of(store.cache_dir(), &source);
    let mut listing = notes.map(|notes| notes.begin()).transpose()?;
    if let Some(listing) = &mut listing {
        list(reader, &tree, listing)?;
    }
    Ok((tree, listing))
}

/// Lists a tree whose times nobody will ask for.
fn list(reader: &Reader<'_>, tree: &Content, listing: &mut Listing) -> Result<()> {
    let time = Time::default();
    let mut open = vec![reader.tree(tree)?.into_iter()];
    while let Some(level) = open.last_mut() {
        let Some(TreeEntry { name, node }) = level.next() else {
            open.pop();
            listing.leave();
            continue;
        };
        match node {
            Node::Tree { content, .. } => {
                listing.enter(&name, time)?;
                open.push(reader.tree(&content)?.into_iter());
            }
            Node::File {
                content,
                executable,
            } => {
                let key = PoolKey {
                    content,
                    executable,
                };
                listing.file(&name, key, time)?;
            }
            Node::Symlink { target } => listing.symlink(&name, &target, time)?,
        }
    }
    Ok(())
}

/// Trees of which nothing is stored: this pass knows them, and the list of paths does.
struct Graft<'s> {
    reader: &'s Reader<'s>,
    root: PathBuf,
}

impl Trees for Graft<'_> {
    fn read(&self, content: &Content) -> Result<Vec<TreeEntry>> {
        self.reader.tree(content)
    }

    fn write(&mut self, entries: &[TreeEntry]) -> Result<Content> {
        known_tree(self.reader, entries)
    }

    fn leaves_out(&self) -> bool {
        true
    }

    fn is_left_out(&self, path: &[u8]) -> bool {
        lies_at(&self.root, path)
    }
}

/// Whether anything lies at a path below `root`.
pub(super) fn lies_at(root: &Path, path: &[u8]) -> bool {
    let path = root.join(std::ffi::OsStr::from_bytes(path));
    path.symlink_metadata().is_ok()
}
