//! Which directory a path led to when something was noted of it: by the time that it is saved, whoever may write to the
//! directory above can have put another one in its place, or a link to one.

use std::fs::{Metadata, symlink_metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use serde::{Deserialize, Serialize};
use store::{Error, Result};

/// The clock of a file system may be behind by this much.
const BEHIND: Duration = Duration::from_secs(2);

/// A directory, by its inode and its time of birth, since numbers are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    inode: u64,
    /// The time of birth since 1970; 0 if the file system has none.
    born: Duration,
    /// When this was noted, since 1970.
    noted: Duration,
}

impl Place {
    /// The directory that `path` leads to now; none, if it leads to none.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let (inode, born) = born(path, AtFlags::empty())?;
        let noted = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        Some(Self { inode, born, noted })
    }

    /// Whether `path` still leads to the directory.
    fn is_at(&self, path: &Path) -> bool {
        born(path, AtFlags::empty()) == Some((self.inode, self.born))
    }

    /// Whether the directory at `path` may be one that a job made in the place of this one, after it had removed this: a
    /// real directory of this user that is younger than the note.
    pub(crate) fn may_be_made_again(&self, path: &Path) -> bool {
        let is_own =
            |found: Metadata| found.is_dir() && found.uid() == rustix::process::geteuid().as_raw();
        let is_young = |(_, born): (u64, Duration)| born.is_zero() || born + BEHIND >= self.noted;
        symlink_metadata(path).is_ok_and(is_own)
            && born(path, AtFlags::SYMLINK_NOFOLLOW).is_some_and(is_young)
    }

    /// Checks that `path` leads to the directory, or to one that was made in its place since.
    ///
    /// # Errors
    /// Conflict, if another one is there.
    pub(crate) fn check(&self, path: &Path) -> Result<()> {
        match self.is_at(path) || self.may_be_made_again(path) {
            true => Ok(()),
            false => Err(other(path)),
        }
    }
}

/// The error of a path that leads to another directory than before.
fn other(path: &Path) -> Error {
    Error::conflict(format!(
        "{}: another directory, or a link to one, is in the place of the one that was there",
        path.display()
    ))
}

fn born(path: &Path, flags: AtFlags) -> Option<(u64, Duration)> {
    let wanted = StatxFlags::INO | StatxFlags::BTIME;
    let found = statx(CWD, path, flags, wanted).ok()?;
    let has_birth = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
    let secs = u64::try_from(found.stx_btime.tv_sec).unwrap_or_default();
    let born = Duration::new(secs, found.stx_btime.tv_nsec);
    Some((found.stx_ino, if has_birth { born } else { Duration::ZERO }))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_directory_is_known_again_and_another_one_is_not_taken_for_it() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        fs::create_dir(at("old")).unwrap();
        std::thread::sleep(BEHIND + Duration::from_millis(100));
        fs::create_dir(at("job")).unwrap();
        let place = Place::of(&at("job")).unwrap();
        place.check(&at("job")).unwrap();

        // An older one, and a link even to itself.
        fs::rename(at("job"), at("away")).unwrap();
        fs::rename(at("old"), at("job")).unwrap();
        place.check(&at("job")).unwrap_err();
        fs::remove_dir(at("job")).unwrap();
        fs::create_dir(at("private")).unwrap();
        std::os::unix::fs::symlink(at("private"), at("job")).unwrap();
        place.check(&at("job")).unwrap_err();
        fs::remove_file(at("job")).unwrap();
        place.check(&at("job")).unwrap_err();

        // One that was made in its place.
        fs::create_dir(at("job")).unwrap();
        place.check(&at("job")).unwrap();
        fs::remove_dir(at("job")).unwrap();
        fs::rename(at("away"), at("job")).unwrap();
        place.check(&at("job")).unwrap();
    }
}
