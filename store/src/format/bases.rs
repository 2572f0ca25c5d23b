//! Bases: the chunks that are needed to decode a delta frame, as rows in the table of a pack and in a segment.
//!
//! A collector follows these rows without opening packs: whatever needs a chunk of the frame also needs its bases. A
//! frame without such rows is plain.

use super::cursor::Cursor;
use crate::error::Result;
use crate::id::ChunkId;

/// Bytes of a row: frame, id.
pub const FRAME_BASE_LEN: u32 = 4 + 32;
/// Most bases of one frame.
pub const FRAME_BASES_MAX: u16 = 1024;
/// [`FRAME_BASE_LEN`].
pub(super) const BASE_LEN: usize = 36;

const _: () = assert!(FRAME_BASE_LEN as usize == BASE_LEN);

/// One base of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameBase {
    /// Position in the table of frames.
    pub frame: u32,
    /// The chunk.
    pub id: ChunkId,
}

impl FrameBase {
    pub(super) fn encode(&self) -> [u8; BASE_LEN] {
        let mut out = [0; BASE_LEN];
        let bytes = self.frame.to_le_bytes().into_iter().chain(self.id.0);
        out.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        out
    }

    pub(super) fn decode(row: &[u8; BASE_LEN]) -> Self {
        let [a, b, c, d, id @ ..] = *row;
        Self {
            frame: u32::from_le_bytes([a, b, c, d]),
            id: ChunkId(id),
        }
    }

    pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Self> {
        Ok(Self {
            frame: cursor.u32("frame of a base")?,
            id: ChunkId(cursor.array("id of a base")?),
        })
    }

    /// Whether it names one of the first `frames` frames.
    pub(super) fn check(&self, frames: u32) -> Result<(), String> {
        let Self { frame, id } = self;
        match *frame < frames {
            true => Ok(()),
            false => Err(format!("base {id}: there is no frame {frame}")),
        }
    }
}

/// Whether these can be the bases of `frames` frames: sorted by frame, and at most [`FRAME_BASES_MAX`] per frame.
pub(super) fn check_bases(bases: &[FrameBase], frames: u32) -> Result<(), String> {
    bases.iter().try_for_each(|base| base.check(frames))?;
    let unsorted = bases.array_windows().find(|[a, b]| a.frame > b.frame);
    if let Some([before, base]) = unsorted {
        return Err(format!(
            "base {}: expected a frame from {} on, found {}",
            base.id, before.frame, base.frame
        ));
    }
    for group in bases.chunk_by(|a, b| a.frame == b.frame) {
        if let Some(first) = group
            .first()
            .filter(|_| group.len() > usize::from(FRAME_BASES_MAX))
        {
            return Err(format!(
                "frame {}: expected at most {FRAME_BASES_MAX} bases, found {}",
                first.frame,
                group.len()
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(frame: u32, id: u8) -> FrameBase {
        let id = ChunkId([id; 32]);
        FrameBase { frame, id }
    }

    #[test]
    fn rows_come_back() {
        let row = base(0x0403_0201, 7).encode();
        assert_eq!(row[..5], [1, 2, 3, 4, 7]);
        assert_eq!(FrameBase::decode(&row), base(0x0403_0201, 7));
        assert_eq!(
            FrameBase::read(&mut Cursor::new("row", &row)).unwrap(),
            base(0x0403_0201, 7)
        );
    }

    #[test]
    fn order_frames_and_number_are_checked() {
        assert!(check_bases(&[], 0).is_ok());
        assert!(check_bases(&[base(0, 2), base(0, 1), base(2, 1)], 3).is_ok());
        let error = check_bases(&[base(3, 1)], 3).unwrap_err();
        assert!(error.ends_with("there is no frame 3"), "{error}");
        let error = check_bases(&[base(2, 1), base(0, 1)], 3).unwrap_err();
        assert!(
            error.ends_with("expected a frame from 2 on, found 0"),
            "{error}"
        );
        let most = vec![base(1, 1); usize::from(FRAME_BASES_MAX)];
        assert!(check_bases(&most, 2).is_ok());
        let error = check_bases(&[most, vec![base(1, 2)]].concat(), 2).unwrap_err();
        assert_eq!(error, "frame 1: expected at most 1024 bases, found 1025");
    }
}
