//! Whom to trust with a path: the caller and root.
//!
//! A path that a person wrote is not resolved through symlinks of other users. For a pool, the directory itself must be
//! trusted, too. It is trusted when it belongs to the caller and nobody else may write to it, as seen on the open
//! descriptor. The path to it is walked name by name from the root of the file system. A symlink in it is followed only
//! if nobody else could have put it there. A directory above may belong to others, who can move the pool away. They
//! cannot replace it by another, since that would not belong to the caller.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;

use super::disk;
use super::way::{Astray, Link, Way};
use crate::error::{Error, Result};
use crate::remedy::Remedy;

/// Write permission for the group and for others.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// In a directory with this bit, nobody can move what belongs to others.
const STICKY: u32 = 0o1000;

/// The user for whom this process works.
pub(crate) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Opens the directory at `path` as one of the caller's own, and returns its path without symlinks. Makes the directory
/// and missing ones above it.
pub(super) fn open_own(path: &Path) -> Result<(OwnedFd, PathBuf)> {
    let absolute =
        std::path::absolute(path).map_err(|source| Error::io("look at", path, source))?;
    let failed =
        |errno: Errno| Error::io("open pool", path, errno.into()).hint(Remedy::WritablePool);
    let judge = |link: &Link<'_>| check_pool_link(path, link);
    // Others need no access to a pool: they read through their own trees.
    let made = Some(Mode::from_raw_mode(0o700));
    let way = Way::walk(&absolute, made, &judge);
    let way = way.map_err(|astray| match astray {
        Astray::Refused(error) => error,
        Astray::Failed(errno) => failed(errno),
    })?;
    // Checked before it is opened for reading, which other users' directories may not allow.
    check_own(&way.at, &way.found)?;
    let dir = fs::openat(&way.at, ".", DIRECTORY, Mode::empty()).map_err(failed)?;
    Ok((dir, way.found))
}

/// Opens the directory `name` in `dir`, which is in a pool, as one of the caller's own.
pub(super) fn open_own_in(dir: impl AsFd, name: &str, pool: &Path) -> Result<Option<OwnedFd>> {
    match disk::open_dir(dir, name.as_bytes()) {
        Ok(opened) => {
            check_own(&opened, &pool.join(name))?;
            Ok(Some(opened))
        }
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(disk::failed(
            "open a directory of pool",
            &pool.join(name),
            errno,
        )),
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// Checks that an open directory belongs to the caller, and nobody else may write to it.
fn check_own(dir: impl AsFd, path: &Path) -> Result<()> {
    let stat = fs::fstat(dir).map_err(|errno| disk::failed("look at", path, errno))?;
    let user = user();
    if stat.st_uid != user {
        return Err(Error::denied(format!(
            "pool {}: belongs to user {}, expected user {user}, who runs this",
            path.display(),
            stat.st_uid
        ))
        .hint(Remedy::OwnPool));
    }
    if stat.st_mode & WRITABLE_BY_OTHERS != 0 {
        return Err(Error::denied(format!(
            "pool {}: others may write to it: its mode is {:o}, expected at most 755",
            path.display(),
            stat.st_mode & 0o7777
        ))
        .hint(Remedy::ClosePool {
            pool: path.display().to_string(),
        }));
    }
    Ok(())
}

/// Checks that an open file in a pool belongs to the caller.
pub(super) fn check_own_file(file: impl AsFd, path: &Path) -> Result<()> {
    let stat = fs::fstat(file).map_err(|errno| disk::failed("look at", path, errno))?;
    if stat.st_uid == user() {
        return Ok(());
    }
    Err(Error::denied(format!(
        "pool file {}: belongs to user {}, expected user {}, who runs this",
        path.display(),
        stat.st_uid,
        user()
    ))
    .hint(Remedy::OwnPoolForFile))
}

/// Refuses a symlink on the way to a pool, unless only the caller or root can have put it there.
fn check_pool_link(pool: &Path, link: &Link<'_>) -> Result<()> {
    let (dir, user) = (link.dir, link.stat.st_uid);
    let is_fixed = dir.st_mode & WRITABLE_BY_OTHERS == 0 || dir.st_mode & STICKY != 0;
    if is_trusted(user) && is_trusted(dir.st_uid) && is_fixed {
        return Ok(());
    }
    Err(Error::denied(format!(
        "pool {}: {} is a symlink that another user could have made (it belongs to user {user})",
        pool.display(),
        link.path.display()
    ))
    .hint(Remedy::PoolBehindLink))
}

/// Whether files of this user are no danger. Root can do anything in any case.
pub(crate) fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == user()
}

/// Resolves a path that may not exist.
///
/// # Errors
/// Conflict, when it leads through a symlink of another user, who can redirect it at any moment.
pub(crate) fn resolve(path: &Path) -> Result<Way> {
    walk_of(path, None)
}

/// Resolves the same through any symlink, for a path that is only compared with others.
pub(crate) fn resolve_any(path: &Path) -> Result<Way> {
    Way::walk(path, None, &|_| Ok(())).map_err(|astray| astray.at("look at", path))
}

/// Returns the path of what exists at `path`, without symlinks.
///
/// # Errors
/// Conflict, when it leads through a symlink of another user; not found, when it does not exist.
pub fn canonical(path: &Path) -> Result<PathBuf> {
    let Way { found, missing, .. } = resolve(path)?;
    match missing.as_os_str().is_empty() {
        true => Ok(found),
        false => Err(Error::io("look at", path, Errno::NOENT.into())),
    }
}

/// Makes the directory `path` and missing ones above it. Returns its path without symlinks, and the directory itself,
/// open for lookups: what is done from there ends in it, whatever becomes of the path.
///
/// # Errors
/// Conflict, when it leads through a symlink of another user; I/O, when one cannot be made.
pub fn make_directories(path: &Path) -> Result<(PathBuf, OwnedFd)> {
    walk_of(path, Some(Mode::from_raw_mode(0o777))).map(|way| (way.found, way.at))
}

fn walk_of(path: &Path, made: Option<Mode>) -> Result<Way> {
    let judge = |link: &Link<'_>| match is_trusted(link.stat.st_uid) {
        true => Ok(()),
        false => Err(Error::conflict(format!(
            "{}: leads through {}, a symlink of user {}",
            path.display(),
            link.path.display(),
            link.stat.st_uid
        ))
        .hint("name the directory that the link leads to, if it should go there")),
    };
    let doing = if made.is_some() { "create" } else { "look at" };
    Way::walk(path, made, &judge).map_err(|astray| astray.at(doing, path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{lchown, symlink};

    use super::*;

    #[test]
    fn a_path_is_resolved_as_the_system_does_and_its_missing_names_are_told() {
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path().canonicalize().unwrap();
        std::fs::create_dir_all(top.join("a/b/c")).unwrap();
        symlink("b/c", top.join("a/to")).unwrap();
        symlink(top.join("a"), top.join("whole")).unwrap();
        symlink("loop", top.join("loop")).unwrap();
        for path in ["a/to/../c", "whole/to", "whole/b/./c", "a//b/../to"] {
            let path = top.join(path);
            assert_eq!(canonical(&path).unwrap(), path.canonicalize().unwrap());
            assert_eq!(make_directories(&path).unwrap().0, top.join("a/b/c"));
        }
        let way = resolve(&top.join("whole/to/x/y")).unwrap();
        assert_eq!((way.found, way.missing), (top.join("a/b/c"), "x/y".into()));
        assert!(canonical(&top.join("loop")).is_err());
        let (made, _) = make_directories(&top.join("whole/to/x/y")).unwrap();
        assert_eq!(made, top.join("a/b/c/x/y"));
        assert!(made.is_dir());
        std::fs::write(top.join("file"), "").unwrap();
        assert_eq!(canonical(&top.join("file")).unwrap(), top.join("file"));
        assert!(resolve(&top.join("file/x")).is_err());
        assert!(make_directories(&top.join("file")).is_err());
    }

    #[test]
    fn a_link_of_another_user_is_refused_wherever_it_is_met() {
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path().canonicalize().unwrap();
        std::fs::create_dir(top.join("dir")).unwrap();
        symlink("dir", top.join("theirs")).unwrap();
        symlink("theirs", top.join("ours")).unwrap();
        // Without the right to change owners, the test cannot make another user's link.
        if lchown(top.join("theirs"), Some(1001), Some(1001)).is_err() {
            return;
        }
        for path in ["theirs", "ours", "ours/x", "theirs/../dir"] {
            let path = top.join(path);
            let error = canonical(&path).unwrap_err().to_string();
            assert!(error.contains("theirs, a symlink of user 1001"), "{error}");
            assert!(make_directories(&path).is_err());
        }
        assert_eq!(std::fs::read_dir(top.join("dir")).unwrap().count(), 0);
    }
}
