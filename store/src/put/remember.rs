//! Writes down on this host what a directory was saved as: a draft before the commit, and the note itself after it.
//!
//! A failure only costs something at the next save, and so is reported and does not fail this one.

use super::PutRequest;
use super::ancestor::{note_saved, notes};
use super::graft::graft;
use crate::error::Error;
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
    failed: Option<Note>,
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
                // The old base is kept. With it, the next save may take its own changes for those of others.
                Err(error) => return self.fail(error, "the next save from here takes longer"),
            }
        }
        let Some(listing) = listing.or_else(|| self.listing.take()) else {
            return;
        };
        let source = self.request.source.canonicalize().unwrap_or_default();
        let Some(notes) = notes(self.store, self.request, &source) else {
            return;
        };
        match notes.draft(listing, &self.request.target, (root, self.made.clone())) {
            Ok(draft) => (self.draft, self.is_grafted) = (Some(draft), base.is_some()),
            Err(error) => self.forgotten(error),
        }
    }

    /// Says that a version from `number` on is about to be committed, with the tree `tree`.
    pub(super) fn announce(&mut self, number: u64, tree: Content) {
        let announced = self.draft.as_mut();
        // Only a kill right after the commit makes this matter. If there is no room for it, the end says so.
        drop(announced.map(|draft| draft.announce(number, tree)));
    }

    /// Writes down the version that was committed. Returns what could not be written, and what that means.
    pub(super) fn keep(mut self, version: u64, tree: Content) -> Option<Note> {
        note_saved(self.store, self.request, self.made.as_ref(), version);
        let kept = self.draft.take().map(|draft| draft.keep(version, tree));
        if let Some(Err(error)) = kept {
            self.forgotten(error);
        }
        self.failed
    }

    fn forgotten(&mut self, error: Error) {
        let next = match &self.made {
            Some(_) => "the next save from here is refused until the tree is materialized again",
            None => "the next save from here has to be told its base",
        };
        self.fail(error, next);
    }

    fn fail(&mut self, error: Error, next: &str) {
        self.draft = None;
        self.failed = Some(Note::from(format!("{error}: {next}")));
    }
}
