//! `store cache push`: adds complete entries to a ref that has none with the same key.

mod secrets;
mod staged;
mod told;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use store::{
    Case, Error, Onto, ProfileChoice, PutRequest, Reader, RefName, Remedy, Result, SourceCheck,
    Store, Unwatched, put,
};

use self::secrets::Secret;
use self::staged::Staged;
use super::entries::{Entries, Entry, Look, State};
use super::of_ref::{self, Beside, Stored};
use super::profile::Profile;
use super::stray::{self, Strays};
use super::{Named, Refused, of_dir};
use crate::context::Context;
use crate::host::place::Held;
use crate::host::planted;
use crate::ui::{failure, human, names, remedy};

/// The JSON form of the report.
#[derive(Serialize)]
pub(super) struct PushReport {
    profile: String,
    #[serde(rename = "ref")]
    target: RefName,
    #[serde(serialize_with = "store::path_as_text")]
    directory: PathBuf,
    /// The newest version, which has the entries; `None` after a dry run, and if there is no version.
    version: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
    /// Entries that are new in the ref.
    pub(super) pushed: u64,
    /// Entries that the ref already has.
    same: u64,
    /// Entries that the ref has, whose bytes the store had lost: they are stored again.
    #[serde(skip_serializing_if = "is_zero")]
    healed: u64,
    /// Entries whose key has a different entry in the ref.
    conflicts: Vec<Named>,
    /// Entries that are not complete here.
    refused: Vec<Refused>,
    /// Files that seem to hold credentials: their entries are kept out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    secrets: Vec<Secret>,
    /// Files here that belong to no entry. `None` if they were not looked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) no_entry: Option<Strays>,
    /// Why nothing was pushed: the store can be read but not written to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) denied: Option<String>,
    /// Whether it is on the list of `store save --pending`.
    #[serde(skip)]
    pub(super) is_noted: bool,
    /// Whether --public was given.
    #[serde(skip)]
    is_public: bool,
    new_bytes: u64,
    stored_bytes: u64,
    secs: f64,
    notes: Vec<String>,
}

/// How to push.
#[derive(Clone, Debug, Default)]
pub(super) struct How {
    pub(super) public: bool,
    pub(super) dry_run: bool,
    /// Nobody named the ref, so one with other content is left alone.
    pub(super) is_unnamed: bool,
    /// Globs of files that are taken even if they seem to hold credentials.
    pub(super) allow_secret: Vec<String>,
}

/// Pushes from a directory that is held. Whatever comes to its path meanwhile is not pushed.
pub(super) fn push(
    store: &Store,
    (root, held, target): (&Path, &Held, &RefName),
    profile: &Profile,
    how: &How,
) -> Result<PushReport> {
    check_public(target, how)?;
    planted::check(root)?;
    let began = Instant::now();
    let root = &store::canonical(root)?;
    let here = of_dir::read(root, profile)?;
    let reader = Reader::new(store)?;
    let mut stored = of_ref::read(&reader, target, profile)?;
    if let Some(stored) = &mut stored {
        check_kind(stored, (&reader, target), profile, how)?;
        of_ref::look_for_lost(stored, (&reader, target), profile)?;
    }
    let mut report = PushReport {
        profile: profile.name.clone(),
        target: target.clone(),
        directory: root.clone(),
        version: stored.as_ref().map(|stored| stored.version),
        dry_run: how.dry_run,
        pushed: 0,
        same: 0,
        healed: 0,
        conflicts: Vec::new(),
        refused: Vec::new(),
        secrets: Vec::new(),
        no_entry: None,
        denied: None,
        is_noted: false,
        is_public: how.public,
        new_bytes: 0,
        stored_bytes: 0,
        secs: 0.0,
        notes: Vec::new(),
    };
    let stored = stored.map(|stored| (stored.entries, stored.beside));
    let (mut stored, beside) = stored.unwrap_or_default();
    let mut new = report.choose(&here, (&stored, &beside), profile);
    of_dir::look_through(&mut new, root, profile, |_, _| true)?;
    new.retain(|path, entry| report.is_whole(path, entry, profile));
    report.secrets = secrets::keep_out(&mut new, root, profile, &how.allow_secret)?;
    // An entry that is truncated in the ref is replaced by a complete one.
    of_ref::look_into(&mut stored, (&reader, Look::Whole), profile, |path, _| {
        new.contains_key(path)
    })?;
    // An attempt is repeated only if an entry was changed meanwhile, and without that entry. So the loop ends.
    while !new.is_empty() {
        let before = new.len();
        let staged = match Staged::new(root, new.clone(), profile) {
            Ok(staged) => staged,
            Err(error) => {
                new.retain(|path, entry| report.is_still(root, (path, entry), profile));
                if new.len() < before {
                    continue;
                }
                return Err(error);
            }
        };
        let done = report.insert(store, &staged, (held, &stored, profile), how);
        if done.is_err() {
            new.retain(|path, entry| report.is_still(root, (path, entry), profile));
        }
        match done {
            Err(_) if new.len() < before => {}
            Err(error) if failure::is_for_want_of_rights(&error) && staged.can_be_read() => {
                report.denied = Some(failure::one_line(&error));
                break;
            }
            done => {
                done?;
                break;
            }
        }
    }
    report.secs = began.elapsed().as_secs_f64();
    Ok(report)
}

/// Refuses a push to a team without `--public`: more people can read the team's refs than the project's.
pub(super) fn check_public(target: &RefName, how: &How) -> Result<()> {
    if how.public || !target.as_str().starts_with("team/") {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{target}: more people may read it than the project whose compiles these are"
    ))
    .hint("give --public if that is meant, or push to a ref of the project"))
}

/// Checks that a ref with content is a compile cache: of this profile, or, where somebody named the ref, of a built-in
/// one.
fn check_kind(
    stored: &Stored,
    (reader, target): (&Reader<'_>, &RefName),
    profile: &Profile,
    how: &How,
) -> Result<()> {
    if stored.has_any(profile) || (stored.is_empty && !how.is_unnamed) {
        return Ok(());
    }
    for other in Profile::shipped().filter(|_| !how.is_unnamed) {
        let other = other?;
        if of_ref::read(reader, target, &other)?.is_some_and(|stored| stored.has_any(&other)) {
            return Ok(());
        }
    }
    let error = Error::conflict(format!(
        "{target}@{}: has no entry of a compile cache ({}), so that nothing is pushed to it",
        stored.version, profile.name
    ));
    Err(match how.is_unnamed {
        true => error.hint("give it another name, or configure a layout with other refs, as `store help compile-caches` shows"),
        false => error.hint("push to a ref that is empty, new, or a compile cache"),
    })
}

impl PushReport {
    /// Chooses the complete entries that the ref does not seem to have.
    fn choose(
        &mut self,
        here: &Entries,
        (stored, beside): (&Entries, &Beside),
        profile: &Profile,
    ) -> Entries {
        let mut new = Entries::new();
        for (path, entry) in here {
            let (state, shape) = (entry.state(profile), profile.entry.get(entry.shape));
            let known = stored.get(path);
            let is_same = |known: &Entry| shape.is_some_and(|shape| entry.looks_like(known, shape));
            if state != State::Complete {
                self.refused.push(Refused::new(path, state, None));
            } else if beside.is_of(path, shape) {
                // A push removes nothing, so it would stay in the making there.
                let refused = Refused::new(path, State::Incomplete, Some(&self.target));
                self.refused.push(refused);
            } else if known.is_some_and(|known| !known.is_lost && is_same(known)) {
                self.same += 1;
            } else {
                new.insert(path.clone(), entry.clone());
            }
        }
        new
    }

    /// Whether an entry is complete after a closer look. Refuses it otherwise.
    fn is_whole(&mut self, path: &[u8], entry: &Entry, profile: &Profile) -> bool {
        let state = entry.state(profile);
        if state != State::Complete {
            self.refused.push(Refused::new(path, state, None));
        }
        state == State::Complete
    }

    /// Whether an entry has not changed since it was chosen. Refuses it otherwise.
    fn is_still(&mut self, root: &Path, (path, entry): (&[u8], &Entry), profile: &Profile) -> bool {
        let is_still = is_still(root, (path, entry), profile);
        if !is_still {
            self.refused.push(Refused::new(path, State::Locked, None));
        }
        is_still
    }

    /// Saves the staged entries that the ref does not have.
    fn insert(
        &mut self,
        store: &Store,
        staged: &Staged,
        (held, stored, profile): (&Held, &Entries, &Profile),
        how: &How,
    ) -> Result<()> {
        let mut request = PutRequest::new(staged.tree(), self.target.clone());
        request.onto = Onto::Insert;
        let broken = |path: &Vec<u8>| {
            let known = stored.get(path)?;
            (known.state(profile) != State::Complete).then_some(known.content)?
        };
        let paths = staged.entries.keys();
        request.entries = paths.map(|path| (path.clone(), broken(path))).collect();
        request.links.dereference = true;
        request.profile.choice = ProfileChoice::None;
        request.profile.check = false;
        request.profile.check_hashes = false;
        request.dry_run = how.dry_run;
        request.readable = how.public;
        request.source_check = Some(second_look(held, &staged.entries, profile));
        request.message = format!(
            "{} of a cache ({})",
            human::counted(staged.entries.len() as u64, "entry"),
            profile.name
        );
        let before = self.version;
        let done = put(store, &request, &Unwatched)?;
        self.version = done.version.or(before);
        (self.new_bytes, self.stored_bytes) = (done.new_bytes, done.stored_bytes);
        let clashes = done.saved.map(|saved| saved.clashes).unwrap_or_default();
        let clashes = clashes
            .iter()
            .filter(|clash| clash.case == Case::ThereFirst);
        self.conflicts = clashes.map(|clash| Named::new(&clash.path)).collect();
        let kept_out = self.conflicts.len() as u64;
        let staged_count = staged.entries.len() as u64;
        let lost = staged.entries.keys().filter_map(|path| stored.get(path));
        self.healed = lost.filter(|entry| entry.is_lost).count() as u64;
        let known = match done.unchanged {
            true => staged_count - self.healed,
            false => known(&staged.entries, stored, profile).max(kept_out),
        };
        self.same += known.saturating_sub(kept_out);
        self.pushed = staged_count.saturating_sub(known + self.healed);
        let notes = done
            .notes
            .iter()
            .filter(|note| !note.text.contains("followed, since"));
        let told = notes.map(|note| match note.remedy {
            // The advice names an option that this verb does not have.
            Some(Remedy::LetOthersRead) => note.text.clone(),
            _ => remedy::note(note),
        });
        self.notes = told.collect();
        Ok(())
    }
}

/// After all was read, checks that each entry is still as it was when it was found complete: the same files, in the
/// directory that is held, since another one may have been at its path.
fn second_look(held: &Held, entries: &Entries, profile: &Profile) -> SourceCheck {
    let (root, entries, profile) = (held.link(), entries.clone(), profile.clone());
    let check = move || {
        let changed = entries
            .iter()
            .find(|(path, entry)| !is_still(Path::new(&root), (path, entry), &profile));
        changed.map_or(Ok(()), |(path, _)| {
            let path = names::shown(path);
            let told = format!("{path}: somebody writes to it");
            Err(Error::conflict(told).hint("push again when that is over"))
        })
    };
    SourceCheck::new(Arc::new(check))
}

fn is_still(root: &Path, (path, before): (&[u8], &Entry), profile: &Profile) -> bool {
    let Some(shape) = profile.entry.get(before.shape) else {
        return true;
    };
    let now = of_dir::one(root, path, profile, Look::Quick).ok().flatten();
    now.is_some_and(|now| now.state(profile) == State::Complete && now.is_as_it_was(before, shape))
}

/// The number of staged entries whose keys are complete in the ref.
fn known(staged: &Entries, stored: &Entries, profile: &Profile) -> u64 {
    let known = staged.keys().filter_map(|path| stored.get(path));
    known
        .filter(|entry| entry.state(profile) == State::Complete)
        .count() as u64
}

/// Opens the store and pushes.
pub(super) fn pushed(
    (root, held, target): (&Path, &Held, &RefName),
    profile: &Profile,
    how: &How,
    context: &Context,
) -> Result<PushReport> {
    let store = match how.dry_run {
        true => context.open_for_dry_run()?,
        false => context.open_for_job()?,
    };
    let mut report = push(&store, (root, held, target), profile, how)?;
    report.no_entry = Some(stray::of_dir(root, profile, &|_, _| false)?);
    Ok(report)
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(count: &u64) -> bool {
    *count == 0
}
