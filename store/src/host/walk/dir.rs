//! Open directories, with paths for messages that cost nothing until they are needed.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{self, AtFlags, Mode, OFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use super::Stat;
use crate::error::{Error, Result};
use crate::host::disk;

/// An open directory. Files that are opened through it are in it, wherever it was moved meanwhile.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    trail: Arc<Trail>,
    /// Whether reading may leave the time of last access unchanged, which only owners may request.
    keeps_atime: AtomicBool,
}

/// The names that led to a directory.
#[derive(Debug)]
struct Trail {
    parent: Option<Arc<Trail>>,
    name: Vec<u8>,
}

impl Dir {
    /// Opens the directory at `path`; only its last component may be a symlink.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = fs::open(path, flags, Mode::empty())
            .map_err(|errno| failed("open directory", path, errno))?;
        let trail = Trail {
            parent: None,
            name: path.as_os_str().as_bytes().to_vec(),
        };
        Ok(Self {
            fd,
            trail: Arc::new(trail),
            keeps_atime: AtomicBool::new(true),
        })
    }

    /// The path by which the walk reached it, for messages.
    pub fn path(&self) -> PathBuf {
        self.trail.path()
    }

    /// Whether another file system is mounted here, with nothing in it. Not known before Linux 5.8.
    pub(crate) fn is_empty_mount(&self) -> bool {
        let found = fs::statx(&self.fd, c"", AtFlags::EMPTY_PATH, StatxFlags::empty());
        let is_mount =
            found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT));
        is_mount && disk::is_empty(&self.fd)
    }

    /// The path of `name` in it, for messages.
    pub fn path_of(&self, name: &[u8]) -> PathBuf {
        self.path().join(OsStr::from_bytes(name))
    }

    /// Opens the file `name` for reading, never through a symlink, and without waiting for a named pipe. It may be
    /// another file than the listed one: compare [`Stat::of_file`].
    ///
    /// # Errors
    /// When it is missing, is a symlink by now, or may not be read.
    pub fn open_file(&self, name: &[u8]) -> Result<File> {
        let opened = self.open_at(name, OFlags::NONBLOCK | OFlags::NOCTTY);
        opened
            .map(File::from)
            .map_err(|errno| failed("open", &self.path_of(name), errno))
    }

    /// Returns the attributes of `name`, without following it.
    ///
    /// # Errors
    /// When it is missing, or the directory may not be searched.
    pub fn stat(&self, name: &[u8]) -> Result<Stat> {
        let found = fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW);
        found
            .map(Stat::from)
            .map_err(|errno| failed("look at", &self.path_of(name), errno))
    }

    pub(super) fn own_stat(&self) -> Result<Stat> {
        let found = fs::fstat(&self.fd);
        found
            .map(Stat::from)
            .map_err(|errno| failed("look at directory", &self.path(), errno))
    }

    pub(super) fn open_dir(&self, name: &[u8]) -> Result<Self> {
        let opened = self.open_at(name, OFlags::DIRECTORY);
        let fd = opened.map_err(|errno| failed("open directory", &self.path_of(name), errno))?;
        let trail = Trail {
            parent: Some(Arc::clone(&self.trail)),
            name: name.to_vec(),
        };
        Ok(self.beside(fd, Arc::new(trail)))
    }

    /// Opens the current parent of this directory, under the path that the walk knew.
    pub(super) fn open_parent(&self) -> Result<Self> {
        let parent = self.trail.parent.as_ref().unwrap_or(&self.trail);
        let opened = self.open_at(b"..", OFlags::DIRECTORY);
        let fd = opened.map_err(|errno| failed("open directory", &parent.path(), errno))?;
        Ok(self.beside(fd, Arc::clone(parent)))
    }

    pub(super) fn read_link(&self, name: &[u8]) -> Result<Vec<u8>> {
        let target = fs::readlinkat(&self.fd, name, Vec::new());
        target
            .map(std::ffi::CString::into_bytes)
            .map_err(|errno| failed("read link", &self.path_of(name), errno))
    }

    fn beside(&self, fd: OwnedFd, trail: Arc<Trail>) -> Self {
        let keeps_atime = AtomicBool::new(self.keeps_atime.load(Ordering::Relaxed));
        Self {
            fd,
            trail,
            keeps_atime,
        }
    }

    fn open_at(&self, name: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let flags = flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if self.keeps_atime.load(Ordering::Relaxed) {
            match fs::openat(&self.fd, name, flags | OFlags::NOATIME, Mode::empty()) {
                Err(Errno::PERM) => self.keeps_atime.store(false, Ordering::Relaxed),
                opened => return opened,
            }
        }
        fs::openat(&self.fd, name, flags, Mode::empty())
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Trail {
    fn path(&self) -> PathBuf {
        let mut names = vec![&self.name];
        let mut above = &self.parent;
        while let Some(trail) = above {
            names.push(&trail.name);
            above = &trail.parent;
        }
        names
            .iter()
            .rev()
            .map(|name| OsStr::from_bytes(name))
            .collect()
    }
}

impl Drop for Trail {
    /// Drops the names in a loop: a recursion as deep as the tree would overflow the stack.
    fn drop(&mut self) {
        let mut above = self.parent.take();
        while let Some(mut trail) = above.and_then(Arc::into_inner) {
            above = trail.parent.take();
        }
    }
}

/// The error of a system call about `path`. A lack of descriptors or memory says nothing about the path itself.
pub(super) fn failed(doing: &str, path: &Path, errno: Errno) -> Error {
    if let Errno::MFILE | Errno::NFILE | Errno::NOMEM = errno {
        let error = Error::unavailable(format!("{doing} {}", path.display()));
        return error
            .because(std::io::Error::from(errno))
            .hint("raise the limits on open files (`ulimit -n`) and memory");
    }
    let error = Error::io(doing, path, errno.into());
    match errno {
        Errno::ACCESS | Errno::PERM => {
            error.hint("give yourself the right to read it, or exclude it")
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_trail_is_dropped_without_recursion() {
        let mut trail = Arc::new(Trail {
            parent: None,
            name: b"/root".to_vec(),
        });
        for _ in 0..300_000 {
            trail = Arc::new(Trail {
                parent: Some(trail),
                name: b"d".to_vec(),
            });
        }
        assert_eq!(trail.path().as_os_str().len(), 5 + 600_000);
        drop(trail);
    }
    #[test]
    fn a_want_of_descriptors_is_not_laid_to_the_path() {
        let error = failed("open", Path::new("/a"), Errno::MFILE);
        assert_eq!(
            (error.kind(), error.to_string()),
            (crate::error::ErrorKind::Unavailable, "open /a".to_owned())
        );
        assert_eq!(
            failed("open", Path::new("/a"), Errno::ACCESS).kind(),
            crate::error::ErrorKind::Denied
        );
    }
}
