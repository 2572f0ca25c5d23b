//! Writes frames of one kind into packs, one after another, for copies within a store.

use std::sync::Arc;

use super::{EncodedFrame, FrameSink, PackWriter, Portions, WrittenPack};
use crate::error::Result;
use crate::format::{FrameKind, Provenance};
use crate::remote::Write;

/// The packs that are being written: one open pack, and the finished ones.
pub struct PackSink {
    remote: Arc<dyn Write>,
    portions: Portions,
    made: Provenance,
    open: Option<PackWriter>,
    finished: Vec<WrittenPack>,
}

impl PackSink {
    /// Starts without a pack.
    pub fn new(remote: Arc<dyn Write>, portions: Portions, made: Provenance) -> Self {
        Self {
            remote,
            portions,
            made,
            open: None,
            finished: Vec::new(),
        }
    }

    /// Finishes the open pack.
    ///
    /// # Errors
    /// When the store cannot be written to; then that pack does not exist.
    pub fn close(&mut self) -> Result<()> {
        let open = self.open.take();
        self.finished
            .extend(open.map(PackWriter::finish).transpose()?);
        Ok(())
    }

    /// Returns the finished packs, which are durable and in no segment yet. Discards an open pack.
    pub fn into_finished(self) -> Vec<WrittenPack> {
        self.finished
    }
}

impl FrameSink for &mut PackSink {
    fn frame(&mut self, kind: FrameKind, frame: EncodedFrame) -> Result<()> {
        let mut pack = match self.open.take() {
            Some(pack) => pack,
            None => PackWriter::begin(&self.remote, kind.into(), self.made)?,
        };
        pack.push(frame)?;
        let is_full = pack.is_full(self.portions);
        self.open = Some(pack);
        if is_full { self.close() } else { Ok(()) }
    }
}
