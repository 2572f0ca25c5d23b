//! A decoded block of a checkpoint: a sorted run of its rows, searched without copying.

use std::ops::Range;

use bytes::Bytes;

use super::cursor::Cursor;
use crate::error::{Error, Result};
use crate::format::REF_NAME_BYTES_MAX;

/// The sort key of rows: refs first, by name; then versions, by name and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key<'a> {
    /// The name of the ref.
    pub(super) name: &'a [u8],
    /// The number of the version; 0 for the row of the ref itself.
    pub(super) number: u64,
}

impl Key<'_> {
    fn order(&self) -> (bool, &[u8], u64) {
        (self.number > 0, self.name, self.number)
    }
}

impl Ord for Key<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order().cmp(&other.order())
    }
}

impl PartialOrd for Key<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// One decoded block.
#[derive(Debug)]
pub(super) struct Block {
    raw: Bytes,
    rows: Vec<RowAt>,
}

#[derive(Clone, Copy, Debug)]
struct RowAt {
    name: u32,
    name_len: u16,
    number: u64,
    value_len: u32,
}

impl Block {
    /// Returns the number of rows.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn key(&self, at: usize) -> Option<Key<'_>> {
        let row = self.rows.get(at)?;
        let name = self.raw.get(row.name_range())?;
        Some(Key {
            name,
            number: row.number,
        })
    }

    pub(super) fn name(&self, at: usize) -> Bytes {
        let range = self.rows.get(at).map(RowAt::name_range);
        range.map_or_else(Bytes::new, |range| self.raw.slice(range))
    }

    /// Returns the value of a row; empty if the row marks a removal.
    pub(super) fn value(&self, at: usize) -> Bytes {
        let range = self.rows.get(at).map(RowAt::value_range);
        range.map_or_else(Bytes::new, |range| self.raw.slice(range))
    }

    /// Returns the first row that does not sort before `key`.
    pub(super) fn seek(&self, key: &Key<'_>) -> usize {
        let is_before = |row: &RowAt| {
            let name = self.raw.get(row.name_range()).unwrap_or_default();
            let number = row.number;
            Key { name, number } < *key
        };
        self.rows.partition_point(is_before)
    }

    pub(super) fn decode(object: &str, raw: Vec<u8>, count: u32) -> Result<Self> {
        let mut cursor = Cursor::new(object, &raw);
        let mut rows: Vec<RowAt> = Vec::new();
        let mut before: Option<Key<'_>> = None;
        while cursor.left() > 0 {
            let at = cursor.at();
            let name_len = cursor.u16("length of a name")?;
            let name = u32::try_from(cursor.at()).unwrap_or(u32::MAX);
            let key = Key {
                name: cursor.take("name", usize::from(name_len))?,
                number: cursor.u64("number")?,
            };
            if before.is_some_and(|before| before >= key)
                || usize::from(name_len) > REF_NAME_BYTES_MAX
            {
                return Err(cursor.error_at(at, "row", "one behind the row before", shown(&key)));
            }
            before = Some(key);
            let value_len = cursor.u32("length of a value")?;
            cursor.take("value", usize::try_from(value_len).unwrap_or(usize::MAX))?;
            rows.push(RowAt {
                name,
                name_len,
                number: key.number,
                value_len,
            });
        }
        if rows.len() as u64 != u64::from(count) || rows.is_empty() {
            let found = rows.len();
            return Err(cursor.error(format_args!("expected {count} rows, found {found}")));
        }
        let raw = Bytes::from(raw);
        Ok(Self { raw, rows })
    }
}

impl RowAt {
    fn name_range(&self) -> Range<usize> {
        let start = usize::try_from(self.name).unwrap_or(usize::MAX);
        start..start.saturating_add(usize::from(self.name_len))
    }

    fn value_range(&self) -> Range<usize> {
        let start = self.name_range().end.saturating_add(8 + 4);
        start..start.saturating_add(usize::try_from(self.value_len).unwrap_or(usize::MAX))
    }
}

pub(super) fn shown(key: &Key<'_>) -> String {
    format!("{}@{}", key.name.escape_ascii(), key.number)
}

pub(super) fn put_key(bytes: &mut Vec<u8>, key: &Key<'_>) -> Result<()> {
    let len = u16::try_from(key.name.len()).map_err(|_| too_large())?;
    bytes.extend_from_slice(&len.to_le_bytes());
    bytes.extend_from_slice(key.name);
    bytes.extend_from_slice(&key.number.to_le_bytes());
    Ok(())
}

pub(super) fn too_large() -> Error {
    Error::invalid("checkpoint: a row is larger than any reader takes")
}
