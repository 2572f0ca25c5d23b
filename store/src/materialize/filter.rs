//! What of a tree is wanted.

use super::MaterializeRequest;
use crate::error::Result;
use crate::walk::Globs;

/// Includes and excludes.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    include: Globs,
    exclude: Globs,
    spelled: (Vec<String>, Vec<String>),
}

impl Filter {
    /// As the request says.
    pub(super) fn new(request: &MaterializeRequest) -> Result<Self> {
        Self::of(&request.include, &request.exclude)
    }

    pub(super) fn of(include: &[String], exclude: &[String]) -> Result<Self> {
        Ok(Self {
            include: Globs::new(include)?,
            exclude: Globs::new(exclude)?,
            spelled: (include.to_vec(), exclude.to_vec()),
        })
    }

    /// Whether everything is wanted.
    pub(super) fn is_open(&self) -> bool {
        self.include.is_empty() && self.exclude.is_empty()
    }

    /// Whether both want the same.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.spelled == other.spelled
    }

    /// Whether the entry and all below it is unwanted.
    pub(super) fn excludes(&self, path: &[u8], is_dir: bool) -> bool {
        self.exclude.is_match(path, is_dir)
    }

    /// Whether the entry, and all below it, is wanted by its own path.
    pub(super) fn includes(&self, path: &[u8], is_dir: bool) -> bool {
        self.include.is_empty() || self.include.is_match(path, is_dir)
    }
}
