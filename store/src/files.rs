//! Files of this host, written whole or not at all.

use std::io::Write;
use std::path::Path;

use crate::error::{Error, Result};

/// Writes `bytes` to `path` by way of a temporary in the same directory: sync, rename, sync the directory.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    let dir = path.parent().unwrap_or_else(|| Path::new("."));
    std::fs::create_dir_all(dir).map_err(|source| Error::io("create", dir, source))?;
    let mut temporary = tempfile::NamedTempFile::new_in(dir)
        .map_err(|source| Error::io("create a temporary in", dir, source))?;
    temporary
        .write_all(bytes)
        .and_then(|()| temporary.as_file().sync_all())
        .map_err(|source| Error::io("write", temporary.path(), source))?;
    temporary
        .persist(path)
        .map_err(|error| Error::io("rename into place", path, error.error))?;
    let opened = std::fs::File::open(dir).map_err(|source| Error::io("open", dir, source))?;
    opened
        .sync_all()
        .map_err(|source| Error::io("sync", dir, source))
}
