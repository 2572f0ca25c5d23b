//! Where the directory of a cache is by now, if the command renamed it.

use std::path::{Path, PathBuf};

use store::Result;

use crate::host::place::{Held, Place};

/// A directory that is followed when it is renamed.
pub(super) struct Followed {
    held: Held,
    place: Option<Place>,
}

impl Followed {
    /// Follows the directory that is held, which is at `path`.
    pub(super) fn new(held: Held, path: &Path) -> Self {
        let place = Place::of_held(&held, path);
        Self { held, place }
    }

    /// The directory, wherever it is by now.
    pub(super) fn held(&self) -> &Held {
        &self.held
    }

    /// Whether it is still at `path`, or was removed, and the command made one in its place. What is mounted over it, a
    /// link, and a directory of somebody else are neither.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        self.hold(path).is_ok_and(|held| held.is_some())
    }

    /// Holds it, if it is still at `path`, or else the one that the command made in its place; none, if another one is
    /// there.
    ///
    /// # Errors
    /// If it cannot be held.
    pub(super) fn hold(&self, path: &Path) -> Result<Option<Held>> {
        if self.held.is_at(path) {
            return self.held.again(path).map(Some);
        }
        if !self.is_removed() {
            return Ok(None);
        }
        let held = Held::open(path)?;
        let place = self.place;
        let is_own = place.is_some_and(|place| place.may_be_made_again_as(&held, path));
        Ok(Some(held).filter(|_| is_own))
    }

    /// Whether it is nowhere any more.
    pub(super) fn is_removed(&self) -> bool {
        self.held.is_removed()
    }

    /// Where it is now; none, if it was removed.
    pub(super) fn place(&self) -> Option<PathBuf> {
        self.held.path()
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
        let followed = Followed::new(Held::open(&one).unwrap(), &one);
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
    }
}
