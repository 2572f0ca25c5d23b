//! Checkpoints in a store: how they are opened, and when and how they are written.
//!
//! A small checkpoint is read whole. Of a large one only the end is read, and its rows block by block on demand.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::again::Again;
use super::pieces::{Opened, Ranges};
use super::{CHECKPOINT_EVERY, CHECKPOINT_EVERY_FAR, ENTRY_BYTES_DUE};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{
    CHECKPOINT_LAYERS_MAX, Checkpoint, Layer, RefTable, Source, State, checkpoint_key,
};
use crate::fs::{build_atomically, open_object, read_regular};
use crate::id::StoreId;
use crate::remedy::Remedy;
use crate::remote::{Read, Write, is_far, is_passing};

/// Checkpoints up to this size are read whole.
const WHOLE_BYTES_MAX: u64 = 256 << 10;
/// The rows of refs are fetched together if they have at most this many bytes.
const TOGETHER_BYTES_MAX: u64 = 4 << 20;
/// A checkpoint that may be larger than this is written piece by piece.
const HELD_BYTES_MAX: u64 = 4 << 20;
/// A layer is kept if it has at least [`LAYER_BYTES_MIN`] bytes and this many times the bytes above it.
const LAYER_RATIO: u64 = 8;
const LAYER_BYTES_MIN: u64 = 256 << 10;
/// Most layers of a checkpoint in the store.
const LAYERS_MAX: usize = 2;
/// Approximate size of a row.
const ROW_BYTES: u64 = 100;
/// Largest remembered state that is read.
const STATE_BYTES_MAX: u64 = 1 << 30;

/// A store from which pieces of checkpoints are read later, and the directory of this host for copies of them.
#[derive(Clone, Debug)]
pub(crate) struct Far {
    pub(crate) remote: Arc<dyn Read>,
    pub(crate) dir: Option<PathBuf>,
}

/// Where and how checkpoints are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckpointPlace<'p> {
    pub(crate) remote: &'p dyn Read,
    /// If absent, checkpoints that are not in files are read whole.
    pub(crate) far: Option<&'p Far>,
    /// If absent, a damaged block is an error.
    pub(crate) again: Option<&'p Arc<Again>>,
    /// For readers only: if requests are slow, every second entry is read from the copy in the next one.
    pub(crate) by_copies: bool,
}

/// The bytes of a checkpoint.
struct Opening {
    source: Arc<dyn Source>,
    bytes: u64,
    /// Whether all bytes are in memory.
    is_held: bool,
    ranges: Option<Arc<Ranges>>,
}

impl<'p> CheckpointPlace<'p> {
    pub(crate) fn new(remote: &'p dyn Read) -> Self {
        Self {
            remote,
            far: None,
            again: None,
            by_copies: false,
        }
    }

    /// Reads the checkpoint at `number`. Returns `None` if it is missing, damaged or of another store.
    pub(crate) fn read(
        self,
        number: u64,
        bytes: Option<u64>,
        store: StoreId,
    ) -> Result<Option<State>> {
        match self.open(number, bytes) {
            Ok(state) if store.is_known() && state.store != store => Ok(None),
            Ok(state) => Ok(Some(state)),
            Err(error) => match error.kind() {
                // It was deleted after the listing, is damaged or was written by a newer program.
                ErrorKind::NotFound
                | ErrorKind::Conflict
                | ErrorKind::Corrupt
                | ErrorKind::Unsupported => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Opens the checkpoint at `number`, which has `bytes` bytes if known.
    ///
    /// # Errors
    /// Corrupt, when the parts that were read, of the checkpoint or of a layer, are damaged; not found, when the
    /// checkpoint or a layer is missing.
    pub(crate) fn open(self, number: u64, bytes: Option<u64>) -> Result<State> {
        let key = checkpoint_key(number);
        let bytes = bytes.map_or_else(|| self.remote.size(&key), Ok)?;
        let opening = self.opening(number, bytes)?;
        let source = Arc::clone(&opening.source);
        let checkpoint = Checkpoint::open(&key, source, opening.bytes)?;
        opening.begin(checkpoint.table())?;
        self.over_layers(checkpoint)
    }

    /// Reads the state that this host wrote to `path`.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub(crate) fn remembered(self, path: &Path) -> Result<State> {
        let bytes = read_regular(path, STATE_BYTES_MAX)
            .map_err(|source| Error::io("read", path, source))?;
        let (len, object) = (bytes.len() as u64, path.display().to_string());
        let checkpoint = Checkpoint::open(&object, Arc::new(Bytes::from(bytes)), len)?;
        checkpoint.table().verify()?;
        self.over_layers(checkpoint)
    }

    fn over_layers(self, checkpoint: Checkpoint) -> Result<State> {
        let object = checkpoint.table().object();
        let tables = checkpoint.layers().iter().map(|layer| {
            self.layer(layer)
                .map(Arc::new)
                .map_err(|error| match error.kind() {
                    ErrorKind::NotFound | ErrorKind::Conflict => Error::corrupt(format!(
                        "{object}: is written on {}, which is missing",
                        checkpoint_key(layer.number)
                    ))
                    .hint(Remedy::VerifyThenRepair)
                    .because(error),
                    _ => error,
                })
        });
        let tables = tables.collect::<Result<_>>()?;
        checkpoint.into_state(tables)
    }

    fn layer(self, layer: &Layer) -> Result<RefTable> {
        let key = checkpoint_key(layer.number);
        let opening = self.opening(layer.number, layer.bytes)?;
        let source = Arc::clone(&opening.source);
        let table = RefTable::open(&key, source, opening.bytes, Some(layer.id))?;
        opening.begin(&table)?;
        Ok(table)
    }

    fn opening(self, number: u64, bytes: u64) -> Result<Opening> {
        let key = &checkpoint_key(number);
        let mended = |source: Arc<dyn Source>| match self.again {
            Some(again) => again.over(source, number, bytes),
            None => source,
        };
        let far = self.far.filter(|_| bytes > WHOLE_BYTES_MAX);
        let path = self.remote.local_path(key);
        if let Some(path) = path.filter(|_| bytes > WHOLE_BYTES_MAX) {
            let file = open_object(&path, key, Remedy::VerifyThenRepair)?;
            return Ok(Opening {
                source: mended(Arc::new(Opened(file))),
                bytes,
                is_held: false,
                ranges: None,
            });
        }
        if let Some(far) = far {
            let ranges = Arc::new(Ranges::new(&far.remote, far.dir.as_deref(), key, bytes));
            return Ok(Opening {
                source: mended(Arc::clone(&ranges) as Arc<dyn Source>),
                bytes,
                is_held: false,
                ranges: Some(ranges),
            });
        }
        let held = self.remote.get(key)?;
        Ok(Opening {
            bytes: held.len() as u64,
            source: Arc::new(held),
            is_held: true,
            ranges: None,
        })
    }
}

impl Opening {
    /// Verifies what is already in memory.
    fn begin(&self, table: &RefTable) -> Result<()> {
        if self.is_held && self.bytes <= WHOLE_BYTES_MAX {
            table.verify()?;
        }
        let refs = table.refs_range();
        if let Some(ranges) = &self.ranges
            && refs.end - refs.start <= TOGETHER_BYTES_MAX
        {
            ranges.keep_together(refs);
        }
        Ok(())
    }
}

/// Whether a checkpoint should follow the last entry of `state`, because of its number or its size.
pub(super) fn is_due(remote: &dyn Read, state: &State) -> bool {
    let entry = state.newest.0.as_ref().map_or(0, |text| text.len());
    let every = match is_far(remote) && !is_passing(&remote.url()) {
        true => CHECKPOINT_EVERY_FAR,
        false => CHECKPOINT_EVERY,
    };
    state.number.is_multiple_of(every) || entry >= ENTRY_BYTES_DUE
}

/// Writes the checkpoint of `state`. Large layers that have changed little are reused.
///
/// # Errors
/// When it cannot be written, or a checkpoint that it is based on cannot be read.
pub(crate) fn write(remote: &dyn Write, state: &State) -> Result<()> {
    let layers = layers(state);
    let key = checkpoint_key(state.number);
    if bytes_above(state, layers.len()) <= HELD_BYTES_MAX {
        return remote.put(&key, encoded(state, &layers)?.into());
    }
    let mut upload = remote.upload(&key)?;
    state.write(&layers, &mut |piece| upload.write(piece))?;
    upload.finish()
}

/// Writes `state` to a file of this host, without the rows that checkpoints in the store have.
///
/// # Errors
/// As for [`write`].
pub(super) fn remember(path: &Path, state: &State) -> Result<()> {
    let mut layers = stored(state);
    let above = layers.len().saturating_sub(CHECKPOINT_LAYERS_MAX);
    layers.drain(..above);
    build_atomically(path, |file| {
        state.write(&layers, &mut |piece| {
            std::io::Write::write_all(file, &piece)
                .map_err(|source| Error::io("write", path, source))
        })
    })
}

pub(super) fn encoded(state: &State, layers: &[Layer]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    state.write(layers, &mut |piece| {
        bytes.extend_from_slice(&piece);
        Ok(())
    })?;
    Ok(bytes)
}

/// Returns the last tables of a state that are checkpoints in the store, newest first.
fn stored(state: &State) -> Vec<Layer> {
    let tables = state.refs.tables().iter().rev();
    let mut layers: Vec<Layer> = tables.map_while(|table| table.layer()).collect();
    layers.reverse();
    layers
}

/// Returns the layers for the checkpoint of `state`. They are chosen so that each byte is rewritten a number of times
/// that grows only with the logarithm of the total size.
fn layers(state: &State) -> Vec<Layer> {
    let mut layers = stored(state);
    while let Some(top) = layers.first() {
        let above = bytes_above(state, layers.len());
        let is_large = top.bytes >= LAYER_BYTES_MIN && top.bytes / LAYER_RATIO >= above;
        if is_large && layers.len() <= LAYERS_MAX && top.number < state.number {
            break;
        }
        layers.remove(0);
    }
    layers
}

/// Estimates the bytes of the changes and of all tables except the last `kept`.
fn bytes_above(state: &State, kept: usize) -> u64 {
    let tables = state.refs.tables();
    let above = tables
        .get(..tables.len().saturating_sub(kept))
        .unwrap_or_default();
    let bytes: u64 = above.iter().map(|table| table.bytes()).sum();
    bytes.saturating_add(state.refs.changed_rows() * ROW_BYTES)
}
