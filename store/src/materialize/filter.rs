//! What of a tree is wanted.

use super::MaterializeRequest;
use crate::error::Result;
use crate::format::Node;
use crate::read::Reader;
use crate::walk::Globs;

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
        for entry in reader.tree(content)? {
            let below = [path, b"/", &entry.name].concat();
            if self.is_wanted(reader, &below, &entry.node)? {
                return Ok(true);
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
