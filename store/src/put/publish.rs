//! The commit of a put: makes what was built a version of its ref, and counts what was stored.

use std::sync::atomic::{AtomicU64, Ordering};

use super::dedup::Dedup;
use super::messages::{Base, Built};
use super::remember::Remembering;
use super::same::Same;
use super::{Onto, PutReport, PutRequest, SourceCheck, ancestor as save};
use crate::error::{Error, Result};
use crate::format::{Change, FrameKind, Id, Root, Sides, State, Version, pack_key};
use crate::host::stat_cache::CacheBase;
use crate::id::PassId;
use crate::pack::WrittenPack;
use crate::policy::{self, Refused, Room};
use crate::read::Reader;
use crate::remedy::{Note, Remedy};
use crate::session::{Changes, Published, Session};
use crate::sound::mend::mend;
use crate::store::{Store, View};

/// What all passes of a put have in common.
#[derive(Debug)]
pub(super) struct Passes {
    id: PassId,
    /// Bytes of new chunks, and of their stored form, of all passes so far.
    new_bytes: AtomicU64,
    stored_bytes: AtomicU64,
}

/// One pass, and what it has written.
pub(super) struct PutSession<'p> {
    request: &'p PutRequest,
    dedup: &'p Dedup,
    session: Session<'p>,
    /// Bytes that this pass has stored.
    stored_bytes: AtomicU64,
    store: &'p Store,
    /// How much the namespace of the target may still take, if it has a quota.
    room: Option<Room>,
    passes: &'p Passes,
}

impl Passes {
    pub(super) fn begin() -> Result<Self> {
        Ok(Self {
            id: PassId::random()?,
            new_bytes: AtomicU64::new(0),
            stored_bytes: AtomicU64::new(0),
        })
    }

    /// Bytes that all passes have stored.
    pub(super) fn stored_bytes(&self) -> u64 {
        self.stored_bytes.load(Ordering::Relaxed)
    }
}

impl<'p> PutSession<'p> {
    pub(super) fn new(
        store: &'p Store,
        request: &'p PutRequest,
        dedup: &'p Dedup,
        view: View,
        bases: Vec<Base>,
        passes: &'p Passes,
    ) -> Result<Self> {
        for Base(version) in bases {
            dedup.relied().count_on(version.root);
        }
        Ok(Self {
            request,
            dedup,
            store,
            room: policy::room(store, &view, &request.target)?,
            session: Session::new(store, dedup.relied(), view, passes.id),
            stored_bytes: AtomicU64::new(0),
            passes,
        })
    }

    /// Counts a frame that goes to a pack. Fails as soon as the commit would fail for lack of room.
    pub(super) fn count(&self, kind: FrameKind, raw_bytes: u32, stored_bytes: usize) -> Result<()> {
        let new_bytes = match kind {
            FrameKind::Data => raw_bytes.into(),
            FrameKind::Meta => 0,
        };
        let stored_bytes = stored_bytes as u64;
        let passes = self.passes;
        passes.new_bytes.fetch_add(new_bytes, Ordering::Relaxed);
        passes
            .stored_bytes
            .fetch_add(stored_bytes, Ordering::Relaxed);
        let before = self.stored_bytes.fetch_add(stored_bytes, Ordering::Relaxed);
        match &self.room {
            Some(room) => room.check(before.saturating_add(stored_bytes)),
            None => Ok(()),
        }
    }

    /// Adds a durable pack.
    pub(super) fn add(&self, pack: &WrittenPack) -> Result<()> {
        if !self.session.add(pack)?.is_empty() {
            self.dedup.committed();
        }
        Ok(())
    }

    /// Commits what an interrupted pass has stored, so that the next put finds it. Returns the error that says so.
    pub(super) fn interrupted(&self, error: Error) -> Error {
        if self.request.dry_run {
            return error;
        }
        match self.session.commit_packs() {
            Ok(_) => match self.session.kept_bytes() {
                0 => error,
                bytes => error.hint(Remedy::Kept { bytes }),
            },
            Err(_) => error.hint("what was stored last may be stored again by the next put"),
        }
    }

    /// Adds the version; `None` when a collector took chunks that this pass relied on.
    ///
    /// If the newest version is the same already, no version is added. If the pass stored chunks nevertheless, that
    /// version lacked them, and they are committed without a new version.
    pub(super) fn commit(
        self,
        mut built: Built,
        base: Option<&save::Base>,
        reader: &Reader<'_>,
    ) -> Result<Option<PutReport>> {
        if let Some(SourceCheck(check)) = &self.request.source_check {
            check()?;
        }
        if self.request.needs_files {
            built.check_has_files(self.request)?;
        }
        if let Some(base) = base {
            let is_mended = !self.request.dry_run && self.mend(&reader.view().state)?;
            // The next pass uses what is left.
            return match is_mended {
                true => self.session.commit_packs().map(|_| None),
                false => self.save(built, base, reader),
            };
        }
        let listing = built.listing.take();
        let mut report = std::mem::take(&mut built.report);
        report.new_bytes = self.passes.new_bytes.load(Ordering::Relaxed);
        report.stored_bytes = self.passes.stored_bytes();
        let target = &self.request.target;
        let same = Same {
            request: self.request,
            source: save::known(self.store, self.request, &reader.view().state),
            built: &built,
            reader,
        };
        // DESIGN, writer 13: a version must not rely on packs that are known to be gone.
        let is_mended = !self.request.dry_run && self.mend(&reader.view().state)?;
        let known = match is_mended {
            true => None,
            false => self.known(&same)?,
        };
        (report.version, report.unchanged) = (known, known.is_some());
        if self.request.dry_run {
            report.would_be = Some(Id::of(&built.root));
            let relied = self.dedup.relied().index();
            let view = self.session.into_view();
            if known.is_none() {
                report.notes.extend(same.notes(&view.state));
                policy::check_dry_run(self.store, &view, target, &relied, report.stored_bytes)?;
            }
            return Ok(Some(report));
        }
        // A tree that was made or saved here may be saved next.
        let made = save::made(self.store, self.request);
        let listing = listing.filter(|_| matches!(built.root, Root::Tree { .. }));
        let is_known = made.is_some() || save::was_saved(self.store, self.request);
        let mut remembering = listing
            .map(|listing| Remembering::new((self.store, self.request), made, Some(listing)));
        if let Some(remembering) = &mut remembering {
            remembering.flush_if(is_known, None, &built.root);
            remembering.prepare(&built.root, None, reader);
            let newest = reader.view().state.refs.last(target)?;
            remembering.announce(known.unwrap_or(newest + 1), *built.root.content())?;
        }
        let published = match known {
            Some(version) => Some(version),
            // The next pass uses what is left.
            None if is_mended => self.session.commit_packs().map(|_| None)?,
            None => self.publish(&same, &mut remembering, &mut report)?,
        };
        let base = CacheBase {
            name: target.clone(),
            version: published.unwrap_or_default(),
            root: built.root,
        };
        let cached = built.cache.take().map(|cache| cache.commit(base));
        // The next pass looks up in the cache which files it need not read again. As no version vouches for them then,
        // every chunk is looked up. If the cache could not be written, that only costs time.
        let Some(version) = published else {
            return Ok(None);
        };
        report.version = Some(version);
        report.id = Some(Id::of(&built.root));
        let kept = remembering.and_then(|kept| kept.keep(version, *built.root.content()));
        report.notes.extend(kept);
        if let Some(Err(error)) = cached {
            report
                .notes
                .push(format!("{error}: the next put from here reads every file").into());
        }
        Ok(Some(report))
    }

    /// Whether packs that this pass relied on were missing or damaged, so that another pass has to store their content.
    fn mend(&self, state: &State) -> Result<bool> {
        let Some(bad) = mend(self.store, state, self.dedup.relied())? else {
            return Ok(false);
        };
        let Some(first) = bad.first() else {
            return Ok(true);
        };
        let others = match bad.len() - 1 {
            0 => String::new(),
            more => format!(", and {more} more,"),
        };
        self.store.warn(
            Error::corrupt(format!(
                "{}{others} was gone or damaged: what this put has of it is stored again",
                pack_key(*first)
            ))
            .hint(Remedy::Verify),
        );
        Ok(true)
    }

    /// The newest version, if nothing needs to be written: it is the same, and nothing was stored except times of
    /// directories. If the new times are those of that version, it lacked them, and must be written.
    fn known(&self, same: &Same<'_>) -> Result<Option<u64>> {
        let claims = self.dedup.claims();
        if !self.request.dry_run && claims > same.built.new_times {
            return Ok(None);
        }
        let state = self.newest_state(same.reader)?;
        self.request.check_newest(&state)?;
        let lacks = |newest: &Version| {
            !self.request.dry_run && claims > 0 && newest.times() == same.built.times
        };
        let found = same.version(&state).filter(|(_, newest)| !lacks(newest));
        Ok(found.map(|(number, _)| number))
    }

    /// Adds the version to the log, and returns its number; none when the pass is stale.
    fn publish(
        &self,
        same: &Same<'_>,
        remembering: &mut Option<Remembering<'_>>,
        report: &mut PutReport,
    ) -> Result<Option<u64>> {
        let (request, built) = (self.request, same.built);
        let mut version = 0;
        let mut is_known = false;
        let mut is_private = false;
        let mut notes = Vec::new();
        let published = self.session.commit(&mut |state, refused| {
            refused_room(refused)?;
            request.check_newest(state)?;
            is_private = same.is_private(state);
            if let Some((number, _)) = same.version(state) {
                (version, is_known) = (number, true);
                return Ok(Vec::new());
            }
            notes = same.notes(state);
            // Where others' work is replaced, the source stays what it was: a save may still merge both.
            if same.reverted(state).is_some() {
                remembering.take().map_or(Ok(()), Remembering::withdraw)?;
            }
            let last = state.refs.last(&request.target)?;
            (version, is_known) = (last + 1, false);
            Ok(vec![Change::SetRef {
                name: request.target.clone(),
                version,
                root: built.root,
                sides: built
                    .kept
                    .iter()
                    .cloned()
                    .fold(Sides::of_times(built.times), Sides::with),
                message: request.message.clone(),
                expires: request.expires,
                origin: None,
                ends: Vec::new(),
                private: is_private,
                extra: request.extra.clone(),
            }])
        })?;
        report.unchanged = is_known;
        report.private = is_private;
        match published {
            Published::Stale => return Ok(None),
            Published::Nothing => {}
            Published::Entry(committed) => {
                report.notes.append(&mut notes);
                let error = committed.checkpoint;
                let slow = error.map(|error| format!("{error}: the store opens more slowly"));
                report.notes.extend(slow.map(Note::from));
            }
        }
        Ok(Some(version))
    }
}

/// What a save needs of the pass.
impl<'p> PutSession<'p> {
    pub(super) fn request(&self) -> &'p PutRequest {
        self.request
    }

    pub(super) fn store(&self) -> &'p Store {
        self.store
    }

    /// The newest state: the one that the pass began with, and the entries since. It was checked then that the log is
    /// whole, and a commit checks that again.
    pub(super) fn newest_state(&self, reader: &Reader<'_>) -> Result<State> {
        let mut state = reader.view().state.clone();
        self.store.catch_up(&mut state)?;
        if state.cut.0.is_some() {
            // A reader goes on with what can be known. This is an error for whoever writes.
            state = self.store.state()?;
        }
        if !self.request.dry_run {
            // This pass may say that it is there already.
            self.store.settle(&state)?;
        }
        Ok(state)
    }

    pub(super) fn dedup(&self) -> &'p Dedup {
        self.dedup
    }

    /// Bytes of new chunks, and of their stored form, of all passes.
    pub(super) fn written_bytes(&self) -> (u64, u64) {
        let new_bytes = self.passes.new_bytes.load(Ordering::Relaxed);
        (new_bytes, self.passes.stored_bytes())
    }

    pub(super) fn commit_packs(&self) -> Result<()> {
        self.session.commit_packs().map(drop)
    }

    pub(super) fn commit_changes(&self, changes: &mut Changes<'_>) -> Result<Published> {
        self.session.commit(changes)
    }
}

impl PutRequest {
    /// Checks that the newest version in `state` is the requested one, if one was requested.
    fn check_newest(&self, state: &State) -> Result<()> {
        let Onto::Only(wanted) = self.onto else {
            return Ok(());
        };
        let newest = state.version(&self.target, None).ok();
        let newest = newest.map_or(0, |(number, _)| number);
        if newest == wanted {
            return Ok(());
        }
        let target = &self.target;
        Err(Error::conflict(match (wanted, newest) {
            (0, newest) => format!("{target}: expected no version, found @{newest}"),
            (_, 0) => format!("{target}: expected @{wanted} as the newest version, found none"),
            _ => format!("{target}: expected @{wanted} as the newest version, found @{newest}"),
        })
        .hint(Remedy::MergeInstead))
    }
}

/// Fails when a namespace has no room.
pub(super) fn refused_room(refused: &Refused) -> Result<()> {
    match refused.first_key_value() {
        Some((namespace, over)) => Err(over.error(namespace)),
        None => Ok(()),
    }
}
