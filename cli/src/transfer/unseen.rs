//! Private versions on their way into a bundle: only their user may read it.
//!
//! A new bundle is closed to others, and one of another user takes nothing. What is left is one that its user has opened.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use store::{Error, ReplicateRequest, Result, Store};

/// Mode bits with which others may read a file.
const READABLE_BY_OTHERS: u32 = 0o044;

/// Checks that nobody else may read the bundle at `path` if a private version is to go there.
///
/// # Errors
/// Denied, if others may; otherwise those of reading the state of `from`.
pub(super) fn check(from: &Store, request: &ReplicateRequest, path: &Path) -> Result<()> {
    let found = std::fs::metadata(path).ok();
    let user = rustix::process::geteuid().as_raw();
    // A bundle of another user takes nothing, whatever its mode: that is the reason to give.
    let own = found.filter(|found| found.uid() == user);
    let mode = own.map_or(0, |found| found.mode());
    if mode & READABLE_BY_OTHERS == 0 {
        return Ok(());
    }
    let Some(private) = store::private_of(from, request)? else {
        return Ok(());
    };
    Err(Error::denied(format!(
        "{}: others may read it, and {private} is private: its mode is {:o}",
        path.display(),
        mode & 0o7777
    ))
    .hint(format!(
        "chmod 600 {}, or name another file",
        path.display()
    )))
}
