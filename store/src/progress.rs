//! How a pipeline reports its progress to its caller, which decides whether anybody sees it.

use std::path::Path;

/// Receives the progress of a pipeline, which calls it often and from any of its threads.
#[doc = "\n# Example\n```"]
#[doc = include_str!("../examples/watch_progress.rs")]
#[doc = "```"]
pub trait Progress: Sync {
    /// Sets how much there is to do, as far as known by now.
    fn total(&self, files: u64, bytes: u64);

    /// Adds what has been done since the last call.
    fn advance(&self, files: u64, bytes: u64);

    /// Called before files at `destination` that were not made here are touched: how many there are, their bytes, and
    /// whether all of them are removed or only those whose names are needed.
    fn replaces(&self, _destination: &Path, _files: u64, _bytes: u64, _all: bool) {}

    /// Called before files at `destination` that a job changed or added are touched, or, after [`Progress::replaces`],
    /// files that were not made here: how many of them are replaced or removed, their bytes, and the first of them, as
    /// paths below the destination.
    fn overrules(
        &self,
        _destination: &Path,
        _files: u64,
        _bytes: u64,
        _first: &[&Path],
        _is_made: bool,
    ) {
    }

    /// Whether anybody watches, so that counting the total beforehand is worth the time.
    fn is_watched(&self) -> bool {
        true
    }
}

/// A [`Progress`] that nobody watches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Progress for Unwatched {
    fn total(&self, _files: u64, _bytes: u64) {}

    fn advance(&self, _files: u64, _bytes: u64) {}

    fn is_watched(&self) -> bool {
        false
    }
}
