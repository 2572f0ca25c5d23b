//! Where the directory of a cache is by now, if the command renamed it.

use std::fs::{File, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::host::place::Place;

/// A directory that is followed when it is renamed.
pub(super) struct Followed {
    file: File,
    place: Option<Place>,
}

impl Followed {
    /// Follows the directory at `path`, if it can be opened.
    pub(super) fn new(path: &Path) -> Option<Self> {
        let file = File::open(path).ok()?;
        let place = Place::of(path);
        Some(Self { file, place })
    }

    /// Whether it is still at `path`, or was removed, and the command made one in its place. What is mounted over it, a
    /// link, and a directory of somebody else are neither.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        let own = self.file.metadata().ok();
        let id = |found: &Metadata| (found.dev(), found.ino());
        if own.is_some() && path.metadata().ok().as_ref().map(id) == own.as_ref().map(id) {
            return true;
        }
        let may_be = |place: Place| place.may_be_made_again(path);
        self.is_removed() && self.place.is_some_and(may_be)
    }

    /// Whether it is nowhere any more.
    pub(super) fn is_removed(&self) -> bool {
        self.file.metadata().map_or(true, |own| own.nlink() == 0)
    }

    /// Where it is now; none, if it was removed.
    pub(super) fn place(&self) -> Option<PathBuf> {
        let place = std::fs::read_link(format!("/proc/self/fd/{}", self.file.as_raw_fd())).ok()?;
        let (there, own) = (place.metadata().ok()?, self.file.metadata().ok()?);
        ((there.dev(), there.ino()) == (own.dev(), own.ino())).then_some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_followed_until_it_is_removed() {
        let base = tempfile::tempdir().unwrap();
        let (one, two) = (base.path().join("one"), base.path().join("two"));
        std::fs::create_dir(&one).unwrap();
        let followed = Followed::new(&one).unwrap();
        assert_eq!(followed.place(), Some(one.canonicalize().unwrap()));
        std::fs::rename(&one, &two).unwrap();
        std::fs::create_dir(&one).unwrap();
        assert_eq!(followed.place(), Some(two.canonicalize().unwrap()));
        assert!(followed.is_at(&two) && !followed.is_at(&one));
        std::fs::remove_dir(&two).unwrap();
        // Now the one in its place may be the command's.
        assert!(followed.is_at(&one));
        std::fs::remove_dir(&one).unwrap();
        std::os::unix::fs::symlink(base.path(), &one).unwrap();
        assert!(!followed.is_at(&one));
        assert_eq!(followed.place(), None);
        assert!(Followed::new(&two).is_none());
    }
}
