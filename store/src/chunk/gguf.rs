//! GGUF: key-value pairs, then a record for each tensor, then the tensors, each up to the offset of the next one.

use std::io::Read;

use super::header::{Header, Look, ReadAt, Stop, Tensor, TensorName};

/// The most dimensions of a tensor.
const DIMENSIONS_MAX: u32 = 16;
/// The deepest nesting of arrays.
const DEPTH_MAX: u32 = 4;
/// Longer names are ignored: their tensors are recognized only by their position.
const NAME_BYTES_MAX: u64 = 64 << 10;
/// The key of the alignment of tensors.
const ALIGNMENT: &[u8] = b"general.alignment";

/// Returns all tensors; padding after a tensor counts as part of it.
pub(super) fn tensors(file: &dyn ReadAt, size: u64) -> Look<Vec<Tensor>> {
    let mut header = Header::new(file, 4, size);
    if !matches!(header.u32()?, 2 | 3) {
        return Err(Stop::Another);
    }
    let (tensors, values) = (header.u64()?, header.u64()?);
    let mut alignment = 32;
    for _ in 0..values {
        let is_alignment = key(&mut header)?;
        match (is_alignment, header.u32()?) {
            (true, 4) => alignment = header.u32()?,
            (true, _) => return Err(Stop::Another),
            (false, kind) => pass_over(&mut header, kind, 0)?,
        }
    }
    let mut offsets = Vec::new();
    for _ in 0..tensors {
        offsets.push(line(&mut header)?);
    }
    let begin = header.at().checked_next_multiple_of(u64::from(alignment));
    let begin = begin.ok_or(Stop::Another)?;
    places(offsets, begin, size).ok_or(Stop::Another)
}

/// Returns the range from each offset to the next. `None` if an offset is beyond the end of the file.
fn places(mut offsets: Vec<(u64, TensorName)>, begin: u64, size: u64) -> Option<Vec<Tensor>> {
    offsets.sort_unstable();
    for (offset, _) in &mut offsets {
        *offset = begin.checked_add(*offset).filter(|at| *at <= size)?;
    }
    let ends = offsets.iter().skip(1).map(|(at, _)| *at).chain([size]);
    let tensor = |((at, name), end): (&(u64, TensorName), u64)| Tensor {
        place: *at..end,
        name: *name,
    };
    Some(offsets.iter().zip(ends).map(tensor).collect())
}

/// Skips a key, and returns whether it is the alignment.
fn key(header: &mut Header<'_>) -> Look<bool> {
    let len = header.u64()?;
    if len != ALIGNMENT.len() as u64 {
        return header.skip(len).map(|()| false);
    }
    Ok(header.array::<{ ALIGNMENT.len() }>()? == ALIGNMENT)
}

fn pass_over(header: &mut Header<'_>, kind: u32, depth: u32) -> Look<()> {
    if let Some(width) = width(kind) {
        return header.skip(width);
    }
    match kind {
        8 => {
            let len = header.u64()?;
            header.skip(len)
        }
        9 if depth < DEPTH_MAX => {
            let (kind, count) = (header.u32()?, header.u64()?);
            match width(kind) {
                Some(width) => header.skip(count.checked_mul(width).ok_or(Stop::Another)?),
                None => (0..count).try_for_each(|_| pass_over(header, kind, depth + 1)),
            }
        }
        _ => Err(Stop::Another),
    }
}

/// Returns the length of a value of fixed size.
fn width(kind: u32) -> Option<u64> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

/// Reads the record of a tensor, and returns its offset and name.
fn line(header: &mut Header<'_>) -> Look<(u64, TensorName)> {
    let len = header.u64()?;
    let mut name = Vec::new();
    if len <= NAME_BYTES_MAX {
        header.take(len).read_to_end(&mut name)?;
    } else {
        header.skip(len)?;
    }
    let dimensions = header.u32()?;
    if dimensions > DIMENSIONS_MAX {
        return Err(Stop::Another);
    }
    header.skip(8 * u64::from(dimensions) + 4)?;
    Ok((header.u64()?, TensorName::of(&name)))
}
