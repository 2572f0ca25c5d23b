//! What a put keeps beside the tree on request: one list per kind, with a record for every entry.

use std::os::fd::AsFd;
use std::path::PathBuf;

use rustix::io::Errno;

use super::meta::Meta;
use crate::error::{Error, Result};
use crate::format::{Keep, Kept, MODE_MAX, Side, XATTRS_BYTES_MAX, Xattrs};
use crate::host::attributes;
use crate::host::walk::{Dir, Stat};
use crate::store::Store;
use crate::tree::MetaBuilder;

/// A list of what is kept beside the tree.
pub(super) struct KeptList {
    keep: Keep,
    bytes: MetaBuilder,
}

impl KeptList {
    pub(super) fn new(keep: Keep, store: &Store) -> Self {
        let mut bytes = MetaBuilder::new(store.chunker().clone());
        keep.begin(&mut bytes.bytes);
        Self { keep, bytes }
    }

    pub(super) fn push(&mut self, stat: &Stat, xattrs: &Xattrs, meta: &mut Meta<'_>) -> Result<()> {
        let kept = match self.keep {
            Keep::Modes => Kept::Mode(stat.mode & MODE_MAX),
            Keep::Owners => Kept::Owner(stat.uid, stat.gid),
            Keep::Xattrs => Kept::Xattrs(xattrs.clone()),
        };
        kept.push(&mut self.bytes.bytes);
        self.bytes.cut(&mut |bytes| meta.put(bytes))
    }

    pub(super) fn finish(self, meta: &mut Meta<'_>) -> Result<Side> {
        let kind = self.keep.as_str().to_owned();
        let content = self.bytes.finish(&mut |bytes| meta.put(bytes))?;
        Ok(Side { kind, content })
    }
}

/// Says that the new version lacks attributes that version `number` kept; none, if there are none.
pub(super) fn left_behind(kinds: &[&str], number: u64) -> Option<String> {
    (!kinds.is_empty()).then(|| {
        format!(
            "{} were kept beside the tree of @{number}, and are not beside this one",
            kinds.join(" and ")
        )
    })
}

/// Reads the extended attributes of what the walk finds, if they are kept.
pub(super) struct Attributes {
    are_kept: bool,
}

impl Attributes {
    pub(super) fn new(keep: &[Keep]) -> Self {
        Self {
            are_kept: keep.contains(&Keep::Xattrs),
        }
    }

    pub(super) fn of_directory(&self, dir: &Dir) -> Result<Xattrs> {
        let path = || dir.path();
        self.read(|| attributes::of_directory(dir), &path)
    }

    pub(super) fn of_file(&self, dir: &Dir, name: &[u8]) -> Result<Xattrs> {
        let path = || dir.path_of(name);
        let read = || match attributes::of_file(dir.as_fd(), name) {
            // A file that is gone or unreadable is reported when it is read.
            Err(Errno::NOENT | Errno::ACCESS | Errno::PERM) => Ok(Xattrs::new()),
            found => found,
        };
        self.read(read, &path)
    }

    fn read(
        &self,
        read: impl FnOnce() -> rustix::io::Result<Xattrs>,
        path: &dyn Fn() -> PathBuf,
    ) -> Result<Xattrs> {
        if !self.are_kept {
            return Ok(Xattrs::new());
        }
        let found =
            read().map_err(|errno| Error::io("read attributes of", path(), errno.into()))?;
        let mut bytes = Vec::new();
        Kept::Xattrs(found.clone()).push(&mut bytes);
        if bytes.len() <= XATTRS_BYTES_MAX {
            return Ok(found);
        }
        Err(Error::invalid(format!(
            "{}: expected at most {XATTRS_BYTES_MAX} bytes of extended attributes, found {}",
            path().display(),
            bytes.len()
        ))
        .hint("take some away, or keep none of them"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No reader accepts a list with such an entry.
    #[test]
    fn more_attributes_than_a_list_may_hold_are_refused() {
        let attributes = Attributes { are_kept: true };
        let read = |count: u8| {
            let all = (0..count).map(|name| (vec![b'a' + name], vec![7; 1 << 16]));
            attributes.read(|| Ok(all.collect()), &|| "in/file".into())
        };
        assert_eq!(read(15).unwrap().len(), 15);
        let error = read(17).unwrap_err().to_string();
        assert!(
            error.starts_with("in/file: expected at most 1048576 bytes"),
            "{error}"
        );
    }
}
