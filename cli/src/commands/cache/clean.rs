//! `store cache clean`: deletes failed and incomplete entries and abandoned locks, so that a compiler tries again.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use store::{Error, Result};

use super::entries::{Look, State};
use super::of_dir;
use super::profile::Profile;
use super::{Named, Refused, place};
use crate::context::Context;
use crate::host::planted;
use crate::ui::{human, names};

/// The JSON form of the report.
#[derive(Serialize)]
struct Report {
    profile: String,
    #[serde(serialize_with = "store::path_as_text")]
    directory: PathBuf,
    dry_run: bool,
    /// Removed entries.
    removed: Vec<Refused>,
    /// Complete entries whose abandoned locks were removed.
    unlocked: Vec<Named>,
    /// Entries that a process works on, or that were changed just now.
    kept: Vec<Named>,
    /// What may be something else than an entry of such a cache.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    no_entry: Vec<Named>,
    /// Directories of pulls that were killed.
    leftovers: u64,
}

pub(super) fn run(given: &Path, profile: &Profile, dry_run: bool, context: &Context) -> Result<()> {
    planted::check(given)?;
    let root = &store::canonical(given)?;
    let mut report = Report {
        profile: profile.name.clone(),
        directory: given.to_path_buf(),
        dry_run,
        removed: Vec::new(),
        unlocked: Vec::new(),
        kept: Vec::new(),
        no_entry: Vec::new(),
        leftovers: 0,
    };
    for (path, _) in of_dir::read(root, profile)? {
        report.entry(root, &path, profile)?;
    }
    for left in place::left(root) {
        report.leftovers += 1;
        if !dry_run {
            std::fs::remove_dir_all(&left).map_err(|source| Error::io("remove", &left, source))?;
        }
    }
    context.out.answer(&report)
}

impl Report {
    fn entry(&mut self, root: &Path, path: &[u8], profile: &Profile) -> Result<()> {
        let Some(entry) = of_dir::one(root, path, profile, Look::Whole)? else {
            return Ok(());
        };
        let state = entry.state_here(profile);
        if state == State::Complete {
            return Ok(());
        }
        let full = root.join(OsStr::from_bytes(path));
        // Some compilers make no locks, and others may lose theirs.
        let is_young = state == State::Incomplete && place::is_young(&full, profile);
        if is_young || place::is_in_work(root, path, &entry, profile) {
            self.kept.push(Named::new(path));
            return Ok(());
        }
        let Some(shape) = profile.entry.get(entry.shape) else {
            return Ok(());
        };
        let mut unlocked = entry.clone();
        unlocked.parts.retain(|part, _| !shape.is_lock(part));
        let failed = |source| Error::io("remove", &full, source);
        if unlocked.state_here(profile) == State::Complete {
            for lock in entry.parts.keys().filter(|part| shape.is_lock(part)) {
                if !self.dry_run {
                    std::fs::remove_file(full.join(OsStr::from_bytes(lock))).map_err(failed)?;
                }
            }
            self.unlocked.push(Named::new(path));
            return Ok(());
        }
        let is_entry = shape.path.is_distinct()
            || match key_of(path) {
                Some(Key::OfCompilers) => true,
                Some(Key::OfAnything) => !shape.file && shape.has_own(&entry),
                None => false,
            };
        if !is_entry {
            self.no_entry.push(Named::new(path));
            return Ok(());
        }
        if !self.dry_run {
            match shape.file {
                true => std::fs::remove_file(&full).map_err(failed)?,
                false => std::fs::remove_dir_all(&full).map_err(failed)?,
            }
            // These go last: while they exist, the entry counts as incomplete.
            for beside in shape.beside(&full) {
                std::fs::remove_dir_all(&beside)
                    .map_err(|source| Error::io("remove", &beside, source))?;
            }
        }
        self.removed.push(Refused::new(path, state, None));
        Ok(())
    }
}

/// A hash as a name: a person gives no such name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Key {
    /// In letters beyond those of hex, as compilers write theirs.
    OfCompilers,
    /// In hex, as everybody does.
    OfAnything,
}

/// What hash the last name in a path is, if it is one.
fn key_of(path: &[u8]) -> Option<Key> {
    // SHA-256 in base64. Shorter ones are names of anything, like MD5 in hex.
    const KEY_BYTES_MIN: usize = 43;
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    let key = name.split(|byte| *byte == b'.').next().unwrap_or(name);
    let is_hash = key.len() >= KEY_BYTES_MIN && key.iter().all(u8::is_ascii_alphanumeric);
    is_hash.then(|| match key.iter().all(u8::is_ascii_hexdigit) {
        true => Key::OfAnything,
        false => Key::OfCompilers,
    })
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (removed, unlocked) = match self.dry_run {
            true => ("would go", "would be unlocked"),
            false => ("removed", "unlocked"),
        };
        write!(
            out,
            "{}: {} {removed}, {} {unlocked}, {} kept, since somebody may work on them",
            names::shown(self.directory.as_os_str().as_bytes()),
            human::counted(self.removed.len() as u64, "entry"),
            self.unlocked.len(),
            self.kept.len()
        )?;
        for one in &self.removed {
            let state = one.state.word();
            write!(out, "\n  {removed} ({state}): {}", one.entry.shown())?;
        }
        for one in &self.unlocked {
            write!(out, "\n  {unlocked}: {}", one.shown())?;
        }
        for one in &self.kept {
            write!(out, "\n  kept: {}", one.shown())?;
        }
        for one in &self.no_entry {
            write!(
                out,
                "\n  left, since it may be no entry of such a cache: {}",
                one.shown()
            )?;
        }
        if self.leftovers > 0 {
            let count = human::counted(self.leftovers, "directory");
            write!(out, "\n  {count} of pulls that died")?;
        }
        Ok(())
    }
}
