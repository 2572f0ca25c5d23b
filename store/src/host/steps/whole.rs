//! Whole: whether files of tensors end where they say that they end. A file that is cut off there was not finished.
//!
//! safetensors say in their head how long they are; archives (of PyTorch and NumPy) have their directory at the end, and
//! say where it is. Of other files nothing is known.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::host::walk::{Item, walk};

/// The longest head of a safetensors file that is looked at.
const HEAD_BYTES_MAX: u64 = 128 << 20;
/// How an archive begins, and how the record at its end does.
const ARCHIVE: [u8; 4] = *b"PK\x03\x04";
const ARCHIVE_END: [u8; 4] = *b"PK\x05\x06";
/// That record has so many bytes, and a comment.
const ARCHIVE_END_BYTES: usize = 22;
const ARCHIVE_END_BYTES_MAX: u64 = 22 + (1 << 16);
/// A place that another record says, because it has no room here.
const ELSEWHERE: u32 = u32::MAX;
/// Files that always begin with something.
const PYTORCH: [&[u8]; 2] = [b".pt", b".pth"];

/// The first file in `step`, from there on, that is torn or cannot be read.
pub(super) fn torn(step: &Path) -> Option<Vec<u8>> {
    let mut items = match walk(step, super::options()) {
        Ok(items) => items,
        Err(_) => return Some(Vec::new()),
    };
    while let Some(item) = items.next() {
        let is_torn = match item {
            Ok(Item::File { dir, name, stat }) => !dir
                .open_file(&name)
                .is_ok_and(|file| is_file_whole(&file, &name, stat.size)),
            Ok(_) => false,
            Err(_) => true,
        };
        if is_torn {
            return Some(items.path().to_vec());
        }
    }
    None
}

fn is_file_whole(file: &File, name: &[u8], size: u64) -> bool {
    if name.ends_with(b".safetensors") {
        return is_safetensors_whole(file, size).unwrap_or(false);
    }
    let mut head = [0; 4];
    let has_head = file.read_exact_at(&mut head, 0).is_ok();
    let is_archive = has_head && (head == ARCHIVE || head == ARCHIVE_END);
    if is_archive {
        return is_archive_whole(file, size).unwrap_or(false);
    }
    let may_be_pickled = has_head && head != [0; 4];
    let is_pytorch = PYTORCH.iter().any(|end| name.ends_with(end));
    !name.ends_with(b".npz") && (!is_pytorch || may_be_pickled)
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

/// The record at the end ends with the file, and the directory that it tells of is before it.
fn is_archive_whole(file: &File, size: u64) -> Option<bool> {
    let len = size.min(ARCHIVE_END_BYTES_MAX);
    let mut end = vec![0; usize::try_from(len).ok()?];
    file.read_exact_at(&mut end, size - len).ok()?;
    let fits = |at: usize| -> Option<bool> {
        let record = end.get(at..)?;
        let comment = u16::from_le_bytes(record.get(20..ARCHIVE_END_BYTES)?.try_into().ok()?);
        let number = |at| Some(u32::from_le_bytes(record.get(at..at + 4)?.try_into().ok()?));
        let (bytes, begin): (u32, u32) = (number(12)?, number(16)?);
        let is_elsewhere = bytes == ELSEWHERE || begin == ELSEWHERE;
        let before = size - len + at as u64;
        let is_before = u64::from(bytes) + u64::from(begin) <= before;
        let is_end = record.len() == ARCHIVE_END_BYTES + usize::from(comment);
        Some(is_end && (is_elsewhere || is_before))
    };
    let records = end.windows(ARCHIVE_END.len()).enumerate();
    let mut records = records.filter(|(_, bytes)| *bytes == ARCHIVE_END);
    Some(records.any(|(at, _)| fits(at) == Some(true)))
}
