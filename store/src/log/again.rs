//! Rebuilds a damaged block of a checkpoint from an older checkpoint and the log entries after it.
//!
//! The log contains everything that a checkpoint does, and a checkpoint has only one encoding. So the rebuilt block is
//! the same, byte for byte; if its checksum differs, the block stays damaged. Writes nothing: that is left to a repair.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::checkpoint::{CheckpointPlace, encoded};
use super::known::load_over;
use crate::error::{Error, Result};
use crate::format::{Checkpoint, Source, checkpoint_key};
use crate::id::StoreId;
use crate::remedy::Remedy;
use crate::remote::Read;

/// The log from which checkpoints are rebuilt, and a callback that is told about each rebuilt block.
pub(crate) struct Again {
    pub(crate) remote: Arc<dyn Read>,
    pub(crate) store: StoreId,
    pub(crate) tell: Box<dyn Fn(Error) + Send + Sync>,
}

/// A checkpoint that can be rebuilt.
#[derive(Debug)]
struct Mended {
    source: Arc<dyn Source>,
    number: u64,
    bytes: u64,
    again: Arc<Again>,
    made: OnceLock<Option<Bytes>>,
}

impl Again {
    /// Wraps `source`, which reads the checkpoint at `number`.
    pub(super) fn over(
        self: &Arc<Self>,
        source: Arc<dyn Source>,
        number: u64,
        bytes: u64,
    ) -> Arc<dyn Source> {
        Arc::new(Mended {
            source,
            number,
            bytes,
            again: Arc::clone(self),
            made: OnceLock::new(),
        })
    }
}

impl fmt::Debug for Again {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Again").field(&self.remote).finish()
    }
}

impl Mended {
    fn make(&self) -> Result<Bytes> {
        let key = checkpoint_key(self.number);
        let place = CheckpointPlace {
            again: Some(&self.again),
            ..CheckpointPlace::new(self.again.remote.as_ref())
        };
        // The end of the object was valid when it was opened, so its list of layers can be trusted.
        let known = Checkpoint::open(&key, Arc::clone(&self.source), self.bytes)?;
        let state = load_over(place, self.again.store, self.number)?;
        encoded(&state, known.layers()).map(Bytes::from)
    }
}

impl Source for Mended {
    fn read(&self, range: Range<u64>, is_right: &dyn Fn(&[u8]) -> bool) -> Result<Bytes> {
        self.source.read(range, is_right)
    }

    fn made_again(&self, range: Range<u64>) -> Option<Bytes> {
        let made = self.made.get_or_init(|| self.make().ok()).as_ref()?;
        let piece = made.read(range, &|_| true).ok()?;
        let key = checkpoint_key(self.number);
        (self.again.tell)(
            Error::corrupt(format!(
                "{key}: is damaged, and was made again from the log"
            ))
            .hint(Remedy::VerifyThenRepair),
        );
        Some(piece)
    }
}
