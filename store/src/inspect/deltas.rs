//! Statistics of deltas: how many chunks are in deltas, what that saves, and which chunks are kept only as bases.

use std::collections::HashSet;

use crate::error::Result;
use crate::graph::shares::{Share, Sum};
use crate::index::{Index, Location, Position};

/// Chunks in deltas, and their bases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Deltas {
    /// Chunks in deltas.
    pub chunks: Share,
    /// Estimate of the bytes saved. Assumes that without deltas each byte would take as much as a byte of its bases,
    /// and subtracts the stored bytes of bases that exist only for these deltas, if known. Negative if deltas cost
    /// more.
    pub saved_bytes: i64,
    /// Their bases.
    pub bases: Share,
    /// Bases that no version contains: they are kept only for deltas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<Share>,
}

impl Deltas {
    /// Whether there are no deltas.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Computes the statistics for all of `index`. Which bases no version contains is unknown without a walk.
    ///
    /// # Errors
    /// Corrupt, when a segment refers to something outside of itself.
    pub fn of(index: &Index) -> Result<Self> {
        let with_bases = (index.segments().enumerate())
            .filter(|(_, segment)| segment.layout().bases() > 0)
            .map(|(number, segment)| (number, segment.layout().chunks()));
        let entries = with_bases.flat_map(|(segment, chunks)| {
            (0..chunks).map(move |entry| Position { segment, entry })
        });
        Self::among(index, entries, None, &|_| false)
    }

    /// Computes the statistics for `positions`. With `has_version`, also finds the bases that no version contains.
    /// Bases that `others` need as well do not count as a cost.
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

/// Returns how many bytes a chunk saves, compared with as many bytes of its bases, which are `raw` bytes stored in
/// `stored`.
fn saved(chunk: &Location, raw: u64, stored: u64) -> u64 {
    let plain = u128::from(chunk.len) * u128::from(stored) / u128::from(raw.max(1));
    let plain = u64::try_from(plain).unwrap_or(u64::MAX);
    plain.saturating_sub(chunk.stored_share())
}
