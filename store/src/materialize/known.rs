//! What is known of an existing tree: its records, and whether they are complete.

use std::fs::File;
use std::path::Path;

use super::found::Settled;
use super::list::{Item, ListWriter, Thing, checksum};
use super::records::Records;
use crate::error::{Error, Result};
use crate::host::pool::{Mark, Pool};

/// Most records of interrupted updates that are read side by side; more are joined first.
const OTHERS_MAX: usize = 16;

/// What is known of a tree.
#[derive(Default)]
pub(super) struct Known {
    /// The settled record.
    pub(super) settled: Option<Record>,
    /// What was saved of the tree since then; the tree counts as made from that.
    pub(super) saved: Option<Saved>,
    /// The records of interrupted updates.
    pub(super) others: Vec<Record>,
    /// The names of all records, readable or not.
    pub(super) names: Vec<String>,
    /// Whether it is unknown, in part or at all, what was made there.
    pub(super) is_unknown: bool,
}

/// The list of what a tree was when it was saved.
pub(super) struct Saved {
    pub(super) list: File,
    /// Whether the tree is a part of its version. Files that a job added to it were saved, but are not wanted here.
    pub(super) is_of_part: bool,
}

/// A record with the right checksum.
pub(super) struct Record {
    pub(super) name: String,
    pub(super) sum: [u8; 32],
    file: File,
}

impl Known {
    /// Reads what is known of the tree at `destination`, which has this mark and was `saved` after the mark was
    /// written.
    pub(super) fn read(
        pool: &Pool,
        destination: &Path,
        (mark, saved): (&Mark, Option<Saved>),
    ) -> Result<Self> {
        let mut known = Self {
            names: pool.records(destination)?,
            saved,
            ..Self::default()
        };
        for name in known.names.clone() {
            let Some(record) = Record::read(pool, destination, name)? else {
                // It is no longer known what that pass made.
                known.is_unknown = true;
                continue;
            };
            if mark.record.as_ref() == Some(&record.name) {
                known.settled = Some(record);
            } else {
                known.others.push(record);
            }
        }
        known.is_unknown |= known.settled.is_none();
        Ok(known)
    }

    /// Whether one record describes the tree completely, apart from what jobs changed.
    pub(super) fn is_settled(&self) -> bool {
        !self.is_unknown && self.others.is_empty() && self.saved.is_none()
    }

    /// When the tree was settled.
    pub(super) fn settled_at(&self, pool: &Pool, destination: &Path, mark: &Mark) -> Settled {
        let record = self.settled.as_ref();
        Settled {
            at: record.and_then(|record| pool.settled_at(destination, &record.name)),
            is_of_this_boot: mark.is_of_this_boot(),
        }
    }

    /// All records, for a walk.
    pub(super) fn records(&self, pool: &Pool) -> Result<Records> {
        let settled = self.settled.as_ref().map(Record::again).transpose()?;
        let others: Result<Vec<File>> = self.others.iter().map(Record::again).collect();
        let mut others = others?;
        if others.len() > OTHERS_MAX {
            others = vec![joined(Records::new(None, others)?, pool.scratch()?)?];
        }
        match &self.saved {
            None => Records::new(settled, others),
            Some(saved) => {
                let witness = settled.filter(|_| saved.is_of_part);
                let saved = again(&saved.list)?;
                Records::new(Some(saved), others)?.among(witness)
            }
        }
    }

    /// A record with this checksum. If the tree was saved after the settled record was written, that is not reused: a
    /// new name shows that it no longer counts.
    pub(super) fn find(&self, sum: &[u8; 32]) -> Option<&Record> {
        let settled = self.settled.iter().filter(|_| self.saved.is_none());
        let mut all = settled.chain(&self.others);
        all.find(|record| record.sum == *sum)
    }
}

impl Record {
    fn read(pool: &Pool, destination: &Path, name: String) -> Result<Option<Self>> {
        let Some(file) = pool.record(destination, &name)? else {
            return Ok(None);
        };
        let sum = checksum(&file);
        let sum =
            sum.map_err(|source| Error::io("read", pool.record_path(destination, &name), source))?;
        Ok(sum.map(|sum| Self { name, sum, file }))
    }

    fn again(&self) -> Result<File> {
        again(&self.file)
    }
}

fn again(list: &File) -> Result<File> {
    let file = list.try_clone();
    file.map_err(|source| Error::io("read", "a record of a tree", source))
}

/// Writes an empty list.
pub(super) fn empty(file: File) -> Result<File> {
    Ok(ListWriter::<Thing>::new(file)?.finish()?.1)
}

/// Joins records into one list. A name that some of them lack stays uncertain: a file may not be there because no update
/// came as far as making it, and not because a job deleted it.
fn joined(mut records: Records, file: File) -> Result<File> {
    let mut list = ListWriter::new(file)?;
    let mut path: Vec<Vec<u8>> = Vec::new();
    loop {
        let Some(name) = records.peek()? else {
            if path.pop().is_none() {
                return Ok(list.finish()?.1);
            }
            records.leave()?;
            continue;
        };
        let candidates = records.take(&name)?;
        path.push(name);
        let mut told = Vec::new();
        for (thing, _) in &candidates.things {
            if !matches!(thing, Thing::Dir { .. }) && !told.contains(&thing) {
                list.push(&path, thing)?;
                told.push(thing);
            }
        }
        if !candidates.is_in_all {
            list.push(&path, &Thing::NEVER_DIR)?;
        } else if candidates.has_dir() {
            list.push(&path, &Thing::inner())?;
        }
        if candidates.has_dir() {
            records.enter();
        } else {
            path.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(names: &[&str]) -> File {
        let mut list = ListWriter::new(tempfile::tempfile().unwrap()).unwrap();
        for name in names {
            let target = name.as_bytes().to_vec();
            let time = crate::format::Time::default();
            let thing = Thing::Symlink { target, time };
            list.push(&[name.as_bytes().to_vec()], &thing).unwrap();
        }
        list.finish().unwrap().1
    }

    #[test]
    fn what_one_of_the_joined_records_lacks_is_uncertain() {
        let others = vec![record(&["both", "one"]), record(&["both"])];
        let file = tempfile::tempfile().unwrap();
        let joined = joined(Records::new(None, others).unwrap(), file).unwrap();
        let settled = record(&["both", "one"]);
        let mut records = Records::new(Some(settled), vec![joined]).unwrap();
        let [both, one] = [b"both", &b"one"[..]].map(|name| records.take(name).unwrap());
        assert!(both.is_certain && !one.is_certain);
        assert_eq!(records.peek().unwrap(), None);
    }
}
