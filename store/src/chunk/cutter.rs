//! Cut points of one file: at its large tensors if it has any, otherwise by content alone.
//!
//! So a tensor that moves to another position or file keeps its chunks, and corresponding positions of two models are
//! in corresponding chunks. The ranges between tensors are cut by content, each range separately.

use std::io;

use super::Chunker;
use super::header::{ReadAt, Tensor};
use super::tensors::tensors;

/// Finds the cut points of one file, from its first byte to its last.
#[derive(Debug)]
pub(crate) struct Cutter {
    chunker: Chunker,
    /// Large tensors that end after `at`, the next one last.
    tensors: Vec<Tensor>,
    /// How many bytes have been cut.
    at: u64,
}

impl Cutter {
    /// Checks whether the file of `size` bytes holds tensors; reads only its header.
    ///
    /// # Errors
    /// When the header cannot be read.
    pub(crate) fn new(chunker: &Chunker, file: &dyn ReadAt, size: u64) -> io::Result<Self> {
        let params = &chunker.0.params;
        let mut tensors = match params.tensors {
            0 => Vec::new(),
            _ => tensors(file, size, u64::from(params.min))?,
        };
        tensors.reverse();
        let chunker = chunker.clone();
        Ok(Self {
            chunker,
            tensors,
            at: 0,
        })
    }

    /// Returns the large tensors that have not been cut yet, in order.
    pub(crate) fn tensors(&self) -> Vec<Tensor> {
        self.tensors.iter().rev().cloned().collect()
    }

    /// Whether the rest is cut by content alone, so that holes need not be read.
    pub(crate) fn is_plain(&self) -> bool {
        self.tensors.is_empty()
    }

    /// Like [`Chunker::cut`]; `bytes` must begin where the last chunk ended.
    pub(crate) fn cut(&mut self, bytes: &[u8], end: bool) -> Option<usize> {
        let len = match self.tensors.last() {
            None => return self.chunker.cut(bytes, end),
            Some(Tensor { place: tensor, .. }) if self.at < tensor.start => {
                let (bytes, end) = up_to(bytes, tensor.start - self.at, end);
                self.chunker.cut(bytes, end)?
            }
            Some(Tensor { place: tensor, .. }) => {
                let (bytes, end) = up_to(bytes, tensor.end - self.at, end);
                let len = bytes.len().min(self.chunker.max());
                if len == 0 || (len < self.chunker.max() && !end) {
                    return None;
                }
                len
            }
        };
        self.at += len as u64;
        self.tensors.pop_if(|tensor| tensor.place.end <= self.at);
        Some(len)
    }
}

/// Returns the first `most` of `bytes`, and whether the range to cut ends with them.
fn up_to(bytes: &[u8], most: u64, end: bool) -> (&[u8], bool) {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    match bytes.get(..most) {
        Some(bytes) => (bytes, true),
        None => (bytes, end),
    }
}
