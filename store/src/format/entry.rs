//! Log entries: the numbered record of every change of state.
//!
//! Written once under its number, never changed, never deleted. Unknown fields are ignored, an
//! unknown change is refused by name: who cannot apply a change does not know the state.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::cursor::corrupt;
use super::sealed::{parse, seal_as, unseal_as, unseal_text};
use crate::error::{Error, Result};
use crate::format::{Content, Origin, Policy, RefName, Root, log_key};
use crate::id::{CommitId, PackId, PassId, SegmentId};

/// The first field of a log entry.
pub const LOG_MAGIC: &str = "store-log";
/// Version of log entries.
pub const LOG_VERSION: u32 = 1;

/// One log entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// Its number, which is also its key; the first is 1.
    pub number: u64,
    /// Unique, so that a writer whose answer was lost recognises its own entry.
    pub commit: CommitId,
    /// When, by the writer's clock; for people and grace periods, never for safety.
    pub time: Timestamp,
    /// Who.
    pub who: Who,
    /// What changes, all or nothing, in this order.
    pub changes: Vec<Change>,
}

/// Who wrote an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Who {
    /// Host name.
    pub host: String,
    /// User name or number.
    pub user: String,
    /// Program and version.
    pub program: String,
}

/// Totals of a segment, so that nobody opens it only to count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentInfo {
    /// Chunks it locates.
    pub chunks: u64,
    /// Packs it names.
    pub packs: u32,
    /// Bytes of these packs as stored.
    pub pack_bytes: u64,
    /// Bytes of these chunks before encoding.
    pub raw_bytes: u64,
    /// Bytes of the segment object itself.
    pub bytes: u64,
    /// The pass of a writer that added it and has not ended yet: no version need reach what it names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pass: Option<PassId>,
    /// Which entry added it; known in states only, and not in those that older programs wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added: Option<Added>,
}

/// When a segment came into the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Added {
    /// The log entry that said so.
    pub entry: u64,
    /// That entry's time; never for safety.
    pub time: Timestamp,
}

impl SegmentInfo {
    /// The totals alone, without what the log knows of its history.
    #[must_use]
    pub fn totals(&self) -> Self {
        Self {
            pass: None,
            added: None,
            ..*self
        }
    }
}

/// One change of state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Change {
    /// A segment becomes live.
    AddSegment {
        /// Its name.
        segment: SegmentId,
        /// Its totals.
        #[serde(flatten)]
        info: SegmentInfo,
    },
    /// A segment is live no more.
    DropSegment {
        /// Its name.
        segment: SegmentId,
    },
    /// Packs offer nothing any more; their objects may be deleted after a grace.
    CondemnPacks {
        /// Their names.
        packs: Vec<PackId>,
    },
    /// Objects of condemned packs and dropped segments are gone, and no live segment names these packs.
    Forget {
        /// Packs.
        packs: Vec<PackId>,
        /// Segments.
        segments: Vec<SegmentId>,
    },
    /// A ref gets a new version; its number is the one after the last.
    SetRef {
        /// The ref.
        name: RefName,
        /// The number it gets.
        version: u64,
        /// The directory or file.
        root: Root,
        /// The times of its entries.
        times: Content,
        /// What the person said.
        message: String,
        /// When retention may take it.
        expires: Option<Timestamp>,
        /// Where it was first put, when it was brought from another store.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        origin: Option<Box<Origin>>,
        /// Passes that are over with it: what they added and no version reaches is garbage from now on.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ends: Vec<PassId>,
        /// Whether nobody but their owner could read some of its files, so that it comes out for one person alone.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        private: bool,
    },
    /// A version of a ref is dropped.
    DropRef {
        /// The ref.
        name: RefName,
        /// The version.
        version: u64,
    },
    /// A version is pinned, or is pinned no more.
    Pin {
        /// The ref.
        name: RefName,
        /// The version.
        version: u64,
        /// Pinned from now on?
        pinned: bool,
    },
    /// The store keeps by this policy from now on; an empty one is none.
    SetPolicy {
        /// The whole of it.
        policy: Policy,
    },
}

impl Change {
    /// Whether space can come back because of it.
    pub fn takes(&self) -> bool {
        match self {
            Self::DropRef { .. }
            | Self::DropSegment { .. }
            | Self::CondemnPacks { .. }
            | Self::Forget { .. } => true,
            Self::AddSegment { .. }
            | Self::SetRef { .. }
            | Self::Pin { .. }
            | Self::SetPolicy { .. } => false,
        }
    }
}

impl LogEntry {
    /// The object's bytes: sealed text.
    ///
    /// # Errors
    /// Invalid input, when [`Self::decode`] would refuse them.
    pub fn encode(&self) -> Result<Vec<u8>> {
        match self.defect() {
            None => seal_as(LOG_MAGIC, Some(LOG_VERSION), self),
            Some(defect) => Err(Error::invalid(format!(
                "{}: {defect}",
                log_key(self.number)
            ))),
        }
    }

    /// The object's bytes with a copy of the entry before it, so that damage to that one costs nothing, and with
    /// the first entry that is given up from here on, if any.
    ///
    /// # Errors
    /// As [`Self::encode`].
    pub fn encode_after(&self, before: Option<&Self>, lost: Option<u64>) -> Result<Vec<u8>> {
        match self.defect() {
            None => seal_as(
                LOG_MAGIC,
                Some(LOG_VERSION),
                &WithBeside {
                    entry: self,
                    before,
                    lost,
                },
            ),
            Some(defect) => Err(Error::invalid(format!(
                "{}: {defect}",
                log_key(self.number)
            ))),
        }
    }

    /// The copy of entry `number` - 1 that the bytes of entry `number` carry.
    ///
    /// # Errors
    /// As [`Self::decode`].
    pub fn decode_before(number: u64, bytes: &[u8]) -> Result<Option<Self>> {
        Self::decode(number, bytes)?;
        let object = log_key(number);
        let beside: Beside = parse(&object, unseal_text(&object, bytes)?)?;
        let before = beside.before.map(Self::deserialize).transpose();
        let is_right = |before: &Self| before.number + 1 == number && before.defect().is_none();
        // A copy of what only a newer program knows helps nobody.
        Ok(before.ok().flatten().filter(is_right))
    }

    /// The first entry that the bytes of an entry give up; see the repairer in `FORMATS.md`.
    ///
    /// # Errors
    /// Corrupt, when they are no sealed text.
    pub fn decode_lost(number: u64, bytes: &[u8]) -> Result<Option<u64>> {
        let object = log_key(number);
        let text = unseal_text(&object, bytes)?;
        let names_it = text.windows(LOST_FIELD.len()).any(|at| at == LOST_FIELD);
        match names_it {
            true => Ok(parse::<Lost>(&object, text)?.lost),
            false => Ok(None),
        }
    }

    /// Parses entry `number`; an unknown `op` is unsupported, by name.
    ///
    /// # Errors
    /// Corrupt, when it is not what was written or not the entry of that number; unsupported,
    /// when a newer program wrote it.
    pub fn decode(number: u64, bytes: &[u8]) -> Result<Self> {
        let object = log_key(number);
        let text = unseal_as(&object, LOG_MAGIC, LOG_VERSION, bytes)?;
        let entry: Self = match parse(&object, text) {
            Ok(entry) => entry,
            Err(error) => return Err(unknown_op(&object, text).unwrap_or(error)),
        };
        if entry.number != number {
            let found = entry.number;
            let detail = format_args!("number: expected {number}, found {found}");
            return Err(corrupt(&object, detail));
        }
        match entry.defect() {
            None => Ok(entry),
            Some(defect) => Err(corrupt(&object, defect)),
        }
    }

    fn defect(&self) -> Option<String> {
        if self.number == 0 {
            return Some("number: expected at least 1, found 0".to_owned());
        }
        self.changes.iter().enumerate().find_map(|(at, change)| {
            let defect = change.defect()?;
            Some(format!("change {at}: {defect}"))
        })
    }
}

impl Change {
    fn defect(&self) -> Option<String> {
        let Self::SetRef { root, times, .. } = self else {
            return None;
        };
        root.content().defect().or_else(|| times.defect())
    }
}

/// How the field begins in JSON that names what is given up.
const LOST_FIELD: &[u8] = b"\"lost\":";

#[derive(Serialize)]
struct WithBeside<'e> {
    #[serde(flatten)]
    entry: &'e LogEntry,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<&'e LogEntry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<u64>,
}

#[derive(Deserialize)]
struct Beside {
    #[serde(default)]
    before: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Lost {
    #[serde(default)]
    lost: Option<u64>,
}

/// Every `op` of [`Change`].
const OPS: &[&str] = &[
    "add_segment",
    "drop_segment",
    "condemn_packs",
    "forget",
    "set_ref",
    "drop_ref",
    "pin",
    "set_policy",
];

#[derive(Deserialize)]
struct OpsOnly {
    changes: Vec<OpOnly>,
}

#[derive(Deserialize)]
struct OpOnly {
    op: String,
}

/// The error about the first change that this program does not know, if there is one.
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
    use super::*;
    use crate::error::Kind;
    use crate::format::{Totals, seal};
    use crate::id::ChunkId;

    fn every_change() -> Vec<Change> {
        let name: RefName = "project/a/b".parse().unwrap();
        let content = Content {
            size: 70_000,
            depth: 1,
            root: ChunkId([3; 32]),
        };
        let root = Root::Tree {
            content,
            totals: Totals {
                entries: 2,
                bytes: 5,
            },
        };
        vec![
            Change::AddSegment {
                segment: SegmentId([1; 16]),
                info: SegmentInfo {
                    chunks: 1,
                    packs: 2,
                    pack_bytes: 3,
                    raw_bytes: 4,
                    bytes: 5,
                    pass: Some(PassId([7; 16])),
                    added: None,
                },
            },
            Change::DropSegment {
                segment: SegmentId([1; 16]),
            },
            Change::CondemnPacks {
                packs: vec![PackId([2; 16])],
            },
            Change::Forget {
                packs: vec![PackId([2; 16])],
                segments: vec![SegmentId([1; 16])],
            },
            Change::SetRef {
                name: name.clone(),
                version: 1,
                root,
                times: content,
                message: "first\nsecond".to_owned(),
                expires: Some(Timestamp::UNIX_EPOCH),
                origin: None,
                ends: vec![PassId([7; 16])],
                private: true,
            },
            Change::Pin {
                name: name.clone(),
                version: 1,
                pinned: true,
            },
            Change::DropRef { name, version: 1 },
            Change::SetPolicy {
                policy: Policy::default(),
            },
        ]
    }

    fn entry() -> LogEntry {
        LogEntry {
            number: 42,
            commit: CommitId([9; 16]),
            time: "2025-01-02T03:04:05.678Z".parse().unwrap(),
            who: Who {
                host: "node-1".to_owned(),
                user: "ana".to_owned(),
                program: "store 0.1.0".to_owned(),
            },
            changes: every_change(),
        }
    }

    fn changed(change: impl Fn(&mut serde_json::Value)) -> Vec<u8> {
        let bytes = entry().encode().unwrap();
        let line = bytes.split(|byte| *byte == b'\n').next().unwrap();
        let mut json: serde_json::Value = serde_json::from_slice(line).unwrap();
        change(&mut json);
        seal(&json).unwrap()
    }

    #[test]
    fn an_entry_with_every_change_survives() {
        let bytes = entry().encode().unwrap();
        assert_eq!(LogEntry::decode(42, &bytes).unwrap(), entry());
        let text = String::from_utf8(bytes).unwrap();
        assert!(
            text.starts_with(r#"{"magic":"store-log","version":1,"number":42,"commit":"0909"#),
            "{text}"
        );
        for op in OPS {
            assert!(text.contains(&format!(r#"{{"op":"{op}","#)), "{op}");
        }
        assert_eq!(OPS.len(), every_change().len());
    }

    #[test]
    fn an_unknown_change_is_unsupported_by_name() {
        let bytes = changed(|json| json["changes"][3]["op"] = "warp".into());
        let error = LogEntry::decode(42, &bytes).unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported);
        assert_eq!(
            error.to_string(),
            "log/000000/00000042: change \"warp\" is unknown, so this program cannot know the state of the store"
        );
    }

    #[test]
    fn another_magic_version_or_number_is_refused() {
        let error = LogEntry::decode(42, &changed(|json| json["magic"] = "x".into())).unwrap_err();
        assert_eq!(
            error.to_string(),
            "log/000000/00000042: magic: expected \"store-log\", found \"x\""
        );
        let error = LogEntry::decode(42, &changed(|json| json["version"] = 2.into())).unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported);
        assert_eq!(
            error.to_string(),
            "log/000000/00000042: version is 2, this program reads 1"
        );
        for number in [41, 43] {
            let error = LogEntry::decode(number, &entry().encode().unwrap()).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("log/000000/000000{number}: number: expected {number}, found 42")
            );
        }
    }

    #[test]
    fn unknown_fields_are_ignored() {
        let bytes = changed(|json| {
            json["new"] = 1.into();
            json["changes"][0]["new"] = 1.into();
            json["changes"][4]["root"]["new"] = 1.into();
        });
        assert_eq!(LogEntry::decode(42, &bytes).unwrap(), entry());
    }

    #[test]
    fn impossible_contents_are_refused_both_ways() {
        let bytes = changed(|json| json["changes"][4]["times"]["depth"] = 9.into());
        let error = LogEntry::decode(42, &bytes).unwrap_err();
        let detail = "change 4: content depth: expected at most 8, found 9";
        assert_eq!(error.to_string(), format!("log/000000/00000042: {detail}"));
        let mut entry = entry();
        let Some(Change::SetRef { times, .. }) = entry.changes.get_mut(4) else {
            panic!("expected set_ref");
        };
        times.depth = 9;
        let error = entry.encode().unwrap_err();
        assert_eq!(error.kind(), Kind::InvalidInput);
        assert_eq!(error.to_string(), format!("log/000000/00000042: {detail}"));
    }
}
