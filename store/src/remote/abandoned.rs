//! Finds uploads to a directory that no process writes any more, as far as this host can tell.

use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::fs::is_host_local;

/// Returns those of `paths` that no process has open. Leaves out files that cannot be judged: on file systems that
/// other hosts may write to, and of other users, whose processes cannot be inspected.
pub(super) fn abandoned(paths: Vec<PathBuf>) -> Vec<PathBuf> {
    let own = rustix::process::geteuid();
    let is_known = |metadata: &Metadata| own.is_root() || metadata.uid() == own.as_raw();
    let candidates: Vec<_> = paths
        .into_iter()
        .filter(|path| is_host_local(path))
        .filter_map(|path| Some((fs::symlink_metadata(&path).ok()?, path)))
        .filter(|(metadata, _)| is_known(metadata))
        .collect();
    if candidates.is_empty() {
        return Vec::new();
    }
    let Ok(open) = open_files(own.as_raw()) else {
        return Vec::new();
    };
    let is_closed = |(metadata, path): (Metadata, PathBuf)| {
        (!open.contains(&(metadata.dev(), metadata.ino()))).then_some(path)
    };
    candidates.into_iter().filter_map(is_closed).collect()
}

/// Returns device and inode of all files that processes have open.
fn open_files(own: u32) -> io::Result<HashSet<(u64, u64)>> {
    let mut open = HashSet::new();
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        if name.as_encoded_bytes().iter().all(u8::is_ascii_digit) {
            open_of(&path, own, &mut open)?;
        }
    }
    Ok(open)
}

fn open_of(process: &Path, own: u32, open: &mut HashSet<(u64, u64)>) -> io::Result<()> {
    let files = match fs::read_dir(process.join("fd")) {
        // A process of another user, or one that has just ended.
        Err(_) if !fs::metadata(process).is_ok_and(|metadata| metadata.uid() == own) => {
            return Ok(());
        }
        files => files?,
    };
    for file in files {
        // After an error here, the file has been closed in the meantime.
        if let Ok(metadata) = file.and_then(|file| fs::metadata(file.path())) {
            open.insert((metadata.dev(), metadata.ino()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_is_not_abandoned() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x#1");
        let file = fs::File::create(&path).unwrap();
        let asked = || abandoned(vec![path.clone()]);
        assert_eq!(asked(), Vec::<PathBuf>::new());
        drop(file);
        assert_eq!(asked(), std::slice::from_ref(&path));
        fs::remove_file(&path).unwrap();
        assert_eq!(asked(), Vec::<PathBuf>::new());
    }
}
