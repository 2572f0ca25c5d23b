//! Finds the large tensors of a file: safetensors, GGUF and uncompressed PyTorch archives, recognized by content and
//! never by name.
//!
//! Headers are not trusted: if any detail is inconsistent, the file counts as one without tensors. Only the positions
//! and names of large tensors are kept. FORMATS, "Tensors", specifies the same for other programs.

use std::io;

use super::header::{ReadAt, Stop, Tensor};
use super::{gguf, pytorch, safetensors};

/// Returns the tensors of at least `least` bytes in a file of `size` bytes, in order; empty for other files.
///
/// # Errors
/// When the file cannot be read.
pub(crate) fn tensors(file: &dyn ReadAt, size: u64, least: u64) -> io::Result<Vec<Tensor>> {
    if size < least.max(16) {
        return Ok(Vec::new());
    }
    let mut start = [0; 16];
    let found = file.read_exact_at(&mut start, 0).map_err(Stop::from);
    let found = found.and_then(|()| match &start {
        [b'G', b'G', b'U', b'F', ..] => gguf::tensors(file, size),
        [b'P', b'K', 3, 4, ..] => pytorch::tensors(file, size, least),
        [_, _, _, _, _, _, _, _, b'{', ..] => safetensors::tensors(file, size),
        _ => Err(Stop::Another),
    });
    match found {
        Ok(tensors) => Ok(in_order(tensors, size, least)),
        Err(Stop::Another) => Ok(Vec::new()),
        Err(Stop::Failed(error)) => Err(error),
    }
}

/// Returns the large tensors in order; empty if two overlap or one ends after the file.
fn in_order(mut tensors: Vec<Tensor>, size: u64, least: u64) -> Vec<Tensor> {
    tensors.sort_unstable_by_key(|tensor| (tensor.place.start, tensor.place.end));
    let mut before = 0;
    for Tensor { place: tensor, .. } in &tensors {
        if tensor.start < before || tensor.end < tensor.start || tensor.end > size {
            return Vec::new();
        }
        before = tensor.end;
    }
    tensors.retain(|tensor| tensor.place.end - tensor.place.start >= least);
    tensors
}

#[cfg(test)]
mod tests;
