//! Files of people and of machines, replaced as a whole: a reader sees the old one or the new one.

use std::fs::{File, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;

use store::{Error, Result};

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Durable when it returns, and for the user's eyes only where it is new.
    Settings,
    /// For others to read; one that is lost is written again.
    Report,
}

/// Replaces `path` or makes it, its directories too. Mode and owner of the old file are kept.
pub(crate) fn replace(path: &Path, bytes: &[u8], what: Use) -> Result<()> {
    let failed = |source| Error::io("write", path, source);
    // A link to a file somewhere else stays one.
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let dir = path.parent().unwrap_or_else(|| Path::new("."));
    std::fs::create_dir_all(dir).map_err(|source| Error::io("create", dir, source))?;
    let mode = match what {
        Use::Settings => 0o600,
        Use::Report => 0o666,
    };
    let mut temporary = tempfile::Builder::new()
        .prefix(".store-")
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(dir)
        .map_err(failed)?;
    temporary.write_all(bytes).map_err(failed)?;
    if let Ok(old) = std::fs::metadata(path) {
        // Only root may give files away; another user who may replace the file owns it from then on.
        let _refused = fchown(temporary.as_file(), Some(old.uid()), Some(old.gid()));
        let mode = Permissions::from_mode(old.mode() & 0o7777);
        temporary.as_file().set_permissions(mode).map_err(failed)?;
    }
    if what == Use::Settings {
        temporary.as_file().sync_all().map_err(failed)?;
    }
    temporary
        .persist(path)
        .map_err(|error| failed(error.error))?;
    match what {
        Use::Settings => File::open(dir)
            .and_then(|dir| dir.sync_all())
            .map_err(failed),
        Use::Report => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn a_new_file_is_private_and_an_old_one_keeps_its_mode() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("a/config.toml");
        replace(&path, b"one", Use::Settings).unwrap();
        assert_eq!(mode(&path), 0o600);
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        replace(&path, b"two", Use::Settings).unwrap();
        assert_eq!(
            (mode(&path), std::fs::read(&path).unwrap()),
            (0o640, b"two".to_vec())
        );
        assert_eq!(std::fs::read_dir(temp.path().join("a")).unwrap().count(), 1);
    }

    #[test]
    fn a_link_to_a_file_elsewhere_stays_a_link() {
        let temp = tempfile::tempdir().unwrap();
        let (file, link) = (temp.path().join("file"), temp.path().join("link"));
        std::fs::write(&file, "one").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        replace(&link, b"two", Use::Report).unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&file).unwrap(), b"two");
    }
}
