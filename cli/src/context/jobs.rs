//! The store of a job: what is saved belongs to one store alone, so no new store is made in place of a missing one.

use std::path::Path;

use store::{Error, Kind, Result, Store, StoreId};

use super::away::kept;
use super::{Context, Place};
use crate::host::stores;

impl Context {
    /// The store that was meant; the embedded one is made where there was none.
    pub(crate) fn open_for_job(&self) -> Result<Store> {
        let store = self.open_for_put()?;
        self.remember(&store);
        Ok(store)
    }

    /// The store that was meant, once more for a job: one that was opened before, where there was one.
    pub(crate) fn for_job(&self, opened: Option<Store>) -> Result<Store> {
        match opened {
            None => self.open_for_job(),
            Some(store) => {
                self.remember(&store);
                Ok(store)
            }
        }
    }

    /// That the embedded store is not away.
    pub(crate) fn check_there(&self) -> Result<()> {
        let Place { url, embedded, .. } = self.place()?;
        let is_there = !embedded || Path::new(&url).join("format").exists();
        let known = self.kept()?.and_then(|place| place.known());
        let Some(id) = known.filter(|_| !is_there) else {
            return Ok(());
        };
        match self.open() {
            // What is left of it is no empty mount.
            Err(error) if error.kind() == Kind::Corrupt => Err(error),
            _ => Err(Error::unavailable(format!(
                "{url}: the store {id} was there and is missing now"
            ))
            .hint("restore it, or mount its file system; if it is gone for good, `store init` makes a new and empty one in its place")),
        }
    }

    /// The id of the store that is meant, as far as it is known without asking it.
    pub(crate) fn known_id(&self) -> Option<String> {
        self.kept().ok()??.known()
    }

    /// What is known from before of the store that is meant.
    fn kept(&self) -> Result<Option<stores::StorePlace>> {
        Ok(kept(&self.place()?.url))
    }

    /// Takes down which store is at the place that is meant.
    pub(super) fn remember(&self, store: &Store) {
        if let Ok(Some(place)) = self.kept() {
            place.remember(store);
        }
    }
}

/// That `store` is the one that was there when a command began: what that made is saved to no other in its place.
///
/// # Errors
/// Conflict, when it is another one.
pub(crate) fn check_same(began: StoreId, store: &Store) -> Result<()> {
    let found = store.format().id;
    match began == found {
        true => Ok(()),
        false => Err(Error::conflict(format!(
            "the store {began} was there when the command began, and in its place there is another one by now, {found}"
        ))),
    }
}
