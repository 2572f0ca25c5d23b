//! The store of a job. A save belongs to one particular store, so no new store is created in place of a missing one.

use std::path::Path;

use store::{Error, ErrorKind, Result, Store, StoreId};

use super::away::kept;
use super::{Context, Place};
use crate::host::stores;

impl Context {
    /// Opens the selected store. Creates the embedded store if it does not exist yet.
    pub(crate) fn open_for_job(&self) -> Result<Store> {
        let store = self.open_for_put()?;
        self.remember(&store);
        Ok(store)
    }

    /// Returns the store for a job: `opened` if there is one, else opens it.
    pub(crate) fn for_job(&self, opened: Option<Store>) -> Result<Store> {
        match opened {
            None => self.open_for_job(),
            Some(store) => {
                self.remember(&store);
                Ok(store)
            }
        }
    }

    /// Fails if the embedded store existed before and is missing now.
    pub(crate) fn check_there(&self) -> Result<()> {
        let Place { url, embedded, .. } = self.place()?;
        let is_there = !embedded || Path::new(&url).join("format").exists();
        let known = self.kept()?.and_then(|place| place.known());
        let Some(id) = known.filter(|_| !is_there) else {
            return Ok(());
        };
        match self.open() {
            // Remains of a store mean damage, not a missing mount.
            Err(error) if error.kind() == ErrorKind::Corrupt => Err(error),
            _ => Err(Error::unavailable(format!(
                "{url}: the store {id} was there and is missing now"
            ))
            .hint("restore it, or mount its file system; if it is gone for good, `store init` makes a new and empty one in its place")),
        }
    }

    /// The id of the selected store, if this host remembers it.
    pub(crate) fn known_id(&self) -> Option<String> {
        self.kept().ok()??.known()
    }

    /// What this host remembers of the selected store.
    fn kept(&self) -> Result<Option<stores::StorePlace>> {
        Ok(kept(&self.place()?.url))
    }

    /// Remembers which store is at the selected place.
    pub(super) fn remember(&self, store: &Store) {
        if let Ok(Some(place)) = self.kept() {
            place.remember(store);
        }
    }
}

/// Checks that `store` is the same as when the command began: its result must not be saved to another store.
///
/// # Errors
/// Conflict, if it is another store.
pub(crate) fn check_same(began: StoreId, store: &Store) -> Result<()> {
    let found = store.format().id;
    match began == found {
        true => Ok(()),
        false => Err(Error::conflict(format!(
            "the store {began} was there when the command began, and in its place there is another one by now, {found}"
        ))),
    }
}
