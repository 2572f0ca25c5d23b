//! Bases in a segment, looked up in place: which frames are deltas, and of what.

use super::bases::{BASE_LEN, FrameBase};
use super::cursor::corrupt;
use super::segment::{SegmentLayout, row};
use crate::error::Result;
use crate::id::ChunkId;

impl SegmentLayout {
    /// The bases of the frame at `frame`, in order: none, if it is plain.
    ///
    /// # Errors
    /// Corrupt, when one is of no frame.
    pub fn bases_of(&self, bytes: &[u8], frame: u32) -> Result<Vec<ChunkId>> {
        let first = self.first_base(bytes, frame)?;
        let rows = (first..self.bases()).map(|at| self.base(bytes, at));
        let of_frame = rows.take_while(|base| base.as_ref().map_or(true, |b| b.frame == frame));
        of_frame.map(|base| base.map(|base| base.id)).collect()
    }

    /// Whether the frame at `frame` has bases: whether it is a delta.
    ///
    /// # Errors
    /// As [`Self::bases_of`].
    pub fn is_delta(&self, bytes: &[u8], frame: u32) -> Result<bool> {
        let first = self.first_base(bytes, frame)?;
        Ok(first < self.bases() && self.base(bytes, first)?.frame == frame)
    }

    /// The position of the first base of this frame, or of one behind it.
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

    /// The base at `position` (below [`Self::bases`]).
    ///
    /// # Errors
    /// Corrupt, when it is of no frame; invalid input, when there is no such position.
    pub fn base(&self, bytes: &[u8], position: u32) -> Result<FrameBase> {
        let row: Option<&[u8; BASE_LEN]> =
            row(bytes, self.bases_at, position.into(), self.bases().into());
        let base = FrameBase::decode(row.ok_or_else(|| self.no_row("base", position.into()))?);
        let checked = base.check(self.frames()).map(|()| base);
        checked.map_err(|detail| corrupt(&self.object, detail))
    }
}
