//! What a materialization found and did.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use serde::Serialize;

use super::diff::{Counts, Why};
use super::overruled::{NAMED_MAX, Overruled};
use crate::format::RefName;
use crate::host::destination::Replaced;
use crate::host::pool::Damage;
use crate::remedy::Note;
use crate::shown;

/// The report of a materialization.
#[derive(Clone, Debug, Serialize)]
pub struct MaterializeReport {
    /// The ref.
    #[serde(rename = "ref")]
    pub name: RefName,
    /// Its version.
    pub version: u64,
    /// Where the tree is; none after a prefetch.
    #[serde(serialize_with = "shown::path_if")]
    pub destination: Option<PathBuf>,
    /// Regular files of the tree.
    pub files: u64,
    /// Directories, the root included.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Files that were linked.
    pub linked: u64,
    /// Files that were reflinked.
    pub reflinked: u64,
    /// Files that were copied.
    pub copied: u64,
    /// Files and symlinks that replaced others.
    pub updated: u64,
    /// Files, symlinks and directories that were right already.
    pub unchanged: u64,
    /// Files, symlinks and directories that were removed.
    pub removed: u64,
    /// Paths that are kept: added, changed or deleted by a job, or of unknown origin.
    pub kept: u64,
    /// Kept paths that differ from the version.
    pub conflicts: u64,
    /// The first hundred of these.
    pub conflicting: Vec<Kept>,
    /// Pool files that this process built.
    pub fetched: u64,
    /// Bytes that were read from the store for them.
    pub fetched_bytes: u64,
    /// Bytes that linking and reflinking did not have to copy.
    #[serde(rename = "bytes_not_copied")]
    pub shared_bytes: u64,
    /// What was at the destination when it was taken over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaced: Option<Replaced>,
    /// Changes of jobs that are replaced or removed, because the request says so.
    #[serde(skip_serializing_if = "Overruled::is_nothing")]
    pub overruled: Overruled,
    /// Pool files that somebody had written to.
    pub damaged: Vec<Damage>,
    /// Notes, for example why files were not linked; the caller formats them.
    #[serde(skip)]
    pub notes: Vec<Note>,
}

/// A path that is kept although the version has something else there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// The path below the destination.
    #[serde(flatten, serialize_with = "shown::on_host")]
    pub path: PathBuf,
    /// Why it is kept.
    pub why: Why,
}

impl MaterializeReport {
    pub(super) fn new(name: RefName, version: u64) -> Self {
        Self {
            name,
            version,
            destination: None,
            files: 0,
            directories: 0,
            symlinks: 0,
            bytes: 0,
            linked: 0,
            reflinked: 0,
            copied: 0,
            updated: 0,
            unchanged: 0,
            removed: 0,
            kept: 0,
            conflicts: 0,
            conflicting: Vec::new(),
            fetched: 0,
            fetched_bytes: 0,
            shared_bytes: 0,
            replaced: None,
            overruled: Overruled::default(),
            damaged: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// An empty report for another thread.
    pub(super) fn empty(&self) -> Self {
        Self::new(self.name.clone(), self.version)
    }

    /// Adds the report of another thread.
    pub(super) fn add(&mut self, part: Self) {
        self.linked += part.linked;
        self.reflinked += part.reflinked;
        self.copied += part.copied;
        self.shared_bytes += part.shared_bytes;
        self.damaged.extend(part.damaged);
        for note in part.notes {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
    }

    /// Takes over the counts of a walk.
    pub(super) fn count(&mut self, counts: &Counts) {
        self.files = counts.files;
        self.directories = counts.directories;
        self.symlinks = counts.symlinks;
        self.bytes = counts.bytes;
        self.unchanged = counts.unchanged;
    }

    /// Adds a path that is kept.
    pub(super) fn keep(&mut self, path: Vec<u8>, why: Why) {
        self.kept += 1;
        if !why.is_conflict() {
            return;
        }
        self.conflicts += 1;
        if self.conflicting.len() < NAMED_MAX {
            let path = OsString::from_vec(path).into();
            self.conflicting.push(Kept { path, why });
        }
    }
}
