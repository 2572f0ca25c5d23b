//! Merges the rows of several tables and later changes into one sorted sequence. Holds one block of each table in
//! memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::cursor::corrupt;
use super::ref_block::{Block, Key};
use super::ref_table::RefTable;
use crate::error::Result;
use crate::format::{Namespace, RefHead, RefName, RefState, Version};

/// A ref that has changed since the newest table was written.
#[derive(Clone, Debug)]
pub(super) struct Changed {
    pub(super) head: RefHead,
    /// New, changed or (`None`) removed versions.
    pub(super) versions: BTreeMap<u64, Option<Version>>,
}

/// Selects refs: all whose names begin with `prefix`, or the one of exactly this name.
#[derive(Clone, Debug)]
pub(super) struct Within {
    pub(super) prefix: String,
    pub(super) is_whole: bool,
    /// The first name to return; empty for the beginning.
    pub(super) from: String,
}

impl Within {
    /// Selects the refs of a namespace, or all refs.
    pub(super) fn namespace(namespace: Option<&Namespace>) -> Self {
        let prefix = namespace.map(|namespace| format!("{}/", namespace.as_str()));
        Self {
            prefix: prefix.unwrap_or_default(),
            is_whole: false,
            from: String::new(),
        }
    }

    pub(super) fn has(&self, name: &[u8]) -> bool {
        match self.is_whole {
            true => name == self.prefix.as_bytes(),
            false => name.starts_with(self.prefix.as_bytes()),
        }
    }

    fn first(&self) -> &str {
        self.prefix.as_str().max(self.from.as_str())
    }
}

/// Whether to return rows of refs or rows of versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Refs,
    Versions,
}

impl Part {
    fn first(self) -> u64 {
        u64::from(self == Self::Versions)
    }
}

/// One row.
pub(super) struct Row<'r> {
    pub(super) name: Bytes,
    pub(super) number: u64,
    pub(super) value: Value<'r>,
}

/// The value of a row.
pub(super) enum Value<'r> {
    /// Encoded bytes from a table; the text is the name of that table's object.
    Stored(&'r str, Bytes),
    Ref(&'r RefHead),
    Version(&'r Version),
    /// The value in older tables has been removed.
    Gone,
}

impl Value<'_> {
    fn is_gone(&self) -> bool {
        match self {
            Self::Gone => true,
            Self::Stored(_, bytes) => bytes.is_empty(),
            _ => false,
        }
    }

    /// Encodes the value as it is stored in a table.
    pub(super) fn encode(&self) -> Result<Bytes> {
        Ok(match self {
            Self::Stored(_, bytes) => bytes.clone(),
            Self::Ref(head) => head.encode()?.into(),
            Self::Version(version) => version.encode_row()?.into(),
            Self::Gone => Bytes::new(),
        })
    }
}

/// The changes, row by row.
pub(super) type ChangedRows<'r> = Box<dyn Iterator<Item = (&'r RefName, u64, Value<'r>)> + 'r>;

/// Merged rows of one part. Among rows with the same key, the newest source wins.
pub(super) struct Rows<'r> {
    changed: std::iter::Peekable<ChangedRows<'r>>,
    tables: Vec<TableRows<'r>>,
    within: Within,
    part: Part,
    with_gone: bool,
    is_over: bool,
}

struct TableRows<'r> {
    table: &'r RefTable,
    block: Option<Arc<Block>>,
    at: usize,
    row: usize,
}

impl<'r> TableRows<'r> {
    fn new(table: &'r RefTable, from: &Key<'_>) -> Result<Self> {
        let (at, row) = table.seek(from)?;
        Ok(Self {
            table,
            block: table.block_at(at)?,
            at,
            row,
        })
    }

    fn key(&self) -> Option<Key<'_>> {
        self.block.as_ref()?.key(self.row)
    }

    fn advance(&mut self) -> Result<()> {
        self.row += 1;
        if self
            .block
            .as_ref()
            .is_some_and(|block| self.row >= block.len())
        {
            (self.at, self.row) = (self.at + 1, 0);
            self.block = self.table.block_at(self.at)?;
        }
        Ok(())
    }
}

impl<'r> Rows<'r> {
    pub(super) fn new(
        tables: &'r [Arc<RefTable>],
        changed: ChangedRows<'r>,
        within: Within,
        part: Part,
        with_gone: bool,
    ) -> Result<Self> {
        let from = Key {
            name: within.first().as_bytes(),
            number: part.first(),
        };
        let tables = tables.iter().map(|table| TableRows::new(table, &from));
        Ok(Self {
            tables: tables.collect::<Result<_>>()?,
            changed: changed.peekable(),
            within,
            part,
            with_gone,
            is_over: false,
        })
    }

    fn step(&mut self) -> Result<Option<Row<'r>>> {
        loop {
            let stored = self.least();
            let stored_key = stored.as_ref().map(|(name, number)| Key {
                name,
                number: *number,
            });
            let taken = self.changed.next_if(|(name, number, _)| {
                let key = Key {
                    name: name.as_str().as_bytes(),
                    number: *number,
                };
                stored_key.is_none_or(|stored| key <= stored)
            });
            let (name, number, value) = match (taken, stored) {
                (Some((name, number, value)), _) => {
                    let name = Bytes::copy_from_slice(name.as_str().as_bytes());
                    (name, number, Some(value))
                }
                (None, Some((name, number))) => (name, number, None),
                (None, None) => return Ok(None),
            };
            let stored = self.pass(&Key {
                name: &name,
                number,
            })?;
            let value = value.or(stored).unwrap_or(Value::Gone);
            if self.with_gone || !value.is_gone() {
                return Ok(Some(Row {
                    name,
                    number,
                    value,
                }));
            }
        }
    }

    /// Returns the least key of all tables.
    fn least(&self) -> Option<(Bytes, u64)> {
        let keys = self.tables.iter().filter_map(|source| {
            let key = source.key().filter(|key| self.takes(key))?;
            Some((key, source))
        });
        let (key, source) = keys.min_by(|(one, _), (other, _)| one.cmp(other))?;
        Some((source.block.as_ref()?.name(source.row), key.number))
    }

    /// Moves all tables past `key`, and returns the value that the newest of them has for it.
    fn pass(&mut self, key: &Key<'_>) -> Result<Option<Value<'r>>> {
        let mut value = None;
        for source in &mut self.tables {
            if source.key().as_ref() != Some(key) {
                continue;
            }
            if value.is_none()
                && let Some(block) = &source.block
            {
                value = Some(Value::Stored(
                    source.table.object(),
                    block.value(source.row),
                ));
            }
            source.advance()?;
        }
        Ok(value)
    }

    fn takes(&self, key: &Key<'_>) -> bool {
        (key.number > 0) == (self.part == Part::Versions) && self.within.has(key.name)
    }
}

impl<'r> Iterator for Rows<'r> {
    type Item = Result<Row<'r>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let stepped = self.step().transpose();
        self.is_over = !matches!(stepped, Some(Ok(_)));
        stepped
    }
}

/// Parses the name in a row of a table.
fn parsed(object: &str, name: &[u8]) -> Result<RefName> {
    let text = std::str::from_utf8(name).ok();
    let parsed = text.and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| {
        corrupt(
            object,
            format_args!("row of a ref: found {}", name.escape_ascii()),
        )
    })
}

impl Row<'_> {
    /// Converts a row of a ref.
    pub(super) fn into_head(self) -> Result<(RefName, RefHead)> {
        match self.value {
            Value::Stored(object, bytes) => Ok((
                parsed(object, &self.name)?,
                RefHead::decode(object, &bytes)?,
            )),
            Value::Ref(head) => Ok((parsed("state", &self.name)?, head.clone())),
            _ => Err(corrupt("state", "expected a ref, found none")),
        }
    }

    /// Converts a row of a version.
    fn into_version(self) -> Result<(u64, Version)> {
        match self.value {
            Value::Stored(object, bytes) => {
                let name = self.name.escape_ascii();
                let object = format!("{object}: {name}@{}", self.number);
                Ok((self.number, Version::decode_row(&object, &bytes)?))
            }
            Value::Version(version) => Ok((self.number, version.clone())),
            _ => Err(corrupt("state", "expected a version, found none")),
        }
    }
}

/// Combines refs with their versions, one ref at a time.
pub(super) struct Whole<'r> {
    /// The name of the object in errors.
    object: &'r str,
    heads: Rows<'r>,
    versions: Rows<'r>,
    next: Option<Row<'r>>,
    is_begun: bool,
}

impl<'r> Whole<'r> {
    pub(super) fn new(object: &'r str, heads: Rows<'r>, versions: Rows<'r>) -> Self {
        Self {
            object,
            heads,
            versions,
            next: None,
            is_begun: false,
        }
    }

    fn step(&mut self) -> Result<Option<(RefName, RefState)>> {
        if !self.is_begun {
            self.is_begun = true;
            self.next = self.versions.next().transpose()?;
        }
        let Some(row) = self.heads.next().transpose()? else {
            return match self.next.take() {
                Some(row) => Err(corrupt(
                    self.object,
                    format_args!(
                        "{}@{}: belongs to no ref",
                        row.name.escape_ascii(),
                        row.number
                    ),
                )),
                None => Ok(None),
            };
        };
        let bytes = row.name.clone();
        let (name, head) = row.into_head()?;
        let mut found = RefState {
            last: head.last,
            ..RefState::default()
        };
        while let Some(row) = self.next.take_if(|row| row.name == bytes) {
            self.next = self.versions.next().transpose()?;
            let (number, version) = row.into_version()?;
            found.versions.insert(number, version);
        }
        let live = found.versions.len() as u64;
        let newest = found.versions.last_key_value();
        let (newest, bytes) =
            newest.map_or((0, 0), |(number, version)| (*number, version.root.bytes()));
        if (live, newest, bytes) != (head.live, head.newest, head.bytes) {
            return Err(corrupt(
                self.object,
                format_args!(
                    "{name}: expected {} versions up to {}, found {live} up to {newest}",
                    head.live, head.newest
                ),
            ));
        }
        found.extra = head.extra;
        Ok(Some((name, found)))
    }
}

impl Iterator for Whole<'_> {
    type Item = Result<(RefName, RefState)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.heads.is_over {
            return None;
        }
        let stepped = self.step().transpose();
        if matches!(stepped, Some(Err(_))) {
            self.heads.is_over = true;
        }
        stepped
    }
}

/// Returns the changes to the selected refs.
pub(super) fn changed<'r>(
    all: &'r BTreeMap<RefName, Changed>,
    within: &Within,
    part: Part,
) -> ChangedRows<'r> {
    let within = within.clone();
    let refs = all.range(RefName::place(within.first())..);
    let refs = refs.take_while(move |(name, _)| within.has(name.as_str().as_bytes()));
    match part {
        Part::Refs => Box::new(refs.map(|(name, found)| (name, 0, Value::Ref(&found.head)))),
        Part::Versions => Box::new(refs.flat_map(|(name, found)| {
            found.versions.iter().map(move |(number, slot)| {
                let value = slot.as_ref().map_or(Value::Gone, Value::Version);
                (name, *number, value)
            })
        })),
    }
}

/// Flattens an iterator that may have failed to start: yields either its items or the error.
pub(super) fn flattened<T>(
    rows: Result<impl Iterator<Item = Result<T>>>,
) -> impl Iterator<Item = Result<T>> {
    let (rows, failed) = match rows {
        Ok(rows) => (Some(rows), None),
        Err(error) => (None, Some(Err(error))),
    };
    failed.into_iter().chain(rows.into_iter().flatten())
}
