//! The directory of a new store: it must be free, and a group may own it together.

use std::ffi::OsStr;
use std::fs::{DirBuilder, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use store::{Error, Result};

/// What a file system may have left in the directory.
const LOST_AND_FOUND: &str = "lost+found";
/// The group has the owner's rights, and new files belong to the group.
const SHARED: u32 = 0o2070;
/// The rights of all other users of the host, if they may read.
const OTHERS: u32 = 0o005;

/// Who may read a store that a group writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Readers {
    /// Nobody but the group
    Group,
    /// Everybody on the host
    World,
}

/// Fails if a directory holds other files: a store among them would be mistaken for part of them.
pub(crate) fn check(dir: &Path) -> Result<()> {
    let entries = match std::fs::read_dir(dir) {
        // If `dir` is not a directory, opening the store reports that.
        Err(_) => return Ok(()),
        Ok(entries) => entries,
    };
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
    let mut others = names.filter(|name| !is_ours(name));
    let Some(other) = others.next() else {
        return Ok(());
    };
    let more = others.count();
    let rest = match more {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let dir = dir.display();
    Err(Error::conflict(format!(
        "{dir}: other things are there, {}{rest}; nothing was made",
        Path::new(&other).display()
    ))
    .hint(format!(
        "a store wants a directory of its own, like {dir}/store"
    )))
}

/// Whether a store makes something of this name, or made it under that with `#` and a number first and was killed.
fn is_ours(name: &OsStr) -> bool {
    let whole = name.to_str().unwrap_or_default();
    let made = whole.split_once('#').map_or(whole, |(made, _)| made);
    made == LOST_AND_FOUND || store::is_top_name(made)
}

/// Creates `dir` for its owner only. An existing directory keeps its mode.
pub(crate) fn make_private(dir: &Path) -> Result<()> {
    let failed = |source| Error::io("make the directory", dir, source);
    if let Some(above) = dir.parent() {
        std::fs::create_dir_all(above).map_err(failed)?;
    }
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(failed(error)),
        _ => Ok(()),
    }
}

/// Creates `dir`, and sets the mode by which every writer knows that a group owns the store together.
pub(crate) fn share(dir: &Path, readers: Readers) -> Result<()> {
    let failed = |source| Error::io("share the directory", dir, source);
    std::fs::create_dir_all(dir).map_err(failed)?;
    let mode = || Ok(std::fs::metadata(dir)?.permissions().mode() & 0o7777);
    let others = match readers {
        Readers::Group => 0,
        Readers::World => OTHERS,
    };
    let wanted = (mode().map_err(failed)? & !0o007) | SHARED | others;
    std::fs::set_permissions(dir, Permissions::from_mode(wanted)).map_err(|source| {
        let error = Error::io("share the directory", dir, source);
        match error.kind() {
            store::ErrorKind::Io => error.hint("only its owner may change its modes"),
            _ => error,
        }
    })?;
    // If the caller is not in the group, the kernel drops the setgid bit without an error.
    if mode().map_err(failed)? & SHARED == SHARED {
        return Ok(());
    }
    Err(Error::denied(format!(
        "{}: it cannot be shared, since you are no member of its group",
        dir.display()
    ))
    .because(std::io::Error::from(ErrorKind::PermissionDenied))
    .hint("give it to the group first: `chgrp GROUP DIR`"))
}
