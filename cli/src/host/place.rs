//! Which directory a path led to when something was noted of it: by the time that it is saved, whoever may write to the
//! directory above can have put another one in its place, or a link to one.

use std::fs::{File, Metadata, symlink_metadata};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, OFlags, StatxAttributes, StatxFlags, statx};
use serde::{Deserialize, Serialize};
use store::{Error, Result};

/// Write permission for others than the owner. An access list shows in it, too.
const OTHERS: u32 = 0o022;
/// In such a directory, nobody may rename what belongs to others.
const STICKY: u32 = 0o1000;
/// The clock of a file system may be behind by this much.
const BEHIND: Duration = Duration::from_secs(2);

/// A directory, by its inode and its time of birth, since numbers are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    /// 0 if nothing was there.
    inode: u64,
    /// The time of birth since 1970; 0 if the file system has none.
    born: Duration,
    /// When this was noted, since 1970.
    noted: Duration,
    /// Whose directory it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<u32>,
    /// The time of the note that the directory holds, in nanoseconds since 1970. One in an older copy of its file system has
    /// an earlier one, or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    held: Option<i64>,
    /// Inode and time of birth of the directory above. Another volume has another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    above: Option<(u64, Duration)>,
}

/// A directory that is held open, whatever comes to its path: no other one gets its inode meanwhile.
#[derive(Debug)]
pub(crate) struct Held(File);

impl Held {
    /// Holds the directory that `path` leads to.
    ///
    /// # Errors
    /// As from a file system.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let mut options = File::options();
        options.read(true).custom_flags(flags.bits().cast_signed());
        let opened = options.open(path);
        opened
            .map(Self)
            .map_err(|source| Error::io("open", path, source))
    }

    /// Holds the same directory once more.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub(crate) fn again(&self, path: &Path) -> Result<Self> {
        let again = self.0.try_clone();
        again
            .map(Self)
            .map_err(|source| Error::io("open", path, source))
    }

    /// Its device and inode.
    pub(crate) fn identity(&self) -> Option<(u64, u64)> {
        let found = self.0.metadata().ok()?;
        Some((found.dev(), found.ino()))
    }

    /// Whether `path` leads to it.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        let found = path.metadata().ok();
        let found = found.map(|found| (found.dev(), found.ino()));
        found.is_some() && found == self.identity()
    }

    /// Whether it is nowhere any more.
    pub(crate) fn is_removed(&self) -> bool {
        self.0.metadata().map_or(true, |own| own.nlink() == 0)
    }

    /// Where it is now; none, if it was removed.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        let path = std::fs::read_link(self.link()).ok()?;
        self.is_at(&path).then_some(path)
    }

    /// Whether nothing is in it.
    pub(crate) fn is_empty(&self) -> bool {
        std::fs::read_dir(self.link()).is_ok_and(|mut names| names.next().is_none())
    }

    /// A path that leads to it and to nothing else, in this process.
    pub(crate) fn link(&self) -> String {
        format!("/proc/self/fd/{}", self.0.as_raw_fd())
    }
}

impl Place {
    /// The directory that is held, which was at `path`.
    pub(crate) fn of_held(held: &Held, path: &Path) -> Option<Self> {
        let found = look_at(&held.0, Path::new(""), AtFlags::EMPTY_PATH)?;
        Some(Self {
            inode: found.inode,
            born: found.born,
            owner: Some(found.owner),
            ..Self::of(path)?
        })
    }

    /// The same for the note with this number, which said `before`. The directory gets the time of the note, if its file
    /// system has attributes.
    #[must_use]
    pub(crate) fn noted(self, held: &Held, number: Option<u32>, before: Option<Self>) -> Self {
        let before = before.and_then(|before| before.held);
        let opened = File::open(held.link()).ok();
        Self {
            held: opened.and_then(|dir| store::note_now(dir, number, before.as_slice())),
            ..self
        }
    }

    /// Whether the directory at `path` is not from before the note, as far as that is known.
    fn is_noted_at(&self, path: impl AsRef<Path>) -> bool {
        self.held.is_none_or(|noted| {
            // Whoever reads one that cannot be opened says so.
            let opened = File::open(path).ok();
            let holds = opened.map(|dir| store::holds_note(dir, noted));
            holds.is_none_or(|holds| holds.unwrap_or(!self.born.is_zero()))
        })
    }

    /// The directory that `path` leads to now, or that may be made there; none, if there is none above either.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let found = look(path, AtFlags::empty());
        let (inode, born) = found.map_or((0, Duration::ZERO), |found| (found.inode, found.born));
        let above = above(path);
        if inode == 0 && above.is_none() {
            return None;
        }
        let noted = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        Some(Self {
            inode,
            born,
            noted,
            owner: None,
            held: None,
            above,
        })
    }

    /// Whether this is the directory that is held.
    pub(crate) fn is(&self, held: &Held) -> bool {
        let found = look_at(&held.0, Path::new(""), AtFlags::EMPTY_PATH);
        found.is_some_and(|found| self.is_it(&found)) && self.is_noted_at(held.link())
    }

    /// Whether the directory that is held, which `path` leads to, may be one that a job made in the place of this one.
    pub(crate) fn may_be_made_again_as(&self, held: &Held, path: &Path) -> bool {
        // Below a path without symlinks in which nobody else may rename, the directory stays the same.
        let above = path.parent().and_then(|above| above.canonicalize().ok());
        let real = above.zip(path.file_name());
        let real = real.map(|(above, name)| above.join(name));
        !others_may_rename(path)
            && real.is_some_and(|real| self.may_be_made_again(&real) && held.is_at(&real))
    }

    /// A name for it in a list.
    pub(crate) fn name(&self) -> String {
        let (above, _) = self.above.unwrap_or_default();
        format!("{:x}-{:x}-{above:x}", self.inode, self.born.as_nanos())
    }

    /// Whether `path` still leads to the directory. Where nothing was, whatever this user made is it.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        if self.inode == 0 {
            return match symlink_metadata(path) {
                Ok(_) => self.may_be_own(path),
                Err(_) => self.above == above(path),
            };
        }
        let found = look(path, AtFlags::empty());
        found.is_some_and(|found| self.is_it(&found)) && self.is_noted_at(path)
    }

    /// Whether nothing was there.
    pub(crate) fn is_to_come(&self) -> bool {
        self.inode == 0
    }

    fn is_it(&self, found: &Found) -> bool {
        (found.inode, found.born) == (self.inode, self.born)
            && self.owner.is_none_or(|owner| owner == found.owner)
    }

    /// Whether the directory at `path` may be one that a job made in the place of this one, after it had removed this: a
    /// real directory of this user that is younger than the note, where nobody else could have put it. Whoever may rename
    /// there could have put any directory of this user in its place. A mount hides what is below it, and so does another
    /// volume in the place of the one that had both.
    fn may_be_made_again(&self, path: &Path) -> bool {
        let is_young = |Found { born, is_mount, .. }: Found| {
            !is_mount && (born.is_zero() || born + BEHIND >= self.noted)
        };
        is_own_directory(path)
            && look(path, AtFlags::SYMLINK_NOFOLLOW).is_some_and(is_young)
            && (self.above.is_none() || self.above == above(path))
            && !others_may_rename(path)
    }

    /// Whether what is at `path` may be a compile cache that the command made.
    fn may_be_own(&self, path: &Path) -> bool {
        Held::open(path).is_ok_and(|held| self.may_be_own_as(&held, path))
    }

    /// Whether the directory that is held, which `path` leads to, may be a compile cache that the command made: a directory
    /// of this user in the same directory as before, or what only this user can have put there.
    pub(crate) fn may_be_own_as(&self, held: &Held, path: &Path) -> bool {
        let found = look_at(&held.0, Path::new(""), AtFlags::EMPTY_PATH);
        let is_mount = found.is_none_or(|found| found.is_mount);
        let own = || held.0.metadata().is_ok_and(|found| found.uid() == user());
        let above = match path.is_symlink() {
            true => above(path),
            false => look_at(&held.0, Path::new(".."), AtFlags::empty())
                .map(|found| (found.inode, found.born)),
        };
        let is_known = own() && !path.is_symlink() || !others_may_rename(path);
        !is_mount && self.above == above && is_known
    }
}

/// Whether somebody else than this user and root may put another directory in the place of one of this user at `path`, or
/// of one above it.
fn others_may_rename(path: &Path) -> bool {
    let own = [user(), 0];
    let is_safe = |above: &Path| {
        let found = std::fs::metadata(above);
        found.is_ok_and(|found| {
            let is_sticky = found.mode() & STICKY != 0;
            own.contains(&found.uid()) && (is_sticky || found.mode() & OTHERS == 0)
        })
    };
    // Where a symlink lies, and where it leads to.
    let above = std::path::absolute(path).ok();
    let above = above.as_deref().and_then(Path::parent);
    let real = above.and_then(|above| above.canonicalize().ok());
    let are_safe = |above: Option<&Path>| above.is_some_and(|above| above.ancestors().all(is_safe));
    !(are_safe(above) && are_safe(real.as_deref()))
}

/// Whether a real directory of this user is at `path`.
fn is_own_directory(path: &Path) -> bool {
    let is_own = |found: Metadata| found.is_dir() && found.uid() == user();
    symlink_metadata(path).is_ok_and(is_own)
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The error of a path that leads to another directory than before.
pub(super) fn other(path: &Path) -> Error {
    Error::conflict(format!(
        "{}: another directory, an older copy, or a link to one is in the place of the one that was there",
        path.display()
    ))
}

fn above(path: &Path) -> Option<(u64, Duration)> {
    let Found { inode, born, .. } = look(path.parent()?, AtFlags::empty())?;
    Some((inode, born))
}

/// What is at a path.
struct Found {
    inode: u64,
    born: Duration,
    owner: u32,
    /// Whether it is the root of a mount.
    is_mount: bool,
}

fn look(path: &Path, flags: AtFlags) -> Option<Found> {
    look_at(CWD, path, flags)
}

fn look_at(dir: impl AsFd, path: &Path, flags: AtFlags) -> Option<Found> {
    let wanted = StatxFlags::INO | StatxFlags::BTIME | StatxFlags::UID;
    let found = statx(dir, path, flags, wanted).ok()?;
    let has_birth = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
    let secs = u64::try_from(found.stx_btime.tv_sec).unwrap_or_default();
    let born = Duration::new(secs, found.stx_btime.tv_nsec);
    Some(Found {
        inode: found.stx_ino,
        owner: found.stx_uid,
        born: if has_birth { born } else { Duration::ZERO },
        is_mount: found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
    })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_directory_is_known_again_and_another_one_is_not_taken_for_it() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        fs::create_dir(at("old")).unwrap();
        std::thread::sleep(BEHIND + Duration::from_millis(100));
        fs::create_dir(at("job")).unwrap();
        let place = Place::of(&at("job")).unwrap();
        let check = |path: &Path| {
            let held = Held::open(path).unwrap();
            let is_it = place.is(&held) || place.may_be_made_again_as(&held, path);
            is_it.then_some(()).ok_or("another one")
        };
        check(&at("job")).unwrap();

        // An older one, and a link even to itself.
        fs::rename(at("job"), at("away")).unwrap();
        fs::rename(at("old"), at("job")).unwrap();
        check(&at("job")).unwrap_err();
        fs::remove_dir(at("job")).unwrap();
        fs::create_dir(at("private")).unwrap();
        std::os::unix::fs::symlink(at("private"), at("job")).unwrap();
        check(&at("job")).unwrap_err();
        fs::remove_file(at("job")).unwrap();

        // One that was made in its place.
        fs::create_dir(at("job")).unwrap();
        check(&at("job")).unwrap();
        // Where others may rename, it may be any that they found.
        fs::set_permissions(base.path(), Permissions::from_mode(0o777)).unwrap();
        check(&at("job")).unwrap_err();
        fs::set_permissions(base.path(), Permissions::from_mode(0o1777)).unwrap();
        check(&at("job")).unwrap();
        // A group may have the number of the user and be another one.
        fs::set_permissions(base.path(), Permissions::from_mode(0o770)).unwrap();
        check(&at("job")).unwrap_err();
        fs::set_permissions(base.path(), Permissions::from_mode(0o755)).unwrap();
        check(&at("job")).unwrap();
        fs::create_dir_all(at("other/job")).unwrap();
        fs::write(at("other/job/file"), "").unwrap();
        check(&at("other/job")).unwrap_err();
        fs::remove_dir_all(at("job")).unwrap();
        fs::rename(at("away"), at("job")).unwrap();
        check(&at("job")).unwrap();
    }
}
