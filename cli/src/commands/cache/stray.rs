//! Strays: files in a compile cache that belong to no entry of its profile. They are never pushed, so they are reported.
//!
//! Volatile files, locks and the leftovers of a compile under way are not reported.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use serde::Serialize;
use store::{Error, Result};

use super::of_dir::is_gone;
use super::place::STAGE;
use super::profile::Profile;
use super::{Named, TOLD_MAX};
use crate::context::Context;
use crate::ui::human;

/// The number of strays, and the first paths.
#[derive(Default, Serialize)]
pub(super) struct Strays {
    files: u64,
    first: Vec<Named>,
}

/// Finds the strays of a directory; none if it is missing. Paths that `is_elsewhere` accepts are skipped.
pub(super) fn of_dir(
    root: &Path,
    profile: &Profile,
    is_elsewhere: &dyn Fn(&Path, bool) -> bool,
) -> Result<Strays> {
    let mut strays = Strays::default();
    let mut walk = Walk {
        root,
        profile,
        is_elsewhere,
        strays: &mut strays,
    };
    walk.dir(&mut Vec::new())?;
    Ok(strays)
}

struct Walk<'w> {
    root: &'w Path,
    profile: &'w Profile,
    is_elsewhere: &'w dyn Fn(&Path, bool) -> bool,
    strays: &'w mut Strays,
}

impl Walk<'_> {
    fn dir(&mut self, at: &mut Vec<u8>) -> Result<()> {
        let dir = self.root.join(OsStr::from_bytes(at));
        let failed = |source| Error::io("read the directory", &dir, source);
        let listed = match std::fs::read_dir(&dir) {
            Ok(listed) => listed,
            Err(error) if is_gone(&error) => return Ok(()),
            Err(source) => return Err(failed(source)),
        };
        let length = at.len();
        for file in listed {
            let file = file.map_err(failed)?;
            let is_dir = file.file_type().is_ok_and(|kind| kind.is_dir());
            if !at.is_empty() {
                at.push(b'/');
            }
            at.extend_from_slice(&file.file_name().into_vec());
            let is_known = self.is_known(at, is_dir) || (self.is_elsewhere)(&file.path(), is_dir);
            match (is_known, is_dir) {
                (true, _) => {}
                (false, true) => self.dir(at)?,
                (false, false) => self.strays.add(at),
            }
            at.truncate(length);
        }
        Ok(())
    }

    /// Whether a path belongs to an entry or is not worth keeping.
    fn is_known(&self, path: &[u8], is_dir: bool) -> bool {
        let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
        let name = names.last().copied().unwrap_or_default();
        let mut shapes = self.profile.entry.iter();
        let is_passing = shapes.any(|shape| {
            let is_volatile = shape.is_volatile(name) || shape.is_lock(name);
            is_volatile || (is_dir && shape.may_be_beside(name))
        });
        let is_of_an_entry = self.profile.shape_of(&names, is_dir).is_some();
        is_passing || is_of_an_entry || name.starts_with(STAGE.as_bytes())
    }
}

impl Strays {
    fn add(&mut self, path: &[u8]) {
        self.files += 1;
        let at = self.first.partition_point(|known| &*known.bytes < path);
        self.first.insert(at, Named::new(path));
        self.first.truncate(TOLD_MAX);
    }

    pub(super) fn is_none(&self) -> bool {
        self.files == 0
    }

    /// Prints a note. `what` says what is not done with them.
    pub(super) fn tell(&self, (root, profile): (&Path, &Profile), what: &str, context: &Context) {
        if !self.is_none() {
            let (root, name) = (root.display(), &profile.name);
            context.out.note(format_args!(
                "note: compile cache {root} ({name}): {what}: {}",
                self.shown()
            ));
        }
    }

    fn shown(&self) -> String {
        let first: Vec<String> = self.first.iter().map(Named::shown).collect();
        let more = match self.files > first.len() as u64 {
            true => ", ...",
            false => "",
        };
        let files = human::counted(self.files, "file");
        format!("{files} of no entry: {}{more}", first.join(", "))
    }
}

/// A line of the status.
impl fmt::Display for Strays {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_none() {
            true => Ok(()),
            false => write!(out, "\n  {}", self.shown()),
        }
    }
}
