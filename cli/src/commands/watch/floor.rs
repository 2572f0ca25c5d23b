//! The space that stays free on the store's disk for other uses.
//!
//! The size of a checkpoint is known before it is written: at most its bytes. If these are too many, a dry run finds
//! how many are new.

use std::path::PathBuf;

use store::{Error, PutRequest, Result, Step, Store, Unwatched};

use crate::commands::save;
use crate::ui::human;

/// The number of bytes to keep free.
pub(super) struct Floor {
    bytes: u64,
    /// A path on the disk.
    place: PathBuf,
    /// The result of the last dry run, by the checkpoint's title and the newest log entry. A dry run reads the
    /// checkpoint.
    found: Option<((String, u64), u64)>,
}

impl Floor {
    /// The floor; `None` if no space is to stay free.
    ///
    /// # Errors
    /// Invalid, if the store is not on a disk of this host.
    pub(super) fn of(store: &Store, bytes: u64) -> Result<Option<Self>> {
        if bytes == 0 {
            return Ok(None);
        }
        let place = store.remote().local_path("format").ok_or_else(|| {
            let url = store.remote().url();
            Error::invalid(format!(
                "--free {}: {url} is on no disk of this host, and how much is free there cannot be known",
                human::bytes(bytes)
            ))
            .hint("leave --free out; `store policy keep NAMESPACE --quota SIZE` limits what a namespace takes there")
        })?;
        let found = None;
        Ok(Some(Self {
            bytes,
            place,
            found,
        }))
    }

    /// Checks that the space stays free after `step` is stored with `request`. `number` is the newest log entry.
    pub(super) fn check(
        &mut self,
        store: &Store,
        step: &Step,
        number: u64,
        request: &PutRequest,
    ) -> Result<()> {
        let free = self.free()?;
        if free >= self.bytes.saturating_add(step.bytes) {
            return Ok(());
        }
        // If the free space is below the floor already, the size of the checkpoint does not matter.
        let takes = match free < self.bytes {
            true => 0,
            false => self.takes(store, step, number, request)?,
        };
        if free >= self.bytes.saturating_add(takes) {
            return Ok(());
        }
        let url = store.remote().url();
        let (free, wanted) = (human::bytes(free), human::bytes(self.bytes));
        let told = match takes {
            0 => format!("{url}: {free} are free, expected {wanted} (--free)"),
            takes => format!(
                "{url}: {free} are free, expected {wanted} (--free) beside the {} that {} takes",
                human::bytes(takes),
                step.name
            ),
        };
        Err(Error::unavailable(told)
            .hint("drop versions with --keep or `store rm`, and run `store gc`"))
    }

    fn free(&self) -> Result<u64> {
        let found = rustix::fs::statvfs(&self.place)
            .map_err(|errno| Error::io("look at the file system of", &self.place, errno.into()))?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }

    /// How much the store would grow.
    fn takes(
        &mut self,
        store: &Store,
        step: &Step,
        number: u64,
        request: &PutRequest,
    ) -> Result<u64> {
        let key = (step.title.clone(), number);
        if let Some((_, takes)) = self.found.as_ref().filter(|(found, _)| *found == key) {
            return Ok(*takes);
        }
        let takes = save::tried(store, request, &Unwatched)?.stored_bytes;
        self.found = Some((key, takes));
        Ok(takes)
    }
}
