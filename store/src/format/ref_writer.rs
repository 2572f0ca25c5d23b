//! Writes a checkpoint row by row. Holds one block and the index in memory.

use bytes::Bytes;

use super::ref_block::{Key, put_key, too_large};
use super::ref_index::{
    CHECKPOINT_BLOCK_BYTES_MAX, CHECKPOINT_MAGIC, CHECKPOINT_VERSION, Trailer, checkpoint_raw_max,
    sum,
};
use crate::error::{Error, Result};

/// A block ends when its rows reach this many bytes.
const BLOCK_BYTES: usize = 64 << 10;
/// The zstd level of new blocks; readers accept any level.
const ZSTD_LEVEL: i32 = 3;

/// Writes the rows of a checkpoint, which must arrive in order.
pub(super) struct TableWriter<'s> {
    sink: &'s mut dyn FnMut(Bytes) -> Result<()>,
    block: Vec<u8>,
    block_rows: u32,
    first: Option<(Vec<u8>, u64)>,
    is_versions: bool,
    index: Vec<u8>,
    rows: u64,
}

impl<'s> TableWriter<'s> {
    pub(super) fn new(sink: &'s mut dyn FnMut(Bytes) -> Result<()>) -> Result<Self> {
        let mut header = Vec::with_capacity(16);
        header.extend_from_slice(&CHECKPOINT_MAGIC);
        header.extend_from_slice(&CHECKPOINT_VERSION.to_le_bytes());
        header.extend_from_slice(&[0; 6]);
        sink(header.into())?;
        Ok(Self {
            sink,
            block: Vec::new(),
            block_rows: 0,
            first: None,
            is_versions: false,
            index: Vec::new(),
            rows: 0,
        })
    }

    pub(super) fn row(&mut self, key: &Key<'_>, value: &[u8]) -> Result<()> {
        // A block holds either refs or versions.
        if self.is_versions != (key.number > 0) {
            self.end_block()?;
            self.is_versions = key.number > 0;
        }
        if self.first.is_none() {
            self.first = Some((key.name.to_vec(), key.number));
        }
        put_key(&mut self.block, key)?;
        let len = u32::try_from(value.len()).map_err(|_| too_large())?;
        self.block.extend_from_slice(&len.to_le_bytes());
        self.block.extend_from_slice(value);
        self.block_rows += 1;
        self.rows += 1;
        match self.block.len() >= BLOCK_BYTES {
            true => self.end_block(),
            false => Ok(()),
        }
    }

    fn end_block(&mut self) -> Result<()> {
        let Some((name, number)) = self.first.take() else {
            return Ok(());
        };
        if self.block.len() as u64 > CHECKPOINT_BLOCK_BYTES_MAX {
            return Err(too_large());
        }
        let stored = packed(&self.block)?;
        put_key(
            &mut self.index,
            &Key {
                name: &name,
                number,
            },
        )?;
        let lens = [stored.len(), self.block.len()];
        for len in lens {
            let len = u32::try_from(len).map_err(|_| too_large())?;
            self.index.extend_from_slice(&len.to_le_bytes());
        }
        self.index.extend_from_slice(&self.block_rows.to_le_bytes());
        self.index.extend_from_slice(&sum(&stored));
        self.block.clear();
        self.block_rows = 0;
        (self.sink)(stored.into())
    }

    pub(super) fn finish(mut self, head: &[u8]) -> Result<()> {
        self.end_block()?;
        let (stored_head, stored_index) = (packed(head)?, packed(&self.index)?);
        let trailer = Trailer {
            head: stored_head.len() as u64,
            head_raw: head.len() as u64,
            index: stored_index.len() as u64,
            index_raw: self.index.len() as u64,
            rows: self.rows,
            checksum: [0; 32],
        };
        let mut end = [&stored_head[..], &stored_index, &trailer.fields()].concat();
        let checksum = blake3::hash(&end);
        end.extend_from_slice(checksum.as_bytes());
        end.extend_from_slice(&CHECKPOINT_VERSION.to_le_bytes());
        end.extend_from_slice(&[0; 6]);
        end.extend_from_slice(&CHECKPOINT_MAGIC);
        (self.sink)(end.into())
    }
}

fn packed(bytes: &[u8]) -> Result<Vec<u8>> {
    let packed = zstd::bulk::compress(bytes, ZSTD_LEVEL)
        .map_err(|source| Error::invalid("checkpoint: zstd refused it").because(source))?;
    match bytes.len() as u64 <= checkpoint_raw_max(packed.len()) {
        true => Ok(packed),
        false => Err(Error::invalid(format!(
            "checkpoint: {} bytes are packed into {}, which no reader believes",
            bytes.len(),
            packed.len()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_holds_either_refs_or_versions() {
        let mut written = Vec::new();
        let mut sink = |bytes: Bytes| {
            written.push(bytes);
            Ok(())
        };
        let mut writer = TableWriter::new(&mut sink).unwrap();
        for (name, number) in [(b"a", 0), (b"b", 0), (b"a", 1), (b"a", 2)] {
            writer.row(&Key { name, number }, b"value").unwrap();
        }
        writer.finish(b"head").unwrap();
        // The header, two blocks, and the end.
        assert_eq!(written.len(), 4);
    }
}
