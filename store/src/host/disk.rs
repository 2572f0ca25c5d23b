//! Small disk operations by open directory and name. No symlink is ever followed.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{self, AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::way;
use crate::error::{Error, Result};
use crate::remedy::Remedy;

/// Deepest nesting of directories that is followed. No path that the system accepts (4096 bytes) is deeper.
pub(crate) const DEPTH_MAX: usize = 4096;

/// The error about a tree that is nested deeper.
pub(crate) fn too_deep(path: &Path) -> Error {
    // The whole path would fill a screen.
    let names: std::path::PathBuf = path.components().take(8).collect();
    Error::invalid(format!(
        "{}/...: nested deeper than the {DEPTH_MAX} directories that can be materialized",
        names.display()
    ))
    .hint(Remedy::MaterializeLess)
}

/// The error of a system call, with a hint.
pub(crate) fn failed(doing: &str, path: &Path, errno: Errno) -> Error {
    let error = Error::io(doing, path, errno.into());
    match errno {
        Errno::ROFS => error.hint("the file system is mounted read-only: name a writable place"),
        Errno::MFILE | Errno::NFILE => error.hint(too_few_files()),
        Errno::ACCESS | Errno::PERM => {
            error.hint("give yourself the right to write there, or name another place")
        }
        _ => error,
    }
}

/// The hint about open files: each level of a tree takes an open directory, besides a few dozen files.
fn too_few_files() -> String {
    let most = getrlimit(Resource::Nofile).current;
    let most = most.map_or_else(String::new, |most| format!(", which is {most} now"));
    format!("raise the limit on open files (`ulimit -n`){most}: each level of a tree takes one")
}

/// Whether an open directory is empty, as far as can be seen.
pub(crate) fn is_empty(dir: impl AsFd) -> bool {
    let Ok(entries) = Dir::read_from(dir) else {
        return false;
    };
    let is_own = |name: &[u8]| name == b"." || name == b"..";
    entries
        .into_iter()
        .all(|entry| entry.is_ok_and(|entry| is_own(entry.file_name().to_bytes())))
}

/// Opens the directory `name` in `dir`, never through a symlink.
pub(crate) fn open_dir(dir: impl AsFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(dir, name, flags, Mode::empty())
}

/// Opens the directory at `path`, which was resolved before. Symlinks that it has since are not followed.
///
/// # Errors
/// Conflict, for such a symlink; otherwise those of the system.
pub(crate) fn open_path(path: &Path) -> Result<OwnedFd> {
    way::open_fixed(path, OFlags::RDONLY | OFlags::DIRECTORY).map_err(|errno| match errno {
        Errno::LOOP => Error::conflict(format!(
            "{}: a directory in this path became a symlink meanwhile",
            path.display()
        ))
        .hint("check who may write to the directories above it, and run it again"),
        errno => failed("open directory", path, errno),
    })
}

/// Opens the file `name` in `dir` for reading.
pub(crate) fn open_file(dir: impl AsFd, name: &[u8]) -> rustix::io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    fs::openat(dir, name, flags, Mode::empty()).map(File::from)
}

/// Creates the file `name` in `dir`, which must not exist.
pub(crate) fn create(dir: impl AsFd, name: &[u8], mode: u32) -> rustix::io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(dir, name, flags, Mode::from_raw_mode(mode)).map(File::from)
}

/// Creates a file in `dir` that has no name any more; `name` must not exist.
pub(crate) fn scratch(dir: impl AsFd, name: &str) -> rustix::io::Result<File> {
    let file = create(&dir, name.as_bytes(), 0o600)?;
    fs::unlinkat(dir, name, AtFlags::empty())?;
    Ok(file)
}

/// Writes a new small file.
pub(crate) fn write_new(dir: impl AsFd, name: &[u8], bytes: &[u8]) -> rustix::io::Result<()> {
    let mut file = create(dir, name, 0o644)?;
    file.write_all(bytes)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Writes a new small file that is complete when it gets its name in `dir`.
pub(crate) fn write_whole(dir: impl AsFd, name: &str, bytes: &[u8]) -> rustix::io::Result<File> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let Ok(file) = fs::openat(&dir, ".", flags, Mode::from_raw_mode(0o644)) else {
        return write_aside(dir, name, bytes);
    };
    let mut file = File::from(file);
    file.write_all(bytes)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let unnamed = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    match fs::linkat(fs::CWD, unnamed, &dir, name, AtFlags::SYMLINK_FOLLOW) {
        Ok(()) => Ok(file),
        Err(Errno::NOENT | Errno::XDEV | Errno::PERM) => write_aside(dir, name, bytes),
        Err(errno) => Err(errno),
    }
}

/// Does the same on file systems without unnamed files: writes under a name with a leading dot, then renames.
fn write_aside(dir: impl AsFd, name: &str, bytes: &[u8]) -> rustix::io::Result<File> {
    let aside = format!(".{name}");
    write_new(&dir, aside.as_bytes(), bytes)?;
    let file = open_file(&dir, aside.as_bytes())?;
    fs::renameat(&dir, &aside, &dir, name)?;
    Ok(file)
}

/// The names in a directory.
pub(crate) fn names(dir: impl AsFd, path: &Path) -> Result<Vec<Vec<u8>>> {
    list(dir).map_err(|errno| failed("list", path, errno))
}

fn list(dir: impl AsFd) -> rustix::io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(name);
        }
    }
    Ok(names)
}

/// Most directories that are open during a removal.
const OPEN_MAX: usize = 32;

/// Removes `name` in `dir` and everything below it, if it exists. What is nested deeper than `OPEN_MAX` is first moved
/// up to `name`, so that neither the stack nor the number of open directories grows with the depth.
pub(crate) fn remove_tree(dir: impl AsFd, name: &[u8]) -> rustix::io::Result<()> {
    let dir = dir.as_fd();
    if !is_nonempty(dir, name)? {
        return Ok(());
    }
    let top = open_dir(dir, name)?;
    loop {
        let mut is_moved = false;
        for name in list(&top)? {
            is_moved |= remove_below((&top, top.as_fd()), &name, 1)?;
        }
        if !is_moved {
            break;
        }
    }
    match fs::unlinkat(dir, name, AtFlags::REMOVEDIR) {
        Err(Errno::NOENT) => Ok(()),
        done => done,
    }
}

/// Removes `name` in `dir`, which lies in `top`. Returns whether something below was moved up to `top` instead.
fn remove_below(
    (top, dir): (&OwnedFd, BorrowedFd<'_>),
    name: &[u8],
    depth: usize,
) -> rustix::io::Result<bool> {
    if !is_nonempty(dir, name)? {
        return Ok(false);
    }
    if depth >= OPEN_MAX {
        let aside = random_name().map_err(|_| Errno::IO)?;
        fs::renameat(dir, name, top, format!(".{aside}"))?;
        return Ok(true);
    }
    let below = open_dir(dir, name)?;
    let mut is_moved = false;
    for name in list(&below)? {
        is_moved |= remove_below((top, below.as_fd()), &name, depth + 1)?;
    }
    match fs::unlinkat(dir, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(is_moved),
        Err(errno) => Err(errno),
    }
}

/// Removes `name`, unless it is a non-empty directory; returns whether it is.
fn is_nonempty(dir: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<bool> {
    match fs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(false),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(errno),
    }
    match fs::unlinkat(dir, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(false),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(true),
        Err(errno) => Err(errno),
    }
}

/// A name that nobody has used before.
pub(crate) fn random_name() -> Result<String> {
    Ok(crate::id::CommitId::random()?.to_string())
}

/// Ignores the result of a step whose failure does not matter: the next sweep finds what is left.
pub(crate) fn forgive<T, E>(_outcome: Result<T, E>) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_nested_deeper_than_any_stack_is_removed() {
        let above = tempfile::tempdir().unwrap();
        let top = open_path(above.path()).unwrap();
        let mut dir = top.try_clone().unwrap();
        for level in 0..6000 {
            fs::mkdirat(&dir, "d", Mode::from_raw_mode(0o755)).unwrap();
            dir = open_dir(&dir, b"d").unwrap();
            if level % 7 == 0 {
                write_new(&dir, b"file", b"x").unwrap();
            }
        }
        write_new(&top, b"beside", b"x").unwrap();
        let small = std::thread::Builder::new().stack_size(256 << 10);
        let remove = move || remove_tree(&top, b"d");
        small.spawn(remove).unwrap().join().unwrap().unwrap();
        let left = list(open_path(above.path()).unwrap()).unwrap();
        assert_eq!(left, [b"beside".to_vec()]);
    }
}
