//! Ways: walks along a path, name by name from open directories, that judge each symlink before they follow it.
//!
//! A check of a path and a later use of it may be led to different places by whoever can exchange a directory in it. So
//! a path that a person wrote is resolved once, judging the very links that are followed, and what results has no
//! symlinks. From then on it is opened only with [`open_fixed`], which follows none.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{self, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::error::{Error, Result};

/// Most symlinks in a path, as for the system.
const LINKS_MAX: u32 = 40;
/// Opens for inspection and for lookups; a symlink is opened itself.
const ON_THE_WAY: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The end of a walk.
pub(crate) struct Way {
    /// What exists of the path, open for lookups.
    pub(crate) at: OwnedFd,
    /// Its path without symlinks.
    pub(crate) found: PathBuf,
    /// The names behind it that do not exist.
    pub(crate) missing: PathBuf,
}

/// A symlink on a way, and the directory that it is in.
pub(super) struct Link<'l> {
    pub(super) path: &'l Path,
    pub(super) stat: &'l Stat,
    pub(super) dir: &'l Stat,
}

/// Why a walk did not end.
pub(super) enum Astray {
    Failed(Errno),
    /// A symlink was refused.
    Refused(Error),
}

impl From<Errno> for Astray {
    fn from(errno: Errno) -> Self {
        Self::Failed(errno)
    }
}

impl Astray {
    /// The error of what was done at `path`.
    pub(super) fn at(self, doing: &str, path: &Path) -> Error {
        match self {
            Self::Refused(error) => error,
            Self::Failed(errno) => Error::io(doing, path, errno.into()),
        }
    }
}

/// Decides whether a symlink may be followed.
type Judge<'j> = dyn Fn(&Link<'_>) -> Result<()> + 'j;

/// A walk that is under way.
struct Walk<'j> {
    judge: &'j Judge<'j>,
    at: OwnedFd,
    found: PathBuf,
    /// The remaining names, the next one last.
    rest: Vec<OsString>,
    links: u32,
}

impl Way {
    /// Walks along `path` to its end, or to its first name that does not exist. With `made`, makes missing directories
    /// with that mode.
    pub(super) fn walk(
        path: &Path,
        made: Option<Mode>,
        judge: &Judge<'_>,
    ) -> std::result::Result<Self, Astray> {
        let (start, found) = match path.is_absolute() {
            true => ("/", PathBuf::from("/")),
            false => {
                let found = std::path::absolute(".");
                let errno = |error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
                (".", found.map_err(errno)?)
            }
        };
        let mut walk = Walk {
            judge,
            at: fs::open(start, ON_THE_WAY | OFlags::DIRECTORY, Mode::empty())?,
            found,
            rest: Vec::new(),
            links: 0,
        };
        walk.add(path);
        let mut missing = PathBuf::new();
        while let Some(name) = walk.rest.pop() {
            match walk.step(&name, made) {
                Err(Astray::Failed(Errno::NOENT)) if made.is_none() => {
                    missing.push(&name);
                    missing.extend(walk.rest.drain(..).rev());
                }
                stepped => stepped?,
            }
        }
        let Walk { at, found, .. } = walk;
        Ok(Self { at, found, missing })
    }
}

impl Walk<'_> {
    /// Adds names to walk next.
    fn add(&mut self, path: &Path) {
        let names = path.components().rev().filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            _ => None,
        });
        self.rest.extend(names);
    }

    fn step(&mut self, name: &OsStr, made: Option<Mode>) -> std::result::Result<(), Astray> {
        let next = match (fs::openat(&self.at, name, ON_THE_WAY, Mode::empty()), made) {
            (Err(Errno::NOENT), Some(mode)) => make_one(&self.at, name, mode)?,
            (opened, _) => opened?,
        };
        let stat = fs::fstat(&next)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => self.follow(&next, &stat, name)?,
            FileType::Directory if name == ".." => {
                self.found.pop();
                self.at = next;
            }
            FileType::Directory => {
                self.found.push(name);
                self.at = next;
            }
            // A file can only be the end.
            _ if made.is_none() && self.rest.is_empty() => {
                self.found.push(name);
                self.at = next;
            }
            _ => return Err(Errno::NOTDIR.into()),
        }
        Ok(())
    }

    /// Continues at the target of a symlink, which is the link that is judged, whatever has its name by now.
    fn follow(
        &mut self,
        link: &OwnedFd,
        stat: &Stat,
        name: &OsStr,
    ) -> std::result::Result<(), Astray> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Errno::LOOP.into());
        }
        let dir = &fs::fstat(&self.at)?;
        let path = &self.found.join(name);
        (self.judge)(&Link { path, stat, dir }).map_err(Astray::Refused)?;
        let target = fs::readlinkat(link, "", Vec::new())?;
        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
        if target.is_absolute() {
            self.at = fs::open("/", ON_THE_WAY | OFlags::DIRECTORY, Mode::empty())?;
            self.found = PathBuf::from("/");
        }
        self.add(&target);
        Ok(())
    }
}

/// Makes the directory `name` in `at` unless somebody else does meanwhile, and opens what is there.
fn make_one(at: &OwnedFd, name: &OsStr, mode: Mode) -> rustix::io::Result<OwnedFd> {
    match fs::mkdirat(at, name, mode) {
        Ok(()) | Err(Errno::EXIST) => fs::openat(at, name, ON_THE_WAY, Mode::empty()),
        Err(errno) => Err(errno),
    }
}

/// Opens a path that has no symlinks, and fails with `LOOP` or `NOTDIR` if there is one meanwhile.
pub(crate) fn open_fixed(path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC;
    match fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // The kernel lacks this call, or does not allow it.
        Err(Errno::NOSYS | Errno::PERM) => open_by_names(path, flags),
        opened => opened,
    }
}

fn open_by_names(path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let start = if path.is_absolute() { "/" } else { "." };
    let mut at = fs::open(start, ON_THE_WAY | OFlags::DIRECTORY, Mode::empty())?;
    let names = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name),
        Component::ParentDir => Some(OsStr::new("..")),
        _ => None,
    });
    for name in names {
        at = fs::openat(&at, name, ON_THE_WAY | OFlags::DIRECTORY, Mode::empty())?;
    }
    fs::openat(&at, ".", flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_fixed_path_is_opened_only_while_it_has_no_symlink() {
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path().canonicalize().unwrap();
        std::fs::create_dir_all(top.join("a/b")).unwrap();
        let path = top.join("a/b");
        let ways = [open_fixed, open_by_names];
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        assert!(ways.iter().all(|open| open(&path, flags).is_ok()));
        std::fs::rename(top.join("a"), top.join("moved")).unwrap();
        symlink("moved", top.join("a")).unwrap();
        for open in ways {
            let errno = open(&path, flags).unwrap_err();
            assert!(matches!(errno, Errno::LOOP | Errno::NOTDIR), "{errno}");
        }
    }
}
