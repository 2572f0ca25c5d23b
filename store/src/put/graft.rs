//! The base that a save remembers for a directory of which it left something out: what it saved, with the old base in
//! place of what it left out.
//!
//! With any other base, the next save would mistake changes of others to those paths for its own, or the reverse.
//! Nothing is stored: the trees are rebuilt from a list that this host keeps.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::PutRequest;
use super::ancestor::notes;
use super::rebuilt::known_tree;
use crate::error::{Error, Result};
use crate::format::{Content, Node, Root, Time, Totals, TreeEntry};
use crate::host::pool::PoolKey;
use crate::host::saved::Listing;
use crate::host::walk::Globs;
use crate::merge::{Trees, merge};
use crate::read::Reader;
use crate::store::Store;

/// Returns the tree of what was built, with the entries of `base` for paths that were left out, and a list of it, if
/// this host keeps lists.
pub(super) fn graft(
    store: &Store,
    request: &PutRequest,
    (built, base): (&Root, &Content),
    reader: &Reader<'_>,
) -> Result<(Content, Option<Listing>)> {
    let Root::Tree { content, totals } = built else {
        return Err(Error::invalid("only directories are saved"));
    };
    let source = request.source.canonicalize().unwrap_or_default();
    let mut trees = Graft {
        reader,
        left_out: LeftOut::new(request)?,
    };
    let theirs = (*base, Totals::default());
    let ((tree, _), _) = merge(&mut trees, Some(base), &(*content, *totals), &theirs)?;
    let notes = notes(store, request, &source);
    let mut listing = notes.map(|notes| notes.begin()).transpose()?;
    if let Some(listing) = &mut listing {
        list(reader, &tree, listing)?;
    }
    Ok((tree, listing))
}

/// Lists a tree. Its times are never used.
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

/// Trees that are not stored, but kept in memory by the reader.
struct Graft<'s> {
    reader: &'s Reader<'s>,
    left_out: LeftOut,
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

    fn is_left_out(&self, path: &[u8], is_dir: bool) -> bool {
        self.left_out.has(path, is_dir)
    }
}

/// Paths that are missing from what was built although nobody deleted them.
pub(super) struct LeftOut {
    root: PathBuf,
    globs: Globs,
}

impl LeftOut {
    pub(super) fn new(request: &PutRequest) -> Result<Self> {
        Ok(Self {
            root: request.source.canonicalize().unwrap_or_default(),
            globs: Globs::new(&request.exclude)?,
        })
    }

    /// Whether globs leave out anything.
    pub(super) fn has_globs(&self) -> bool {
        !self.globs.is_empty()
    }

    /// Whether `path` was left out, because something exists there or a glob excludes it.
    pub(super) fn has(&self, path: &[u8], is_dir: bool) -> bool {
        let lies_at = self.root.join(std::ffi::OsStr::from_bytes(path));
        self.globs.is_match(path, is_dir) || lies_at.symlink_metadata().is_ok()
    }
}
