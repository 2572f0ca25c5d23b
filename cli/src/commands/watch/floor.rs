//! The space that stays free on the store's disk for other uses.
//!
//! The size of a checkpoint is known before it is written: at most its bytes. If these are too many, a dry run finds
//! how many are new.

use std::path::PathBuf;

use store::{Error, PutRequest, Result, Step, Store, Unwatched};

use crate::commands::save;
use crate::ui::human;

/// The advice for a checkpoint that leaves too little space.
pub(super) const MAKE_ROOM: &str = "drop versions with --keep or `store rm`, and run `store gc`, or give a smaller --free; \
                                    what is left out is published as soon as it fits";

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

    /// Why `step`, stored with `request`, would leave too little space, if it would. `number` is the newest log entry.
    pub(super) fn lacks(
        &mut self,
        store: &Store,
        step: &Step,
        number: u64,
        request: &PutRequest,
    ) -> Result<Option<String>> {
        // On a disk that does not tell, every checkpoint fits as far as one can know.
        let Some(free) = store::free_bytes(&self.place)? else {
            return Ok(None);
        };
        if free >= self.bytes.saturating_add(step.bytes) {
            return Ok(None);
        }
        // If the free space is below the floor already, the size of the checkpoint does not matter.
        let takes = match free < self.bytes {
            true => None,
            false => Some(self.takes(store, step, number, request)?),
        };
        if takes.is_some_and(|takes| free >= self.bytes.saturating_add(takes)) {
            return Ok(None);
        }
        let url = store.remote().url();
        let takes = match takes {
            None => format!("up to {}", human::bytes(step.bytes)),
            Some(takes) => human::bytes(takes).to_string(),
        };
        let (free, wanted) = (human::bytes(free), human::bytes(self.bytes));
        Ok(Some(format!(
            "not published: takes {takes}, and {free} are free at {url}, of which {wanted} are to stay free (--free)"
        )))
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

/// A checkpoint that waits for space, and why.
pub(super) struct Waiting {
    name: String,
    why: String,
}

impl Waiting {
    pub(super) fn new(step: &Step, why: String) -> Self {
        let name = step.name.clone();
        Self { name, why }
    }

    pub(super) fn is_as(&self, other: &Self) -> bool {
        self.name == other.name
    }

    /// The message while the watch goes on.
    pub(super) fn news(&self) -> String {
        format!("{}; tried again: {MAKE_ROOM}", self.why)
    }

    /// This checkpoint and those of `open` after it, by name and reason.
    pub(super) fn told<'s>(&self, open: impl Iterator<Item = &'s Step>) -> Vec<(String, String)> {
        let behind = open.filter(|step| step.name != self.name).map(|step| {
            let first = &self.name;
            let why = format!("not published: it comes after {first}, which waits for room");
            (step.name.clone(), why)
        });
        let own = (self.name.clone(), self.why.clone());
        std::iter::once(own).chain(behind).collect()
    }
}
