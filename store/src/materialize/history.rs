//! What the store did since with the version that a tree is of.

use super::*;
use crate::host::pool::Known;
use crate::host::saved::Note as SaveNote;

impl Task<'_> {
    /// Checks that the store was not restored from a copy that is older than the directory, and that it is known what was
    /// saved of it.
    pub(super) fn check_not_set_back(&self, destination: &Path, mark: &Mark) -> Result<()> {
        let name = &self.request.spec.name;
        if !mark.is_from(self.store.format().id, name) || self.options().overrules {
            return Ok(());
        }
        let note = self.note(destination)?;
        let known = known(mark, note.as_ref().map(|(_, note)| note));
        let (wanted, place) = (self.found.number, (name, destination));
        if let Some((notes, note)) = &note
            && counts(mark, note)
            && note.version != wanted
            && notes.list(note).is_none()
        {
            // What was saved would pass for the job's own, and stay whatever others did with it since.
            return Err(Pool::unknown_save(
                place,
                note.version,
                mark.known().version,
            ));
        }
        (self.pool).check_noted(mark, place, known.version, Some(wanted))?;
        let state = &self.reader.view().state;
        self.store.check_had(state, name, known, destination)
    }

    /// The warning that the version of a tree was dropped while it was the newest, unless an older one is asked for.
    pub(super) fn warning(&self, destination: &Path, way: &Way) -> Option<Note> {
        let (Way::Update(Some(mark)) | Way::File(mark)) = way else {
            return None;
        };
        let RefSpec { name, version, .. } = &self.request.spec;
        if version.is_some() || !mark.is_from(self.store.format().id, name) {
            return None;
        }
        let note = self.note(destination).ok()?.map(|(_, note)| note);
        // What was saved before the tree was made again is past.
        let note = note.filter(|note| counts(mark, note));
        let known = note.map_or_else(|| mark.known(), |note| note.known());
        let state = &self.reader.view().state;
        state.gone_back(name, known, destination)
    }
}

/// The version that a tree is of. If it was saved since, the saved version replaces the one that it was made from.
fn known(mark: &Mark, note: Option<&SaveNote>) -> Known {
    let made = mark.known();
    match note.map(|note| (counts(mark, note), note.known())) {
        Some((counts, saved)) if counts || saved.version > made.version => saved,
        _ => made,
    }
}

/// Whether a note is of this state of a tree.
fn counts(mark: &Mark, note: &SaveNote) -> bool {
    note.made == Some(mark.into())
}
