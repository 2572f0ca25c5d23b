//! What is pushed, as a tree of its own: links to the files of a compile cache, and repaired texts.

use std::ffi::OsStr;
use std::fs::{File, Permissions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use store::{Error, Result};

use crate::commands::cache::entries::{Entries, Thing};
use crate::commands::cache::profile::{Profile, Shape};
use crate::commands::cache::repair::TEXT_BYTES_MAX;
use crate::host::planted;

/// How the names of the directories begin.
const PREFIX: &str = "store-cache-push-";
/// The file that a push locks as long as it needs its directory, and the tree beside it.
const LOCK: &str = "lock";
const TREE: &str = "tree";
/// How old a directory is before another push removes it. Between its creation and its lock is far less.
const LEFT_AFTER: Duration = Duration::from_hours(24);

/// Entries as they are to be in the ref: links to the files of the cache, and repaired texts.
pub(super) struct Staged {
    tree: PathBuf,
    /// What is staged.
    pub(super) entries: Entries,
    _lock: File,
    _dir: tempfile::TempDir,
}

impl Staged {
    /// Stages entries of the cache at `root`, and removes what killed pushes of this user left.
    pub(super) fn new(root: &Path, entries: Entries, profile: &Profile) -> Result<Self> {
        let above = std::env::temp_dir();
        remove_left(&above, SystemTime::now());
        let dir = tempfile::Builder::new()
            .prefix(PREFIX)
            // The links name paths of this user, and the texts are copies.
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(&above)
            .map_err(|source| Error::io("make a directory in", &above, source))?;
        let failed = |source| Error::io("stage in", dir.path(), source);
        let lock = File::create_new(dir.path().join(LOCK)).map_err(failed)?;
        // Without locks in this file system, only its age protects the directory.
        lock.try_lock().ok();
        let tree = dir.path().join(TREE);
        std::fs::create_dir(&tree).map_err(failed)?;
        let staged = Self {
            tree,
            entries,
            _lock: lock,
            _dir: dir,
        };
        for (path, entry) in &staged.entries {
            let Some(shape) = profile.entry.get(entry.shape) else {
                continue;
            };
            for (part, found) in entry.files(shape) {
                let mut whole = path.clone();
                if !part.is_empty() {
                    whole.push(b'/');
                    whole.extend_from_slice(part);
                }
                staged.add(root, &whole, (part, &found.thing), shape)?;
            }
        }
        Ok(staged)
    }

    fn add(
        &self,
        root: &Path,
        path: &[u8],
        (part, thing): (&[u8], &Thing),
        shape: &Shape,
    ) -> Result<()> {
        planted::check_links(root, Path::new(OsStr::from_bytes(path)))?;
        let from = root.join(OsStr::from_bytes(path));
        let to = self.tree.join(OsStr::from_bytes(path));
        let failed = |source| Error::io("stage", &from, source);
        self.make_above(Path::new(OsStr::from_bytes(path)))
            .map_err(failed)?;
        if let Thing::Link { target, .. } = thing
            && shape.file
            && let Some(inside) = inside(root, path, target)
        {
            return symlink(inside, to).map_err(failed);
        }
        // An entry that is a file has the empty path.
        let name = from.file_name().unwrap_or_default().as_bytes();
        let part = if part.is_empty() { name } else { part };
        let stat = std::fs::metadata(&from).map_err(failed)?;
        if !shape.is_repaired(part) || stat.len() > TEXT_BYTES_MAX {
            let real = from.canonicalize().map_err(failed)?;
            return symlink(real, to).map_err(failed);
        }
        let text = store::read_regular(&from, TEXT_BYTES_MAX).map_err(failed)?;
        std::fs::write(&to, shape.leaving(part, text, root)).map_err(failed)?;
        std::fs::set_permissions(&to, stat.permissions()).map_err(failed)?;
        let file = std::fs::File::options()
            .append(true)
            .open(&to)
            .map_err(failed)?;
        file.set_modified(stat.modified().map_err(failed)?)
            .map_err(failed)
    }

    /// The tree to put.
    pub(super) fn tree(&self) -> &Path {
        &self.tree
    }

    /// Whether all targets of the links can be read.
    pub(super) fn can_be_read(&self) -> bool {
        let mut paths = self.entries.iter().flat_map(|(path, entry)| {
            let parts = entry.parts.keys();
            let path = self.tree.join(OsStr::from_bytes(path));
            parts.map(move |part| match part.is_empty() {
                true => path.clone(),
                false => path.join(OsStr::from_bytes(part)),
            })
        });
        let is_denied = |error: std::io::Error| error.kind() == ErrorKind::PermissionDenied;
        !paths.any(|path| std::fs::File::open(path).is_err_and(is_denied))
    }

    /// Makes the directories above a path, readable by all: only the files' own modes say what is private.
    fn make_above(&self, path: &Path) -> std::io::Result<()> {
        let mut dir = self.tree.clone();
        for name in path.parent().into_iter().flat_map(Path::components) {
            dir.push(name);
            match std::fs::create_dir(&dir) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(()) => std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o755))?,
            }
        }
        Ok(())
    }
}

/// The relative target of a link to a place inside the cache.
fn inside(root: &Path, path: &[u8], target: &[u8]) -> Option<PathBuf> {
    let above = Path::new(OsStr::from_bytes(path)).parent()?;
    let full = root
        .join(above)
        .join(OsStr::from_bytes(target))
        .canonicalize()
        .ok()?;
    let below = full.strip_prefix(root).ok()?;
    let ups = above.components().map(|_| Component::ParentDir);
    let way = ups.chain(below.components()).collect();
    Some(way)
}

/// Removes directories in `above` that killed pushes left: they belong to this user, are old, and nobody holds their
/// lock. What cannot be removed stays for the next push.
fn remove_left(above: &Path, now: SystemTime) {
    let Ok(names) = std::fs::read_dir(above) else {
        return;
    };
    let own = rustix::process::geteuid().as_raw();
    for entry in names.flatten() {
        let is_named = entry.file_name().as_bytes().starts_with(PREFIX.as_bytes());
        // This is not the target of a link.
        let Some(found) = is_named.then(|| entry.metadata().ok()).flatten() else {
            continue;
        };
        let age = found
            .modified()
            .ok()
            .and_then(|at| now.duration_since(at).ok());
        let is_left =
            found.is_dir() && found.uid() == own && age.is_some_and(|age| age > LEFT_AFTER);
        if is_left && is_free(&entry.path()) {
            std::fs::remove_dir_all(entry.path()).ok();
        }
    }
}

/// Whether the push that made a directory has ended. Older programs made no lock.
fn is_free(dir: &Path) -> bool {
    match File::open(dir.join(LOCK)) {
        Err(error) => error.kind() == ErrorKind::NotFound,
        Ok(lock) => !matches!(lock.try_lock(), Err(TryLockError::WouldBlock)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_closed_to_others() {
        let profile = Profile::load("triton").unwrap();
        let staged = Staged::new(Path::new("/nowhere"), Entries::new(), &profile).unwrap();
        let mode = staged
            .tree
            .parent()
            .unwrap()
            .metadata()
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn what_a_killed_push_left_goes_and_what_lives_stays() {
        let above = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let dir = above.path().join(name);
            std::fs::create_dir_all(dir.join(TREE)).unwrap();
            let lock = File::create(dir.join(LOCK)).unwrap();
            (dir, lock)
        };
        let (left, _) = make("store-cache-push-left");
        let (held, lock) = make("store-cache-push-held");
        let (other, _) = make("other-left");
        lock.lock().unwrap();
        let link = above.path().join("store-cache-push-link");
        symlink(&other, &link).unwrap();
        let soon = SystemTime::now();
        remove_left(above.path(), soon + LEFT_AFTER / 2);
        assert!(left.exists());
        remove_left(above.path(), soon + LEFT_AFTER * 2);
        assert!(!left.exists());
        assert!(held.join(TREE).exists() && other.exists() && link.is_symlink());
        drop(lock);
        remove_left(above.path(), soon + LEFT_AFTER * 2);
        assert!(!held.exists() && other.exists());
    }
}
