//! What a put was asked to keep beside the tree: one list for each kind, with what belongs to every entry.

use std::os::fd::AsFd;

use rustix::io::Errno;

use super::assemble::Meta;
use crate::error::{Error, Result};
use crate::format::{Keep, Kept, MODE_MAX, Side, Xattrs};
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

/// Reads the extended attributes of what a walk meets, where they are kept.
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
        let found = self.are_kept.then(|| attributes::of_directory(dir));
        let failed = |errno: Errno| Error::io("read attributes of", dir.path(), errno.into());
        found
            .transpose()
            .map_err(failed)
            .map(Option::unwrap_or_default)
    }

    pub(super) fn of_file(&self, dir: &Dir, name: &[u8]) -> Result<Xattrs> {
        let found = self
            .are_kept
            .then(|| attributes::of_file(dir.as_fd(), name));
        match found.transpose() {
            // What is gone, or may not be read, is told by its reading.
            Err(Errno::NOENT | Errno::ACCESS | Errno::PERM) => Ok(Xattrs::new()),
            Err(errno) => Err(Error::io(
                "read attributes of",
                dir.path_of(name),
                errno.into(),
            )),
            Ok(found) => Ok(found.unwrap_or_default()),
        }
    }
}
