//! Writing one pack: streamed to the store as its frames arrive, visible whole when it is finished.

use std::sync::Arc;

use bytes::Bytes;

use super::{Portions, length, too_large};
use crate::error::Result;
use crate::format::{
    FrameKind, FrameSum, PackChunk, PackFrame, PackHeader, PackKind, PackTable, Provenance,
    pack_key,
};
use crate::id::PackId;
use crate::remote::{Upload, Write};

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
    pub fn begin(remote: &Arc<dyn Write>, kind: PackKind, made: Provenance) -> Result<Self> {
        let header = PackHeader {
            kind,
            id: PackId::random()?,
            made,
        };
        let mut upload = remote.upload(&pack_key(header.id))?;
        upload.write(Bytes::from(header.encode()))?;
        Ok(Self {
            header,
            upload,
            table: PackTable::default(),
            len: PackHeader::LEN,
        })
    }

    /// Appends a frame of what the pack holds.
    ///
    /// # Errors
    /// When the store cannot be written to, or the pack would outgrow its format.
    pub fn push(&mut self, frame: EncodedFrame) -> Result<()> {
        let kind = match self.header.kind {
            PackKind::Data | PackKind::Both => FrameKind::Data,
            PackKind::Meta => FrameKind::Meta,
        };
        self.push_as(kind, frame)
    }

    /// Appends a frame of `kind`.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn push_as(&mut self, kind: FrameKind, frame: EncodedFrame) -> Result<()> {
        let stored_len = length(frame.stored.len())?;
        let chunks = length(frame.chunks.len())?;
        self.table.frames.push(PackFrame {
            stored_len,
            raw_len: frame.raw_len,
            kind,
            chunks,
            sum: FrameSum::of(&frame.stored),
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
