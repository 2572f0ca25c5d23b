//! Small steps on a disk by open directory and name; no symlink is ever followed.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{self, AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Error, Result};

/// Deepest nesting of directories that is followed: deeper than any path that the system takes (4096 bytes) leads.
pub(crate) const DEPTH_MAX: usize = 4096;

/// A tree that is nested deeper.
pub(crate) fn too_deep(path: &Path) -> Error {
    // The whole path would fill a screen.
    let names: std::path::PathBuf = path.components().take(8).collect();
    Error::invalid(format!(
        "{}/...: nested deeper than {DEPTH_MAX} directories",
        names.display()
    ))
    .hint("materialize a path inside of it, or leave it out with --exclude")
}

/// What the system said, with what to do about it.
pub(crate) fn failed(doing: &str, path: &Path, errno: Errno) -> Error {
    let error = Error::io(doing, path, errno.into());
    match errno {
        Errno::ROFS => error.hint("the file system is mounted read-only: name a writable place"),
        Errno::MFILE | Errno::NFILE => error.hint("raise the limit on open files (`ulimit -n`)"),
        Errno::ACCESS | Errno::PERM => {
            error.hint("give yourself the right to write there, or name another place")
        }
        _ => error,
    }
}

/// Opens the directory `name` in `dir`, never through a symlink.
pub(crate) fn open_dir(dir: impl AsFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(dir, name, flags, Mode::empty())
}

/// Opens the directory at `path`, following symlinks, as a person means it.
pub(crate) fn open_path(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fs::open(path, flags, Mode::empty()).map_err(|errno| failed("open directory", path, errno))
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

/// Writes a new small file.
pub(crate) fn write_new(dir: impl AsFd, name: &[u8], bytes: &[u8]) -> rustix::io::Result<()> {
    let mut file = create(dir, name, 0o644)?;
    file.write_all(bytes)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Writes a new small file that is whole from the moment on at which it has its name in `dir`.
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

/// The same where files have a name from the beginning: under one with a dot before it, then renamed.
fn write_aside(dir: impl AsFd, name: &str, bytes: &[u8]) -> rustix::io::Result<File> {
    let aside = format!(".{name}");
    write_new(&dir, aside.as_bytes(), bytes)?;
    let file = open_file(&dir, aside.as_bytes())?;
    fs::renameat(&dir, &aside, &dir, name)?;
    Ok(file)
}

/// The names in a directory.
pub(crate) fn names(dir: impl AsFd, path: &Path) -> Result<Vec<Vec<u8>>> {
    let list = || -> rustix::io::Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(dir)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(name);
            }
        }
        Ok(names)
    };
    list().map_err(|errno| failed("list", path, errno))
}

/// Removes `name` in `dir` and everything below it; nothing there is fine.
pub(crate) fn remove_tree(dir: impl AsFd, name: &[u8]) -> rustix::io::Result<()> {
    remove_below(dir.as_fd(), name, 0)
}

fn remove_below(
    dir: std::os::fd::BorrowedFd<'_>,
    name: &[u8],
    depth: usize,
) -> rustix::io::Result<()> {
    match fs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(errno),
    }
    if depth > DEPTH_MAX + 8 {
        return Err(Errno::LOOP);
    }
    let below = open_dir(dir, name)?;
    for entry in Dir::read_from(&below)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let known_file = !matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
        if known_file {
            fs::unlinkat(&below, name, AtFlags::empty())?;
        } else {
            remove_below(below.as_fd(), name, depth + 1)?;
        }
    }
    match fs::unlinkat(dir, name, AtFlags::REMOVEDIR) {
        Err(Errno::NOENT) => Ok(()),
        done => done,
    }
}

/// A name that nobody has used before.
pub(crate) fn random_name() -> Result<String> {
    Ok(crate::id::CommitId::random()?.to_string())
}

/// For steps whose failure changes nothing that matters: what stays is found by the next sweep.
pub(crate) fn forgive<T, E>(_outcome: Result<T, E>) {}
