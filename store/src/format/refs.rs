//! The refs of a state and their versions: rows of checkpoints, read on demand, overridden by later changes.
//!
//! Never holds a million versions in memory. Changes are held, so their size is that of the log entries that were
//! folded.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::ref_block::Key;
use super::ref_rows::{Changed, Part, Rows, Whole, Within, changed, flattened};
use super::ref_table::RefTable;
use super::ref_writer::TableWriter;
use crate::error::Result;
use crate::format::{Namespace, RefHead, RefName, RefState, Version};

/// Totals of a namespace according to the log. Bytes are counted modulo 2^64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefSums {
    /// Refs with a live version.
    pub refs: u64,
    /// Live versions.
    pub versions: u64,
    /// Live versions that are private.
    pub private_versions: u64,
    /// Bytes of the newest version of each ref.
    pub bytes: u64,
    /// Bytes of all versions, as if each were stored whole.
    pub version_bytes: u64,
}

impl RefSums {
    /// Returns the totals of one ref, whose newest version is `newest`.
    pub(super) fn of(known: &RefState, newest: &Version) -> Self {
        let mut sums = Self {
            refs: 1,
            versions: known.versions.len() as u64,
            bytes: newest.root.bytes(),
            ..Self::default()
        };
        known
            .versions
            .values()
            .for_each(|version| sums.add(version));
        sums
    }

    /// Returns the sum of both.
    #[must_use]
    pub fn and(self, other: &Self) -> Self {
        Self {
            refs: self.refs.wrapping_add(other.refs),
            versions: self.versions.wrapping_add(other.versions),
            private_versions: self.private_versions.wrapping_add(other.private_versions),
            bytes: self.bytes.wrapping_add(other.bytes),
            version_bytes: self.version_bytes.wrapping_add(other.version_bytes),
        }
    }

    fn count(&mut self, before: &RefHead, after: &RefHead) {
        let is_live = |head: &RefHead| u64::from(head.live > 0);
        let change =
            |sum: u64, before: u64, after: u64| sum.wrapping_sub(before).wrapping_add(after);
        self.refs = change(self.refs, is_live(before), is_live(after));
        self.versions = change(self.versions, before.live, after.live);
        self.bytes = change(self.bytes, before.bytes, after.bytes);
    }

    fn add(&mut self, version: &Version) {
        self.private_versions = self.private_versions.wrapping_add(version.private.into());
        self.version_bytes = self.version_bytes.wrapping_add(version.root.bytes());
    }

    fn take(&mut self, version: &Version) {
        self.private_versions = self.private_versions.wrapping_sub(version.private.into());
        self.version_bytes = self.version_bytes.wrapping_sub(version.root.bytes());
    }
}

/// The refs of a state.
#[derive(Clone, Default)]
pub struct Refs {
    /// Tables, newest first; a row hides the rows with the same key in older tables.
    tables: Vec<Arc<RefTable>>,
    /// Changes since the newest table.
    changed: BTreeMap<RefName, Changed>,
    sums: BTreeMap<Namespace, RefSums>,
}

/// What is needed to undo the change of one ref.
pub(super) struct RefUndo {
    name: RefName,
    /// `None` if the ref had not changed before.
    head: Option<RefHead>,
    number: u64,
    version: Option<Option<Version>>,
    sums: Option<RefSums>,
}

impl Refs {
    /// The refs in these tables, newest first, and their totals.
    pub(super) fn over(tables: Vec<Arc<RefTable>>, sums: BTreeMap<Namespace, RefSums>) -> Self {
        Self {
            tables,
            changed: BTreeMap::new(),
            sums,
        }
    }

    /// Returns the tables, newest first.
    pub fn tables(&self) -> &[Arc<RefTable>] {
        &self.tables
    }

    /// Whether there is no ref at all, not even one without versions.
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.tables.iter().all(|table| table.rows() == 0)
    }

    /// Returns the totals of each namespace that has a live version.
    pub fn sums(&self) -> &BTreeMap<Namespace, RefSums> {
        &self.sums
    }

    /// Returns how many rows a table of the changes would have.
    pub fn changed_rows(&self) -> u64 {
        let rows = self
            .changed
            .values()
            .map(|one| 1 + one.versions.len() as u64);
        rows.sum()
    }

    /// Returns what is recorded about a ref, apart from its versions.
    ///
    /// # Errors
    /// When a checkpoint cannot be read.
    pub fn head(&self, name: &RefName) -> Result<Option<RefHead>> {
        match self.changed.get(name) {
            Some(changed) => Ok(Some(changed.head.clone())),
            None => match self.look_up(name, 0)? {
                Some((object, value)) => RefHead::decode(object, &value).map(Some),
                None => Ok(None),
            },
        }
    }

    /// Returns the highest version number that a ref ever had; 0 if there is none.
    ///
    /// # Errors
    /// As [`Self::head`].
    pub fn last(&self, name: &RefName) -> Result<u64> {
        Ok(self.head(name)?.map_or(0, |head| head.last))
    }

    /// Returns a live version.
    ///
    /// # Errors
    /// As [`Self::head`].
    pub fn version(&self, name: &RefName, number: u64) -> Result<Option<Version>> {
        let changed = self.changed.get(name);
        if let Some(slot) = changed.and_then(|changed| changed.versions.get(&number)) {
            return Ok(slot.clone());
        }
        match self.look_up(name, number)? {
            Some((object, value)) if number > 0 => {
                let object = format!("{object}: {name}@{number}");
                Version::decode_row(&object, &value).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Returns a ref with all its versions.
    ///
    /// # Errors
    /// As [`Self::head`].
    pub fn get(&self, name: &RefName) -> Result<Option<RefState>> {
        if self.head(name)?.is_none() {
            return Ok(None);
        }
        let within = Within {
            prefix: name.as_str().to_owned(),
            is_whole: true,
            from: String::new(),
        };
        let found = self.whole(&within)?.next().transpose()?;
        Ok(found.map(|(_, state)| state))
    }

    /// Iterates over all refs with all their versions, by name. Holds one ref at a time.
    pub fn iter(&self) -> impl Iterator<Item = Result<(RefName, RefState)>> + use<'_> {
        self.within(None)
    }

    /// Iterates over the refs of a namespace, or all refs, with all their versions, by name.
    pub fn within(
        &self,
        namespace: Option<&Namespace>,
    ) -> impl Iterator<Item = Result<(RefName, RefState)>> + use<'_> {
        flattened(self.whole(&Within::namespace(namespace)))
    }

    /// Iterates over the refs of a namespace, or all refs, without their versions, by name.
    pub fn heads(
        &self,
        namespace: Option<&Namespace>,
    ) -> impl Iterator<Item = Result<(RefName, RefHead)>> + use<'_> {
        let rows = self.rows(&Within::namespace(namespace), Part::Refs);
        flattened(rows).map(|row| row?.into_head())
    }

    /// Iterates over the refs whose names begin with `prefix`, starting at the name `from`, without their versions.
    /// Earlier rows are not read.
    pub fn heads_from(
        &self,
        prefix: &str,
        from: &str,
    ) -> impl Iterator<Item = Result<(RefName, RefHead)>> + use<'_> {
        let within = Within {
            prefix: prefix.to_owned(),
            is_whole: false,
            from: from.to_owned(),
        };
        flattened(self.rows(&within, Part::Refs)).map(|row| row?.into_head())
    }

    /// Returns all refs at once, for callers that know that there are few.
    ///
    /// # Errors
    /// As [`Self::head`].
    pub fn all(&self) -> Result<BTreeMap<RefName, RefState>> {
        self.iter().collect()
    }

    fn rows(&self, within: &Within, part: Part) -> Result<Rows<'_>> {
        let changed = changed(&self.changed, within, part);
        Rows::new(&self.tables, changed, within.clone(), part, false)
    }

    fn whole(&self, within: &Within) -> Result<Whole<'_>> {
        let heads = self.rows(within, Part::Refs)?;
        let object = self.tables.first().map_or("state", |table| table.object());
        Ok(Whole::new(
            object,
            heads,
            self.rows(within, Part::Versions)?,
        ))
    }

    /// Returns the value in the newest table that has the key, and the name of that table.
    fn look_up(&self, name: &RefName, number: u64) -> Result<Option<(&str, Bytes)>> {
        let key = Key {
            name: name.as_str().as_bytes(),
            number,
        };
        for table in &self.tables {
            if let Some(value) = table.get(&key)? {
                return Ok((!value.is_empty()).then(|| (table.object(), value)));
            }
        }
        Ok(None)
    }

    /// Returns the newest live version of a ref with a number below `number`.
    ///
    /// # Errors
    /// As [`Self::head`].
    pub fn newest_before(&self, name: &RefName, number: u64) -> Result<Option<(u64, Version)>> {
        let mut below = number;
        loop {
            let changed = self.changed.get(name);
            let mut found = changed
                .and_then(|changed| changed.versions.range(..below).next_back())
                .map(|(number, _)| *number);
            for table in &self.tables {
                found = found.max(table.before(name.as_str().as_bytes(), below)?);
            }
            let Some(number) = found else {
                return Ok(None);
            };
            if let Some(version) = self.version(name, number)? {
                return Ok(Some((number, version)));
            }
            below = number;
        }
    }

    /// Adds the next version of a ref. If `number` is not the next one, returns `Err` with the last number.
    pub(super) fn set(
        &mut self,
        name: &RefName,
        number: u64,
        version: Version,
    ) -> Result<std::result::Result<RefUndo, u64>> {
        let before = self.head(name)?.unwrap_or_default();
        if before.last.checked_add(1) != Some(number) {
            return Ok(Err(before.last));
        }
        let after = RefHead {
            last: number,
            live: before.live + 1,
            newest: number,
            bytes: version.root.bytes(),
            extra: before.extra.clone(),
        };
        Ok(Ok(self.change(
            name,
            number,
            before,
            after,
            Some(version),
            None,
        )))
    }

    /// Removes a version; returns `None` if it does not exist.
    pub(super) fn take(&mut self, name: &RefName, number: u64) -> Result<Option<RefUndo>> {
        let (Some(before), Some(gone)) = (self.head(name)?, self.version(name, number)?) else {
            return Ok(None);
        };
        let mut after = before.clone();
        after.live = before.live.saturating_sub(1);
        if before.newest == number {
            let newest = self.newest_before(name, number)?;
            (after.newest, after.bytes) =
                newest.map_or((0, 0), |(number, version)| (number, version.root.bytes()));
        }
        Ok(Some(self.change(
            name,
            number,
            before,
            after,
            None,
            Some(&gone),
        )))
    }

    /// Pins or unpins a version; returns `None` if it does not exist.
    pub(super) fn pin(
        &mut self,
        name: &RefName,
        number: u64,
        pinned: bool,
    ) -> Result<Option<RefUndo>> {
        let (Some(head), Some(before)) = (self.head(name)?, self.version(name, number)?) else {
            return Ok(None);
        };
        let after = Version {
            pinned,
            ..before.clone()
        };
        let undo = self.change(name, number, head.clone(), head, Some(after), Some(&before));
        Ok(Some(undo))
    }

    fn change(
        &mut self,
        name: &RefName,
        number: u64,
        before: RefHead,
        after: RefHead,
        version: Option<Version>,
        gone: Option<&Version>,
    ) -> RefUndo {
        let namespace = name.namespace();
        let known = self.sums.get(&namespace).copied();
        let mut sums = known.unwrap_or_default();
        sums.count(&before, &after);
        version.iter().for_each(|version| sums.add(version));
        gone.into_iter().for_each(|version| sums.take(version));
        match sums.versions {
            0 => drop(self.sums.remove(&namespace)),
            _ => drop(self.sums.insert(namespace, sums)),
        }
        let (head, changed) = match self.changed.entry(name.clone()) {
            Entry::Occupied(found) => {
                let found = found.into_mut();
                (Some(std::mem::replace(&mut found.head, after)), found)
            }
            Entry::Vacant(place) => {
                let versions = BTreeMap::new();
                let changed = Changed {
                    head: after,
                    versions,
                };
                (None, place.insert(changed))
            }
        };
        RefUndo {
            name: name.clone(),
            head,
            number,
            version: changed.versions.insert(number, version),
            sums: known,
        }
    }

    /// Undoes a change. Changes must be undone in reverse order.
    pub(super) fn undo(&mut self, undo: RefUndo) {
        let namespace = undo.name.namespace();
        match undo.sums {
            Some(sums) => drop(self.sums.insert(namespace, sums)),
            None => drop(self.sums.remove(&namespace)),
        }
        let Some(head) = undo.head else {
            self.changed.remove(&undo.name);
            return;
        };
        if let Some(changed) = self.changed.get_mut(&undo.name) {
            changed.head = head;
            match undo.version {
                Some(version) => drop(changed.versions.insert(undo.number, version)),
                None => drop(changed.versions.remove(&undo.number)),
            }
        }
    }

    /// Writes the merged rows of the changes and of all tables except the last `kept`, in order.
    pub(super) fn write(&self, kept: usize, writer: &mut TableWriter<'_>) -> Result<()> {
        let merged = self.tables.len().saturating_sub(kept);
        let tables = self.tables.get(..merged).unwrap_or_default();
        let within = Within::namespace(None);
        for part in [Part::Refs, Part::Versions] {
            let changed = changed(&self.changed, &within, part);
            for row in Rows::new(tables, changed, within.clone(), part, kept > 0)? {
                let row = row?;
                let key = Key {
                    name: &row.name,
                    number: row.number,
                };
                writer.row(&key, &row.value.encode()?)?;
            }
        }
        Ok(())
    }
}

/// Treats all refs as changes.
impl From<BTreeMap<RefName, RefState>> for Refs {
    fn from(all: BTreeMap<RefName, RefState>) -> Self {
        let mut refs = Self::default();
        for (name, known) in all {
            let newest = known.versions.last_key_value();
            if let Some((_, newest)) = newest {
                let own = RefSums::of(&known, newest);
                let sums = refs.sums.entry(name.namespace()).or_default();
                *sums = sums.and(&own);
            }
            let head = RefHead {
                last: known.last,
                live: known.versions.len() as u64,
                newest: newest.map_or(0, |(number, _)| *number),
                bytes: newest.map_or(0, |(_, version)| version.root.bytes()),
                extra: known.extra,
            };
            let versions = known.versions.into_iter();
            let versions = versions
                .map(|(number, version)| (number, Some(version)))
                .collect();
            refs.changed.insert(name, Changed { head, versions });
        }
        refs
    }
}

impl<const N: usize> From<[(RefName, RefState); N]> for Refs {
    fn from(all: [(RefName, RefState); N]) -> Self {
        BTreeMap::from(all).into()
    }
}

/// Compares the merged contents, whether they come from tables or from changes.
impl PartialEq for Refs {
    fn eq(&self, other: &Self) -> bool {
        let (mut own, mut others) = (self.iter(), other.iter());
        self.sums == other.sums
            && loop {
                match (own.next(), others.next()) {
                    (None, None) => break true,
                    (Some(Ok(one)), Some(Ok(other))) if one == other => {}
                    _ => break false,
                }
            }
    }
}

impl Eq for Refs {}

impl std::fmt::Debug for Refs {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_list().entries(self.iter().take(32)).finish()
    }
}
