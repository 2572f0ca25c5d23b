//! Directories that somebody else may have put where one of the caller's is looked for.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use store::{Error, Result};

/// Everybody may write, and nobody moves what belongs to others: as in `/tmp`.
const SHARED: u32 = 0o1002;

/// That what lies at `path`, or is on the way to it, was not put there by a stranger: whatever lies in a directory that
/// everybody may write to belongs to the caller, to root or to the owner of that directory. It is what the system asks of
/// symlinks there (`protected_symlinks`), asked of directories, too.
///
/// # Errors
/// Denied, naming what belongs to somebody else.
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

fn planted(at: PathBuf, user: u32) -> Error {
    Error::denied(format!(
        "{}: belongs to user {user}, and is where everybody may write",
        at.display()
    ))
    .hint(
        "that user may put anything there, and see what comes there: name a directory of your own",
    )
}
