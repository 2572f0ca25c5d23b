//! Side objects: contents that belong to a version but are not part of its tree.
//!
//! Each has a kind. When a program reads a version, it ignores kinds that it does not know; but it keeps, marks, checks
//! and copies their contents like those of the tree.

use serde::{Deserialize, Serialize};

use crate::format::features::is_plain_word;
use crate::format::{Content, Keep};

/// Modification times, as a list of times.
pub const SIDE_TIMES: &str = "times";
/// Most bytes of a kind.
pub const SIDE_KIND_BYTES_MAX: usize = 64;

/// One side object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Side {
    /// The kind: lower-case letters, digits and `-`.
    pub kind: String,
    /// Its bytes.
    pub content: Content,
}

/// The side objects of a version, sorted by kind, each kind once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sides(Vec<Side>);

impl Sides {
    /// Only times; no side object if `times` is empty.
    pub fn of_times(times: Content) -> Self {
        let side = || Side {
            kind: SIDE_TIMES.to_owned(),
            content: times,
        };
        Self((times != Content::empty()).then(side).into_iter().collect())
    }

    /// Takes the side objects unchecked; see [`Self::defect`].
    pub(super) fn of(sides: Vec<Side>) -> Self {
        Self(sides)
    }

    /// Adds a side object, or replaces the one of the same kind.
    #[must_use]
    pub fn with(mut self, side: Side) -> Self {
        self.0.retain(|known| known.kind != side.kind);
        self.0.push(side);
        self.0.sort_by(|one, other| one.kind.cmp(&other.kind));
        self
    }

    /// Returns the list of times; the empty content if there is none.
    pub fn times(&self) -> Content {
        let mut sides = self.0.iter();
        let times = sides.find(|side| side.kind == SIDE_TIMES);
        times.map_or_else(Content::empty, |side| side.content)
    }

    /// Returns the list of kept attributes of this kind, if there is one.
    pub fn kept(&self, keep: Keep) -> Option<Content> {
        let side = self.0.iter().find(|side| side.kind == keep.as_str());
        side.map(|side| side.content)
    }

    /// Iterates over all side objects.
    pub fn iter(&self) -> impl Iterator<Item = &Side> {
        self.0.iter()
    }

    /// Iterates over all side objects but the times.
    pub fn others(&self) -> impl Iterator<Item = &Side> {
        self.0.iter().filter(|side| side.kind != SIDE_TIMES)
    }

    /// Returns what is invalid, if anything.
    pub(super) fn defect(&self) -> Option<String> {
        let is_sorted = |pair: &[Side; 2]| matches!(pair, [a, b] if a.kind < b.kind);
        if let Some([_, side]) = self.0.array_windows().find(|pair| !is_sorted(pair)) {
            let kind = &side.kind;
            return Some(format!(
                "sides: expected kinds in order, each once, found {kind:?}"
            ));
        }
        self.0.iter().find_map(|Side { kind, content }| {
            if !is_plain_word(kind, SIDE_KIND_BYTES_MAX) {
                return Some(format!(
                    "sides: expected kinds of 1 to {SIDE_KIND_BYTES_MAX} of a-z, 0-9 and -, found {kind:?}"
                ));
            }
            let defect = content.defect()?;
            Some(format!("side {kind}: {defect}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ChunkId;

    fn side(kind: &str, seed: u8) -> Side {
        let content = Content {
            size: 9,
            depth: 0,
            root: ChunkId([seed; 32]),
        };
        Side {
            kind: kind.to_owned(),
            content,
        }
    }

    #[test]
    fn times_are_one_of_them() {
        let times = side(SIDE_TIMES, 1).content;
        let sides = Sides::of_times(times)
            .with(side("xattrs", 2))
            .with(side("modes", 3));
        assert_eq!(sides.times(), times);
        let kinds: Vec<_> = sides.iter().map(|side| side.kind.as_str()).collect();
        assert_eq!(kinds, ["modes", "times", "xattrs"]);
        assert_eq!(sides.others().count(), 2);
        assert_eq!(sides.defect(), None);
        assert_eq!(sides.clone().with(side("modes", 4)).iter().count(), 3);
        assert_eq!(Sides::of_times(Content::empty()), Sides::default());
        assert_eq!(Sides::default().times(), Content::empty());
    }

    #[test]
    fn other_spellings_are_refused() {
        for (sides, expected) in [
            (vec![side("b", 1), side("a", 2)], "found \"a\""),
            (vec![side("a", 1), side("a", 2)], "found \"a\""),
            (vec![side("", 1)], "found \"\""),
            (vec![side("A", 1)], "found \"A\""),
            (vec![side(&"a".repeat(65), 1)], "1 to 64 of a-z"),
        ] {
            let defect = Sides(sides).defect().unwrap();
            assert!(
                defect.starts_with("sides: ") && defect.contains(expected),
                "{defect}"
            );
        }
        let mut deep = side("a", 1);
        deep.content.depth = 9;
        let defect = Sides(vec![deep]).defect().unwrap();
        assert_eq!(defect, "side a: content depth: expected at most 8, found 9");
    }
}
