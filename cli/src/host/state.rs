//! The state directory: what is noted there decides what is read and published later, so it must be the caller's own.
//!
//! It is made closed to others. One of another user, or one to which others may write, is never followed.

use std::fs::{DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use store::{Error, Result};

use crate::ui::names::quoted_path;

/// Write permission for others than the owner, and for others than the owner and the group.
const OTHERS: u32 = 0o022;
const STRANGERS: u32 = 0o002;

/// Makes a directory in the state directory, and what is missing above it, for the caller alone.
pub(crate) fn make(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Checks that what is at `path`, if anything is, belongs to the caller or to root, and that nobody else may write to
/// it. `path` is the state directory, or in it.
///
/// # Errors
/// Denied, naming the path, and whose it is.
pub(crate) fn check(path: &Path) -> Result<()> {
    let Ok(found) = std::fs::metadata(path) else {
        return Ok(());
    };
    let user = rustix::process::geteuid().as_raw();
    let shown = path.display();
    if ![user, 0].contains(&found.uid()) {
        return Err(Error::denied(format!(
            "{shown}: belongs to user {}, expected user {user}, who runs this",
            found.uid()
        ))
        .hint(
            "what is noted there would be read and published: set XDG_STATE_HOME to a directory of your own, or HOME to \
             your home",
        ));
    }
    if is_closed(&found) {
        return Ok(());
    }
    Err(Error::denied(format!(
        "{shown}: others may write to it: its mode is {:o}, expected at most 755",
        found.mode() & 0o7777
    ))
    .hint(format!(
        "what is noted there would be read and published: if all of it is yours, `chmod go-w {}`, or set XDG_STATE_HOME to \
         a directory of your own",
        quoted_path(path)
    )))
}

/// Whether nobody but the owner may write. A group of the number of the owner is the owner's alone, as many systems make
/// one for each user and let it write.
fn is_closed(found: &Metadata) -> bool {
    let mask = if found.uid() == found.gid() {
        STRANGERS
    } else {
        OTHERS
    };
    found.mode() & mask == 0
}
