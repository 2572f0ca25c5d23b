//! The draft of the note of a save: written before the commit, and what becomes of it.

use std::io::Seek;
use std::os::fd::OwnedFd;

use rustix::fs::{self, AtFlags};
use rustix::io::Errno;

use super::{DRAFT, Listing, Made, NOTE, NOTE_VERSION, Note, Notes, replace, spelled, stamp_of};
use crate::error::{Error, Result};
use crate::format::{Content, RefName, Root, State, Version};
use crate::host::disk;

/// What this host knows of the last save of a directory to a ref.
#[derive(Debug, Default)]
pub(crate) struct Last {
    pub(crate) note: Option<Note>,
    fate: Fate,
}

/// What became of the save that wrote a draft.
#[derive(Debug, Default, PartialEq, Eq)]
enum Fate {
    /// There is no draft, or its version was not committed.
    #[default]
    None,
    /// A version has its tree; the note is made of it.
    Committed,
    /// It may have made a version that is gone by now, when the directory had this mark.
    Unclear(Option<Made>),
    /// The draft cannot be read.
    Damaged,
}

impl Last {
    fn of(note: Option<Note>, fate: Fate) -> Self {
        Self { note, fate }
    }

    /// Whether a directory with this mark may have been saved since the note.
    pub(crate) fn is_unclear(&self, made: Option<&Made>) -> bool {
        match &self.fate {
            Fate::None | Fate::Committed => false,
            Fate::Unclear(then) => then.as_ref() == made,
            Fate::Damaged => true,
        }
    }
}

/// The note of a save that is under way, whose list is written.
pub(crate) struct Draft<'p> {
    /// Those of the directory, and those of it for this ref.
    notes: (Notes<'p>, Notes<'p>),
    dir: OwnedFd,
    note: Note,
}

impl<'p> Notes<'p> {
    /// The note about the last save of this directory to this ref, if it is the same inode. A save that was killed after
    /// its commit counts if `state` has its version.
    ///
    /// # Errors
    /// When the state cannot be read.
    pub(crate) fn last(&self, state: &State, name: &RefName) -> Result<Last> {
        let notes = self.to(name);
        let note = notes.read().filter(|note| note.name == *name);
        let draft = match notes.read_file(DRAFT) {
            None => return Ok(Last::of(note, Fate::None)),
            Some(None) => return Ok(Last::of(note, Fate::Damaged)),
            Some(Some(draft)) => draft,
        };
        let newest = note.as_ref().map_or(0, |note| note.version);
        if draft.version <= newest || draft.name != *name {
            return Ok(Last::of(note, Fate::None));
        }
        let known = state.refs.get(name)?;
        let versions = known.map(|known| known.versions).unwrap_or_default();
        let since = versions.range(draft.version..);
        let is_it = |version: &Version| match version.root {
            Root::Tree { content, .. } => draft.tree == Some(content),
            Root::File { .. } => false,
        };
        if let Some((version, _)) = since.clone().find(|(_, version)| is_it(version)) {
            let version = *version;
            return Ok(Last::of(Some(Note { version, ..draft }), Fate::Committed));
        }
        let last = state.refs.last(name)?;
        let is_gone = since.count() as u64 + draft.version <= last;
        let fate = match is_gone {
            true => Fate::Unclear(draft.made),
            false => Fate::None,
        };
        Ok(Last::of(note, fate))
    }

    /// Begins the note of a save to `name` by writing what the directory is, with its tree `root` and its mark.
    pub(crate) fn draft(
        &self,
        listing: Listing,
        (state, name): (&State, &RefName),
        (root, made): (Content, Option<Made>),
    ) -> Result<Draft<'p>> {
        let notes = self.to(name);
        let (inode, noted) = notes.inode_to_note()?;
        let (sum, mut file) = listing.list.finish()?;
        let note = Note {
            note: NOTE_VERSION,
            inode,
            name: name.clone(),
            version: 0,
            tree: None,
            root,
            stamp: match &made {
                None => stamp_of(&self.root),
                Some(_) => None,
            },
            noted,
            made,
            list: spelled(&sum),
            check: None,
        };
        let draft = Draft {
            dir: self.make_dir()?,
            notes: (self.clone(), notes),
            note,
        };
        // The draft of a killed save is about to be replaced.
        let last = self.last(state, name)?;
        if let Some(committed) = last.note.filter(|_| last.fate == Fate::Committed) {
            draft.write(&draft.notes.1, NOTE, &committed)?;
            draft.sync()?;
        }
        let list = draft.notes.1.list_file(&draft.note);
        (file.rewind())
            .and_then(|()| replace(&draft.dir, &list, &mut file))
            .map_err(|source| self.unwritten(source))?;
        Ok(draft)
    }
}

impl Draft<'_> {
    /// Writes down that the directory is about to be saved: as the first version from `number` on that has this tree.
    pub(crate) fn announce(&mut self, number: u64, tree: Content) -> Result<()> {
        let notes = &self.notes.1;
        (self.note.version, self.note.tree) = (number, Some(tree));
        let before = notes.read_file(DRAFT).flatten();
        self.write(notes, DRAFT, &self.note)?;
        self.sync()?;
        self.forget_list(before, notes.read());
        Ok(())
    }

    /// Takes back what was announced: nothing of this directory is about to be saved after all.
    pub(crate) fn withdraw(self) -> Result<()> {
        let notes = &self.notes.1;
        match fs::unlinkat(&self.dir, notes.file(DRAFT), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => self.sync(),
            Err(errno) => Err(notes.unwritten(errno.into())),
        }
    }

    /// Records what was saved, and replaces the earlier record for the same ref.
    pub(crate) fn keep(mut self, version: u64, tree: Content) -> Result<()> {
        let (all, notes) = &self.notes;
        (self.note.version, self.note.tree) = (version, Some(tree));
        let before = notes.read();
        let announced = notes.read_file(DRAFT).flatten();
        self.write(notes, NOTE, &self.note)?;
        // Records which ref that was. If this is lost, the user has to name the ref.
        self.write(all, NOTE, &self.note)?;
        self.sync()?;
        disk::forgive(fs::unlinkat(&self.dir, notes.file(DRAFT), AtFlags::empty()));
        self.forget_list(before, None);
        self.forget_list(announced, None);
        notes.settle(&self.note);
        Ok(())
    }

    fn write(&self, notes: &Notes<'_>, end: &str, note: &Note) -> Result<()> {
        let text = (note.sealed().to_text())
            .map_err(|source| Error::invalid("note of a save").because(source))?;
        let replaced = replace(&self.dir, &notes.file(end), &mut &*text);
        replaced.map_err(|source| notes.unwritten(source))
    }

    fn sync(&self) -> Result<()> {
        fs::fsync(&self.dir).map_err(|errno| self.notes.1.unwritten(errno.into()))
    }

    /// Removes the list of a note that was replaced, unless it is still the list of another one. A list that stays takes a
    /// little space.
    fn forget_list(&self, replaced: Option<Note>, other: Option<Note>) {
        let is_used = |list: &str| {
            let notes = [Some(&self.note), other.as_ref()];
            notes.into_iter().flatten().any(|note| note.list == list)
        };
        if let Some(replaced) = replaced.filter(|replaced| !is_used(&replaced.list)) {
            let list = self.notes.1.list_file(&replaced);
            disk::forgive(fs::unlinkat(&self.dir, list, AtFlags::empty()));
        }
    }
}
