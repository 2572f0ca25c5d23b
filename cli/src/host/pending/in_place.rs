//! Whether the directory of a pending save is the one that was noted.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use store::{Error, Result};

use super::{OfCompiles, Pending, files};
use crate::host::place::{self, Held, Place};
use crate::host::planted;
use crate::ui::names::{quoted, quoted_path, save_by_hand};

impl Pending {
    /// Whether the job left nothing to save, and another directory is in the place of its own.
    pub(crate) fn is_past(&self) -> bool {
        self.is_done && !self.is_in_place()
    }

    /// Whether the directory is the one that was noted. One that may have been made in its place is not.
    pub(crate) fn is_in_place(&self) -> bool {
        self.place.is_none_or(|place| place.is_at(&self.path))
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

    /// Holds the directory of a push, if it is that one. If an entry was set aside, no other one than the noted is.
    ///
    /// # Errors
    /// Conflict, if it is not.
    pub(crate) fn hold_pushed(&self) -> Result<Held> {
        let held = Held::open(&self.path).map_err(|_| self.other())?;
        let may_be = |place: Place| {
            let may_be_other = !self.is_aside() || place.is_to_come();
            place.is(&held) || may_be_other && place.may_be_own_as(&held, &self.path)
        };
        match self.place.is_none_or(may_be) {
            true => Ok(held),
            false => Err(self.other()),
        }
    }

    /// The error of another directory in its place.
    pub(crate) fn other(&self) -> Error {
        place::other(&self.path).hint(self.how_to_go_on())
    }

    /// Holds the directory of a save, if it is the one that was noted: what is in its place may be anybody's, or another
    /// one of this user's.
    ///
    /// # Errors
    /// Conflict, if it is not.
    pub(crate) fn hold(&self) -> Result<Held> {
        let held = Held::open(&self.path)?;
        self.check_held(&held)?;
        Ok(held)
    }

    /// Checks the same of the directory that is held.
    ///
    /// # Errors
    /// Conflict, if it is not.
    pub(crate) fn check_held(&self, held: &Held) -> Result<()> {
        match self.may_be_of(held) {
            true => Ok(()),
            false => Err(self.other()),
        }
    }

    /// Whether it is noted that the directory that is held is the one to save.
    pub(crate) fn is_of(&self, held: &Held) -> bool {
        self.place.is_some_and(|place| place.is(held))
    }

    /// How to save the directory by hand, if it is not known which version it was made from; none, if it is of another
    /// user.
    pub(crate) fn by_hand(&self) -> Option<String> {
        let by_hand = || save_by_hand(&self.path, self.target().unwrap_or("REF"), self.given);
        (!self.is_of_others()).then(by_hand)
    }

    /// Whether what is at the path is of another user, or a link of one leads there.
    fn is_of_others(&self) -> bool {
        planted::is_led_by_others(&self.path) || planted::is_strange(&self.path)
    }

    /// What helps where another directory is in the place.
    fn how_to_go_on(&self) -> String {
        let (dir, target) = (quoted_path(&self.path), self.target.as_deref());
        let by_hand = match (self.by_hand(), &self.compiles) {
            (None, _) => "look at it first, since it is of another user".to_owned(),
            (Some(by_hand), None) => by_hand,
            (Some(_), Some(OfCompiles { profile, .. })) => format!(
                "`store cache --profile {profile} push {dir} {}`",
                quoted(target.unwrap_or("REF"))
            ),
        };
        format!(
            "bring that one back, then `store save --pending` saves it; if what is there is what the job left: {by_hand}; \
             then `store save --forget {dir}`, which gives up the one that is gone"
        )
    }

    /// Keeps the entry on the list beside a new one of the same path: what is not here may come back. Returns whether it did.
    pub(crate) fn set_aside(&self) -> bool {
        let Some(place) = self.place else {
            return false;
        };
        let aside = self.file.with_extension(format!("{}.json", place.name()));
        std::fs::rename(&self.file, aside).is_ok()
    }

    /// Whether it was set aside.
    pub(crate) fn is_aside(&self) -> bool {
        self.main_file() != self.file
    }

    /// Whether both are of one path, one store and one ref.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        self.main_file() == other.main_file()
    }

    /// Makes the entry that was set aside count again whose directory is at the path now, and sets the one aside that counts.
    pub(crate) fn take_back(&self) {
        let Some(here) = self.here().filter(Self::is_aside) else {
            return;
        };
        let main = Self::read(&self.main_file());
        if main.is_none_or(|main| main.set_aside()) {
            // Otherwise it stays where it is, and the next call tries again.
            drop(std::fs::rename(&here.file, self.main_file()));
        }
    }

    /// The entry of the directory that is at the path now.
    pub(crate) fn here(&self) -> Option<Self> {
        let held = Held::open(&self.path).ok()?;
        self.of_path().find(|noted| noted.may_be_of(&held))
    }

    /// Takes the directory off the list that is at the path now and was saved. Returns whether others of the path stay on it.
    pub(crate) fn remove_saved(&self) -> bool {
        let held = Held::open(&self.path).ok();
        let is_saved = |noted: &Self| {
            let is_of = |held: &Held| {
                noted.may_be_of(held) || noted.instead.is_some_and(|instead| instead.is(held))
            };
            held.as_ref().is_none_or(is_of)
        };
        let (saved, others): (Vec<_>, Vec<_>) = self.of_path().partition(is_saved);
        saved.iter().for_each(Self::remove);
        !others.is_empty()
    }

    /// All entries of the path, of one store and one ref.
    fn of_path(&self) -> impl Iterator<Item = Self> {
        let (main, kept) = (self.main_file(), self.file.parent().and_then(Path::parent));
        let all = files(kept.map(Path::to_path_buf)).filter_map(|file| Self::read(&file));
        all.filter(move |noted| noted.main_file() == main)
    }

    /// Whether it may be of the directory that is held.
    fn may_be_of(&self, held: &Held) -> bool {
        self.place.is_none_or(|place| place.is(held))
    }

    /// The file of the entry of the same path that is not set aside.
    pub(super) fn main_file(&self) -> PathBuf {
        let name = self.file.file_name().unwrap_or_default().as_bytes();
        let key = name.split(|byte| *byte == b'.').next().unwrap_or_default();
        let key = OsStr::from_bytes(key);
        self.file.with_file_name(key).with_extension("json")
    }
}
