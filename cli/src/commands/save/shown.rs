//! The outcome of `store save` for people: first the new version, then what the directory holds.

use std::fmt;
use std::time::Duration;

use store::Counts;

use super::outcome::SaveOutcome;
use crate::ui::{human, names};

impl fmt::Display for SaveOutcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = names::id(self.id.as_ref());
        match self.version {
            Some(version) if self.unchanged => {
                write!(out, "{}: unchanged, still @{version}{id}: ", self.target)?;
            }
            Some(version) => write!(out, "{}@{version}{id}: ", self.target)?,
            None => write!(out, "{}, nothing written: ", self.target)?,
        }
        write!(
            out,
            "{} added, {} changed, {} removed",
            human::count(self.saved.counts.added),
            human::count(self.saved.counts.changed),
            human::count(self.saved.counts.removed),
        )?;
        match (self.saved.base, self.saved.onto) {
            _ if self.unchanged && self.saved.counts != Counts::default() => {
                write!(out, " in the directory, none of which changes the ref")?;
            }
            (base, Some(onto)) if base != Some(onto) => write!(out, ", merged into @{onto}")?,
            _ => {}
        }
        if self.saved.clashed > 0 {
            write!(out, ", {}", human::counted(self.saved.clashed, "conflict"))?;
        }
        write!(
            out,
            " in {}\n{}: {}, {}; read {}, new {}, stored {}",
            human::duration(Duration::from_secs_f64(self.secs)),
            self.directory.display(),
            human::counted(self.files, "file"),
            human::bytes(self.bytes),
            human::bytes(self.read_bytes),
            human::bytes(self.new_bytes),
            human::bytes(self.stored_bytes),
        )
    }
}
