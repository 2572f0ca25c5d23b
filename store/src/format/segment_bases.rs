//! Bases in a segment, searched in place: which frames are deltas, and which chunks they need.

use super::bases::{BASE_LEN, FrameBase};
use super::cursor::corrupt;
use super::segment::{SegmentLayout, row};
use crate::error::Result;
use crate::id::ChunkId;

impl SegmentLayout {
    /// Returns the bases of a frame, in order; empty if the frame is plain.
    ///
    /// # Errors
    /// Corrupt, when a base belongs to no frame.
    pub fn bases_of(&self, bytes: &[u8], frame: u32) -> Result<Vec<ChunkId>> {
        let first = self.first_base(bytes, frame)?;
        let rows = (first..self.bases()).map(|at| self.base(bytes, at));
        let of_frame = rows.take_while(|base| base.as_ref().map_or(true, |b| b.frame == frame));
        of_frame.map(|base| base.map(|base| base.id)).collect()
    }

    /// Whether a frame has bases, which makes it a delta.
    ///
    /// # Errors
    /// As [`Self::bases_of`].
    pub fn is_delta(&self, bytes: &[u8], frame: u32) -> Result<bool> {
        let first = self.first_base(bytes, frame)?;
        Ok(first < self.bases() && self.base(bytes, first)?.frame == frame)
    }

    /// Returns the position of the first base that belongs to this frame or a later one.
    fn first_base(&self, bytes: &[u8], frame: u32) -> Result<u32> {
        let (mut low, mut high) = (0, self.bases());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.base(bytes, middle)?.frame < frame {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        Ok(low)
    }

    /// Returns the base at `position` (below [`Self::bases`]).
    ///
    /// # Errors
    /// Corrupt, when it belongs to no frame; invalid input, when there is no such position.
    pub fn base(&self, bytes: &[u8], position: u32) -> Result<FrameBase> {
        let row: Option<&[u8; BASE_LEN]> =
            row(bytes, self.bases_at, position.into(), self.bases().into());
        let base = FrameBase::decode(row.ok_or_else(|| self.no_row("base", position.into()))?);
        let checked = base.check(self.frames()).map(|()| base);
        checked.map_err(|detail| corrupt(&self.object, detail))
    }
}
