//! What lies in a directory that is to be replaced: counted, and searched for what is precious.

use std::path::Path;

use rustix::fs::{self, AtFlags, StatxFlags};

use super::site::{Site, There, is_mount_root, kind_of};
use crate::error::{Error, Result};
use crate::walk::{Item, WalkOptions, walk};

/// What was at a destination before it was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replaced {
    /// Files and symlinks.
    pub files: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// What could not be looked at.
    pub unreadable: u64,
}

impl Replaced {
    /// Counts what is at a destination.
    ///
    /// # Errors
    /// Conflict, where it holds a store, a pool or something mounted.
    pub(crate) fn count(site: &Site, stop: &dyn Fn() -> Result<()>) -> Result<Self> {
        let mut found = Self::default();
        match site.there {
            There::Nothing | There::EmptyDirectory => return Ok(found),
            There::Other => {
                let size = std::fs::symlink_metadata(&site.path).map(|found| found.len());
                found.files = 1;
                found.bytes = size.unwrap_or(0);
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

fn check_below(site: &Site, dir: &crate::walk::Dir, path: &Path) -> Result<()> {
    let is_mount = fs::statx(dir, "", AtFlags::EMPTY_PATH, StatxFlags::TYPE)
        .is_ok_and(|found| is_mount_root(&found));
    let what = match kind_of(&dir) {
        None if is_mount => "something that is mounted",
        None => return Ok(()),
        Some("pool") => "a pool",
        Some(_) => "a store",
    };
    Err(Error::conflict(format!(
        "{}: holds {what}, at {}",
        site.given.display(),
        path.display()
    ))
    .hint(
        "name another destination, or move it away first; --force and --exact do not change this",
    ))
}
