//! A stored log entry: its own sealed text, followed by the sealed text of the previous entry.
//!
//! An entry has the same two lines wherever it is stored, so a copy is as good as the original. The checksum in the
//! second line is the id by which the next entry refers to it.

use std::sync::Arc;

use serde::Deserialize;

use super::cursor::corrupt;
use super::sealed::{SEAL_BYTES, parse, seal_as, unseal_as, unseal_text};
use crate::error::{Error, Result};
use crate::format::{LOG_MAGIC, LOG_VERSION, LogEntry, ReadAs, log_key};
use crate::id::EntryId;

/// The sealed text of one entry, without the copy that follows it.
pub type EntryText = Arc<[u8]>;

impl LogEntry {
    /// Returns the sealed text of the entry itself.
    ///
    /// # Errors
    /// Invalid input, when [`Self::decode`] would refuse it.
    pub fn encode(&self) -> Result<Vec<u8>> {
        match self.defect() {
            None => seal_as(LOG_MAGIC, Some(LOG_VERSION), self),
            Some(defect) => Err(Error::invalid(format!(
                "{}: {defect}",
                log_key(self.number)
            ))),
        }
    }

    /// Returns the bytes of the object, with a copy of the previous entry's text so that damage to that entry can be
    /// repaired.
    ///
    /// # Errors
    /// As for [`Self::encode`].
    pub fn encode_after(&self, before: Option<&[u8]>) -> Result<Vec<u8>> {
        let mut bytes = self.encode()?;
        bytes.extend_from_slice(before.unwrap_or_default());
        Ok(bytes)
    }

    /// Parses entry `number`. An unknown `op` is unsupported, and the error names it.
    ///
    /// # Errors
    /// Corrupt, when the bytes are not what was written or belong to another entry; unsupported, when a newer program
    /// wrote them.
    pub fn decode(number: u64, bytes: &[u8]) -> Result<Self> {
        let (own, behind) = split(bytes);
        let entry = Self::decode_own(number, own)?;
        if behind.is_empty() || copies(behind, &entry) {
            return Ok(entry);
        }
        let object = log_key(number);
        let detail = match entry.prev {
            None => "behind its text: expected nothing in the first entry, found more".to_owned(),
            Some(prev) => format!("behind its text: expected that of entry {prev}, found another"),
        };
        Err(corrupt(&object, detail))
    }

    /// Like [`Self::decode`], but also returns the entry's own text.
    ///
    /// # Errors
    /// As for [`Self::decode`].
    pub fn decode_text(number: u64, bytes: &[u8]) -> Result<(Self, EntryText)> {
        let entry = Self::decode(number, bytes)?;
        Ok((entry, split(bytes).0.into()))
    }

    /// Parses entry `number` and its own text, even if the copy that follows is damaged.
    ///
    /// # Errors
    /// As for [`Self::decode`].
    pub fn decode_alone(number: u64, bytes: &[u8]) -> Result<(Self, EntryText)> {
        let (own, _) = split(bytes);
        Ok((Self::decode_own(number, own)?, own.into()))
    }

    /// Returns the copy of entry `number` - 1 that the bytes of entry `number` contain, with its text.
    ///
    /// # Errors
    /// As for [`Self::decode`].
    pub fn decode_before(number: u64, bytes: &[u8]) -> Result<Option<(Self, EntryText)>> {
        Self::decode(number, bytes)?;
        let (_, behind) = split(bytes);
        // A copy that only a newer program can parse is of no use here.
        let before = Self::decode_own(number.saturating_sub(1), behind).ok();
        Ok(before.map(|before| (before, behind.into())))
    }

    /// Returns the length of its own text, and whether the object lacks the copy of the previous entry although it
    /// could have one.
    pub fn extent(&self, bytes: &[u8]) -> (u64, bool) {
        let (own, behind) = split(bytes);
        let follows = self.prev.is_some() && self.stands_for.is_none();
        (own.len() as u64, behind.is_empty() && follows)
    }

    /// Returns the BLAKE3 of its own line.
    ///
    /// # Errors
    /// As for [`Self::encode`].
    pub fn own_id(&self) -> Result<EntryId> {
        match self.read_as.0 {
            Some(id) => Ok(id),
            None => Ok(id_of(&self.encode()?)),
        }
    }

    /// Returns the id by which the next entry refers to it.
    ///
    /// # Errors
    /// As for [`Self::encode`].
    pub fn id(&self) -> Result<EntryId> {
        self.stands_for.map_or_else(|| self.own_id(), Ok)
    }

    fn decode_own(number: u64, own: &[u8]) -> Result<Self> {
        let object = log_key(number);
        let text = unseal_as(&object, LOG_MAGIC, LOG_VERSION, own)?;
        let mut entry: Self = match parse(&object, text) {
            Ok(entry) => entry,
            Err(error) => return Err(unknown_op(&object, text).unwrap_or(error)),
        };
        if entry.number != number {
            let found = entry.number;
            let detail = format_args!("number: expected {number}, found {found}");
            return Err(corrupt(&object, detail));
        }
        entry.read_as = ReadAs(Some(id_of(own)));
        match entry.defect() {
            None => Ok(entry),
            Some(defect) => Err(corrupt(&object, defect)),
        }
    }

    fn defect(&self) -> Option<String> {
        match (self.number, self.prev) {
            (0, _) => return Some("number: expected at least 1, found 0".to_owned()),
            (1, Some(prev)) => return Some(format!("prev: expected none, found {prev}")),
            (1, None) => {}
            (number, None) if self.stands_for.is_none() => {
                return Some(format!(
                    "prev: expected the id of entry {}, found none",
                    number - 1
                ));
            }
            _ => {}
        }
        self.changes.iter().enumerate().find_map(|(at, change)| {
            let defect = change.defect()?;
            Some(format!("change {at}: {defect}"))
        })
    }
}

/// Splits an object into its own two lines and the bytes that follow.
fn split(bytes: &[u8]) -> (&[u8], &[u8]) {
    let line = bytes.iter().position(|byte| *byte == b'\n');
    let own = line.and_then(|line| bytes.split_at_checked(line + 1 + SEAL_BYTES));
    own.unwrap_or((bytes, &[]))
}

/// Whether `behind` is the text of the entry before `entry`.
fn copies(behind: &[u8], entry: &LogEntry) -> bool {
    let number = entry.number.saturating_sub(1);
    if entry.prev.is_none() || unseal_text(&log_key(number), behind).is_err() {
        return false;
    }
    let stood_for = || LogEntry::decode_own(number, behind).ok()?.stands_for;
    entry.prev == Some(id_of(behind)) || entry.prev == stood_for()
}

/// BLAKE3 of the line of a sealed text.
fn id_of(text: &[u8]) -> EntryId {
    let line = text.len().saturating_sub(SEAL_BYTES + 1);
    let line = text.get(..line).unwrap_or_default();
    EntryId(*blake3::hash(line).as_bytes())
}

/// Every `op` of [`Change`].
pub(super) const OPS: &[&str] = &[
    "add_segment",
    "drop_segment",
    "condemn_packs",
    "forget",
    "set_ref",
    "drop_ref",
    "pin",
    "set_policy",
    "set_feature",
];

#[derive(Deserialize)]
struct OpsOnly {
    changes: Vec<OpOnly>,
}

#[derive(Deserialize)]
struct OpOnly {
    op: String,
}

/// Returns an error about the first change that this program does not know, if there is one.
fn unknown_op(object: &str, text: &[u8]) -> Option<Error> {
    let ops: OpsOnly = serde_json::from_slice(text).ok()?;
    let unknown = ops
        .changes
        .into_iter()
        .find(|change| !OPS.contains(&change.op.as_str()))?;
    let message = format!(
        "{object}: change {:?} is unknown, so this program cannot know the state of the store",
        unknown.op
    );
    Some(Error::unsupported(message).hint("update this program"))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::error::ErrorKind;
    use crate::format::{State, Who};
    use crate::id::CommitId;

    /// Entries 1 to 3 of one history.
    fn three() -> [LogEntry; 3] {
        let mut state = State::default();
        [1, 2, 3].map(|commit| {
            let now = Timestamp::UNIX_EPOCH;
            let entry = state.next(CommitId([commit; 16]), now, Who::default(), Vec::new());
            state.apply(&entry).unwrap();
            entry
        })
    }

    #[test]
    fn a_copy_is_the_entry_itself() {
        let [first, second, third] = three();
        let text = second.encode().unwrap();
        let bytes = third.encode_after(Some(&text)).unwrap();
        assert!(bytes.ends_with(&text));
        assert_eq!(LogEntry::decode(3, &bytes).unwrap(), third);
        let (copy, copied) = LogEntry::decode_before(3, &bytes).unwrap().unwrap();
        assert_eq!((copy, &*copied), (second, &text[..]));
        let alone = third.encode().unwrap();
        assert!(LogEntry::decode_before(3, &alone).unwrap().is_none());
        // The copy must be of the previous entry, and the first entry has none.
        let wrong = third.encode_after(Some(&first.encode().unwrap())).unwrap();
        let error = LogEntry::decode(3, &wrong).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        let prev = third.prev.unwrap();
        assert_eq!(
            error.to_string(),
            format!(
                "log/000000/00000003: behind its text: expected that of entry {prev}, found another"
            )
        );
        let wrong = first.encode_after(Some(&text)).unwrap();
        let error = LogEntry::decode(1, &wrong).unwrap_err();
        assert!(error.to_string().contains("nothing in the first entry"));
    }

    #[test]
    fn an_entry_has_a_number() {
        let [first, ..] = three();
        let none = LogEntry { number: 0, ..first };
        let error = none.encode().unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("number: expected at least 1, found 0"),
            "{error}"
        );
    }

    #[test]
    fn every_flipped_byte_is_noticed_and_damage_to_the_copy_leaves_the_entry() {
        let [_, second, third] = three();
        let text = second.encode().unwrap();
        let bytes = third.encode_after(Some(&text)).unwrap();
        let own = bytes.len() - text.len();
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            LogEntry::decode(3, &flipped).unwrap_err();
            let alone = LogEntry::decode_alone(3, &flipped);
            assert_eq!(alone.is_ok(), at >= own, "byte {at}");
        }
    }

    #[test]
    fn an_entry_that_stands_for_another_is_named_like_it() {
        let [_, second, third] = three();
        let named = second.id().unwrap();
        let filler = LogEntry {
            stands_for: Some(named),
            commit: CommitId([9; 16]),
            ..second
        };
        assert_eq!(filler.id().unwrap(), named);
        assert_ne!(filler.own_id().unwrap(), named);
        let text = filler.encode().unwrap();
        let bytes = third.encode_after(Some(&text)).unwrap();
        LogEntry::decode(3, &bytes).unwrap();
        let (copy, _) = LogEntry::decode_before(3, &bytes).unwrap().unwrap();
        assert_eq!(copy, filler);
    }

    #[test]
    fn all_but_the_first_name_the_one_before() {
        let [first, second, _] = three();
        let mut wrong = first.clone();
        wrong.prev = second.prev;
        let error = wrong.encode().unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("log/000000/00000001: prev: expected none")
        );
        let mut wrong = second.clone();
        wrong.prev = None;
        let error = wrong.encode().unwrap_err();
        assert_eq!(
            error.to_string(),
            "log/000000/00000002: prev: expected the id of entry 1, found none"
        );
    }

    #[test]
    fn an_unknown_field_is_part_of_the_id() {
        let [_, second, _] = three();
        let text = String::from_utf8(second.encode().unwrap()).unwrap();
        let line = text.lines().next().unwrap();
        let line = line.replacen('{', "{\"new\":[1],", 1);
        let seal = format!(
            "{line}\nblake3 {}\n",
            blake3::hash(line.as_bytes()).to_hex()
        );
        let read = LogEntry::decode(2, seal.as_bytes()).unwrap();
        assert_eq!(read, second);
        assert_ne!(read.id().unwrap(), second.id().unwrap());
        assert_eq!(
            read.id().unwrap().0,
            *blake3::hash(line.as_bytes()).as_bytes()
        );
    }
}
