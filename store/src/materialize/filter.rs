//! What of a tree is wanted.

use super::MaterializeRequest;
use crate::error::Result;
use crate::format::{Content, Node};
use crate::host::walk::Globs;
use crate::read::Reader;

/// Includes and excludes.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    include: Globs,
    exclude: Globs,
}

impl Filter {
    /// As the request says.
    pub(super) fn new(request: &MaterializeRequest) -> Result<Self> {
        Self::of(&request.include, &request.exclude)
    }

    fn of(include: &[String], exclude: &[String]) -> Result<Self> {
        Ok(Self {
            include: Globs::new(include)?,
            exclude: Globs::new(exclude)?,
        })
    }

    /// Whether everything is wanted.
    pub(super) fn is_open(&self) -> bool {
        self.include.is_empty() && self.exclude.is_empty()
    }

    /// Whether an entry is wanted: itself, or something below it.
    pub(super) fn is_wanted(&self, reader: &Reader<'_>, path: &[u8], node: &Node) -> Result<bool> {
        let is_dir = matches!(node, Node::Tree { .. });
        if self.excludes(path, is_dir) {
            return Ok(false);
        }
        if self.includes(path, is_dir) || self.has_included_parent(path) {
            return Ok(true);
        }
        let Node::Tree { content, .. } = node else {
            return Ok(false);
        };
        self.is_any_wanted(reader, path, content)
    }

    /// Whether anything below a directory is wanted, which is not so itself. How deep it goes is no matter of the
    /// stack.
    fn is_any_wanted(&self, reader: &Reader<'_>, path: &[u8], content: &Content) -> Result<bool> {
        let mut path = path.to_vec();
        let mut levels = vec![(path.len(), reader.tree(content)?.into_iter())];
        while let Some((len, entries)) = levels.last_mut() {
            path.truncate(*len);
            let Some(entry) = entries.next() else {
                levels.pop();
                continue;
            };
            path.push(b'/');
            path.extend_from_slice(&entry.name);
            let is_dir = matches!(entry.node, Node::Tree { .. });
            if self.excludes(&path, is_dir) {
                continue;
            }
            if self.includes(&path, is_dir) {
                return Ok(true);
            }
            if let Node::Tree { content, .. } = &entry.node {
                levels.push((path.len(), reader.tree(content)?.into_iter()));
            }
        }
        Ok(false)
    }

    fn has_included_parent(&self, path: &[u8]) -> bool {
        let mut above = path;
        while let Some(at) = above.iter().rposition(|byte| *byte == b'/') {
            above = above.get(..at).unwrap_or_default();
            if self.includes(above, true) {
                return true;
            }
        }
        false
    }

    /// Whether the entry and all below it is unwanted.
    fn excludes(&self, path: &[u8], is_dir: bool) -> bool {
        self.exclude.is_match(path, is_dir)
    }

    /// Whether the entry, and all below it, is wanted by its own path.
    fn includes(&self, path: &[u8], is_dir: bool) -> bool {
        self.include.is_empty() || self.include.is_match(path, is_dir)
    }
}
