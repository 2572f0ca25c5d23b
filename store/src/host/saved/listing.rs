//! A list in progress of what a directory is.

use super::Notes;
use crate::error::Result;
use crate::format::Time;
use crate::host::disk;
use crate::host::pool::PoolKey;
use crate::host::pool::list::{ListWriter, Thing};

/// A list in progress of what a directory is.
pub(crate) struct Listing {
    pub(super) list: ListWriter<Thing>,
    path: Vec<Vec<u8>>,
}

impl Notes<'_> {
    /// Begins a list.
    pub(crate) fn begin(&self) -> Result<Listing> {
        let file = disk::scratch(self.make_dir()?, &disk::random_name()?);
        let failed = |errno| disk::failed("list what is in", &self.root, errno);
        Ok(Listing {
            list: ListWriter::new(file.map_err(failed)?)?,
            path: Vec::new(),
        })
    }
}

impl Listing {
    /// Enters a directory; the root has no name.
    pub(crate) fn enter(&mut self, name: &[u8], time: Time) -> Result<()> {
        if name.is_empty() {
            return Ok(());
        }
        self.path.push(name.to_vec());
        self.list.push(&self.path, &Thing::Dir { time })
    }

    /// Leaves a directory.
    pub(crate) fn leave(&mut self) {
        self.path.pop();
    }

    pub(crate) fn file(&mut self, name: &[u8], key: PoolKey, time: Time) -> Result<()> {
        let is_private = false;
        self.leaf(
            name,
            &Thing::File {
                key,
                time,
                is_private,
            },
        )
    }

    pub(crate) fn symlink(&mut self, name: &[u8], target: &[u8], time: Time) -> Result<()> {
        let target = target.to_vec();
        self.leaf(name, &Thing::Symlink { target, time })
    }

    fn leaf(&mut self, name: &[u8], thing: &Thing) -> Result<()> {
        self.path.push(name.to_vec());
        let pushed = self.list.push(&self.path, thing);
        self.path.pop();
        pushed
    }
}
