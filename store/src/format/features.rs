//! Features: properties of a store that not every program of its version supports.
//!
//! The object `format` lists those that the store was created with; the state lists those added later by `set_feature`.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The endpoint overwrites on put-if-absent: only one process may write at a time, and nothing enforces that.
pub const SINGLE_WRITER: &str = "single-writer";
/// Frames may be stored as deltas.
pub const DELTA_FRAMES: &str = "delta-frames";
/// Known features that forbid writing to programs without them; there are none so far.
const READ_ONLY_KNOWN: &[&str] = &[];
/// Known features that forbid even reading to programs without them.
const INCOMPATIBLE_KNOWN: &[&str] = &[DELTA_FRAMES, SINGLE_WRITER];
/// Most bytes of the name of a feature that is added later.
const NAME_BYTES_MAX: usize = 64;

/// What a program that does not know a feature may still do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeatureKind {
    /// Read and write.
    Compatible,
    /// Read only.
    ReadOnly,
    /// Nothing.
    Incompatible,
}

/// Features in use, sorted by what programs that do not know them may still do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Features {
    /// Programs that do not know these may ignore them.
    pub compatible: Vec<String>,
    /// Programs that do not know all of these may read, but not write.
    pub read_only: Vec<String>,
    /// Programs that do not know all of these must refuse the store.
    pub incompatible: Vec<String>,
}

impl Features {
    /// Whether no feature is in use.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the union of these features and `others`.
    #[must_use]
    pub fn and(&self, others: &Self) -> Self {
        let mut all = self.clone();
        for (kind, names) in others.by_kind() {
            names.iter().for_each(|name| all.learn(kind, name));
        }
        all
    }

    /// The names of each kind.
    pub fn by_kind(&self) -> [(FeatureKind, &[String]); 3] {
        [
            (FeatureKind::Compatible, &self.compatible),
            (FeatureKind::ReadOnly, &self.read_only),
            (FeatureKind::Incompatible, &self.incompatible),
        ]
    }

    /// Whether only one process may write at a time.
    pub fn is_single_writer(&self) -> bool {
        self.incompatible.iter().any(|name| name == SINGLE_WRITER)
    }

    /// Whether frames may be stored as deltas.
    pub fn has_delta_frames(&self) -> bool {
        self.incompatible.iter().any(|name| name == DELTA_FRAMES)
    }

    /// Adds a feature unless it is already known.
    pub(super) fn learn(&mut self, kind: FeatureKind, name: &str) {
        let list = match kind {
            FeatureKind::Compatible => &mut self.compatible,
            FeatureKind::ReadOnly => &mut self.read_only,
            FeatureKind::Incompatible => &mut self.incompatible,
        };
        if let Err(at) = list.binary_search_by(|known| known.as_str().cmp(name)) {
            list.insert(at, name.to_owned());
        }
    }

    /// Whether this program may read data with these features; `object` names the data in errors.
    ///
    /// # Errors
    /// Unsupported, naming an unknown incompatible feature.
    pub fn check_readable(&self, object: &str) -> Result<()> {
        check_incompatible(object, &self.incompatible)
    }

    /// Whether this program may write to data with these features; `object` names the data in errors.
    ///
    /// # Errors
    /// Unsupported, naming an unknown read-only feature.
    pub fn check_writable(&self, object: &str) -> Result<()> {
        let so = "this program can only read the store";
        check(object, so, &self.read_only, READ_ONLY_KNOWN)
    }
}

/// Whether this program knows these incompatible features.
pub(super) fn check_incompatible(object: &str, features: &[String]) -> Result<()> {
    let so = "this program cannot use the store";
    check(object, so, features, INCOMPATIBLE_KNOWN)
}

/// Returns why `name` cannot be the name of an added feature, if it cannot.
pub(super) fn name_defect(name: &str) -> Option<String> {
    (!is_plain_word(name, NAME_BYTES_MAX)).then(|| {
        format!("feature: expected 1 to {NAME_BYTES_MAX} of a-z, 0-9 and -, found {name:?}")
    })
}

/// Whether it consists of 1 to `bytes_max` characters a-z, 0-9 and `-`, so that it needs no quoting anywhere.
pub(super) fn is_plain_word(name: &str, bytes_max: usize) -> bool {
    let is_plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    (1..=bytes_max).contains(&name.len()) && name.bytes().all(is_plain)
}

fn check(object: &str, so: &str, features: &[String], known: &[&str]) -> Result<()> {
    let mut features = features.iter();
    match features.find(|feature| !known.contains(&feature.as_str())) {
        None => Ok(()),
        Some(feature) => Err(Error::unsupported(format!(
            "{object}: feature {feature:?} is unknown, so {so}"
        ))
        .hint("update this program")),
    }
}
