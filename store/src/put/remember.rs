//! Writes down on this host what a directory was saved as: a draft before the commit, and the note itself after it.
//!
//! Without a draft, nothing is committed that the next save would know nothing of while it knows of an older version.

use super::PutRequest;
use super::ancestor::{note_saved, notes, was_saved};
use super::graft::graft;
use crate::error::{Error, Result};
use crate::format::{Content, Root};
use crate::host::saved::{Draft, Listing, Made};
use crate::read::Reader;
use crate::remedy::Note;
use crate::store::Store;

/// The note of a save or put in progress.
pub(super) struct Remembering<'r> {
    store: &'r Store,
    request: &'r PutRequest,
    /// The mark of the tree, if it was made here.
    made: Option<Made>,
    /// What the directory is, until it is in the draft.
    listing: Option<Listing>,
    draft: Option<Draft<'r>>,
    /// Whether the draft has the old base in the place of what was left out.
    is_grafted: bool,
    /// Why there is no draft.
    failed: Option<Error>,
}

impl<'r> Remembering<'r> {
    pub(super) fn new(
        (store, request): (&'r Store, &'r PutRequest),
        made: Option<Made>,
        listing: Option<Listing>,
    ) -> Self {
        Self {
            store,
            request,
            made,
            listing,
            draft: None,
            is_grafted: false,
            failed: None,
        }
    }

    /// Makes durable what was built, if it is to be noted and is not what it was before: after a power cut, it must not be
    /// older than the note.
    pub(super) fn flush_if(&mut self, is_noted: bool, before: Option<&Content>, built: &Root) {
        if !is_noted || before == Some(built.content()) {
            return;
        }
        let source = self.request.source.canonicalize().unwrap_or_default();
        if let Some(notes) = notes(self.store, self.request, &source) {
            let flushed = notes.flush(&self.request.target, built.content());
            self.failed = self.failed.take().or(flushed.err());
        }
    }

    /// Writes what was built; with a base, that stands in the place of what was left out.
    pub(super) fn prepare(&mut self, built: &Root, base: Option<&Content>, reader: &Reader<'_>) {
        let is_prepared = self.draft.is_some() && (self.is_grafted || base.is_none());
        if is_prepared || self.failed.is_some() {
            return;
        }
        let (mut root, mut listing) = (*built.content(), None);
        if let Some(base) = base {
            match graft(self.store, self.request, (built, base), reader) {
                Ok(grafted) => (root, listing) = grafted,
                Err(error) => return self.failed = Some(error),
            }
        }
        let Some(listing) = listing.or_else(|| self.listing.take()) else {
            return;
        };
        let source = self.request.source.canonicalize().unwrap_or_default();
        let Some(notes) = notes(self.store, self.request, &source) else {
            return;
        };
        let known = (&reader.view().state, &self.request.target);
        match notes.draft(listing, known, (root, self.made.clone())) {
            Ok(draft) => (self.draft, self.is_grafted) = (Some(draft), base.is_some()),
            Err(error) => self.failed = Some(error),
        }
    }

    /// Says that a version from `number` on is about to be committed, or is there, with the tree `tree`.
    ///
    /// # Errors
    /// When that cannot be written down, and the next save would be merged from an older version. What others did since
    /// would be undone by it.
    pub(super) fn announce(&mut self, number: u64, tree: Content) -> Result<()> {
        if let Some(Err(error)) = self
            .draft
            .as_mut()
            .map(|draft| draft.announce(number, tree))
        {
            self.failed = Some(error);
        }
        let is_known = || self.made.is_some() || was_saved(self.store, self.request);
        match self.failed.take_if(|_| is_known()) {
            None => Ok(()),
            Some(error) => Err(error
                .within("not saved")
                .hint("make room for this host's notes about it")),
        }
    }

    /// Leaves what is known of the directory as it was before.
    pub(super) fn withdraw(self) -> Result<()> {
        self.draft.map_or(Ok(()), Draft::withdraw)
    }

    /// Writes down the version that was committed. Returns what could not be written, and what that means.
    pub(super) fn keep(mut self, version: u64, tree: Content) -> Option<Note> {
        note_saved(self.store, self.request, self.made.as_ref(), version);
        let kept = self.draft.take().map(|draft| draft.keep(version, tree));
        let next = match &kept {
            // The draft stands in its place.
            Some(_) => "the next save from here may have to name the ref",
            None => "the next save from here has to be told its base",
        };
        let error = kept.and_then(Result::err).or(self.failed)?;
        Some(Note::from(format!("{error}: {next}")))
    }
}
