//! Directories whose files are all excluded from a save. Such a directory is not treated as empty.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use store::Globs;

/// Whether a directory has files and all of them match `exclude`.
pub(crate) fn is_all(dir: &Path, exclude: &[String]) -> bool {
    Globs::new(exclude).is_ok_and(|globs| {
        let mut is_any = false;
        let is_all = holds_only(dir, &mut Vec::new(), &globs, &mut |_| is_any = true);
        is_all.unwrap_or(false) && is_any
    })
}

/// The paths in a directory that match `exclude`, without what is in such directories.
pub(crate) fn all(dir: &Path, exclude: &[String]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    if let Ok(globs) = Globs::new(exclude) {
        // What cannot be read cannot be named either.
        let _unread = holds_only(dir, &mut Vec::new(), &globs, &mut |path| {
            found.push(OsStr::from_bytes(path).into());
        });
    }
    found
}

/// Whether a file or a directory above it is excluded.
pub(crate) fn is_in(globs: &Globs, file: &Path) -> bool {
    let is_match = |path: &Path, is_dir| globs.is_match(path.as_os_str().as_bytes(), is_dir);
    is_match(file, false) || file.ancestors().skip(1).any(|above| is_match(above, true))
}

/// Passes what matches to `tell`. Stops at the first file that does not match.
fn holds_only(
    root: &Path,
    path: &mut Vec<u8>,
    globs: &Globs,
    tell: &mut dyn FnMut(&[u8]),
) -> std::io::Result<bool> {
    let length = path.len();
    for file in std::fs::read_dir(root.join(OsStr::from_bytes(path)))? {
        let file = file?;
        let is_dir = file.file_type()?.is_dir();
        if length > 0 {
            path.push(b'/');
        }
        path.extend_from_slice(file.file_name().as_bytes());
        let is_apart = globs.is_match(path, is_dir);
        if is_apart {
            tell(path);
        }
        let is_well = is_apart || (is_dir && holds_only(root, path, globs, tell)?);
        if !is_well {
            return Ok(false);
        }
        path.truncate(length);
    }
    Ok(true)
}
