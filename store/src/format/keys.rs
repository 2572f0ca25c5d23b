//! Keys: the key of each object of a store, and the way back from a key to the object's name.
//!
//! Numbers may outgrow their zero padding, so keys must be compared by number, never as text. A key that this module
//! would not have written is parsed as `None`.

use jiff::civil::Date;

use super::{
    CLAIM_BYTES_MAX, CLAIMS_PREFIX, PACK_BYTES_MAX, RefName, SEALED_BYTES_MAX, parse_claim_key,
};
use crate::id::{PackId, SegmentId, VersionId};

impl VersionId {
    /// The id of version `number` of the ref `name`.
    pub fn of(name: &RefName, number: u64) -> Self {
        let mut id = [0; Self::LEN];
        let mut hasher = blake3::Hasher::new();
        hasher.update(format!("{name}@{number}").as_bytes());
        hasher.finalize_xof().fill(&mut id);
        Self(id)
    }
}

/// Key of the object `format`.
pub const FORMAT_KEY: &str = "format";
/// Prefix of all log entries.
pub const LOG_PREFIX: &str = "log";
/// Prefix of all checkpoints.
pub const CHECKPOINTS_PREFIX: &str = "checkpoints";
/// Prefix of all segments.
pub const SEGMENTS_PREFIX: &str = "segments";
/// Prefix of all packs.
pub const PACKS_PREFIX: &str = "packs";
/// Prefix of the pieces of the reserve.
pub const RESERVE_PREFIX: &str = "reserve";
/// An object that a collector writes to learn which clock sets the times of objects.
pub const CLOCK_KEY: &str = "reserve/clock";
/// Prefix of all access records.
pub const USES_PREFIX: &str = "uses";
/// How many log entries share a directory.
pub const LOG_GROUP: u64 = 10_000;

/// Most bytes of the object `format`.
pub const FORMAT_BYTES_MAX: u64 = 1 << 20;
/// Most bytes of a log entry.
pub const LOG_ENTRY_BYTES_MAX: u64 = 256 << 20;

/// A kind of objects: what a store has under one name at its top.
#[derive(Clone, Copy, Debug)]
pub struct ObjectKind {
    /// That name: the key of the only object, or what comes before the first `/` of each key.
    pub prefix: &'static str,
    /// Most bytes of an object.
    bytes_max: u64,
    /// Whether a key is that of an object; never for uses and the reserve, of which nothing is read.
    is_key: fn(&str) -> bool,
    /// Whether a killed process may have left a file below the prefix that it was staging.
    pub is_staged: bool,
}

/// All kinds. Collectors look for staged files in this order.
pub const OBJECT_KINDS: [ObjectKind; 8] = [
    ObjectKind {
        prefix: PACKS_PREFIX,
        bytes_max: PACK_BYTES_MAX as u64,
        is_key: |key| parse_pack_key(key).is_some(),
        is_staged: true,
    },
    ObjectKind {
        prefix: SEGMENTS_PREFIX,
        bytes_max: u64::MAX,
        is_key: |key| parse_segment_key(key).is_some(),
        is_staged: true,
    },
    ObjectKind {
        prefix: LOG_PREFIX,
        bytes_max: LOG_ENTRY_BYTES_MAX,
        is_key: |key| parse_log_key(key).is_some(),
        is_staged: true,
    },
    ObjectKind {
        prefix: CHECKPOINTS_PREFIX,
        bytes_max: SEALED_BYTES_MAX as u64,
        is_key: |key| parse_checkpoint_key(key).is_some(),
        is_staged: true,
    },
    ObjectKind {
        prefix: USES_PREFIX,
        bytes_max: u64::MAX,
        is_key: |_| false,
        is_staged: true,
    },
    ObjectKind {
        prefix: CLAIMS_PREFIX,
        bytes_max: CLAIM_BYTES_MAX,
        is_key: |key| parse_claim_key(key).is_some(),
        is_staged: true,
    },
    ObjectKind {
        prefix: RESERVE_PREFIX,
        bytes_max: u64::MAX,
        is_key: |_| false,
        is_staged: true,
    },
    ObjectKind {
        prefix: FORMAT_KEY,
        bytes_max: FORMAT_BYTES_MAX,
        is_key: |key| key == FORMAT_KEY,
        is_staged: false,
    },
];

impl ObjectKind {
    /// The kind of the object under `key`.
    fn of(key: &str) -> Option<&'static Self> {
        let name = key.split('/').next()?;
        OBJECT_KINDS.iter().find(|kind| kind.prefix == name)
    }
}

/// Returns the most bytes that the object under `key` can have, so that nothing larger is read into memory.
pub fn bytes_max(key: &str) -> u64 {
    ObjectKind::of(key).map_or(u64::MAX, |kind| kind.bytes_max)
}

/// Whether `key` is the key of an object of a store. Nothing else, such as a directory, may have that name.
pub fn is_object_key(key: &str) -> bool {
    ObjectKind::of(key).is_some_and(|kind| (kind.is_key)(key))
}

/// Whether a store has something of this name at its top.
pub fn is_top_name(name: &str) -> bool {
    OBJECT_KINDS.iter().any(|kind| kind.prefix == name)
}

/// Key of log entry `number`: `log/000000/00000042`.
pub fn log_key(number: u64) -> String {
    format!("{}/{number:08}", log_group_prefix(number))
}

/// Prefix of the entries that share a directory with entry `number`: `log/000000`.
pub fn log_group_prefix(number: u64) -> String {
    format!("{LOG_PREFIX}/{:06}", number / LOG_GROUP)
}

/// Key of the checkpoint at entry `number`: `checkpoints/00000064`.
pub fn checkpoint_key(number: u64) -> String {
    format!("{CHECKPOINTS_PREFIX}/{number:08}")
}

/// Key of a piece of the reserve (see [`crate::log::reserve`]): `reserve/0`.
pub fn reserve_key(piece: u64) -> String {
    format!("{RESERVE_PREFIX}/{piece}")
}

/// Key of a segment: `segments/<32 hex>`.
pub fn segment_key(id: SegmentId) -> String {
    format!("{SEGMENTS_PREFIX}/{id}")
}

/// Key of a pack: `packs/<first 2 hex>/<32 hex>`.
pub fn pack_key(id: PackId) -> String {
    let [first, ..] = id.0;
    format!("{PACKS_PREFIX}/{first:02x}/{id}")
}

/// Key of the record that a version was used on a day, in UTC: `uses/2026-11-21-<32 hex>`.
pub fn use_key(day: Date, version: VersionId) -> String {
    format!("{USES_PREFIX}/{day}-{version}")
}

/// Whether `key` is the key of a piece of the reserve.
pub fn is_of_reserve(key: &str) -> bool {
    let piece = key
        .rsplit_once('/')
        .and_then(|(_, piece)| piece.parse().ok());
    piece.is_some_and(|piece| reserve_key(piece) == key)
}

/// Returns the number of the log entry under `key`.
pub fn parse_log_key(key: &str) -> Option<u64> {
    let (_, number) = key.rsplit_once('/')?;
    let number = number.parse().ok()?;
    (log_key(number) == key).then_some(number)
}

/// Returns the number of the checkpoint under `key`.
pub fn parse_checkpoint_key(key: &str) -> Option<u64> {
    let (_, number) = key.rsplit_once('/')?;
    let number = number.parse().ok()?;
    (checkpoint_key(number) == key).then_some(number)
}

/// Returns the id of the segment under `key`.
pub fn parse_segment_key(key: &str) -> Option<SegmentId> {
    let (_, id) = key.rsplit_once('/')?;
    let id = id.parse().ok()?;
    (segment_key(id) == key).then_some(id)
}

/// Returns the id of the pack under `key`.
pub fn parse_pack_key(key: &str) -> Option<PackId> {
    let (_, id) = key.rsplit_once('/')?;
    let id = id.parse().ok()?;
    (pack_key(id) == key).then_some(id)
}

/// Returns the day and the version of the access record under `key`.
pub fn parse_use_key(key: &str) -> Option<(Date, VersionId)> {
    let (_, name) = key.rsplit_once('/')?;
    let (day, version) = name.rsplit_once('-')?;
    let (day, version) = (day.parse().ok()?, version.parse().ok()?);
    (use_key(day, version) == key).then_some((day, version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_what_the_document_says() {
        assert_eq!(log_key(42), "log/000000/00000042");
        assert_eq!(log_key(12_345_678), "log/001234/12345678");
        assert_eq!(checkpoint_key(64), "checkpoints/00000064");
        let hex = "ab".repeat(16);
        assert_eq!(segment_key(hex.parse().unwrap()), format!("segments/{hex}"));
        assert_eq!(pack_key(hex.parse().unwrap()), format!("packs/ab/{hex}"));
    }

    #[test]
    fn keys_lead_back_to_names() {
        for number in [1, 42, 9_999, 10_000, 99_999_999, 100_000_000, u64::MAX] {
            assert_eq!(parse_log_key(&log_key(number)), Some(number));
            assert_eq!(parse_checkpoint_key(&checkpoint_key(number)), Some(number));
        }
        let segment = SegmentId::random().unwrap();
        assert_eq!(parse_segment_key(&segment_key(segment)), Some(segment));
        let pack = PackId::random().unwrap();
        assert_eq!(parse_pack_key(&pack_key(pack)), Some(pack));
        let (day, version) = (jiff::civil::date(2026, 2, 28), VersionId([0xab; 16]));
        assert_eq!(parse_use_key(&use_key(day, version)), Some((day, version)));
    }

    #[test]
    fn the_place_of_every_object_is_known() {
        let hex = "ab".repeat(16);
        let keys = [
            FORMAT_KEY.to_owned(),
            log_key(42),
            checkpoint_key(64),
            segment_key(hex.parse().unwrap()),
            pack_key(hex.parse().unwrap()),
        ];
        for key in keys {
            assert!(is_object_key(&key), "{key}");
            assert!(!is_object_key(&format!("{key}.tmp")), "{key}");
        }
        for key in ["uses/2026-11-21-x", "reserve/0", "lost+found", "", "log"] {
            assert!(!is_object_key(key), "{key}");
        }
    }

    #[test]
    fn every_kind_has_one_name_a_limit_and_a_place_for_staged_files() {
        let mut names: Vec<&str> = OBJECT_KINDS.iter().map(|kind| kind.prefix).collect();
        let staged = OBJECT_KINDS.iter().filter(|kind| kind.is_staged);
        let staged: Vec<&str> = staged.map(|kind| kind.prefix).collect();
        let order = "packs segments log checkpoints uses claims reserve";
        assert_eq!(staged.join(" "), order);
        assert!(names.iter().all(|name| is_top_name(name)));
        assert!(!is_top_name("lost+found") && !is_top_name("log/000000"));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), OBJECT_KINDS.len());
        for (key, most) in [
            ("format", FORMAT_BYTES_MAX),
            ("log/x", LOG_ENTRY_BYTES_MAX),
            ("checkpoints/x", SEALED_BYTES_MAX as u64),
            ("packs/ab/x", PACK_BYTES_MAX.into()),
            ("claims/x/1", CLAIM_BYTES_MAX),
            ("segments/x", u64::MAX),
            ("logs/x", u64::MAX),
        ] {
            assert_eq!(bytes_max(key), most, "{key}");
        }
    }

    #[test]
    fn other_keys_are_none() {
        let hex = "ab".repeat(16);
        for key in [
            "",
            "log",
            "log/000000/42",
            "log/000001/00000042",
            "log/000000/00000042.tmp",
            "log/000000/+0000042",
            "x/log/000000/00000042",
        ] {
            assert_eq!(parse_log_key(key), None, "{key}");
        }
        assert_eq!(parse_checkpoint_key("checkpoints/64"), None);
        assert_eq!(parse_segment_key(&format!("segments/{hex}x")), None);
        assert_eq!(parse_pack_key(&format!("packs/ac/{hex}")), None);
        assert_eq!(parse_pack_key(&format!("packs/{hex}")), None);
        assert!(is_of_reserve(&reserve_key(3)));
        for key in [
            "reserve",
            "reserve/",
            "reserve/03",
            "reserve/3/4",
            "packs/3",
        ] {
            assert!(!is_of_reserve(key), "{key}");
        }
        for day in ["2026-02-30", "2026-2-3", "20260203", "+002026-02-03", ""] {
            assert_eq!(parse_use_key(&format!("uses/{day}-{hex}")), None, "{day}");
        }
    }
}
