//! Writes one pack: streamed to the store as frames arrive, and visible when it is finished.

use std::ffi::OsStr;
use std::fs::DirEntry;
use std::sync::Arc;

use bytes::Bytes;

use super::{Portions, length, too_large};
use crate::error::Result;
use crate::format::{
    FrameBase, FrameKind, FrameSum, PACKS_PREFIX, PackChunk, PackFrame, PackHeader, PackKind,
    PackTable, Provenance, pack_key,
};
use crate::id::{ChunkId, PackId};
use crate::remote::{Upload, Write};

/// A frame ready to be written.
#[derive(Clone, Debug, Default)]
pub struct EncodedFrame {
    /// Codec byte and payload.
    pub stored: Vec<u8>,
    /// Length in bytes once decoded.
    pub raw_len: u32,
    /// Its chunks in order.
    pub chunks: Vec<PackChunk>,
    /// Its bases; empty if it is plain.
    pub bases: Vec<ChunkId>,
}

/// A finished pack: durable, and in no segment yet.
#[derive(Debug)]
pub struct WrittenPack {
    /// Its name and kind.
    pub header: PackHeader,
    /// Its length in bytes.
    pub len: u32,
    /// Its table.
    pub table: PackTable,
}

/// A pack whose bytes have all arrived, and that only needs to be finished.
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
        Self::named(remote, kind, PackId::random()?, made)
    }

    /// Begins a small pack, in an existing directory if there is one: creating a directory would cost another sync.
    ///
    /// # Errors
    /// As for [`Self::begin`].
    pub fn begin_small(remote: &Arc<dyn Write>, kind: PackKind, made: Provenance) -> Result<Self> {
        let id = PackId::random()?;
        Self::named(remote, kind, beside_others(remote.as_ref(), id), made)
    }

    fn named(
        remote: &Arc<dyn Write>,
        kind: PackKind,
        id: PackId,
        made: Provenance,
    ) -> Result<Self> {
        let header = PackHeader { kind, id, made };
        let mut upload = remote.upload(&pack_key(header.id))?;
        upload.write(Bytes::from(header.encode()))?;
        Ok(Self {
            header,
            upload,
            table: PackTable::default(),
            len: PackHeader::LEN,
        })
    }

    /// Appends a frame of the pack's kind; data, if the pack may hold both.
    ///
    /// # Errors
    /// When the store cannot be written to, or the pack would exceed the limits of its format.
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
    /// As for [`Self::push`].
    pub fn push_as(&mut self, kind: FrameKind, frame: EncodedFrame) -> Result<()> {
        let stored_len = length(frame.stored.len())?;
        let chunks = length(frame.chunks.len())?;
        let number = length(self.table.frames.len())?;
        let base = |id| FrameBase { frame: number, id };
        (self.table.bases).extend(frame.bases.into_iter().map(base));
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

    /// Whether the pack has reached the pack size of these portions.
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
    /// Returns its id.
    pub fn id(&self) -> PackId {
        self.written.header.id
    }

    /// Makes the pack durable and visible.
    ///
    /// # Errors
    /// When the store cannot be written to; the pack may exist nevertheless.
    pub fn finish(self) -> Result<WrittenPack> {
        self.upload.finish()?;
        Ok(self.written)
    }
}

/// Replaces the first byte of `id` by one that packs of a local store have. The other 15 stay random, so the id is
/// still new.
fn beside_others(remote: &dyn Write, PackId(mut id): PackId) -> PackId {
    let path = remote.local_path(PACKS_PREFIX);
    let entries = path.and_then(|path| std::fs::read_dir(path).ok());
    let is_directory = |entry: &DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let directories = entries.into_iter().flatten().flatten().filter(is_directory);
    let mut there: Vec<u8> = directories
        .filter_map(|entry| first_byte(&entry.file_name()))
        .collect();
    there.sort_unstable();
    let [first, dice, ..] = &mut id;
    let at = usize::from(*dice).checked_rem(there.len());
    match at.and_then(|at| there.get(at)) {
        Some(one) if there.binary_search(first).is_err() => *first = *one,
        _ => {}
    }
    PackId(id)
}

/// Returns the byte with which the names of all packs in this directory begin.
fn first_byte(name: &OsStr) -> Option<u8> {
    let name = name.to_str()?;
    let byte = u8::from_str_radix(name, 16).ok()?;
    (format!("{byte:02x}") == name).then_some(byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::Objects;

    #[test]
    fn a_small_pack_goes_where_others_are() {
        let dir = tempfile::tempdir().unwrap();
        let remote: Arc<dyn Write> = Arc::new(Objects::directory(dir.path()).unwrap());
        let ids = || (0..200).map(|_| PackId::random().unwrap());
        assert!(
            ids().all(|id| beside_others(&*remote, id) == id),
            "nothing is there"
        );
        let packs = dir.path().join(PACKS_PREFIX);
        for name in ["07", "ab", "AC", "7", "log"] {
            std::fs::create_dir_all(packs.join(name)).unwrap();
        }
        std::fs::write(packs.join("cd"), "").unwrap();
        let mut found: Vec<PackId> = ids().map(|id| beside_others(&*remote, id)).collect();
        assert!(found.iter().all(|id| matches!(id.0[0], 0x07 | 0xab)));
        assert!(
            [0x07, 0xab]
                .iter()
                .all(|one| found.iter().any(|id| id.0[0] == *one))
        );
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), 200, "no name comes twice");
        let far: Arc<dyn Write> = Arc::new(Objects::memory());
        assert!(ids().all(|id| beside_others(&*far, id) == id));
    }
}
