//! A directory that is to be replaced: counts its content, and searches it for precious things.

use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, StatxFlags};

use super::site::{Site, There, is_mount_root, kind_of};
use crate::error::{Error, Result};
use crate::host::walk::{Dir, Item, WalkOptions, walk};
use crate::remedy::Remedy;

/// What was at a destination before it was replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Replaced {
    /// Files and symlinks.
    pub files: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Entries that could not be inspected.
    #[serde(skip)]
    pub unreadable: u64,
}

impl Replaced {
    /// Counts what is at a destination. A destination that `is_begun` for its new content may hold files that homes
    /// have.
    ///
    /// # Errors
    /// Conflict, when it holds a store, a pool or something mounted.
    pub(crate) fn count(
        site: &Site,
        is_begun: bool,
        stop: &dyn Fn() -> Result<()>,
    ) -> Result<Self> {
        let mut found = Self::default();
        check_may_be_replaced(site, is_begun)?;
        match site.there {
            There::Nothing | There::EmptyDirectory => return Ok(found),
            There::Other => {
                found.files = 1;
                found.bytes = look(site)?.len();
                return Ok(found);
            }
            There::Directory => {}
        }
        let options = WalkOptions {
            skip_unreadable: true,
            ..WalkOptions::default()
        };
        let mut is_root = true;
        for item in walk(&site.path, options)? {
            match item? {
                Item::Enter { dir, .. } => {
                    if !std::mem::replace(&mut is_root, false) {
                        check_below(site, dir.as_ref(), &dir.path())?;
                    }
                    stop()?;
                }
                Item::File { stat, .. } => {
                    found.files += 1;
                    found.bytes = found.bytes.saturating_add(stat.size);
                }
                Item::Symlink { .. } => found.files += 1,
                Item::Skipped { .. } => found.unreadable += 1,
                Item::Leave => {}
            }
        }
        Ok(found)
    }
}

/// Names that homes have and trees of data do not. The list of users may be elsewhere, and `$HOME` may be wrong.
const OF_A_HOME: [&str; 7] = [
    ".ssh",
    ".gnupg",
    ".bashrc",
    ".bash_history",
    ".profile",
    ".zshrc",
    ".netrc",
];

/// Refuses what no option replaces: a device, and a directory that looks like a home or a part of the system.
pub(crate) fn check_may_be_replaced(site: &Site, is_begun: bool) -> Result<()> {
    match site.there {
        There::Nothing | There::EmptyDirectory => Ok(()),
        There::Other => {
            let there = look(site)?;
            match there.is_file() || there.is_symlink() {
                true => Ok(()),
                false => Err(taken(site, "is a device, a pipe or a socket")),
            }
        }
        There::Directory => check_whole(site, is_begun),
    }
}

fn look(site: &Site) -> Result<std::fs::Metadata> {
    let found = std::fs::symlink_metadata(&site.path);
    found.map_err(|source| Error::io("look at", &site.path, source))
}

/// Refuses a directory that looks like a home or a part of the system, whatever its name.
fn check_whole(site: &Site, is_begun: bool) -> Result<()> {
    if is_at_the_top(&site.path) {
        return Err(taken(
            site,
            "is not empty and is at the top of the file system",
        ));
    }
    let is_there = |name: &&&str| !is_begun && site.path.join(name).symlink_metadata().is_ok();
    match OF_A_HOME.iter().find(is_there) {
        Some(name) => Err(taken(
            site,
            &format!("holds {name}, so that it is somebody's home"),
        )),
        None => Ok(()),
    }
}

/// Whether only the root is above: systems, homes and mounts are there.
fn is_at_the_top(path: &Path) -> bool {
    path.parent().is_some_and(|above| above.parent().is_none())
}

fn taken(site: &Site, why: &str) -> Error {
    Error::conflict(format!("{}: {why}", site.given.display())).hint(Remedy::OtherDestination)
}

/// Whether an open directory is the root of a mount, as far as the system reports it.
pub(crate) fn is_mounted(dir: &Dir) -> bool {
    fs::statx(dir, "", AtFlags::EMPTY_PATH, StatxFlags::TYPE)
        .is_ok_and(|found| is_mount_root(&found))
}

/// Whether a directory must not be removed together with the directories above it, and why.
fn precious(dir: &Dir) -> Option<&'static str> {
    match kind_of(&dir) {
        None => is_mounted(dir).then_some("something that is mounted"),
        Some("pool") => Some("a pool"),
        Some(_) => Some("a store"),
    }
}

/// The first store, pool or mount at or below a directory, except those that `is_known`: what it is, and where.
///
/// # Errors
/// When it cannot be inspected.
pub(crate) fn precious_in(
    root: &Path,
    is_known: &dyn Fn(&Path) -> bool,
) -> Result<Option<(&'static str, PathBuf)>> {
    if !root.is_dir() {
        return Ok(None);
    }
    let options = WalkOptions {
        skip_unreadable: true,
        ..WalkOptions::default()
    };
    for item in walk(root, options)? {
        if let Item::Enter { dir, .. } = item?
            && let Some(what) = precious(dir.as_ref())
            && !is_known(&dir.path())
        {
            return Ok(Some((what, dir.path())));
        }
    }
    Ok(None)
}

fn check_below(site: &Site, dir: &Dir, path: &Path) -> Result<()> {
    let Some(what) = precious(dir) else {
        return Ok(());
    };
    Err(Error::conflict(format!(
        "{}: holds {what}, at {}",
        site.given.display(),
        path.display()
    ))
    .hint(Remedy::OtherDestinationOrMove))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_top_is_what_has_nothing_but_the_root_above_it() {
        for (path, expected) in [("/root", true), ("/", false), ("/data/cache", false)] {
            assert_eq!(is_at_the_top(Path::new(path)), expected, "{path}");
        }
    }
}
