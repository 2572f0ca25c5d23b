//! cat: reads one file, or a range of its bytes, in order.
//!
//! Reads only the frames that hold the range and the list nodes that lead to them.

use std::ops::Range;

use crate::access;
use crate::error::{Error, Result};
use crate::format::{Node, RefSpec};
use crate::read::Reader;
use crate::remedy::Remedy;
use crate::store::Store;

/// Passes the bytes in `range` of the file that `spec` names to `write`, verified and in order. A range that reaches
/// beyond the end of the file ends there. Returns the number of bytes written.
///
/// # Errors
/// Not found and corrupt as for [`Reader`]; invalid input when `spec` names no file or `range` begins beyond the end of
/// the file; any error of `write`.
pub fn cat(
    store: &Store,
    spec: &RefSpec,
    range: &Range<u64>,
    write: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<u64> {
    let reader = Reader::new(store)?;
    let found = reader.resolve(spec)?;
    match &found.node {
        Node::File { content, .. } if range.start > content.size => {
            let (start, size) = (range.start, content.size);
            Err(Error::invalid(format!(
                "{spec}: the range begins at byte {start}, and the file ends at {size}"
            ))
            .hint("bytes are counted from 0"))
        }
        Node::File { content, .. } => {
            let memory_bytes = store.host().memory_bytes;
            let written = reader.read_in_order(content, range, memory_bytes, write)?;
            access::leave(store, &spec.name, found.number);
            Ok(written)
        }
        Node::Tree { .. } => Err(Error::invalid(format!(
            "{spec}: expected a file, found a directory"
        ))
        .hint(Remedy::ListDirectory {
            place: spec.to_string(),
        })),
        Node::Symlink { target } => Err(Error::invalid(format!(
            "{spec}: expected a file, found a symbolic link to \"{}\"",
            target.escape_ascii()
        ))
        .hint("name the file that the link leads to")),
    }
}
