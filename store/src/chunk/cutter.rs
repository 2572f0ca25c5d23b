//! Where one file is cut: at its large tensors if it has any, else by content alone.
//!
//! A tensor that moves to another place or file keeps its chunks, and the same place of two models is one pair of
//! chunks. What lies between tensors is cut by content, each stretch for itself.

use std::io;

use super::Chunker;
use super::tensors::{ReadAt, Tensor, tensors};

/// Finds the cut points of one file, from its first byte to its last.
#[derive(Debug)]
pub(crate) struct Cutter {
    chunker: Chunker,
    /// Large tensors that are not behind `at` yet, the next one last.
    tensors: Vec<Tensor>,
    /// Bytes that are cut.
    at: u64,
}

impl Cutter {
    /// Looks whether the file of `size` bytes is one of tensors; that reads its header only.
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

    /// The large tensors that are not cut yet, the first one first.
    pub(crate) fn tensors(&self) -> Vec<Tensor> {
        self.tensors.iter().rev().cloned().collect()
    }

    /// Whether content alone says where the rest is cut, so that holes need not be read.
    pub(crate) fn is_plain(&self) -> bool {
        self.tensors.is_empty()
    }

    /// As [`Chunker::cut`]; `bytes` begin where the last chunk ended.
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

/// The first `most` of `bytes`, and whether nothing follows them there.
fn up_to(bytes: &[u8], most: u64, end: bool) -> (&[u8], bool) {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    match bytes.get(..most) {
        Some(bytes) => (bytes, true),
        None => (bytes, end),
    }
}
