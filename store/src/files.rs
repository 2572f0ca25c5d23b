//! Files of this host, written whole or not at all.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use crate::error::{Error, Result};

/// Writes `bytes` to `path`, as [`build_atomically`] does.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    build_atomically(path, |file| {
        file.write_all(bytes)
            .map_err(|source| Error::io("write", path, source))
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
