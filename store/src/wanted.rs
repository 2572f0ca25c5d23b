//! Which part of a tree is wanted: globs that include, globs that exclude, and whether they leave anything.

use crate::error::{Error, Result};
use crate::format::{Content, Node};
use crate::host::walk::Globs;
use crate::read::Reader;
use crate::remedy::Remedy;

/// Globs that include and exclude paths of a stored tree.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    include: Globs,
    exclude: Globs,
}

impl Wanted {
    /// Parses globs as a person wrote them.
    ///
    /// # Errors
    /// Invalid input, naming the invalid glob.
    pub(crate) fn new(include: &[String], exclude: &[String]) -> Result<Self> {
        Ok(Self {
            include: Globs::new(include)?,
            exclude: Globs::new(exclude)?,
        })
    }

    /// Whether everything is wanted.
    pub(crate) fn is_everything(&self) -> bool {
        self.include.is_empty() && self.exclude.is_empty()
    }

    /// Whether an entry or anything below it is wanted. The directories above it must not be excluded.
    pub(crate) fn takes(&self, reader: &Reader<'_>, path: &[u8], node: &Node) -> Result<bool> {
        if self.is_everything() {
            return Ok(true);
        }
        let is_dir = matches!(node, Node::Tree { .. });
        if self.exclude.is_match(path, is_dir) {
            return Ok(false);
        }
        if self.includes(path, is_dir) {
            return Ok(true);
        }
        match node {
            Node::Tree { content, .. } => self.takes_below(reader, path, content),
            _ => Ok(false),
        }
    }

    /// Whether a path would be wanted if a tree had it. A directory may have to be there for what is in it.
    pub(crate) fn selects(&self, path: &[u8], is_dir: bool) -> bool {
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let mut above = ends.filter_map(|(end, _)| path.get(..end));
        let is_excluded = above.any(|above| self.exclude.is_match(above, true))
            || self.exclude.is_match(path, is_dir);
        !is_excluded && (is_dir || self.includes(path, false))
    }

    /// Refuses globs that leave nothing of a tree that has entries.
    ///
    /// # Errors
    /// Invalid input, when nothing is left.
    pub(crate) fn check_leaves_something(
        &self,
        reader: &Reader<'_>,
        node: &Node,
        shown: &dyn std::fmt::Display,
    ) -> Result<()> {
        let Node::Tree { content, totals } = node else {
            return Ok(());
        };
        if totals.entries == 0 || self.is_everything() || self.takes_below(reader, b"", content)? {
            return Ok(());
        }
        Err(nothing_left(shown))
    }

    /// Whether a file or symlink somewhere below a directory is wanted, or a directory is named by a glob.
    fn takes_below(&self, reader: &Reader<'_>, path: &[u8], content: &Content) -> Result<bool> {
        let mut waiting = vec![(path.to_vec(), *content)];
        while let Some((above, content)) = waiting.pop() {
            for entry in reader.tree(&content)? {
                let path = join(&above, &entry.name);
                let is_dir = matches!(entry.node, Node::Tree { .. });
                if self.exclude.is_match(&path, is_dir) {
                    continue;
                }
                match entry.node {
                    // A directory that is named is wanted even if it is empty.
                    Node::Tree { .. } if self.include.is_match(&path, true) => return Ok(true),
                    Node::Tree { content, .. } => waiting.push((path, content)),
                    _ if self.includes(&path, false) => return Ok(true),
                    _ => {}
                }
            }
        }
        Ok(false)
    }

    /// Whether the entry, or a directory above it, is included.
    fn includes(&self, path: &[u8], is_dir: bool) -> bool {
        if self.include.is_empty() || self.include.is_match(path, is_dir) {
            return true;
        }
        let mut above = path;
        while let Some(at) = above.iter().rposition(|byte| *byte == b'/') {
            above = above.get(..at).unwrap_or_default();
            if self.include.is_match(above, true) {
                return true;
            }
        }
        false
    }
}

/// The error about globs that leave nothing.
pub(crate) fn nothing_left(shown: &dyn std::fmt::Display) -> Error {
    Error::invalid(format!(
        "{shown}: what is included and excluded leaves no file of it"
    ))
    .hint(Remedy::OtherGlobs)
}

/// Joins a name to a directory's path.
pub(crate) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() {
        return name.to_vec();
    }
    [dir, b"/", name].concat()
}
