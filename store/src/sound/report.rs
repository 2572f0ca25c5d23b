//! What is wrong with a store: which objects, and which versions and paths that hits.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::error::Error;
use crate::format::{RefName, checkpoint_key, log_key, pack_key, segment_key};
use crate::id::{PackId, SegmentId};
use crate::remedy::Remedy;
use crate::shown;

/// Most hits that a report lists; further ones are counted.
const HITS_MAX: usize = 10_000;

/// The report of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// Log entries.
    #[serde(rename = "log_entries")]
    pub entries: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Live segments.
    pub segments: u64,
    /// Live packs.
    pub packs: u64,
    /// Packs that were read completely.
    pub packs_read: u64,
    /// Bytes of these packs.
    pub bytes_read: u64,
    /// Versions of refs.
    pub versions: u64,
    /// What is wrong, and with which object.
    pub findings: Vec<Finding>,
    /// The versions and paths that are hit.
    pub hits: Vec<Hit>,
    /// The number of hits beyond those that are listed.
    pub hits_left_out: u64,
    /// Notes that are worth knowing and that did not stop the verification.
    #[serde(skip)]
    pub notes: Vec<String>,
    /// What to do before anything else: no repair helps where objects of another store lie here.
    #[serde(skip)]
    pub remedy: Option<Remedy>,
}

/// A part of a store with a defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A log entry.
    Log(u64),
    /// A checkpoint; nothing is lost with it, since it is derived.
    Checkpoint(u64),
    /// A segment; it can be rebuilt from its packs.
    Segment(SegmentId),
    /// A pack.
    Pack(PackId),
    /// A segment with deltas in a store whose log does not say that it has deltas.
    Unlearned(SegmentId),
    /// Something that a version needs and no object offers.
    Version,
}

/// A defect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The defective part.
    #[serde(skip)]
    pub part: Part,
    /// The key of the object.
    pub object: String,
    /// What is wrong with the object.
    pub what: String,
}

/// A path that cannot be read as it was put.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hit {
    /// The ref.
    #[serde(rename = "ref")]
    pub name: RefName,
    /// The version.
    pub version: u64,
    /// The path in the version; empty for the root.
    #[serde(flatten, serialize_with = "shown::in_tree")]
    pub path: Vec<u8>,
    /// The defective part; serialized as the key of that object.
    #[serde(
        rename = "object",
        skip_serializing_if = "Part::is_nowhere",
        serialize_with = "object"
    )]
    pub cause: Part,
    /// What is wrong.
    pub what: String,
}

fn object<S: serde::Serializer>(part: &Part, out: S) -> Result<S::Ok, S::Error> {
    part.object().serialize(out)
}

impl Part {
    /// Whether no object is at fault.
    fn is_nowhere(&self) -> bool {
        *self == Self::Version
    }

    /// The key of the object; none, if no object is at fault.
    pub fn object(&self) -> Option<String> {
        match self {
            Self::Log(number) => Some(log_key(*number)),
            Self::Checkpoint(number) => Some(checkpoint_key(*number)),
            Self::Segment(id) | Self::Unlearned(id) => Some(segment_key(*id)),
            Self::Pack(id) => Some(pack_key(*id)),
            Self::Version => None,
        }
    }

    /// The segment, if the part is one.
    pub(crate) fn segment(self) -> Option<SegmentId> {
        match self {
            Self::Segment(id) => Some(id),
            _ => None,
        }
    }
}

impl Finding {
    /// The finding for `error` about `object`; a message that begins with the object loses that prefix.
    pub(crate) fn of(part: Part, object: String, error: &Error) -> Self {
        let message = error.to_string();
        let what = message.strip_prefix(&format!("{object}: "));
        let what = what.unwrap_or(&message).to_owned();
        Self { part, object, what }
    }

    pub(crate) fn new(part: Part, object: String, what: impl Into<String>) -> Self {
        Self {
            part,
            object,
            what: what.into(),
        }
    }
}

impl VerifyReport {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty() && self.hits.is_empty()
    }

    /// The versions that are hit, with their refs.
    pub fn versions_hit(&self) -> BTreeSet<(&RefName, u64)> {
        let hits = self.hits.iter();
        hits.map(|hit| (&hit.name, hit.version)).collect()
    }

    /// Adds the finding for `error` about `object`.
    pub(crate) fn find(&mut self, part: Part, object: String, error: &Error) {
        if error.remedy() == Some(&Remedy::RemoveStrangers) {
            self.remedy = Some(Remedy::RemoveStrangers);
        }
        self.findings.push(Finding::of(part, object, error));
    }

    pub(crate) fn hit(&mut self, hit: Hit) {
        if self.hits.len() < HITS_MAX {
            self.hits.push(hit);
        } else {
            self.hits_left_out += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_beyond_the_most_are_counted() {
        let mut report = VerifyReport::default();
        for version in 1..=HITS_MAX as u64 + 2 {
            report.hit(Hit {
                name: "team/t/r".parse().unwrap(),
                version,
                path: Vec::new(),
                cause: Part::Version,
                what: String::new(),
            });
        }
        assert_eq!((report.hits.len(), report.hits_left_out), (HITS_MAX, 2));
    }

    #[test]
    fn a_segment_is_one_and_nothing_else_is() {
        let id = SegmentId([1; 16]);
        assert_eq!(Part::Segment(id).segment(), Some(id));
        let others = [Part::Log(1), Part::Unlearned(id), Part::Version];
        assert!(others.into_iter().all(|part| part.segment().is_none()));
    }
}
