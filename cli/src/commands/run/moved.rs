//! Where the directory of a cache is by now, if the command renamed it.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A directory that is followed when it is renamed.
pub(super) struct Followed(File);

impl Followed {
    /// Follows the directory at `path`, if it can be opened.
    pub(super) fn new(path: &Path) -> Option<Self> {
        File::open(path).ok().map(Self)
    }

    /// Where it is now; none, if it was removed.
    pub(super) fn place(&self) -> Option<PathBuf> {
        let place = std::fs::read_link(format!("/proc/self/fd/{}", self.0.as_raw_fd())).ok()?;
        let (there, own) = (place.metadata().ok()?, self.0.metadata().ok()?);
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
        std::fs::remove_dir(&two).unwrap();
        assert_eq!(followed.place(), None);
        assert!(Followed::new(&two).is_none());
    }
}
