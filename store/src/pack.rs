//! Writing packs, and the segment over the packs that one commit adds.
//!
//! A pack is streamed to the store as its frames arrive and becomes visible whole, when it is
//! finished. Packs are durable before the segment is uploaded, the segment before the log entry.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::format::{
    Change, PackChunk, PackFrame, PackHeader, PackKind, PackTable, SegmentEntry, SegmentFrame,
    SegmentInfo, SegmentPack, pack_key, segment_key, write_segment,
};
use crate::id::{PackId, SegmentId};
use crate::remote::{Upload, Write};

mod behind;
pub(crate) use behind::{Behind, behind};

/// Bytes after which a pack is finished and the next begun. Few in tests, so that a put has many packs.
pub const PACK_BYTES_TARGET: u32 = if cfg!(test) { 512 << 10 } else { 64 << 20 };

/// In which portions passes write. Small ones in tests, so that every pass has many packs and several commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portions {
    /// Bytes after which a pack is finished and the next begun.
    pub pack_bytes: u32,
    /// Bytes of packs after which a segment over them is committed, so that a pass that is killed resumes there.
    pub commit_bytes: u64,
    /// Chunks after which the same happens, so that memory stays bounded.
    pub commit_chunks: usize,
}

impl Default for Portions {
    fn default() -> Self {
        Self {
            pack_bytes: PACK_BYTES_TARGET,
            commit_bytes: 4 << 30,
            commit_chunks: if cfg!(test) { 20 } else { 1 << 18 },
        }
    }
}

/// A frame ready to be written.
#[derive(Clone, Debug, Default)]
pub struct EncodedFrame {
    /// Codec byte and payload.
    pub stored: Vec<u8>,
    /// Bytes once decoded.
    pub raw_len: u32,
    /// Its chunks in order.
    pub chunks: Vec<PackChunk>,
}

/// A finished pack: durable, and in no segment yet.
#[derive(Debug)]
pub struct WrittenPack {
    /// Its name and kind.
    pub header: PackHeader,
    /// Its bytes.
    pub len: u32,
    /// What it holds.
    pub table: PackTable,
}

/// A pack that has arrived but for the last word.
pub struct SealedPack {
    written: WrittenPack,
    upload: Box<dyn Upload>,
}

/// A pack being written.
pub struct PackWriter {
    header: PackHeader,
    upload: Box<dyn Upload>,
    table: PackTable,
    len: u32,
}

impl PackWriter {
    /// Begins a pack under a new name.
    ///
    /// # Errors
    /// When the store cannot be written to.
    pub fn begin(remote: &Arc<dyn Write>, kind: PackKind) -> Result<Self> {
        let header = PackHeader {
            kind,
            id: PackId::random()?,
        };
        let mut upload = remote.upload(&pack_key(header.id))?;
        upload.write(Bytes::copy_from_slice(&header.encode()))?;
        Ok(Self {
            header,
            upload,
            table: PackTable::default(),
            len: PackHeader::LEN,
        })
    }

    /// Appends a frame.
    ///
    /// # Errors
    /// When the store cannot be written to, or the pack would outgrow its format.
    pub fn push(&mut self, frame: EncodedFrame) -> Result<()> {
        let stored_len = length(frame.stored.len())?;
        let chunks = length(frame.chunks.len())?;
        self.table.frames.push(PackFrame {
            stored_len,
            raw_len: frame.raw_len,
            chunks,
        });
        self.table.chunks.extend(frame.chunks);
        self.len = self.len.checked_add(stored_len).ok_or_else(too_large)?;
        self.upload.write(frame.stored.into())
    }

    /// Whether the pack has the size that packs have where it is written in these portions.
    pub fn is_full(&self, portions: Portions) -> bool {
        self.len >= portions.pack_bytes
    }

    /// Writes the table, and waits until everything has arrived.
    ///
    /// # Errors
    /// When the store cannot be written to.
    pub fn seal(mut self) -> Result<SealedPack> {
        let tail = self.table.encode(&self.header)?;
        let len = length(tail.len())?
            .checked_add(self.len)
            .ok_or_else(too_large)?;
        self.upload.write(tail.into())?;
        self.upload.seal()?;
        let written = WrittenPack {
            header: self.header,
            len,
            table: self.table,
        };
        Ok(SealedPack {
            written,
            upload: self.upload,
        })
    }

    /// Writes the table and makes the pack durable and visible.
    ///
    /// # Errors
    /// When the store cannot be written to.
    pub fn finish(self) -> Result<WrittenPack> {
        self.seal()?.finish()
    }
}

impl SealedPack {
    /// Its name.
    pub fn id(&self) -> PackId {
        self.written.header.id
    }

    /// Makes the pack durable and visible.
    ///
    /// # Errors
    /// When the store cannot be written to; it may be there all the same.
    pub fn finish(self) -> Result<WrittenPack> {
        self.upload.finish()?;
        Ok(self.written)
    }
}

/// Gathers the frames of packs into the tables of one segment.
#[derive(Debug, Default)]
pub struct SegmentBuilder {
    packs: Vec<SegmentPack>,
    frames: Vec<SegmentFrame>,
    entries: Vec<SegmentEntry>,
    pack_bytes: u64,
}

impl SegmentBuilder {
    /// Adds everything in `pack`.
    ///
    /// # Errors
    /// When the segment would outgrow its format.
    pub fn add(&mut self, pack: &WrittenPack) -> Result<()> {
        self.add_table(pack.header, pack.len, &pack.table)
    }

    /// Adds what the table of a pack of `len` bytes says.
    ///
    /// # Errors
    /// When the segment would outgrow its format.
    pub fn add_table(&mut self, header: PackHeader, len: u32, table: &PackTable) -> Result<()> {
        let pack = length(self.packs.len())?;
        self.packs.push(SegmentPack {
            id: header.id,
            kind: header.kind,
            len,
        });
        self.pack_bytes += u64::from(len);
        let mut frame_offset = PackHeader::LEN;
        let mut chunks = table.chunks.iter();
        for frame in &table.frames {
            let position = length(self.frames.len())?;
            self.frames.push(SegmentFrame {
                pack,
                offset: frame_offset,
                stored_len: frame.stored_len,
                raw_len: frame.raw_len,
            });
            let mut offset = 0;
            for chunk in chunks.by_ref().take(frame.chunks as usize) {
                self.entries.push(SegmentEntry {
                    id: chunk.id,
                    frame: position,
                    offset,
                    len: chunk.len,
                });
                offset += chunk.len;
            }
            frame_offset += frame.stored_len;
        }
        Ok(())
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.packs.is_empty()
    }

    /// Chunks so far.
    pub fn chunks(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of the packs so far.
    pub fn pack_bytes(&self) -> u64 {
        self.pack_bytes
    }

    /// The packs so far.
    pub fn packs(&self) -> impl Iterator<Item = PackId> {
        self.packs.iter().map(|pack| pack.id)
    }

    /// Takes out these packs and everything in them; whether one was there.
    pub(crate) fn take_out(&mut self, packs: &HashSet<PackId>) -> bool {
        if !self.packs().any(|pack| packs.contains(&pack)) {
            return false;
        }
        let mut kept = Self::default();
        let numbers: Vec<Option<u32>> = (self.packs.iter())
            .map(|pack| {
                let number = u32::try_from(kept.packs.len()).ok()?;
                let stays = !packs.contains(&pack.id);
                stays.then(|| {
                    kept.pack_bytes += u64::from(pack.len);
                    kept.packs.push(*pack);
                    number
                })
            })
            .collect();
        let new = |numbers: &[Option<u32>], old: u32| numbers.get(old as usize).copied().flatten();
        let frames: Vec<Option<u32>> = (self.frames.iter())
            .map(|frame| {
                let pack = new(&numbers, frame.pack)?;
                let number = u32::try_from(kept.frames.len()).ok()?;
                kept.frames.push(SegmentFrame { pack, ..*frame });
                Some(number)
            })
            .collect();
        let entries = (self.entries.iter()).filter_map(|entry| {
            let frame = new(&frames, entry.frame)?;
            Some(SegmentEntry { frame, ..*entry })
        });
        kept.entries = entries.collect();
        *self = kept;
        true
    }

    /// Uploads the segment under a new name and returns the change that makes it live.
    ///
    /// A chunk that was written twice keeps one place.
    ///
    /// # Errors
    /// When the store cannot be written to.
    pub fn write(&mut self, remote: &dyn Write) -> Result<(SegmentId, Change)> {
        let (segment, info, bytes) = self.build()?;
        remote.put(&segment_key(segment), bytes.into())?;
        Ok((segment, Change::AddSegment { segment, info }))
    }

    /// The segment's new name, totals and bytes.
    pub(crate) fn build(&mut self) -> Result<(SegmentId, SegmentInfo, Vec<u8>)> {
        use rayon::slice::ParallelSliceMut;
        self.entries
            .par_sort_unstable_by(|a, b| a.id.cmp(&b.id).then(a.frame.cmp(&b.frame)));
        self.entries.dedup_by_key(|entry| entry.id);
        let segment = SegmentId::random()?;
        let mut bytes = Vec::new();
        let info = write_segment(&mut bytes, segment, &self.packs, &self.frames, || {
            self.entries.iter().copied()
        })?;
        Ok((segment, info, bytes))
    }
}

fn length(len: usize) -> Result<u32> {
    u32::try_from(len).map_err(|_| too_large())
}

fn too_large() -> Error {
    Error::invalid("a pack or segment would outgrow 32-bit lengths")
}
