//! Replaces files atomically: a reader sees the whole old file or the whole new one.

use std::fs::{File, Metadata, Permissions};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use store::{Error, Precious, Result};
use tempfile::NamedTempFile;

/// Maximum number of symlinks to follow, as in the kernel.
const LINKS_MAX: u32 = 40;
/// Write permission for anybody.
const WRITABLE: u32 = 0o222;
/// The numbers of `/dev/null`.
const NULL_DEVICE: (u32, u32) = (1, 3);

/// The purpose of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Durable on return. A new file is readable by its owner only.
    Settings,
    /// Readable by others. If the file is lost, a later run writes it again.
    State,
    /// The same, at a path that a person named: a symlink of another user in its directory is refused.
    Report,
}

/// A written file that is not in its place yet. It goes if it is never put there.
pub(crate) struct Prepared {
    temporary: NamedTempFile,
    path: PathBuf,
    dir: PathBuf,
    /// Keeps `dir` valid.
    _held: Option<(PathBuf, OwnedFd)>,
    what: Use,
}

/// Creates or replaces `path`, and creates missing directories. Keeps mode and owner of the old file. A symlink of
/// another user is replaced itself, so that this user does not choose which file is overwritten.
pub(crate) fn replace(path: &Path, bytes: &[u8], what: Use) -> Result<()> {
    prepare(path, bytes, what)?.put()
}

/// Writes what is to become `path`, as [`replace`] does: what can go wrong has then gone right.
pub(crate) fn prepare(path: &Path, bytes: &[u8], what: Use) -> Result<Prepared> {
    let failed = |source| Error::io("write", path, source);
    // The caller's own symlink stays, and its target is replaced.
    let path = &behind_links(path);
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    let dir = dir.unwrap_or_else(|| Path::new("."));
    let (dir, path, held) = match what {
        Use::Report => {
            let held = store::make_directories(dir)?;
            let (dir, path) = within(&held, path);
            (dir, path, Some(held))
        }
        _ => {
            std::fs::create_dir_all(dir).map_err(|source| Error::io("create", dir, source))?;
            (dir.to_owned(), path.to_owned(), None)
        }
    };
    let mode = match what {
        Use::Settings => 0o600,
        _ => 0o666,
    };
    let mut temporary = tempfile::Builder::new()
        .prefix(".store-")
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(&dir)
        .map_err(failed)?;
    temporary.write_all(bytes).map_err(failed)?;
    let old = std::fs::symlink_metadata(&path);
    if let Some(old) = old.ok().filter(Metadata::is_file) {
        // Only root can change the owner. If another user replaces the file, it belongs to that user from then on.
        let _refused = fchown(temporary.as_file(), Some(old.uid()), Some(old.gid()));
        let mode = Permissions::from_mode(old.mode() & 0o7777);
        temporary.as_file().set_permissions(mode).map_err(failed)?;
    }
    if what == Use::Settings {
        temporary.as_file().sync_all().map_err(failed)?;
    }
    Ok(Prepared {
        temporary,
        path,
        dir,
        _held: held,
        what,
    })
}

/// Lets one process at a time change the files of the directory of `path`, which is made if it is missing: what it reads
/// is what it replaces. The lock is held until the file is closed. On a file system without locks, nobody waits.
///
/// # Errors
/// If there is no such directory, and none can be made.
pub(crate) fn lock_beside(path: &Path) -> Result<File> {
    // As in `prepare`: who has a symlink to the file waits for those who change it where it is.
    let path = behind_links(path);
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    let dir = dir.unwrap_or_else(|| Path::new("."));
    std::fs::create_dir_all(dir).map_err(|source| Error::io("create", dir, source))?;
    let lock = File::open(dir).map_err(|source| Error::io("open", dir, source))?;
    let _without = lock.lock();
    Ok(lock)
}

impl Prepared {
    /// Puts the file in its place.
    pub(crate) fn put(self) -> Result<()> {
        let path = &self.path;
        let failed = |source| Error::io("write", path, source);
        let placed = self.temporary.persist(path);
        placed.map_err(|error| failed(error.error))?;
        match self.what {
            Use::Settings => File::open(&self.dir)
                .and_then(|dir| dir.sync_all())
                .map_err(failed),
            _ => Ok(()),
        }
    }
}

/// Paths of an open directory and of a file in it that lead there whatever becomes of the directory's own path.
fn within((dir, open): &(PathBuf, OwnedFd), path: &Path) -> (PathBuf, PathBuf) {
    let held = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
    let dir = if held.is_dir() { held } else { dir.clone() };
    let path = dir.join(path.file_name().unwrap_or_default());
    (dir, path)
}

/// Checks that a file that a person named would be in no store, no pool and no directory of this program, and is no
/// store itself, wherever symlinks of the caller and root lead.
///
/// # Errors
/// Conflict, if it would; also if a symlink of another user is on the way.
pub(crate) fn check_place(path: &Path, precious: &Precious) -> Result<()> {
    let mut steps = steps(path).into_iter();
    steps.try_for_each(|step| store::check_outside(&step, precious))
}

/// Checks all that can be seen without opening the file that [`open_to_append`] opens, and makes nothing.
///
/// # Errors
/// Conflict, for what it refuses.
pub(crate) fn check_to_append(path: &Path, precious: &Precious) -> Result<()> {
    check_place(path, precious)?;
    match steps(path).last().map(std::fs::symlink_metadata) {
        Some(Ok(found)) if !found.is_symlink() => check_appended(path, &found),
        _ => Ok(()),
    }
}

/// Opens a file that a person named, to append lines to it; a pipe must have a reader. Another user's symlink in its
/// path is refused; the caller's own and root's, such as `/dev/stdout`, are followed.
///
/// # Errors
/// Conflict, for such a symlink, for what [`check_place`] refuses, and for a file that is not there to be appended to;
/// otherwise when it cannot be opened.
pub(crate) fn open_to_append(path: &Path, precious: &Precious) -> Result<File> {
    check_to_append(path, precious)?;
    let steps = steps(path);
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    let held = store::make_directories(dir.unwrap_or_else(|| Path::new(".")))?;
    let (_, held) = within(&held, path);
    let open = |flags: OFlags| {
        let mut options = File::options();
        // What is logged names what is in a store.
        options.create(true).append(true).mode(0o600);
        // A pipe without a reader would be waited for.
        let flags = flags | OFlags::NONBLOCK;
        options.custom_flags(flags.bits().cast_signed());
        let file = options.open(&held)?;
        let flags = rustix::fs::fcntl_getfl(&file)?;
        rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
        Ok(file)
    };
    let link = std::fs::symlink_metadata(&held).ok();
    let opened = match link.filter(Metadata::is_symlink) {
        None => open(OFlags::NOFOLLOW),
        Some(link) if is_own(&link) => open(OFlags::empty()),
        Some(link) => {
            return Err(Error::conflict(format!(
                "{}: is a symlink of user {}",
                path.display(),
                link.uid()
            ))
            .hint("name another file, or remove the symlink"));
        }
    };
    let opened = opened.map_err(|source| Error::io("open", path, source))?;
    let found = opened.metadata();
    let found = found.map_err(|source| Error::io("look at", path, source))?;
    let kind = found.file_type();
    if kind.is_char_device() && !is_for_lines(&opened) {
        return Err(not_appended(path, "is a device"));
    }
    // Whoever started this program opened what is its own output. Anything else may have been exchanged since.
    match (kind.is_file() || kind.is_fifo()) && is_open(&steps) {
        true => Ok(opened),
        false => check_appended(path, &found).map(|()| opened),
    }
}

/// Checks that lines may be appended to what is at `path`: a device, or a pipe or a file of the caller or root. Root may
/// write to anything, so a file must have one name, and somebody who may write to it.
fn check_appended(path: &Path, found: &Metadata) -> Result<()> {
    let kind = found.file_type();
    let why = match found {
        _ if kind.is_char_device() => return Ok(()),
        _ if !kind.is_file() && !kind.is_fifo() => "is no regular file".to_owned(),
        _ if !is_own(found) => format!("belongs to user {}", found.uid()),
        _ if kind.is_fifo() => return Ok(()),
        _ if found.mode() & WRITABLE == 0 => "nobody may write to it".to_owned(),
        _ if found.nlink() > 1 => format!(
            "has {} names, and what is appended would be in all of them",
            found.nlink()
        ),
        _ => return Ok(()),
    };
    Err(not_appended(path, &why))
}

fn not_appended(path: &Path, why: &str) -> Error {
    Error::conflict(format!("{}: {why}", path.display()))
        .hint("lines are appended to it: name a file that is not there, or one that is for them")
}

/// Whether a device takes lines: a terminal, or one that drops all, like `/dev/null`.
fn is_for_lines(device: &File) -> bool {
    let is_null = |found: Metadata| {
        let device = found.rdev();
        (rustix::fs::major(device), rustix::fs::minor(device)) == NULL_DEVICE
    };
    rustix::termios::isatty(device) || device.metadata().is_ok_and(is_null)
}

/// Reads a file that [`replace`] writes. Does not follow another user's symlink, and does not block on a pipe.
///
/// # Errors
/// As reading a file; also if the path is such a symlink.
pub(crate) fn read(path: &Path) -> std::io::Result<String> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = File::options();
    options.read(true).custom_flags(flags.bits().cast_signed());
    let mut text = String::new();
    options
        .open(behind_links(path))?
        .read_to_string(&mut text)?;
    Ok(text)
}

/// Whether a directory, a device, a pipe or a socket is where [`replace`] would put a file, or what a process has open,
/// as at `/dev/stdout`.
pub(crate) fn is_special(path: &Path) -> bool {
    let steps = steps(path);
    let found = steps.last().map(std::fs::symlink_metadata);
    let is_special = |found: Metadata| !found.is_file() && !found.is_symlink();
    is_open(&steps) || found.is_some_and(|found| found.is_ok_and(is_special))
}

/// Whether these paths lead through what a process has open, as `/dev/stdout` does.
fn is_open(steps: &[PathBuf]) -> bool {
    let mut steps = steps.iter();
    steps.any(|step| step.starts_with("/proc") || step.starts_with("/dev/fd"))
}

/// The error of reading a text that a person writes. What is not UTF-8 is a mistake in it.
pub(crate) fn unread(doing: &str, path: &Path, source: std::io::Error) -> Error {
    if source.kind() != std::io::ErrorKind::InvalidData {
        return Error::io(doing, path, source);
    }
    let bytes = std::fs::read(path).unwrap_or_default();
    let valid = bytes
        .utf8_chunks()
        .next()
        .map_or(0, |chunk| chunk.valid().len());
    let before = bytes.get(..valid).unwrap_or_default();
    let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
    Error::invalid(format!("{doing} {}", path.display()))
        .because(format!("line {line}: expected UTF-8, found other bytes"))
}

/// Resolves the symlinks at `path` that belong to the caller or root.
fn behind_links(path: &Path) -> PathBuf {
    steps(path).pop().unwrap_or_else(|| path.to_owned())
}

/// The path, and those to which the symlinks at it lead that belong to the caller or root, the last one last.
fn steps(path: &Path) -> Vec<PathBuf> {
    let mut path = path.to_owned();
    let mut steps = vec![path.clone()];
    for _ in 0..LINKS_MAX {
        let is_followed = std::fs::symlink_metadata(&path)
            .is_ok_and(|found| found.is_symlink() && is_own(&found));
        let target = is_followed.then(|| std::fs::read_link(&path).ok());
        match (target.flatten(), path.parent()) {
            (Some(target), Some(dir)) => path = dir.join(target),
            _ => break,
        }
        steps.push(path.clone());
    }
    steps
}

/// Whether something belongs to the caller or to root.
pub(crate) fn is_own(found: &Metadata) -> bool {
    [rustix::process::geteuid().as_raw(), 0].contains(&found.uid())
}

/// The path without symlinks. If nothing is there, that of its directory is resolved: a store that is away has the same
/// name as when it was there.
pub(crate) fn resolved(path: &Path) -> std::io::Result<PathBuf> {
    if let Ok(path) = path.canonicalize() {
        return Ok(path);
    }
    let path = std::path::absolute(path)?;
    let above = path.parent().and_then(|above| above.canonicalize().ok());
    let resolved = above
        .zip(path.file_name())
        .map(|(above, name)| above.join(name));
    Ok(resolved.unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_changes_a_file_through_a_symlink_has_the_lock_of_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let (here, there) = (dir.path().join("here/file"), dir.path().join("there/file"));
        let held = lock_beside(&there).unwrap();
        let free = || File::open(there.parent().unwrap()).unwrap().try_lock();
        assert!(free().is_err());
        drop(held);
        assert!(free().is_ok());
        std::fs::create_dir(here.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(&there, &here).unwrap();
        let _held = lock_beside(&here).unwrap();
        assert!(free().is_err());
    }

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

    #[test]
    fn a_link_of_another_user_is_replaced_and_not_followed() {
        let temp = tempfile::tempdir().unwrap();
        let (file, theirs) = (temp.path().join("file"), temp.path().join("theirs"));
        let ours = temp.path().join("ours");
        std::fs::write(&file, "one").unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink("file", &theirs).unwrap();
        std::os::unix::fs::symlink("theirs", &ours).unwrap();
        // Without the right to change owners, the test cannot make another user's link.
        if std::os::unix::fs::lchown(&theirs, Some(1001), Some(1001)).is_err() {
            return;
        }
        assert!(read(&theirs).is_err() && read(&ours).is_err());
        replace(&ours, b"two", Use::Report).unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"one");
        assert!(ours.is_symlink() && !theirs.is_symlink());
        assert_eq!(read(&ours).unwrap(), "two");
        assert_eq!(std::fs::metadata(&theirs).unwrap().uid(), 0);
        assert_ne!(
            mode(&theirs),
            0o600,
            "it is not of the mode of what it led to"
        );
    }
}
