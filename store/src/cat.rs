//! cat: the bytes of one file, or a range of them, in order.
//!
//! Reads the frames that hold the range, and the list nodes that lead there; nothing else.

use std::ops::Range;

use crate::access;
use crate::error::{Error, Result};
use crate::format::{Content, Node, RefSpec};
use crate::read::Reader;
use crate::remedy::Remedy;
use crate::store::Store;

/// Hands the bytes in `range` of the file that `spec` names to `write`, verified, first to last. A range
/// that reaches beyond the end ends there. Returns how many bytes that were.
///
/// # Errors
/// Not found and corrupt as [`Reader`] has them; invalid input when `spec` names no file, and when `range` begins
/// behind its end; what `write` says.
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
            let written = file(&reader, content, range, write)?;
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

fn file(
    reader: &Reader<'_>,
    content: &Content,
    range: &Range<u64>,
    write: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<u64> {
    let mut written = 0;
    reader.chunks_in(content, range, &mut |id, start, size| {
        reader.store().host().check_stop()?;
        let bytes = reader.meta_chunk(&id)?;
        if bytes.len() as u64 != size {
            return Err(Error::corrupt(format!(
                "chunk {id}: {} bytes, its list says {size}",
                bytes.len()
            )));
        }
        let wanted = part(&bytes, start, range);
        written += wanted.len() as u64;
        write(wanted)
    })?;
    Ok(written)
}

/// The bytes of a chunk at `start` that lie in `range`.
fn part<'b>(bytes: &'b [u8], start: u64, range: &Range<u64>) -> &'b [u8] {
    let clip = |at: u64| {
        usize::try_from(at.saturating_sub(start))
            .unwrap_or(usize::MAX)
            .min(bytes.len())
    };
    bytes
        .get(clip(range.start)..clip(range.end))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_takes_its_part_of_each_chunk() {
        for (range, expected) in [
            (0..u64::MAX, &b"abcd"[..]),
            (101..103, b"bc"),
            (0..101, b"a"),
            (103..200, b"d"),
            (104..200, b""),
            (0..100, b""),
            (102..102, b""),
        ] {
            assert_eq!(part(b"abcd", 100, &range), expected, "{range:?}");
        }
    }
}
