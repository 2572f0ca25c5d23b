//! The report of a run about one of its compile caches.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde::Serialize;

use crate::commands::cache::stray::Strays;
use crate::ui::{human, names};

/// The JSON form of the report.
#[derive(Serialize)]
pub(super) struct Report {
    pub(super) profile: String,
    #[serde(serialize_with = "store::path_as_text")]
    pub(super) directory: PathBuf,
    /// Entries that were complete when the command began.
    pub(super) there: u64,
    /// How many of these came from a ref.
    pub(super) pulled: u64,
    /// How many of the complete entries the command read; null if the file system does not tell.
    pub(super) hits: Option<u64>,
    /// How many of the read entries came from a ref; each saved a compile.
    pub(super) avoided: Option<u64>,
    /// Entries that the command added.
    pub(super) misses: u64,
    /// Entries that are new in the ref, without those that were pushed during the run.
    pub(super) pushed: u64,
    /// Files that belong to no entry and are saved with no cache either.
    pub(super) no_entry: Strays,
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} ({}): {} there before the command ({} pulled), ",
            names::shown(self.directory.as_os_str().as_bytes()),
            self.profile,
            human::counted(self.there, "entry"),
            human::count(self.pulled),
        )?;
        match (self.hits, self.avoided) {
            (Some(hits), Some(avoided)) => write!(
                out,
                "{} read by it ({} avoided by what was pulled), ",
                human::count(hits),
                human::counted(avoided, "compile")
            )?,
            _ => out.write_str("which of them it read is not known here, ")?,
        }
        write!(
            out,
            "{} added by it, {} pushed",
            human::count(self.misses),
            human::count(self.pushed)
        )
    }
}
