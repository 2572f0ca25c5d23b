//! Whether files of tensors are complete, by what they say of their own length. A truncated file was not finished.
//!
//! The header of a safetensors file says how long the file is; the header of a NumPy array gives its shape. Archives
//! (of PyTorch and NumPy) have their directory at the end. An index names files beside it. Nothing is known of other
//! files.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::NotYet;
use crate::host::walk::{Item, walk};

/// The longest header of a safetensors file that is read.
const HEAD_BYTES_MAX: u64 = 128 << 20;
/// The first bytes of an archive, and of the record at its end.
const ARCHIVE: [u8; 4] = *b"PK\x03\x04";
const ARCHIVE_END: [u8; 4] = *b"PK\x05\x06";
/// The length of that record, and the most with a comment.
const ARCHIVE_END_BYTES: usize = 22;
const ARCHIVE_END_BYTES_MAX: u64 = 22 + (1 << 16);
/// A value that another record holds, because there is no room for it here.
const ELSEWHERE: u32 = u32::MAX;
/// The first bytes of a NumPy array, and the longest header that is read.
const ARRAY: &[u8] = b"\x93NUMPY";
const ARRAY_HEAD_BYTES_MAX: u64 = 1 << 20;
/// Name endings of PyTorch files, which always begin with a known magic.
const PYTORCH: [&[u8]; 2] = [b".pt", b".pth"];

/// Name endings of indexes, which name the files of tensors.
const INDEXES: [&[u8]; 2] = [b".safetensors.index.json", b".bin.index.json"];
const INDEX_BYTES_MAX: u64 = 64 << 20;

/// The defect of the first file in `step` that is torn or unreadable, or that names a missing file.
pub(super) fn torn(step: &Path) -> Option<NotYet> {
    let mut items = match walk(step, super::options()) {
        Ok(items) => items,
        Err(_) => return Some(NotYet::Torn(Vec::new())),
    };
    while let Some(item) = items.next() {
        let (is_whole, lacks) = match item {
            Ok(Item::File { dir, name, stat }) => match dir.open_file(&name) {
                Ok(file) if INDEXES.iter().any(|end| name.ends_with(end)) => {
                    let shards = shards(&file, stat.size);
                    let is_lacking =
                        |shard: &String| std::fs::metadata(dir.path_of(shard.as_bytes())).is_err();
                    let lacks = shards.iter().flatten().find(|shard| is_lacking(shard));
                    (shards.is_some(), lacks.cloned())
                }
                Ok(file) => (is_file_whole(&file, &name, stat.size), None),
                Err(_) => (false, None),
            },
            Ok(_) => (true, None),
            Err(_) => (false, None),
        };
        let file = items.path().to_vec();
        match lacks {
            Some(lacks) => return Some(NotYet::Lacks { index: file, lacks }),
            None if !is_whole => return Some(NotYet::Torn(file)),
            None => {}
        }
    }
    None
}

/// The files that an index names, if it is one.
fn shards(file: &File, size: u64) -> Option<BTreeSet<String>> {
    let mut text = vec![0; usize::try_from(size.min(INDEX_BYTES_MAX)).ok()?];
    file.read_exact_at(&mut text, 0).ok()?;
    let index: serde_json::Value = serde_json::from_slice(&text).ok()?;
    let map = index.get("weight_map").and_then(|map| map.as_object());
    let files = map.into_iter().flat_map(serde_json::Map::values);
    Some(
        files
            .filter_map(|file| file.as_str().map(str::to_owned))
            .collect(),
    )
}

fn is_file_whole(file: &File, name: &[u8], size: u64) -> bool {
    if name.ends_with(b".safetensors") {
        return is_safetensors_whole(file, size).unwrap_or(false);
    }
    if name.ends_with(b".npy") {
        return is_array_whole(file, size).unwrap_or(false);
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

/// Checks a length, and JSON that gives the ends of all tensors.
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

/// Checks a length, and a text that gives type and shape. More data may follow one array.
fn is_array_whole(file: &File, size: u64) -> Option<bool> {
    let mut head = [0; 10];
    file.read_exact_at(&mut head, 0).ok()?;
    let magic = head.strip_prefix(ARRAY)?;
    let [major, _minor, a, b] = *magic else {
        return None;
    };
    let (begin, len) = match major {
        1 => (10, u64::from(u16::from_le_bytes([a, b]))),
        _ => {
            let mut long = [0; 4];
            file.read_exact_at(&mut long, 8).ok()?;
            (12, u64::from(u32::from_le_bytes(long)))
        }
    };
    let data = size.checked_sub(begin + len)?;
    let mut text = vec![0; usize::try_from(len.min(ARRAY_HEAD_BYTES_MAX)).ok()?];
    file.read_exact_at(&mut text, begin).ok()?;
    let text = String::from_utf8_lossy(&text);
    // The length of arrays of objects and of records is unknown.
    Some(array_bytes(&text).is_none_or(|bytes| bytes <= data))
}

/// The length of an array with a header like `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`.
fn array_bytes(head: &str) -> Option<u64> {
    let value = |key| Some(head.split_once(key)?.1.trim_start_matches([':', ' ']));
    let kind = value("'descr'")?.strip_prefix('\'')?;
    let kind = kind.trim_start_matches(['<', '>', '|', '=']);
    let digits = |text: &str| -> String { text.chars().take_while(char::is_ascii_digit).collect() };
    let width: u64 = digits(kind.get(1..)?).parse().ok()?;
    // Text has four bytes per character.
    let width = if kind.starts_with('U') {
        width.checked_mul(4)?
    } else {
        width
    };
    let shape = value("'shape'")?.strip_prefix('(')?.split(')').next()?;
    let sides = shape
        .split(',')
        .map(str::trim)
        .filter(|side| !side.is_empty());
    sides.into_iter().try_fold(width, |bytes, side| {
        bytes.checked_mul(digits(side).parse().ok()?)
    })
}

/// Checks that the record at the end ends with the file, and that the directory is before it.
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
