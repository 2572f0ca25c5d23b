//! Log entries: the numbered record of every change of state.
//!
//! Written once under its number, never changed, never deleted. Each entry names its store and the previous entry, so
//! entries of two histories can never be mixed. An unknown change is refused by name: a program that cannot apply a
//! change cannot know the state. `entry_text` defines how an entry is stored.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::features::name_defect;
use crate::format::{
    DELTA_FRAMES, Extra, FeatureKind, Features, Origin, Policy, RefName, Root, Sides, Who,
};
use crate::id::{CommitId, EntryId, PackId, PassId, SegmentId, StoreId};

/// The first field of a log entry.
pub const LOG_MAGIC: &str = "store-log";
/// Version of log entries.
pub const LOG_VERSION: u32 = 2;

/// One log entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// Its number, which is also its key; the first is 1.
    pub number: u64,
    /// The store that the entry belongs to.
    pub store: StoreId,
    /// The id of the previous entry; none for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prev: Option<EntryId>,
    /// The id of the lost entry that this entry replaces. The next entry refers to that id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stands_for: Option<EntryId>,
    /// Unique, so that a writer that did not receive the answer recognizes its own entry.
    pub commit: CommitId,
    /// When it was written, by the writer's clock; for people and grace periods, never for safety.
    pub time: Timestamp,
    /// Who wrote it.
    pub who: Who,
    /// Entries from this number on were given up; see the repairer in `FORMATS.md`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
    /// Entries up to this number are lost, and writers of objects in the store may have known them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
    /// The changes, applied in this order, all or none.
    pub changes: Vec<Change>,
    /// Its id as it was read. It cannot be computed from the other fields, because the original may have had unknown
    /// fields.
    #[serde(skip)]
    pub read_as: ReadAs,
}

/// The id under which an entry was read, if it was read. It is ignored when entries are compared.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadAs(pub Option<EntryId>);

impl PartialEq for ReadAs {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ReadAs {}

/// Totals of a segment, so that nobody has to open it just to count.
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
    /// Length of the segment object itself, in bytes.
    pub bytes: u64,
    /// The unfinished pass of a writer that added it: versions need not reach its chunks yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pass: Option<PassId>,
    /// The entry that added it. Only states have it, and not those that older programs wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added: Option<Added>,
}

/// When a segment was added to the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Added {
    /// The log entry that added it.
    pub entry: u64,
    /// That entry's time; never for safety.
    pub time: Timestamp,
}

impl SegmentInfo {
    /// Returns the newest entry that the writer of the segment can have known: the one before the entry that added it.
    /// If that is unknown, returns `number`.
    pub fn named_behind(&self, number: u64) -> u64 {
        self.added
            .map_or(number, |added| added.entry.saturating_sub(1))
    }

    /// Returns the totals without the history that the log records.
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
    /// A segment is no longer live.
    DropSegment {
        /// Its name.
        segment: SegmentId,
        /// A segment that the same entry adds, and that offers everything that this one offered.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        into: Option<SegmentId>,
    },
    /// Packs offer nothing from now on; their objects may be deleted after a grace.
    CondemnPacks {
        /// Their names.
        packs: Vec<PackId>,
    },
    /// The objects of condemned packs and dropped segments are deleted, and no live segment names these packs.
    Forget {
        /// Packs.
        packs: Vec<PackId>,
        /// Segments.
        segments: Vec<SegmentId>,
    },
    /// A ref gets a new version, whose number follows the last one.
    SetRef {
        /// The ref.
        name: RefName,
        /// The number of the version.
        version: u64,
        /// The directory or file.
        root: Root,
        /// Its side objects: times and others.
        sides: Sides,
        /// The message of the user.
        message: String,
        /// When retention may drop it.
        expires: Option<Timestamp>,
        /// Where it was first put, if it was copied from another store.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        origin: Option<Box<Origin>>,
        /// Passes that end with this version: whatever they added and no version reaches is garbage from now on.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ends: Vec<PassId>,
        /// Whether only their owner could read some of its files, so that copies are made for one user only.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        private: bool,
        /// Fields of the version that this program does not know.
        #[serde(flatten)]
        extra: Extra,
    },
    /// A version of a ref is dropped.
    DropRef {
        /// The ref.
        name: RefName,
        /// The version.
        version: u64,
    },
    /// A version is pinned or unpinned.
    Pin {
        /// The ref.
        name: RefName,
        /// The version.
        version: u64,
        /// Whether it is pinned from now on.
        pinned: bool,
    },
    /// The policy of the store from now on; an empty policy removes it.
    SetPolicy {
        /// The whole policy.
        policy: Policy,
    },
    /// The store has a feature from now on.
    SetFeature {
        /// What programs that do not know the feature may still do.
        kind: FeatureKind,
        /// Its name.
        name: String,
    },
}

impl Features {
    /// Returns the change that allows delta frames, for the commit of the first segment that has some.
    pub fn learned(&self, has_deltas: bool) -> Option<Change> {
        (has_deltas && !self.has_delta_frames()).then(|| Change::SetFeature {
            kind: FeatureKind::Incompatible,
            name: DELTA_FRAMES.to_owned(),
        })
    }
}

impl Change {
    /// Whether the change may allow space to be freed.
    pub fn takes(&self) -> bool {
        match self {
            Self::DropRef { .. }
            | Self::DropSegment { .. }
            | Self::CondemnPacks { .. }
            | Self::Forget { .. } => true,
            Self::AddSegment { .. }
            | Self::SetRef { .. }
            | Self::Pin { .. }
            | Self::SetPolicy { .. }
            | Self::SetFeature { .. } => false,
        }
    }

    pub(super) fn defect(&self) -> Option<String> {
        match self {
            Self::SetRef { root, sides, .. } => root.content().defect().or_else(|| sides.defect()),
            Self::SetFeature { name, .. } => name_defect(name),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry_text::OPS;
    use super::*;
    use crate::error::ErrorKind;
    use crate::format::{Content, Totals, seal};
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
                into: Some(SegmentId([2; 16])),
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
                sides: Sides::of_times(content),
                message: "first\nsecond".to_owned(),
                expires: Some(Timestamp::UNIX_EPOCH),
                origin: None,
                ends: vec![PassId([7; 16])],
                private: true,
                extra: Extra::new(),
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
            Change::SetFeature {
                kind: FeatureKind::ReadOnly,
                name: "warp-9".to_owned(),
            },
        ]
    }

    fn entry() -> LogEntry {
        LogEntry {
            number: 42,
            store: StoreId([8; 16]),
            prev: Some(EntryId([7; 32])),
            stands_for: None,
            commit: CommitId([9; 16]),
            time: "2025-01-02T03:04:05.678Z".parse().unwrap(),
            who: Who {
                host: "node-1".to_owned(),
                user: "ana".to_owned(),
                program: "store 0.1.0".to_owned(),
            },
            lost: None,
            until: None,
            changes: every_change(),
            read_as: ReadAs::default(),
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
            text.starts_with(r#"{"magic":"store-log","version":2,"number":42,"store":"0808"#),
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
        assert_eq!(error.kind(), ErrorKind::Unsupported);
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
        let error = LogEntry::decode(42, &changed(|json| json["version"] = 3.into())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert_eq!(
            error.to_string(),
            "log/000000/00000042: version is 3, this program reads 2"
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
    fn an_unknown_field_of_a_version_is_kept() {
        let bytes = changed(|json| json["changes"][4]["labels"] = serde_json::json!({"a": [1]}));
        let read = LogEntry::decode(42, &bytes).unwrap();
        let Some(Change::SetRef { extra, .. }) = read.changes.get(4) else {
            panic!("expected set_ref");
        };
        assert_eq!(extra["labels"], serde_json::json!({"a": [1]}));
        assert_eq!(extra.len(), 1);
        let again = read.encode().unwrap();
        assert_eq!(LogEntry::decode(42, &again).unwrap(), read);
    }

    #[test]
    fn a_feature_that_is_learned_has_a_plain_name() {
        for name in ["", "Warp", "a b", &"a".repeat(65)] {
            let bytes = changed(|json| json["changes"][8]["name"] = name.into());
            let error = LogEntry::decode(42, &bytes).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            let expected = "change 8: feature: expected 1 to 64 of a-z, 0-9 and -, found";
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn impossible_contents_are_refused_both_ways() {
        let bytes = changed(|json| json["changes"][4]["sides"][0]["content"]["depth"] = 9.into());
        let error = LogEntry::decode(42, &bytes).unwrap_err();
        let detail = "change 4: side times: content depth: expected at most 8, found 9";
        assert_eq!(error.to_string(), format!("log/000000/00000042: {detail}"));
        let mut entry = entry();
        let Some(Change::SetRef { sides, .. }) = entry.changes.get_mut(4) else {
            panic!("expected set_ref");
        };
        let mut times = sides.times();
        times.depth = 9;
        *sides = Sides::of_times(times);
        let error = entry.encode().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(error.to_string(), format!("log/000000/00000042: {detail}"));
    }
}
