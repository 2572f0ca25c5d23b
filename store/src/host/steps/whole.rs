//! Whole: whether files of tensors end where they say that they end. A file that is cut off there was not finished.
//!
//! safetensors say in their head how long they are; archives (of PyTorch) have their directory at the end. Of other
//! files nothing is known.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::host::walk::{Item, walk};

/// The longest head of a safetensors file that is looked at.
const HEAD_BYTES_MAX: u64 = 128 << 20;
/// How an archive begins, and how the record at its end does.
const ARCHIVE: [u8; 4] = *b"PK\x03\x04";
const ARCHIVE_END: [u8; 4] = *b"PK\x05\x06";
/// The end of an archive has so many bytes, and a comment.
const ARCHIVE_END_BYTES_MAX: u64 = 22 + (1 << 16);

/// Whether no file in `step` is known to be torn. One that cannot be read is not whole.
pub(super) fn is_whole(step: &Path) -> bool {
    let Ok(mut items) = walk(step, super::options()) else {
        return false;
    };
    items.all(|item| match item {
        Ok(Item::File { dir, name, stat }) => dir
            .open_file(&name)
            .is_ok_and(|file| is_file_whole(&file, &name, stat.size)),
        Ok(_) => true,
        Err(_) => false,
    })
}

fn is_file_whole(file: &File, name: &[u8], size: u64) -> bool {
    if name.ends_with(b".safetensors") {
        return is_safetensors_whole(file, size).unwrap_or(false);
    }
    let mut head = [0; 4];
    let is_archive = file.read_exact_at(&mut head, 0).is_ok() && head == ARCHIVE;
    !is_archive || has_archive_end(file, size).unwrap_or(false)
}

/// The head is a length, and JSON with the ends of all tensors behind it.
fn is_safetensors_whole(file: &File, size: u64) -> Option<bool> {
    let mut len = [0; 8];
    file.read_exact_at(&mut len, 0).ok()?;
    let len = u64::from_le_bytes(len);
    if len > HEAD_BYTES_MAX || len > size {
        return Some(false);
    }
    let mut head = vec![0; usize::try_from(len).ok()?];
    file.read_exact_at(&mut head, 8).ok()?;
    let head: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&head).ok()?;
    let ends = head
        .values()
        .filter_map(|tensor| tensor.get("data_offsets")?.get(1)?.as_u64());
    let end = ends.max().unwrap_or(0);
    Some(8_u64.checked_add(len)?.checked_add(end)? == size)
}

fn has_archive_end(file: &File, size: u64) -> Option<bool> {
    let len = size.min(ARCHIVE_END_BYTES_MAX);
    let mut end = vec![0; usize::try_from(len).ok()?];
    file.read_exact_at(&mut end, size - len).ok()?;
    Some(end.windows(4).any(|window| window == ARCHIVE_END))
}
