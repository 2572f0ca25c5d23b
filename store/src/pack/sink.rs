//! Frames of one kind become packs, one after another: the sink of whoever copies within a store.

use std::sync::Arc;

use super::{EncodedFrame, FrameSink, PackWriter, Portions, WrittenPack};
use crate::error::Result;
use crate::format::{FrameKind, Provenance};
use crate::remote::Write;

/// Packs that are written in these portions: one that is open, and those that are finished.
pub struct PackSink {
    remote: Arc<dyn Write>,
    portions: Portions,
    made: Provenance,
    open: Option<PackWriter>,
    finished: Vec<WrittenPack>,
}

impl PackSink {
    /// No pack so far.
    pub fn new(remote: Arc<dyn Write>, portions: Portions, made: Provenance) -> Self {
        Self {
            remote,
            portions,
            made,
            open: None,
            finished: Vec::new(),
        }
    }

    /// Finishes the pack that is open.
    ///
    /// # Errors
    /// When the store cannot be written to; then that pack was never there.
    pub fn close(&mut self) -> Result<()> {
        let open = self.open.take();
        self.finished
            .extend(open.map(PackWriter::finish).transpose()?);
        Ok(())
    }

    /// The packs that are finished, durable and in no segment yet. One that is open is given up.
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
