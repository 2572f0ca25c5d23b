//! Pending pushes: compile caches that could not be pushed are on the list of `store save --pending`.
//!
//! The entry is written before a push or a command starts, so that it exists after a kill.

use std::ffi::OsStr;
use std::path::Path;

use store::{Error, ErrorKind, RefName, Remedy, Result};

use super::entries::State;
use super::of_dir;
use super::profile::Profile;
use super::push::{self, How, PushReport};
use crate::commands::reach;
use crate::config;
use crate::context::Context;
use crate::host::pending::{OfCompiles, Pending};
use crate::host::place::Held;
use crate::ui::{names, remedy};

/// An entry of the list; `None` if this host keeps no state.
pub(super) struct Unpushed(Option<Pending>);

impl Unpushed {
    /// An entry that is not written yet. `store` is the id of its store if that is known.
    pub(super) fn new(
        (dir, target): (&Path, &RefName),
        profile: &Profile,
        how: &How,
        (store, context): (Option<String>, &Context),
    ) -> Self {
        let of = OfCompiles {
            profile: profile.name.clone(),
            public: how.public,
            is_unnamed: how.is_unnamed,
            entries: 0,
        };
        let url = context.store_url().ok();
        let noted =
            url.and_then(|url| Pending::of_compiles(config::state_dir(), dir, (&url, target), of));
        Self(noted.map(|noted| noted.only_to(store)))
    }

    /// The entry as it is on the list, if it is there. One that was set aside counts again if its directory is back.
    pub(super) fn written(&self) -> Option<Pending> {
        let noted = self.0.as_ref()?;
        noted.take_back();
        noted.written()
    }

    /// Keeps what is on the list beside the entry that is about to be written, if it is of a directory that is away and has
    /// something to push: it may come back.
    pub(super) fn set_aside_away(&self) {
        let left = self.written();
        let is_left = |left: &Pending| left.compiles().is_some_and(|of| is_away(left, of));
        if let Some(left) = left.filter(is_left) {
            left.set_aside();
        }
    }

    /// Notes which directory is there now, and writes the entry.
    pub(super) fn write_again(&mut self) {
        self.0 = self.0.take().map(Pending::of_what_is_there);
        self.write();
    }

    /// Checks that the directory is still the one that was noted.
    ///
    /// # Errors
    /// Conflict, if another one is in its place.
    pub(super) fn check_place(&self) -> Result<()> {
        let noted = self.0.as_ref();
        noted.map_or(Ok(()), Pending::check_place)
    }

    /// Holds the directory `dir`, if it is still the one that was noted.
    ///
    /// # Errors
    /// Conflict, if another one is in its place.
    pub(super) fn hold(&self, dir: &Path) -> Result<Held> {
        let noted = self.0.as_ref();
        noted.map_or_else(|| Held::open(dir), Pending::hold_pushed)
    }

    /// Writes the entry.
    pub(super) fn write(&self) {
        if let Some(noted) = &self.0 {
            // If this fails, a failed push does not promise anything.
            drop(noted.write());
        }
    }

    /// Writes the entry again if another process removed it.
    pub(super) fn keep(&self) {
        self.0.iter().for_each(Pending::keep);
    }

    /// Removes the entry.
    pub(super) fn remove(&self) {
        self.0.iter().for_each(Pending::remove);
    }

    /// Keeps or removes the entry after a push. The result says whether it is kept.
    pub(super) fn ended(
        &mut self,
        profile: &Profile,
        done: Result<PushReport>,
        context: &Context,
    ) -> Result<PushReport> {
        let is_exchanged = self.check_place().is_err();
        let Some(noted) = self.0.take() else {
            return done;
        };
        let is_left = match &done {
            Ok(report) => report.denied.is_some(),
            Err(error) => may_be_later(error, noted.directory(), context),
        };
        let entries = complete(noted.directory(), profile);
        let is_left = is_left && entries > 0;
        let noted = noted.with_entries(entries);
        let noted = self.0.insert(match is_left && !is_exchanged {
            // The command may have made it.
            true => noted.of_what_is_there(),
            false => noted,
        });
        let is_noted = (is_left || is_exchanged) && noted.write().is_ok();
        if !is_noted {
            noted.remove();
        }
        if !is_noted || is_exchanged {
            return done;
        }
        let dir = noted.directory().display();
        let kept = format!(
            "what was compiled stays in {dir}; `store save --pending` pushes it when that is possible"
        );
        match done {
            Ok(mut report) => {
                report.is_noted = true;
                Ok(report)
            }
            Err(error) => Err(match error.remedy().map(remedy::words) {
                Some(advice) => error.hint(format!("{advice}; {kept}")),
                None => error.hint(kept),
            }),
        }
    }
}

/// Whether the same push may succeed later.
fn may_be_later(error: &Error, dir: &Path, context: &Context) -> bool {
    let is_full = error.remedy() == Some(&Remedy::DropOrRaiseQuota);
    is_full || error.kind() == ErrorKind::Interrupted || reach::is_out_of_reach(error, dir, context)
}

/// The number of complete entries.
fn complete(dir: &Path, profile: &Profile) -> u64 {
    let found = of_dir::read(dir, profile).unwrap_or_default();
    let all = found.values();
    all.filter(|entry| entry.state(profile) == State::Complete)
        .count() as u64
}

/// Whether an entry of the list has anything to push or to report. If its directory is not there, that is so only if a push
/// of it failed.
pub(crate) fn is_any(noted: &Pending, of: &OfCompiles) -> bool {
    let dir = noted.directory();
    // What is in the place of one that was set aside says nothing of it.
    if !dir.exists() || noted.is_aside() && noted.check_place().is_err() {
        return of.entries > 0;
    }
    // The push reports a profile that cannot be read.
    let has_any = Profile::load(&of.profile).map_or(true, |profile| complete(dir, &profile) > 0);
    has_any || is_away(noted, of)
}

/// Whether another directory is in the place of the one that had entries, as when a volume is not mounted.
fn is_away(noted: &Pending, of: &OfCompiles) -> bool {
    of.entries > 0 && !noted.is_in_place()
}

/// Pushes with an entry on the list, and reports.
pub(super) fn push_noted(
    root: &Path,
    target: &RefName,
    profile: &Profile,
    how: &How,
    context: &Context,
) -> Result<()> {
    push::check_public(target, how)?;
    let held = Held::open(root)?;
    let known = (context.known_id(), context);
    let mut noted = (!how.dry_run).then(|| Unpushed::new((root, target), profile, how, known));
    noted.iter().for_each(Unpushed::set_aside_away);
    noted.iter_mut().for_each(Unpushed::write_again);
    let done = push::pushed((root, &held, target), profile, how, context);
    let report = match noted {
        Some(mut noted) => noted.ended(profile, done, context)?,
        None => done?,
    };
    report.tell(context);
    if let Some(strays) = &report.no_entry {
        strays.tell((root, profile), "not pushed", context);
    }
    context.out.report(&report)?;
    report.outcome()
}

/// Pushes an entry of the list.
pub(crate) fn push(noted: Pending, of: &OfCompiles, is_dry: bool, context: &Context) -> Result<()> {
    let profile = Profile::load(&of.profile)?;
    let target = names::name(OsStr::new(noted.target().unwrap_or_default()))?;
    let dir = noted.directory().to_path_buf();
    let how = How {
        public: of.public,
        dry_run: is_dry,
        is_unnamed: of.is_unnamed,
        allow_secret: Vec::new(),
    };
    let held = noted.hold_pushed()?;
    if complete(&dir, &profile) == 0 && is_away(&noted, of) {
        return Err(noted.other());
    }
    let done = push::pushed((&dir, &held, &target), &profile, &how, context);
    let report = match is_dry {
        true => done?,
        false => Unpushed(Some(noted)).ended(&profile, done, context)?,
    };
    report.tell(context);
    context.out.report(&report)?;
    match &report.denied {
        Some(why) => Err(Error::denied(format!(
            "{target}: nothing was pushed: {why}"
        ))),
        None => report.outcome(),
    }
}
