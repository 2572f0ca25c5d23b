//! One repository of a hub cache during the walk: its refs, snapshots and links must match.
//!
//! The walk visits directories by name: `blobs`, `refs`, `snapshots`, `trees`.
//! Memory: the names in one repository.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::rules::is_commit;
use crate::error::{Error, Result};
use crate::remedy::Remedy;

/// What is known of a repository so far.
#[derive(Debug, Default)]
pub(super) struct Repo {
    /// The path of its directory, relative to the root.
    path: Vec<u8>,
    /// Names in `blobs/`.
    payloads: HashSet<Vec<u8>>,
    /// Paths of refs and the commits that they name.
    refs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Paths in each snapshot.
    snapshots: BTreeMap<Vec<u8>, HashSet<Vec<u8>>>,
}

/// How much of a snapshot exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Completeness {
    pub(super) listed: usize,
    pub(super) present: usize,
}

/// The relevant part of `trees/<commit>.json`.
#[derive(Deserialize)]
struct Listing {
    files: HashMap<String, IgnoredAny>,
}

impl Repo {
    pub(super) fn new(path: &[u8]) -> Self {
        Self {
            path: path.to_vec(),
            ..Self::default()
        }
    }

    pub(super) fn add_payload(&mut self, name: &[u8]) {
        self.payloads.insert(name.to_vec());
    }

    pub(super) fn add_snapshot(&mut self, commit: &[u8]) {
        self.snapshots.entry(commit.to_vec()).or_default();
    }

    /// Adds the entry at `path`, relative to the root, to its snapshot.
    pub(super) fn add_entry(&mut self, path: &[u8]) {
        let Some(inside) = self.inside(path, b"snapshots/") else {
            return;
        };
        let mut parts = inside.splitn(2, |byte| *byte == b'/');
        if let (Some(commit), Some(path)) = (parts.next(), parts.next()) {
            let (commit, path) = (commit.to_vec(), path.to_vec());
            self.snapshots.entry(commit).or_default().insert(path);
        }
    }

    /// Adds the ref at `path`, which holds `text`.
    ///
    /// # Errors
    /// When it holds anything besides a commit, since readers do not strip it.
    pub(super) fn add_ref(&mut self, path: &[u8], text: &[u8]) -> Result<()> {
        if !is_commit(text) {
            return Err(broken(
                path,
                format!(
                    "expected the 40 digits of a commit and no more, found {}",
                    text.escape_ascii()
                ),
            ));
        }
        self.refs.push((path.to_vec(), text.to_vec()));
        Ok(())
    }

    /// Whether the file at `path` exists, if that is a name in `blobs/`; none otherwise.
    pub(super) fn payload_at(&self, path: &[u8]) -> Option<bool> {
        let name = self.inside(path, b"blobs/")?;
        (!name.contains(&b'/')).then(|| self.payloads.contains(name))
    }

    /// Compares a listing with its snapshot.
    ///
    /// # Errors
    /// When the text is no listing.
    pub(super) fn compare(&self, commit: &[u8], listing: &[u8]) -> Result<Completeness> {
        let listing: Listing = serde_json::from_slice(listing)
            .map_err(|source| Error::corrupt("not a listing of files").because(source))?;
        let snapshot = self.snapshots.get(commit);
        let is_present =
            |path: &&String| snapshot.is_some_and(|paths| paths.contains(path.as_bytes()));
        Ok(Completeness {
            listed: listing.files.len(),
            present: listing.files.keys().filter(is_present).count(),
        })
    }

    /// Ends the repository. Returns refs to commits without a snapshot: clients leave such refs when they download to a
    /// directory of the user (`local_dir`), or ask for a file that the commit does not have.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Corrupt`], naming a ref, when the repository has files in `blobs/` but no snapshot: no
    /// client leaves that, but a copy that lost its links does.
    pub(super) fn finish(&self) -> Result<Vec<String>> {
        let lost_links = self.snapshots.is_empty() && !self.payloads.is_empty();
        let mut empty = Vec::new();
        for (path, commit) in &self.refs {
            if self.snapshots.contains_key(commit) {
                continue;
            }
            if lost_links {
                let shown = String::from_utf8_lossy(commit);
                let detail = format!("it names commit {shown}, found no snapshot of it");
                return Err(broken(path, detail));
            }
            empty.push(String::from_utf8_lossy(path).into_owned());
        }
        Ok(empty)
    }

    fn inside<'a>(&self, path: &'a [u8], dir: &[u8]) -> Option<&'a [u8]> {
        let rest = path.strip_prefix(&*self.path)?;
        let rest = if self.path.is_empty() {
            rest
        } else {
            rest.strip_prefix(b"/")?
        };
        rest.strip_prefix(dir)
    }
}

/// The error about an inconsistent tree, at `path`.
pub(super) fn broken(path: &[u8], detail: impl std::fmt::Display) -> Error {
    Error::corrupt(format!("{}: {detail}", String::from_utf8_lossy(path)))
        .hint(Remedy::DownloadAgainOrExclude)
}
