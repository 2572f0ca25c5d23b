//! The pool: whole files of this host by their content, the source of hard links.
//!
//! ```text
//! files/<2 hex>/<key>   whole files, 0444 or 0555, one mtime of 1980; never written again
//! tmp/<owner>/          files that a process is building; verified, then renamed to `files`
//! owners/<owner>        who a process is; claims/<key>: a hard link to it, "I am building this"
//! damaged/              files that somebody wrote through a hard link, set aside
//! trees/                what was materialized where; made/: the records; rooms/: where a tree is being built
//! saved/                what was saved of these trees, by the store that it was saved to
//! chunkers/             how the stores of these files cut
//! ```
//!
//! No lock is needed for correctness: a name in `files` appears by rename after its bytes were verified, a link keeps
//! its inode whatever happens to the name, and a claim only avoids doing work twice.

mod birth;
mod chunkers;
mod claim;
mod draft;
mod evict;
mod held;
mod inodes;
mod key;
mod known;
pub(crate) mod list;
mod made;
mod owner;
pub(crate) mod place;
mod proof;
mod remove;
mod room;
mod steady;
mod sweep;
mod trees;
mod verify;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustix::fs::{self, AtFlags, FileType, Mode, RenameFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

pub(crate) use self::birth::{Inode, holds_note_at, note_at, settle_note};
pub use self::birth::{holds_note, note_now};
pub(crate) use self::claim::{Claim, Claimed};
pub(crate) use self::draft::Draft;
pub use self::evict::{EvictReport, PoolUsage};
pub(crate) use self::inodes::{Inodes, Made};
pub use self::key::PoolKey;
pub(crate) use self::known::Known;
pub(crate) use self::owner::{Identity, Life, Watch};
pub(crate) use self::place::Placed;
pub(crate) use self::proof::{is_in_tree, is_proof, proof_in, stamped, stamped_open};
pub use self::remove::RemoveReport;
pub(crate) use self::room::{Room, is_room};
pub use self::steady::Steady;
pub use self::trees::MadeTree;
pub(crate) use self::trees::{Mark, parent};
pub(crate) use self::verify::content_of;
pub use self::verify::{Damage, PoolVerifyReport};

use self::owner::Owner;
use self::verify::Verifying;
use crate::error::{Error, Result};
use crate::format::{Content, Time};
use crate::host::walk::Stat;
use crate::host::{disk, trust};
use crate::remedy::Remedy;

/// The modification time of every pool file: 1980-01-01, so that no tool takes it for a recent change.
pub const POOL_TIME: Time = Time {
    secs: 315_532_800,
    nanos: 0,
};
/// The modification time of a pool file that was published before it was on disk. Trees never link it, and every copy
/// of it is verified.
pub const COPIED_TIME: Time = Time {
    secs: POOL_TIME.secs + 1,
    nanos: 0,
};
/// The file that marks a directory as a pool, and has its version.
const MARK: &str = "pool";
/// The content of this file.
const MARK_TEXT: &[u8] = b"{\"version\":1}\n";
/// Directories of a pool, made when it is opened.
const DIRECTORIES: [&str; 9] = [
    "files", "tmp", "owners", "claims", "damaged", "trees", "rooms", "saved", "chunkers",
];

/// With at least this many open files allowed, the directories of files stay open.
const KEPT_FROM_OPEN_FILES: u64 = 1024;

/// The limits of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolLimits {
    /// Most bytes of its files; none: limited only by the disk.
    pub bytes_max: Option<u64>,
    /// Bytes of the file system that are left free for others.
    pub free_bytes_min: u64,
}

/// The state of a pool file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// It exists and looks as it was left.
    Intact(Stat),
    /// It exists, and may be copied but not linked.
    Copied,
    /// It does not exist, or may be replaced: it belongs to somebody else, or a power cut took its bytes.
    Missing,
    /// Somebody wrote to it, or changed its attributes.
    Changed(Stat),
}

/// An open pool.
#[derive(Debug)]
pub struct Pool {
    path: PathBuf,
    fd: OwnedFd,
    claims: OwnedFd,
    limits: PoolLimits,
    shards: Vec<OnceLock<Arc<OwnedFd>>>,
    /// Whether the process may have enough open files to keep all shards open.
    keeps_shards: bool,
    owner: Mutex<Option<Arc<Owner>>>,
    /// Set if the bytes of files are checked before use.
    verifying: OnceLock<Verifying>,
    /// Bytes of all files: counted once, then updated with what this process adds.
    counted_bytes: Mutex<Option<u64>>,
}

impl Pool {
    /// Opens the pool in the directory `path`; makes it if it is missing.
    ///
    /// # Errors
    /// Conflict, when the directory is not empty and is no pool; unsupported, when its version differs; denied, when it
    /// belongs to another user, or others may write to it.
    pub fn open(path: &Path, limits: PoolLimits) -> Result<Self> {
        let (fd, path) = trust::open_own(path)?;
        check_mark(&fd, &path)?;
        for name in DIRECTORIES {
            match fs::mkdirat(&fd, name, Mode::from_raw_mode(0o700)) {
                Ok(()) | Err(Errno::EXIST) => {}
                // A read-only pool is good enough for looking at it.
                Err(Errno::ROFS | Errno::ACCESS)
                    if disk::open_dir(&fd, name.as_bytes()).is_ok() => {}
                Err(errno) => return Err(disk::failed("make a pool at", &path, errno)),
            }
            // Private files must not become readable through the pool.
            close(&own_directory(&fd, name, &path)?);
        }
        let claims = own_directory(&fd, "claims", &path)?;
        Ok(Self {
            path,
            fd,
            claims,
            limits,
            shards: (0..256).map(|_| OnceLock::new()).collect(),
            keeps_shards: getrlimit(Resource::Nofile)
                .current
                .is_none_or(|most| most >= KEPT_FROM_OPEN_FILES),
            verifying: OnceLock::new(),
            owner: Mutex::default(),
            counted_bytes: Mutex::default(),
        })
    }

    /// Removes the pool if it is empty, as after testing a place for it.
    pub fn remove_unused(self) {
        let Self {
            path, fd, owner, ..
        } = self;
        drop(owner);
        // A directory that is not empty is in use. The next process that opens the pool makes missing ones again.
        let is_empty = DIRECTORIES
            .iter()
            .all(|name| fs::unlinkat(&fd, *name, AtFlags::REMOVEDIR).is_ok());
        if is_empty {
            disk::forgive(fs::unlinkat(&fd, MARK, AtFlags::empty()));
            disk::forgive(fs::rmdir(&path));
        }
    }

    /// Its directory, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// The limits of the pool.
    pub fn limits(&self) -> PoolLimits {
        self.limits
    }

    /// This process as an owner; the first call makes it one.
    pub(crate) fn owner(&self) -> Result<Arc<Owner>> {
        let mut owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner);
        match owner.as_ref() {
            Some(owner) => Ok(Arc::clone(owner)),
            None => Ok(Arc::clone(
                owner.insert(Arc::new(Owner::new(&self.fd, &self.path)?)),
            )),
        }
    }

    /// This process as a new owner, after others took `lost` for dead.
    fn owner_after(&self, lost: &Arc<Owner>) -> Result<Arc<Owner>> {
        let mut owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner);
        if owner.as_ref().is_some_and(|owner| Arc::ptr_eq(owner, lost)) {
            *owner = None;
        }
        drop(owner);
        self.owner()
    }

    /// Whether the pool can serve the file: for linking, or with `is_copied` for copying.
    pub(crate) fn has(&self, key: &PoolKey, is_copied: bool) -> Result<bool> {
        Ok(match self.look(key)? {
            Look::Intact(_) => true,
            Look::Copied => is_copied,
            Look::Missing | Look::Changed(_) => false,
        })
    }

    /// Determines the state of a pool file.
    pub(crate) fn look(&self, key: &PoolKey) -> Result<Look> {
        let Some(shard) = self.shard(key.shard())? else {
            return Ok(Look::Missing);
        };
        match fs::statat(&shard, key.name(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => self.verified(key, look_of(key, stat.into())),
            Err(Errno::NOENT) => Ok(Look::Missing),
            Err(errno) => Err(disk::failed("look at pool file", &self.path_of(key), errno)),
        }
    }

    /// Opens a pool file for reading, if it is intact or may be copied.
    pub(crate) fn open_file(&self, key: &PoolKey) -> Result<Option<File>> {
        let Some(shard) = self.shard(key.shard())? else {
            return Ok(None);
        };
        if self.is_verifying() && !matches!(self.look(key)?, Look::Intact(_) | Look::Copied) {
            return Ok(None);
        }
        let file = match disk::open_file(&shard, key.name().as_bytes()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(disk::failed("open pool file", &self.path_of(key), errno)),
        };
        let path = self.path_of(key);
        let stat = Stat::of_file(&file, &path)?;
        let is_usable = matches!(look_of(key, stat), Look::Intact(_) | Look::Copied);
        Ok(is_usable.then_some(file))
    }

    /// Opens the file with these bytes, executable or not, if it is intact. The bytes were verified when it was built.
    ///
    /// # Errors
    /// When the pool cannot be read.
    pub fn open_content(&self, content: &Content) -> Result<Option<File>> {
        for executable in [false, true] {
            let key = PoolKey {
                content: *content,
                executable,
            };
            let Some(file) = self.open_file(&key)? else {
                continue;
            };
            if is_intact(&key, &Stat::of_file(&file, &self.path_of(&key))?) {
                return Ok(Some(file));
            }
        }
        Ok(None)
    }

    /// Moves a changed pool file away. Returns its new path and the attributes that it had; none, if it is missing or
    /// intact by now.
    pub(crate) fn set_aside(&self, key: &PoolKey) -> Result<Option<(PathBuf, Stat)>> {
        let Look::Changed(stat) = self.look(key)? else {
            return Ok(None);
        };
        let Some(shard) = self.shard(key.shard())? else {
            return Ok(None);
        };
        let aside = format!("damaged/{}.{}", key.name(), disk::random_name()?);
        match fs::renameat(&shard, key.name(), &self.fd, &aside) {
            Ok(()) => Ok(Some((self.path.join(aside), stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(disk::failed(
                "set aside pool file",
                &self.path_of(key),
                errno,
            )),
        }
    }

    /// The path of a pool file, for messages.
    pub(crate) fn path_of(&self, key: &PoolKey) -> PathBuf {
        self.path
            .join("files")
            .join(format!("{:02x}", key.shard()))
            .join(key.name())
    }

    /// Opens one of the directories of files; none, if it does not exist yet.
    fn shard(&self, number: u8) -> Result<Option<Arc<OwnedFd>>> {
        let Some(slot) = self.shards.get(usize::from(number)) else {
            return Ok(None);
        };
        if let Some(open) = slot.get() {
            return Ok(Some(Arc::clone(open)));
        }
        let opened = trust::open_own_in(&self.fd, &format!("files/{number:02x}"), &self.path)?;
        let opened = opened.map(Arc::new);
        if !self.keeps_shards {
            return Ok(opened);
        }
        Ok(opened.map(|opened| Arc::clone(slot.get_or_init(|| opened))))
    }

    /// Opens one of the directories of files, and makes it if it is missing.
    fn shard_made(&self, number: u8) -> Result<Arc<OwnedFd>> {
        if self.shard(number)?.is_none() {
            let name = format!("files/{number:02x}");
            match fs::mkdirat(&self.fd, name, Mode::from_raw_mode(0o700)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => {
                    return Err(disk::failed(
                        "make a directory in the pool",
                        &self.path,
                        errno,
                    ));
                }
            }
        }
        self.shard(number)?.ok_or_else(|| {
            Error::conflict(format!("pool {}: is being removed", self.path.display()))
                .hint("run the command again")
        })
    }

    /// Calls `each` with the keys and attributes of all pool files, by directory. Other names are skipped.
    fn each_file(
        &self,
        each: &mut dyn FnMut(PoolKey, fs::Stat, &OwnedFd) -> Result<()>,
    ) -> Result<()> {
        for number in 0..=u8::MAX {
            let Some(shard) = self.shard(number)? else {
                continue;
            };
            for name in disk::names(&shard, &self.path)? {
                let key = std::str::from_utf8(&name)
                    .ok()
                    .and_then(|name| name.parse().ok());
                let (Some(key), Ok(stat)) =
                    (key, fs::statat(&shard, &*name, AtFlags::SYMLINK_NOFOLLOW))
                else {
                    continue;
                };
                // Files of somebody else do not belong to the pool.
                if stat.st_uid == trust::user() {
                    each(key, stat, &shard)?;
                }
            }
        }
        Ok(())
    }
}

/// Whether a file looks as the pool left the file of this key, and may be linked.
pub(crate) fn is_intact(key: &PoolKey, stat: &Stat) -> bool {
    matches!(look_of(key, *stat), Look::Intact(_))
}

fn look_of(key: &PoolKey, stat: Stat) -> Look {
    if stat.uid != trust::user() {
        return Look::Missing;
    }
    let is_like = stat.size == key.content.size
        && stat.mode & 0o7777 == key.mode()
        && FileType::from_raw_mode(stat.mode) == FileType::RegularFile;
    match stat.mtime {
        POOL_TIME if is_like => Look::Intact(stat),
        COPIED_TIME if is_like && key.is_verified_when_copied() => Look::Copied,
        // No tree shares the file, so nobody wrote to it: a power cut took its bytes.
        COPIED_TIME if stat.nlink == 1 => Look::Missing,
        _ => Look::Changed(stat),
    }
}

/// Opens a directory of a pool, which must be as trusted as the pool itself.
fn own_directory(pool: &OwnedFd, name: &str, path: &Path) -> Result<OwnedFd> {
    trust::open_own_in(pool, name, path)?.ok_or_else(|| {
        Error::conflict(format!("pool {}: is being removed", path.display()))
            .hint("run the command again")
    })
}

/// Denies others access to a directory that an earlier version made readable for all.
fn close(dir: &OwnedFd) {
    let mode = fs::fstat(dir).map_or(0, |stat| stat.st_mode);
    if mode & 0o077 != 0 {
        disk::forgive(fs::fchmod(dir, Mode::from_raw_mode(mode & 0o700)));
    }
}

fn check_mark(fd: &OwnedFd, path: &Path) -> Result<()> {
    match disk::open_file(fd, MARK.as_bytes()) {
        Ok(file) => {
            trust::check_own_file(&file, &path.join(MARK))?;
            let text = std::io::read_to_string(std::io::Read::take(file, 100))
                .map_err(|source| Error::io("read", path.join(MARK), source))?;
            if text.as_bytes() == MARK_TEXT {
                return Ok(());
            }
            Err(Error::unsupported(format!(
                "{}: expected the mark of a pool of version 1, found {:?}",
                path.join(MARK).display(),
                text.trim_end_matches(['\0', '\n'])
            ))
            .hint("update this program, or name another pool"))
        }
        Err(Errno::NOENT) => make_mark(fd, path),
        Err(errno) => Err(disk::failed("open", &path.join(MARK), errno)),
    }
}

fn make_mark(fd: &OwnedFd, path: &Path) -> Result<()> {
    let names = disk::names(fd, path)?;
    // Testing a place may have removed the mark while another process began to use the pool.
    let is_part = |name: &Vec<u8>| DIRECTORIES.iter().any(|known| name == known.as_bytes());
    let has_lost_its_mark = names.iter().any(|name| name == b"claims");
    let is_ours = |name: &Vec<u8>| {
        name.starts_with(b".mark-") || name == MARK.as_bytes() || has_lost_its_mark && is_part(name)
    };
    if !names.iter().all(is_ours) && disk::open_file(fd, MARK.as_bytes()).is_err() {
        return Err(
            Error::conflict(format!("{}: is not empty and is no pool", path.display()))
                .hint(Remedy::EmptyPool),
        );
    }
    let temporary = format!(".mark-{}", disk::random_name()?);
    // Synced, since a pool with an empty mark after a power cut would not be recognized.
    let made = disk::write_new(fd, temporary.as_bytes(), MARK_TEXT)
        .and_then(|()| fs::fdatasync(disk::open_file(fd, temporary.as_bytes())?))
        .and_then(
            |()| match fs::renameat_with(fd, &temporary, fd, MARK, RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => fs::unlinkat(fd, &temporary, AtFlags::empty()),
                done => done,
            },
        );
    made.map_err(|errno| disk::failed("make a pool at", path, errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_that_lost_its_mark_is_one_again_and_nothing_else_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pool");
        let open = || Pool::open(&path, PoolLimits::default());
        open().unwrap();
        std::fs::remove_file(path.join(MARK)).unwrap();
        open().unwrap();
        assert!(path.join(MARK).is_file());
        std::fs::remove_file(path.join(MARK)).unwrap();
        std::fs::write(path.join("thesis"), "years").unwrap();
        assert_eq!(
            open().unwrap_err().kind(),
            crate::error::ErrorKind::Conflict
        );
        std::fs::remove_file(path.join("thesis")).unwrap();
        open().unwrap().remove_unused();
        assert!(!path.exists());
        std::fs::create_dir_all(path.join("files")).unwrap();
        assert_eq!(
            open().unwrap_err().kind(),
            crate::error::ErrorKind::Conflict
        );
    }

    #[test]
    fn a_pool_that_is_used_is_not_removed_after_a_trial() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pool");
        let pool = Pool::open(&path, PoolLimits::default()).unwrap();
        std::fs::write(path.join("trees/mark"), "{}").unwrap();
        pool.remove_unused();
        assert!(path.join("trees/mark").is_file() && path.join(MARK).is_file());
        Pool::open(&path, PoolLimits::default()).unwrap();
    }
}
