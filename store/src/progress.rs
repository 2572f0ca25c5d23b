//! How a pipeline tells its caller how far it is; the caller decides whether anybody sees it.

use std::path::Path;

/// Told by pipelines from any thread, often.
pub trait Progress: Sync {
    /// What there is to do, as far as known by now.
    fn total(&self, files: u64, bytes: u64);

    /// What has been done since the last call.
    fn advance(&self, files: u64, bytes: u64);

    /// Told before anything happens to files at `destination` that were not made here: how many there are,
    /// their bytes, and whether all of them go, or only those whose names are wanted.
    fn replaces(&self, _destination: &Path, _files: u64, _bytes: u64, _all: bool) {}

    /// Whether anybody watches, so that it is worth finding out beforehand how much there is.
    fn is_watched(&self) -> bool {
        true
    }
}

/// Nobody watches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Progress for Unwatched {
    fn total(&self, _files: u64, _bytes: u64) {}

    fn advance(&self, _files: u64, _bytes: u64) {}

    fn is_watched(&self) -> bool {
        false
    }
}
