//! A commit that several versions of a saved repo have, not all of them with all of its files.

use std::collections::BTreeMap;

use store::{Reader, Result, Version};

use crate::serve::hub::repos::{Commit, FilesOf, Repo, Repos, VERSIONS_SEARCHED_MAX};
use crate::serve::hub::saved::linked;

impl Repos {
    /// A commit of a saved repo as the version has it that has most of its files: clients delete what they do not need, and
    /// the commit is the same. Of equal ones the newest.
    pub(super) fn fullest(
        &self,
        reader: &Reader<'_>,
        repo: &Repo,
        versions: &BTreeMap<u64, Version>,
        hex: &str,
    ) -> Result<Option<Commit>> {
        let mut found: Vec<Commit> = Vec::new();
        for (number, version) in versions.iter().rev().take(VERSIONS_SEARCHED_MAX) {
            let commit = self.of_version(reader, repo, *number, version, hex)?;
            let is_new = |commit: &Commit| {
                let snapshot = commit.files.snapshot();
                found.iter().all(|one| one.files.snapshot() != snapshot)
            };
            let commit = commit.filter(is_new);
            found.extend(commit);
        }
        if found.len() <= 1 {
            return Ok(found.pop());
        }
        let mut best = None;
        for commit in found {
            let files = match &commit.files {
                FilesOf::Snapshot { snapshot, repo } => linked(reader, snapshot, repo)?,
                _ => 0,
            };
            if best.as_ref().is_none_or(|(most, _)| files > *most) {
                best = Some((files, commit));
            }
        }
        Ok(best.map(|(_, commit)| commit))
    }
}
