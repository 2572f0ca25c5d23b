//! What was made in a tree: its settled record and those of interrupted updates, side by side.
//!
//! After an interrupted update, a path may be as the settled record says or as the update's record says; after several,
//! as any of them. All these possibilities are candidates.

use std::fs::File;

use super::list::{Entry, ListReader, Thing};
use crate::error::Result;

/// The things that may have been made under a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Candidates {
    /// The possible things, and whether the settled record has them.
    pub(super) things: Vec<(Thing, bool)>,
    /// Whether every record has the name, and none only remembers it.
    pub(super) is_in_all: bool,
    /// Whether it existed all the time: every record has the name, as the same kind, and one of them is settled.
    pub(super) is_certain: bool,
    /// Whether a job added it to a part of a version, and saved it.
    pub(super) is_added: bool,
}

/// The records of one tree, read in step.
#[derive(Default)]
pub(super) struct Records {
    streams: Vec<Stream>,
    /// A list of what was made; a job added what is missing from it.
    witness: Option<Stream>,
    /// The level of the current directory; 0 for the root.
    level: usize,
}

struct Stream {
    list: ListReader<Thing>,
    head: Option<Entry<Thing>>,
    is_settled: bool,
}

impl Records {
    /// Opens the settled record, if there is one, and all others.
    pub(super) fn new(settled: Option<File>, others: Vec<File>) -> Result<Self> {
        let settled = settled.into_iter().map(|file| (file, true));
        let all = settled.chain(others.into_iter().map(|file| (file, false)));
        let streams = all.map(|(file, is_settled)| Stream::new(file, is_settled));
        Ok(Self {
            streams: streams.collect::<Result<_>>()?,
            witness: None,
            level: 0,
        })
    }

    /// Makes a candidate count as added by a job if `witness` does not have it, or has it as added.
    pub(super) fn among(mut self, witness: Option<File>) -> Result<Self> {
        let witness = witness.map(|file| Stream::new(file, false));
        self.witness = witness.transpose()?;
        Ok(self)
    }

    /// Returns the next name in the directory.
    pub(super) fn peek(&mut self) -> Result<Option<Vec<u8>>> {
        let level = self.level + 1;
        for stream in &mut self.streams {
            // Skips what is below an entry that was not entered.
            stream.skip(level)?;
        }
        let heads = self.streams.iter().filter_map(|stream| stream.at(level));
        Ok(heads.min().cloned())
    }

    /// Returns what may have been made under `name`, which must not come after the next name.
    pub(super) fn take(&mut self, name: &[u8]) -> Result<Candidates> {
        let level = self.level + 1;
        let mut candidates = Candidates::default();
        let mut having = 0;
        if let Some(witness) = &mut self.witness {
            candidates.is_added = !witness.has_made(level, name)?;
        }
        for stream in &mut self.streams {
            let before = candidates.things.len();
            while stream.at(level).is_some_and(|head| head == name) {
                let next = stream.list.next()?;
                let taken = std::mem::replace(&mut stream.head, next);
                let thing = taken.map(|(_, _, thing)| (thing, stream.is_settled));
                candidates.things.extend(thing);
            }
            having += usize::from(candidates.things.len() > before);
        }
        candidates.is_added |= candidates.things.iter().any(|(thing, _)| thing.is_added());
        let are_dirs = |is_dir: bool| {
            let all = &candidates.things;
            all.iter()
                .all(|(thing, _)| matches!(thing, Thing::Dir { .. }) == is_dir)
        };
        let is_wanted = |(thing, _): &(Thing, bool)| *thing != Thing::NEVER_DIR;
        candidates.is_in_all =
            having == self.streams.len() && candidates.things.iter().all(is_wanted);
        candidates.is_certain = having > 0
            && candidates.is_in_all
            && (are_dirs(true) || are_dirs(false))
            && self.streams.iter().any(|stream| stream.is_settled);
        Ok(candidates)
    }

    /// Enters the directory that was taken last.
    pub(super) fn enter(&mut self) {
        self.level += 1;
    }

    /// Leaves a directory, and skips the rest of it.
    pub(super) fn leave(&mut self) -> Result<()> {
        let level = self.level;
        self.level = level.saturating_sub(1);
        let mut streams = self.streams.iter_mut().chain(&mut self.witness);
        streams.try_for_each(|stream| stream.skip(level))
    }
}

impl Stream {
    fn new(file: File, is_settled: bool) -> Result<Self> {
        let mut list = ListReader::new(file)?;
        let head = list.next()?;
        Ok(Self {
            list,
            head,
            is_settled,
        })
    }

    /// Whether the list has something under this name that was made, and not added by a job. Skips earlier names.
    fn has_made(&mut self, level: usize, name: &[u8]) -> Result<bool> {
        let mut has = false;
        loop {
            if !has {
                self.skip(level)?;
            }
            match self.at(level) {
                Some(head) if head.as_slice() <= name => has |= head == name && !self.is_added(),
                _ => return Ok(has),
            }
            self.head = self.list.next()?;
        }
    }

    fn is_added(&self) -> bool {
        (self.head.as_ref()).is_some_and(|(_, _, thing)| thing.is_added())
    }

    /// The name of the next entry, if it is on this level.
    fn at(&self, level: usize) -> Option<&Vec<u8>> {
        let (found, name, _) = self.head.as_ref()?;
        (*found == level).then_some(name)
    }

    /// Skips deeper entries.
    fn skip(&mut self, level: usize) -> Result<()> {
        while self.head.as_ref().is_some_and(|(found, ..)| *found > level) {
            self.head = self.list.next()?;
        }
        Ok(())
    }
}

impl Candidates {
    /// Whether a directory may have been made.
    pub(super) fn has_dir(&self) -> bool {
        let mut things = self.things.iter();
        things.any(|(thing, _)| matches!(thing, Thing::Dir { .. }))
    }

    /// Whether nothing but a directory was made.
    pub(super) fn is_dir(&self) -> bool {
        let mut things = self.things.iter();
        things.all(|(thing, _)| matches!(thing, Thing::Dir { .. }))
    }

    /// Whether the path may be left over from an earlier version.
    pub(super) fn has_left(&self) -> bool {
        self.things.iter().any(|(thing, _)| *thing == Thing::Left)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.things.is_empty()
    }
}
