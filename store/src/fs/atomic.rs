//! Files of this host, written whole or not at all.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

use crate::error::{Error, Result};
use crate::remedy::Remedy;

/// Writes `bytes` to `path`, as [`build_atomically`] does.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    build_atomically(path, |file| {
        file.write_all(bytes)
            .map_err(|source| Error::io("write", path, source))
    })
}

/// Opens a file for reading if it is a regular one; never waits, whatever lies there. A symlink that leads to no file
/// is not taken for nothing.
pub fn open_regular(path: &Path) -> io::Result<File> {
    open_regular_with(File::options().read(true), path)
}

/// Opens a file with these options, which may make it, if it is a regular one; never waits, whatever lies there.
pub fn open_regular_with(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    regular_at(path, options.custom_flags(nonblocking).open(path))
}

/// Writes a note whose loss costs only time: in place and without a sync. Never waits, whatever lies there.
pub fn write_note(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    open_regular_with(&mut options, path)?.write_all(bytes)
}

/// What was opened at `path`, if it is a regular file; as [`open_regular`] has it.
pub(crate) fn regular_at(path: &Path, opened: io::Result<File>) -> io::Result<File> {
    let file = opened.map_err(|error| astray(path, error))?;
    regular(&file.metadata()?)?;
    Ok(file)
}

/// Opens the file of the object `key`. What is no regular file was written by nobody: it is damage, which `remedy` mends.
pub(crate) fn open_object(path: &Path, key: &str, remedy: Remedy) -> Result<File> {
    open_regular(path).map_err(|source| match source.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::IsADirectory => {
            Error::corrupt(format!("{key}: {source} at {}", path.display())).hint(remedy)
        }
        _ => Error::io("open", path, source),
    })
}

/// Why `path` cannot be opened, where no regular file lies there.
fn astray(path: &Path, error: io::Error) -> io::Error {
    let is = |errno: rustix::io::Errno| error.raw_os_error() == Some(errno.raw_os_error());
    // A socket, or a device without a driver.
    if is(rustix::io::Errno::NXIO) || is(rustix::io::Errno::NODEV) {
        return special();
    }
    let is_loop = is(rustix::io::Errno::LOOP);
    let is_symlink = || std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    if (is_loop || error.kind() == io::ErrorKind::NotFound) && is_symlink() {
        let what = "expected a regular file, found a symlink that leads to none";
        return io::Error::new(io::ErrorKind::InvalidData, what);
    }
    error
}

/// All bytes of a regular file of at most `max`; never waits, whatever lies there.
///
/// # Errors
/// When there is no regular file, it cannot be read, or it has more bytes.
pub fn read_regular(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    let mut bytes = Vec::new();
    // It may grow meanwhile.
    let is_fit = |bytes: u64| bytes <= max;
    if is_fit(file.metadata()?.len()) && is_fit(file.take(max + 1).read_to_end(&mut bytes)? as u64)
    {
        return Ok(bytes);
    }
    Err(io::ErrorKind::FileTooLarge.into())
}

/// Fails for what is no regular file.
fn regular(metadata: &Metadata) -> io::Result<()> {
    match metadata {
        metadata if metadata.is_file() => Ok(()),
        metadata if metadata.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        _ => Err(special()),
    }
}

fn special() -> io::Error {
    let what = "expected a regular file, found a pipe, a socket or a device";
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Whether a file has no network behind it. A page of a network file system may fail to load, and a failed load of a
/// mapped page kills the process; and processes of other hosts may write there.
pub(crate) fn is_host_local(path: &Path) -> bool {
    const NETWORKED: [u64; 10] = [
        0x6969,      // NFS
        0xFF53_4D42, // CIFS
        0xFE53_4D42, // SMB2
        0x517B,      // SMB
        0x6573_5546, // FUSE
        0x0BD0_0BD0, // Lustre
        0x00C3_6400, // Ceph
        0x4750_4653, // GPFS
        0x1983_0326, // BeeGFS
        0x0102_1997, // 9P
    ];
    rustix::fs::statfs(path).is_ok_and(|stat| {
        let kind = stat.f_type.cast_unsigned();
        !NETWORKED.contains(&kind)
    })
}

/// Lets `build` write what becomes `path`, in a temporary of the same directory: sync, rename, sync the directory.
pub(crate) fn build_atomically(
    path: &Path,
    build: impl FnOnce(&mut File) -> Result<()>,
) -> Result<()> {
    let dir = path.parent().unwrap_or_else(|| Path::new("."));
    std::fs::create_dir_all(dir).map_err(|source| Error::io("create", dir, source))?;
    let mut temporary = tempfile::NamedTempFile::new_in(dir)
        .map_err(|source| Error::io("create a temporary in", dir, source))?;
    build(temporary.as_file_mut())?;
    temporary
        .as_file()
        .sync_all()
        .map_err(|source| Error::io("write", temporary.path(), source))?;
    temporary
        .persist(path)
        .map_err(|error| Error::io("rename into place", path, error.error))?;
    let opened = File::open(dir).map_err(|source| Error::io("open", dir, source))?;
    opened
        .sync_all()
        .map_err(|source| Error::io("sync", dir, source))
}
