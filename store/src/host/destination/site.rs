//! One destination: its true path, what is there, and the directories above it, each inspected through an open
//! descriptor.

use std::ffi::OsString;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::format::BUNDLE_MAGIC;
use crate::host::disk;
use crate::host::trust;
use crate::host::way::Way;

/// Bytes of a `format` or of a pool's mark that are read.
const MARK_BYTES: u64 = 4096;
/// Most directories between a place and the root: more than any path has.
const ABOVE_MAX: usize = 1 << 16;

/// A directory by its device and inode number.
pub(super) type Id = (u64, u64);

/// A destination.
pub(crate) struct Site {
    /// The path as the person wrote it.
    pub(crate) given: PathBuf,
    /// The directory that it is in, with symlinks resolved; it may not exist yet.
    pub(crate) parent: PathBuf,
    /// Its name there.
    pub(crate) name: OsString,
    /// The parent and the name joined.
    pub(crate) path: PathBuf,
    /// What is there.
    pub(crate) there: There,
    /// Whether something is mounted there, so that nothing can replace it.
    pub(crate) is_mount: bool,
    /// Whether the path was written as a directory.
    pub(crate) must_be_directory: bool,
    /// The nearest existing directory above it.
    above: PathBuf,
}

/// What is at a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum There {
    Nothing,
    EmptyDirectory,
    Directory,
    /// A file, a symlink or anything else that is no directory.
    Other,
}

/// A directory above a place.
pub(super) struct Above {
    pub(super) id: Id,
    /// Whether it looks like a store or a pool.
    pub(super) kind: Option<&'static str>,
}

impl Site {
    /// Inspects the named destination.
    ///
    /// # Errors
    /// When the path is invalid, or leads through something that is no directory.
    pub(crate) fn of(given: &Path) -> Result<Self> {
        let spelled = given.as_os_str().as_bytes();
        let must_be_directory = spelled.ends_with(b"/") || spelled.ends_with(b"/.");
        let (parent, name, above) = match given.file_name() {
            Some(name) => {
                let parent = given.parent().unwrap_or(Path::new(""));
                let (above, missing) = existing(parent, trust::resolve(parent)?)?;
                (above.join(missing), name.to_owned(), above)
            }
            None => {
                let path = trust::canonical(given)?;
                let parent = path.parent().unwrap_or(Path::new("/")).to_path_buf();
                let name = path.file_name().unwrap_or_default().to_owned();
                (parent.clone(), name, parent)
            }
        };
        let path = if name.is_empty() {
            parent.clone()
        } else {
            parent.join(&name)
        };
        let (there, is_mount) = look(&path)?;
        Ok(Self {
            given: given.to_path_buf(),
            path: if path == parent {
                PathBuf::from("/")
            } else {
                path
            },
            parent,
            name,
            there,
            is_mount,
            must_be_directory,
            above,
        })
    }

    /// Opens the nearest existing directory above it.
    pub(super) fn open_above(&self) -> Result<OwnedFd> {
        open_dir(&self.above)
    }

    /// Whether nothing can be renamed over the destination, because it is a mount or the caller's working directory.
    ///
    /// # Errors
    /// When it cannot be inspected.
    pub(crate) fn is_fixed(&self) -> Result<bool> {
        let own = id_of(&open_dir(&self.path)?)?;
        let working = open_dir(Path::new(".")).and_then(|dir| id_of(&dir));
        Ok(self.is_mount || working.is_ok_and(|working| working == own))
    }

    /// Refuses what no tree or file can replace, whatever the options.
    ///
    /// # Errors
    /// Conflict, for a file where a directory is or was requested.
    pub(crate) fn check_kind(&self, is_tree: bool) -> Result<()> {
        if is_tree {
            return Ok(());
        }
        let shown = self.given.display();
        match self.there {
            There::Directory => Err(Error::conflict(format!(
                "{shown}: is a directory that is not empty, and what is wanted is a file"
            ))
            .hint("name a path in it; a file never takes the place of a directory")),
            There::Nothing if self.must_be_directory => Err(Error::conflict(format!(
                "{shown}: is spelled as a directory, and what is wanted is a file"
            ))
            .hint("leave the slash out, or name a path in that directory")),
            _ => Ok(()),
        }
    }
}

/// Checks that what exists of `path` is a directory in which the missing names can be made.
fn existing(path: &Path, way: Way) -> Result<(PathBuf, PathBuf)> {
    let Way { at, found, missing } = way;
    // After a missing name, `..` leads somewhere else once that name is made.
    if missing
        .components()
        .any(|name| name == Component::ParentDir)
    {
        return Err(
            Error::not_found(format!("{}: there is no such directory", path.display()))
                .hint("name a destination without `..` behind what is not there"),
        );
    }
    let stat = fs::fstat(at).map_err(|errno| disk::failed("look at", path, errno))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Err(Error::conflict(format!(
            "{}: is no directory, so that nothing can be made in it",
            found.display()
        ))
        .hint("name another destination"));
    }
    Ok((found, missing))
}

/// Resolves a directory that may not exist: its true path, the directories from its nearest existing one up to the
/// root, and whether it exists itself.
pub(super) fn resolved(path: &Path) -> Result<(PathBuf, Vec<Id>, bool)> {
    let absolute =
        std::path::absolute(path).map_err(|source| Error::io("look at", path, source))?;
    let (above, missing) = existing(&absolute, trust::resolve_any(&absolute)?)?;
    let chain = ids(open_dir(&above)?)?;
    let exists = missing.as_os_str().is_empty();
    Ok((above.join(missing), chain, exists))
}

/// What is at `path`, without following it, and whether it is a mount.
fn look(path: &Path) -> Result<(There, bool)> {
    let wanted = StatxFlags::TYPE;
    let found = match fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, wanted) {
        Err(Errno::NOENT) => return Ok((There::Nothing, false)),
        Err(errno) => return Err(disk::failed("look at", path, errno)),
        Ok(found) => found,
    };
    let is_mount = is_mount_root(&found);
    if FileType::from_raw_mode(found.stx_mode.into()) != FileType::Directory {
        return Ok((There::Other, is_mount));
    }
    // Kernels before 5.8 do not report mounts, and a subvolume is as good as one.
    let device = |found: &fs::Statx| (found.stx_dev_major, found.stx_dev_minor);
    let above = path.parent().unwrap_or(path);
    let above = fs::statx(CWD, above, AtFlags::empty(), wanted);
    let is_mount = is_mount || above.is_ok_and(|above| device(&above) != device(&found));
    let mut entries = std::fs::read_dir(path).map_err(|source| Error::io("list", path, source))?;
    let there = match entries.next() {
        None => There::EmptyDirectory,
        Some(_) => There::Directory,
    };
    Ok((there, is_mount))
}

/// Whether something is mounted here, as far as the kernel reports it.
pub(super) fn is_mount_root(found: &fs::Statx) -> bool {
    found
        .stx_attributes_mask
        .contains(StatxAttributes::MOUNT_ROOT)
        && found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
}

/// Opens a directory only for inspection, following symlinks: what a link leads to is as precious as itself.
pub(super) fn open_dir(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fs::open(path, flags, Mode::empty())
        .map_err(|errno| disk::failed("open directory", path, errno))
}

pub(super) fn id_of(dir: &OwnedFd) -> Result<Id> {
    let stat = fs::fstat(dir)
        .map(crate::host::walk::Stat::from)
        .map_err(|errno| disk::failed("look at", Path::new("directory"), errno))?;
    Ok((stat.dev, stat.ino))
}

fn ids(dir: OwnedFd) -> Result<Vec<Id>> {
    Ok(ascend(dir)?.into_iter().map(|above| above.id).collect())
}

/// The directory and all above it up to the root, as far as they can be searched.
pub(super) fn ascend(dir: OwnedFd) -> Result<Vec<Above>> {
    let mut above = Vec::new();
    let mut dir = dir;
    while above.len() < ABOVE_MAX {
        let id = id_of(&dir)?;
        if above.last().is_some_and(|last: &Above| last.id == id) {
            break;
        }
        above.push(Above {
            id,
            kind: kind_of(&dir),
        });
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match fs::openat(&dir, "..", flags, Mode::empty()) {
            Ok(next) => dir = next,
            Err(_) => break,
        }
    }
    Ok(above)
}

/// Whether a directory looks like a store or a pool.
pub(super) fn kind_of(dir: &impl AsFd) -> Option<&'static str> {
    let has_dir = |name: &str| disk::open_dir(dir, name.as_bytes()).is_ok();
    // A store without its `format`, or with an unreadable one, is still a store.
    if begins_with(dir, b"format", b"store-format")
        || ["log", "segments", "packs"].into_iter().all(has_dir)
    {
        return Some("store");
    }
    (begins_with(dir, b"pool", b"\"version\"") && has_dir("files")).then_some("pool")
}

/// Whether `path` itself is a store in one file.
pub(super) fn is_bundle(path: &Path) -> bool {
    let Ok(dir) = disk::open_path(path.parent().unwrap_or(Path::new("/"))) else {
        return false;
    };
    let name = path.file_name().unwrap_or_default().as_bytes();
    let mut magic = [0; BUNDLE_MAGIC.len()];
    disk::open_file(&dir, name)
        .and_then(|mut file| file.read_exact(&mut magic).map_err(|_| Errno::NODATA))
        .is_ok_and(|()| magic == BUNDLE_MAGIC)
}

/// Whether the file `name` has `text` near its beginning.
fn begins_with(dir: &impl AsFd, name: &[u8], text: &[u8]) -> bool {
    let Ok(file) = disk::open_file(dir, name) else {
        return false;
    };
    let is_file = file.metadata().is_ok_and(|found| found.is_file());
    let mut bytes = Vec::new();
    is_file
        && file.take(MARK_BYTES).read_to_end(&mut bytes).is_ok()
        && bytes.windows(text.len()).any(|window| window == text)
}
