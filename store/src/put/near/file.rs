//! A file of the store that may be a base, with the places of its chunks and tensors.

use std::collections::HashMap;
use std::io;
use std::ops::Range;

use crate::chunk::{ReadAt, TensorName, tensors};
use crate::error::{Error, Result};
use crate::format::Content;
use crate::id::ChunkId;
use crate::read::Reader;

/// A file of the store.
pub(super) struct BaseFile {
    pub(super) size: u64,
    /// The offset, id and length of each of its chunks.
    chunks: Vec<(u64, ChunkId, u32)>,
    pub(super) tensors: HashMap<TensorName, Range<u64>>,
}

impl BaseFile {
    pub(super) fn read(reader: &Reader<'_>, content: &Content) -> Result<Self> {
        let (mut chunks, mut start) = (Vec::new(), 0);
        reader.chunks(content, &mut |id, len| {
            let short = u32::try_from(len)
                .map_err(|_| Error::corrupt(format!("chunk {id}: has {len} bytes")))?;
            chunks.push((start, id, short));
            start += len;
            Ok(())
        })?;
        let mut file = Self {
            size: content.size,
            chunks,
            tensors: HashMap::new(),
        };
        let least = u64::from(reader.store().format().chunker.min);
        let stored = Stored {
            reader,
            file: &file,
        };
        // Without a readable header, the file can still be matched by place.
        let found = tensors(&stored, content.size, least).unwrap_or_default();
        file.tensors = (found.into_iter())
            .map(|tensor| (tensor.name, tensor.place))
            .collect();
        Ok(file)
    }

    /// The chunks that hold these bytes, and the part of each.
    pub(super) fn chunks_of(
        &self,
        bytes: Range<u64>,
    ) -> impl Iterator<Item = (ChunkId, (u32, u32))> {
        let first = self
            .chunks
            .partition_point(|(start, ..)| *start <= bytes.start);
        let behind = self.chunks.iter().skip(first.saturating_sub(1));
        behind
            .take_while(move |(start, ..)| *start < bytes.end)
            .map(move |(start, id, len)| {
                let inside = |at: u64| {
                    let at = at.saturating_sub(*start).min((*len).into());
                    u32::try_from(at).unwrap_or(*len)
                };
                (*id, (inside(bytes.start), inside(bytes.end)))
            })
    }
}

/// Reads bytes of a file of the store at any offset.
struct Stored<'s> {
    reader: &'s Reader<'s>,
    file: &'s BaseFile,
}

impl ReadAt for Stored<'_> {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.saturating_add(bytes.len() as u64);
        if end > self.file.size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut rest = bytes;
        for (id, (from, to)) in self.file.chunks_of(offset..end) {
            let chunk = self.reader.meta_chunk(&id).map_err(io::Error::other)?;
            let part = chunk.get(from as usize..to as usize).unwrap_or_default();
            let Some((filled, behind)) = rest.split_at_mut_checked(part.len()) else {
                return Err(io::ErrorKind::UnexpectedEof.into());
            };
            filled.copy_from_slice(part);
            rest = behind;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_lie_in_parts_of_chunks() {
        let file = BaseFile {
            size: 25,
            chunks: vec![
                (0, ChunkId([1; 32]), 10),
                (10, ChunkId([2; 32]), 10),
                (20, ChunkId([3; 32]), 5),
            ],
            tensors: HashMap::new(),
        };
        let parts = |bytes: Range<u64>| -> Vec<(u8, u32, u32)> {
            let chunks = file.chunks_of(bytes);
            chunks.map(|(id, (from, to))| (id.0[0], from, to)).collect()
        };
        assert_eq!(parts(0..25), [(1, 0, 10), (2, 0, 10), (3, 0, 5)]);
        assert_eq!(parts(9..11), [(1, 9, 10), (2, 0, 1)]);
        assert_eq!(parts(10..20), [(2, 0, 10)]);
        assert_eq!(parts(24..25), [(3, 4, 5)]);
    }
}
