//! What a save remembers of a directory of which it left something out: what it saved, with the old base in the place of
//! what it did not.
//!
//! With another base the next save would take what others did to those paths for its own, or its own changes for
//! somebody else's. Stores nothing: the trees are made again from a list that this host keeps.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::PutRequest;
use super::ancestor::known_tree;
use crate::error::{Error, Result};
use crate::format::{Content, Node, Root, Time, Totals, TreeEntry};
use crate::host::pool::PoolKey;
use crate::host::saved::{Listing, Notes};
use crate::host::walk::Globs;
use crate::merge::{Trees, merge};
use crate::read::Reader;
use crate::store::Store;

/// What was built of the source, and of what was left out what `base` had there; the list of it, where this host keeps one.
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

/// What is not in what was built of a directory, and was not deleted there.
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

    /// Whether there may be any for the globs alone.
    pub(super) fn has_globs(&self) -> bool {
        !self.globs.is_empty()
    }

    /// Whether anything lies at a path that was not built, or it would not have been built, had anything lain there.
    pub(super) fn has(&self, path: &[u8], is_dir: bool) -> bool {
        let lies_at = self.root.join(std::ffi::OsStr::from_bytes(path));
        self.globs.is_match(path, is_dir) || lies_at.symlink_metadata().is_ok()
    }
}
