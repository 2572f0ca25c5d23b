//! The file of a bundle: creates it, recognizes it and copies larger pieces into it.

use std::fs::File;
use std::io::{self, Seek, Write as _};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use crate::format::{BUNDLE_MAGIC, BUNDLE_RECORDS, BundleEnd, encode_bundle_start};

/// Creates an empty bundle, durably, and returns its device and inode. Replaces an empty file; keeps a file that appears
/// in the meantime.
pub(super) fn make(path: &Path) -> io::Result<Option<(u64, u64)>> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    let mut staged = tempfile::NamedTempFile::new_in(parent)?;
    let end = BundleEnd {
        number: 0,
        bytes: BUNDLE_RECORDS,
    };
    staged.write_all(&encode_bundle_start(end))?;
    staged.as_file().sync_all()?;
    let about = staged.as_file().metadata()?;
    let mut made = Some((about.dev(), about.ino()));
    if std::fs::symlink_metadata(path).is_ok_and(|found| found.is_file() && found.len() == 0) {
        staged.persist(path)?;
        File::open(parent)?.sync_all()?;
        return Ok(made);
    }
    match staged.persist_noclobber(path) {
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => made = None,
        persisted => drop(persisted?),
    }
    File::open(parent)?.sync_all()?;
    Ok(made)
}

/// Whether the file begins like a bundle. A file that ends before its magic does, even an empty
/// one, is a bundle that was cut.
pub(super) fn begins_as_one(file: &File) -> io::Result<bool> {
    let mut magic = [0; BUNDLE_MAGIC.len()];
    let read = read_up_to(file, &mut magic)?;
    Ok(BUNDLE_MAGIC.starts_with(magic.get(..read).unwrap_or_default()))
}

pub(super) fn read_up_to(file: &File, bytes: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    while let Some(rest) = bytes.get_mut(read..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, read as u64)? {
            0 => break,
            more => read += more,
        }
    }
    Ok(read)
}

/// Copies all of `staged` to `begin`, inside the kernel if possible.
pub(super) fn append_file(file: &File, begin: u64, staged: &mut File) -> io::Result<()> {
    staged.rewind()?;
    let mut target = file;
    target.seek(io::SeekFrom::Start(begin))?;
    io::copy(staged, &mut target).map(drop)
}
