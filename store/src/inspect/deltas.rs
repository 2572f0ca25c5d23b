//! What is stored as the difference to other chunks, what that saves, and which chunks it holds.

use std::collections::HashSet;

use crate::error::Result;
use crate::graph::shares::{Share, Sum};
use crate::index::{Index, Location, Position};

/// Chunks in deltas, and what they need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Deltas {
    /// Chunks that are stored as the difference to others.
    pub chunks: Share,
    /// About how many bytes that saves: as much as if these took what their bases take, byte for byte, without what those
    /// bases take that are there for these alone, as far as that is known. Less than nothing, where it costs more.
    pub saved_bytes: i64,
    /// What they are the difference to.
    pub bases: Share,
    /// Those of the bases that no version has: they are there for deltas alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<Share>,
}

impl Deltas {
    /// Whether there are none.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Those in all of `index`. Which bases no version has is not known without a walk.
    ///
    /// # Errors
    /// Corrupt, when a segment points outside of itself.
    pub fn of(index: &Index) -> Result<Self> {
        let with_bases = (index.segments().enumerate())
            .filter(|(_, segment)| segment.layout().bases() > 0)
            .map(|(number, segment)| (number, segment.layout().chunks()));
        let entries = with_bases.flat_map(|(segment, chunks)| {
            (0..chunks).map(move |entry| Position { segment, entry })
        });
        Self::among(index, entries, None, &|_| false)
    }

    /// Those of `positions`; with `has_version`, also which bases no version has. Those that `others` need as well are no cost
    /// of these.
    pub(super) fn among(
        index: &Index,
        positions: impl Iterator<Item = Position>,
        has_version: Option<&dyn Fn(Position) -> bool>,
        others: &dyn Fn(Position) -> bool,
    ) -> Result<Self> {
        let (mut chunks, mut bases, mut held) = (Sum::default(), Sum::default(), Sum::default());
        let (mut seen, mut saved_bytes, mut alone) = (HashSet::new(), 0u64, Sum::default());
        for at in positions {
            let (_, location) = index.at(at)?;
            if !location.is_delta {
                continue;
            }
            chunks.add(&location);
            let (mut raw, mut stored) = (0, 0);
            for base in index.bases(at, &location)? {
                let Some(place) = index.position_plain(&base)? else {
                    continue;
                };
                let (_, base) = index.at(place)?;
                raw += u64::from(base.len);
                stored += base.stored_share();
                if seen.insert(place) {
                    bases.add(&base);
                    if has_version.is_some_and(|has| !has(place)) {
                        held.add(&base);
                        if !others(place) {
                            alone.add(&base);
                        }
                    }
                }
            }
            saved_bytes += saved(&location, raw, stored);
        }
        let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let saved_bytes = signed(saved_bytes).saturating_sub(signed(alone.share().stored_bytes));
        Ok(Self {
            chunks: chunks.share(),
            saved_bytes,
            bases: bases.share(),
            held: has_version.map(|_| held.share()),
        })
    }
}

/// By how much a chunk takes less than as many bytes of its bases, which are `raw` and take `stored`.
fn saved(chunk: &Location, raw: u64, stored: u64) -> u64 {
    let plain = u128::from(chunk.len) * u128::from(stored) / u128::from(raw.max(1));
    let plain = u64::try_from(plain).unwrap_or(u64::MAX);
    plain.saturating_sub(chunk.stored_share())
}
