//! The names in one directory, sorted by their bytes and kept in one block of memory.

use std::cmp::Reverse;

use rustix::fs::{FileType, RawDir};
use rustix::io::Errno;

use super::Dir;
use super::dir::failed;
use crate::error::Result;

/// Bytes of directory entries that one system call requests.
const READ_BYTES: usize = 32 << 10;

/// Names that have not been taken yet.
#[derive(Debug, Default)]
pub(super) struct Names {
    bytes: Vec<u8>,
    /// The largest name first, so that the next one is taken from the end.
    places: Vec<Place>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    start: usize,
    len: u8,
    kind: FileType,
}

impl Names {
    /// Reads all names in `dir` except `.` and `..`.
    pub(super) fn read(dir: &Dir) -> Result<Self> {
        let mut names = Self::default();
        names
            .fill(dir)
            .map_err(|errno| failed("read directory", &dir.path(), errno))?;
        let Self { bytes, places } = &mut names;
        places.sort_unstable_by_key(|place| Reverse(name_of(bytes, *place)));
        Ok(names)
    }

    /// Returns the next name and, if the directory stores it, its kind.
    pub(super) fn take(&mut self) -> Option<(Vec<u8>, FileType)> {
        let place = self.places.pop()?;
        Some((name_of(&self.bytes, place).to_vec(), place.kind))
    }

    fn fill(&mut self, dir: &Dir) -> Result<(), Errno> {
        let mut buffer = Vec::with_capacity(READ_BYTES);
        let mut entries = RawDir::new(dir, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let len = u8::try_from(name.len()).map_err(|_| Errno::NAMETOOLONG)?;
            self.places.push(Place {
                start: self.bytes.len(),
                len,
                kind: entry.file_type(),
            });
            self.bytes.extend_from_slice(name);
        }
        Ok(())
    }
}

fn name_of(bytes: &[u8], place: Place) -> &[u8] {
    bytes
        .get(place.start..place.start + usize::from(place.len))
        .unwrap_or_default()
}
