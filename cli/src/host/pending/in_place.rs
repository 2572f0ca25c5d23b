//! Whether the directory of a pending save is the one that was noted.

use std::path::Path;

use store::{Error, RefName, Result};

use super::{OfCompiles, Pending, files};
use crate::host::place::{self, Held, Place};
use crate::host::planted;
use crate::ui::names::{quoted, quoted_path};

impl Pending {
    /// Whether the job left nothing to save, and another directory is in the place of its own.
    pub(crate) fn is_past(&self) -> bool {
        self.is_done && !self.is_in_place()
    }

    /// Whether the directory is the one that was noted. One that may have been made in its place is not.
    pub(crate) fn is_in_place(&self) -> bool {
        self.place.is_none_or(|place| place.is_at(&self.path))
    }

    /// What is to be said of a directory that was made in the place of the one that was noted.
    pub(crate) fn made_again(&self) -> Option<String> {
        (self.compiles.is_none() && !self.is_in_place()).then(|| {
            format!(
                "{}: another directory than the one that the job was given, which is taken for one that it made again; if \
                 that one was moved away, it is not saved",
                self.path.display()
            )
        })
    }

    /// Checks that the directory of a push is the one that was noted. Programs remove and make their compile caches as
    /// they like, and another one of this user may only have other entries.
    ///
    /// # Errors
    /// Conflict, if it is not.
    pub(crate) fn check_place(&self) -> Result<()> {
        // What is not there yet may be made.
        let is_to_come = self.place.is_none_or(|place| place.is_at(&self.path));
        match is_to_come {
            true => Ok(()),
            false => self.hold_pushed().map(drop),
        }
    }

    /// Holds the directory of a push, if it is that one.
    ///
    /// # Errors
    /// Conflict, if it is not.
    pub(crate) fn hold_pushed(&self) -> Result<Held> {
        let other = || place::other(&self.path).hint(self.how_to_go_on());
        let held = Held::open(&self.path).map_err(|_| other())?;
        let may_be = |place: Place| place.is(&held) || place.may_be_own_as(&held, &self.path);
        match self.place.is_none_or(may_be) {
            true => Ok(held),
            false => Err(other()),
        }
    }

    /// Holds the directory of a save, if it is the one that was noted: who may write above it may have put another one
    /// there. One that is there by now and belongs to the ref `now` is of another job.
    ///
    /// # Errors
    /// Conflict, if it is not.
    pub(crate) fn hold(&self, now: Option<&RefName>) -> Result<Held> {
        let held = Held::open(&self.path)?;
        self.check_held(&held, now)?;
        Ok(held)
    }

    /// Checks the same of the directory that is held.
    ///
    /// # Errors
    /// Conflict, if it is not.
    pub(crate) fn check_held(&self, held: &Held, now: Option<&RefName>) -> Result<()> {
        let Some(place) = self.place.filter(|place| !place.is(held)) else {
            return Ok(());
        };
        let now = now.map(ToString::to_string).into_iter();
        let other =
            (now.chain(self.others_in_place())).find(|name| Some(name) != self.target.as_ref());
        let checked = match other {
            None => place.check(held, &self.path),
            Some(name) => Err(Error::conflict(format!(
                "{}: is of {name} by now, and another directory was to be saved to {}",
                self.path.display(),
                self.target.as_deref().unwrap_or("its ref")
            ))),
        };
        checked.map_err(|error| error.hint(self.how_to_go_on()))
    }

    /// What helps where another directory is in the place.
    fn how_to_go_on(&self) -> String {
        let (dir, target) = (quoted_path(&self.path), self.target.as_deref());
        let by_hand = match &self.compiles {
            _ if planted::is_strange(&self.path) => "it is of another user".to_owned(),
            None => self.by_hand(),
            Some(OfCompiles { profile, .. }) => format!(
                "`store cache --profile {profile} push {dir} {}`",
                quoted(target.unwrap_or("REF"))
            ),
        };
        format!(
            "bring that one back, then `store save --pending` saves it; if what is there is what the job left: {by_hand}; \
             `store save --forget {dir}` gives it up"
        )
    }

    /// The refs that the directory which is there now is to be saved to.
    fn others_in_place(&self) -> Vec<String> {
        let kept = self.file.parent().and_then(Path::parent);
        let others = files(kept.map(Path::to_path_buf)).filter_map(|file| Self::read(&file));
        let others = others.filter(|noted| noted.path == self.path && noted.place.is_some());
        let others = others.filter(|noted| noted.compiles.is_none() && noted.is_in_place());
        others.filter_map(|noted| noted.target).collect()
    }

    /// Keeps the save on the list beside a new one of the same path, if the directory above is another one than then: what
    /// is not here may be where that one is. Returns whether it did.
    pub(crate) fn set_aside(&self) -> bool {
        let Some(place) = self.place.filter(|place| place.is_elsewhere(&self.path)) else {
            return false;
        };
        let aside = self.file.with_extension(format!("{}.json", place.name()));
        std::fs::rename(&self.file, aside).is_ok()
    }
}
