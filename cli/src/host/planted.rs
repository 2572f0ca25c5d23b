//! Directories that another user may have planted at a path that the caller uses.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use store::{Error, Result};

/// World-writable and sticky, as `/tmp`: everybody may write, and nobody may move the files of others.
const SHARED: u32 = 0o1002;

/// Checks that no stranger planted `path` or a directory on the way to it. Below a shared directory, each must belong
/// to the caller, to root or to the owner of the shared directory. The kernel requires the same of symlinks there
/// (`protected_symlinks`).
///
/// # Errors
/// Denied, naming the directory that belongs to another user.
pub(crate) fn check(path: &Path) -> Result<()> {
    let absolute =
        std::path::absolute(path).map_err(|source| Error::io("look at", path, source))?;
    let own = rustix::process::geteuid().as_raw();
    for (at, above) in absolute.ancestors().zip(absolute.ancestors().skip(1)) {
        let (Ok(found), Ok(above)) = (std::fs::symlink_metadata(at), std::fs::metadata(above))
        else {
            continue;
        };
        let is_trusted = [own, 0, above.uid()].contains(&found.uid());
        if above.mode() & SHARED == SHARED && !is_trusted {
            return Err(planted(at.to_owned(), found.uid()));
        }
    }
    Ok(())
}

/// Checks that no stranger's symlink is on the way from the directory `root` to `path` below it, or there: what it leads
/// to may be readable to the caller only.
///
/// # Errors
/// Denied, naming the symlink.
pub(crate) fn check_links(root: &Path, path: &Path) -> Result<()> {
    let own = rustix::process::geteuid().as_raw();
    let owner = std::fs::metadata(root).map_or(own, |found| found.uid());
    let is_strange = |found: &Metadata| ![own, 0, owner].contains(&found.uid());
    match link_below(root, path, is_strange) {
        None => Ok(()),
        Some((at, found)) => Err(Error::denied(format!(
            "{}: is a symlink of user {}",
            at.display(),
            found.uid()
        ))
        .hint("it may lead to what only you may read: look at it, and remove it")),
    }
}

/// Whether something of another user than this one and root is at `path`; links are not followed.
pub(crate) fn is_strange(path: &Path) -> bool {
    let own = [rustix::process::geteuid().as_raw(), 0];
    std::fs::symlink_metadata(path).is_ok_and(|found| !own.contains(&found.uid()))
}

/// Whether a symlink of another user is on the way to `path`, or there.
pub(crate) fn is_led_by_others(path: &Path) -> bool {
    path.ancestors().any(|at| at.is_symlink() && is_strange(at))
}

/// Checks that no symlink of another user is at `path`.
///
/// # Errors
/// Denied, naming where it leads.
pub(crate) fn check_link(path: &Path) -> Result<()> {
    match path.read_link().ok().filter(|_| is_strange(path)) {
        None => Ok(()),
        Some(target) => Err(Error::denied(format!(
            "{}: is a symlink of another user to {}",
            path.display(),
            target.display()
        ))
        .hint("it may lead to what only you may read: look at it, and remove it")),
    }
}

/// The first symlink of this kind on the way from the directory `root` to `path` below it, or there.
pub(crate) fn link_below(
    root: &Path,
    path: &Path,
    is_it: impl Fn(&Metadata) -> bool,
) -> Option<(PathBuf, Metadata)> {
    let mut at = root.to_owned();
    for name in path {
        at.push(name);
        let found = std::fs::symlink_metadata(&at).ok()?;
        if found.is_symlink() && is_it(&found) {
            return Some((at, found));
        }
    }
    None
}

fn planted(at: PathBuf, user: u32) -> Error {
    Error::denied(format!(
        "{}: belongs to user {user}, and is where everybody may write",
        at.display()
    ))
    .hint(
        "that user may put anything there, and see what comes there: name a directory of your own",
    )
}
