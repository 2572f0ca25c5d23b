//! PyTorch archives: zip files whose entries `X/data/N` are stored uncompressed, beside `X/data.pkl`.

use std::io::Read;
use std::ops::Range;

use super::header::{Header, Look, ReadAt, Stop, Tensor, TensorName};

/// Lengths of the end record of a zip without a comment, and of the locator before it in zip64.
const END_LEN: u64 = 22;
const LOCATOR_LEN: u64 = 20;
/// Length of the fixed part of the local header of an entry.
const LOCAL_LEN: u64 = 30;
/// Marks a field whose value is in a 64-bit field.
const LONG: u32 = u32::MAX;
/// The id of the extra field with 64-bit values.
const EXTRA_LONG: u16 = 1;

/// The position of an archive's directory.
struct Directory {
    entries: u64,
    start: u64,
    end: u64,
}

/// An entry of the directory.
struct Entry {
    name: Vec<u8>,
    is_stored: bool,
    size: u64,
    header: u64,
}

/// Returns the tensors of at least `least` bytes.
pub(super) fn tensors(file: &dyn ReadAt, size: u64, least: u64) -> Look<Vec<Tensor>> {
    let directory = directory(file, size)?;
    let mut header = Header::new(file, directory.start, directory.end);
    let (mut is_of_pytorch, mut found, mut sum) = (false, Vec::new(), 0_u64);
    for _ in 0..directory.entries {
        let entry = entry(&mut header)?;
        let mut parts = entry.name.splitn(2, |byte| *byte == b'/').skip(1);
        let inside = parts.next().unwrap_or_default();
        is_of_pytorch |= inside == b"data.pkl";
        if inside.starts_with(b"data/") && entry.is_stored && entry.size >= least {
            sum = sum.saturating_add(entry.size);
            found.push((TensorName::of(inside), entry.header, entry.size));
        }
        // Each tensor costs memory and a read, so their total size must not exceed the file.
        if sum > size {
            return Err(Stop::Another);
        }
    }
    if !is_of_pytorch || header.at() != directory.end {
        return Err(Stop::Another);
    }
    let tensor = |(name, header, size)| {
        let place = place(file, &directory, header, size)?;
        Ok(Tensor { place, name })
    };
    found.into_iter().map(tensor).collect()
}

fn directory(file: &dyn ReadAt, size: u64) -> Look<Directory> {
    let end_at = size.checked_sub(END_LEN).ok_or(Stop::Another)?;
    let mut end = Header::new(file, end_at, size);
    if end.array()? != *b"PK\x05\x06" || end.u32()? != 0 {
        return Err(Stop::Another);
    }
    let (here, entries, len, start) = (end.u16()?, end.u16()?, end.u32()?, end.u32()?);
    if here != entries || end.u16()? != 0 {
        return Err(Stop::Another);
    }
    let is_long = entries == u16::MAX || len == LONG || start == LONG;
    let (entries, len, start, behind) = match is_long {
        true => long_directory(file, end_at)?,
        false => (u64::from(entries), u64::from(len), u64::from(start), end_at),
    };
    let end = start.checked_add(len).filter(|end| *end <= behind);
    let end = end.ok_or(Stop::Another)?;
    Ok(Directory {
        entries,
        start,
        end,
    })
}

/// Reads the 64-bit variant; also returns where its record begins.
fn long_directory(file: &dyn ReadAt, end_at: u64) -> Look<(u64, u64, u64, u64)> {
    let at = end_at.checked_sub(LOCATOR_LEN).ok_or(Stop::Another)?;
    let mut locator = Header::new(file, at, end_at);
    if locator.array()? != *b"PK\x06\x07" || locator.u32()? != 0 {
        return Err(Stop::Another);
    }
    let record_at = locator.u64()?;
    let mut record = Header::new(file, record_at.min(at), at);
    if record.array()? != *b"PK\x06\x06" {
        return Err(Stop::Another);
    }
    // Skips its own length, two versions and two disk numbers.
    record.skip(8 + 2 + 2 + 4 + 4)?;
    let (here, entries) = (record.u64()?, record.u64()?);
    if here != entries {
        return Err(Stop::Another);
    }
    Ok((entries, record.u64()?, record.u64()?, record_at))
}

fn entry(directory: &mut Header<'_>) -> Look<Entry> {
    if directory.array()? != *b"PK\x01\x02" {
        return Err(Stop::Another);
    }
    directory.skip(4)?;
    let (flags, method) = (directory.u16()?, directory.u16()?);
    // Skips time, date and checksum.
    directory.skip(8)?;
    let (stored, size) = (directory.u32()?, directory.u32()?);
    let (name, extra, comment) = (directory.u16()?, directory.u16()?, directory.u16()?);
    // Skips the disk number and attributes.
    directory.skip(8)?;
    let header = directory.u32()?;
    let mut bytes = vec![0; usize::from(name)];
    directory.read_exact(&mut bytes)?;
    let mut long = [u64::from(size), u64::from(stored), u64::from(header)];
    extras(directory, extra, [size, stored, header], &mut long)?;
    directory.skip(u64::from(comment))?;
    let [size, stored, header] = long;
    Ok(Entry {
        name: bytes,
        is_stored: method == 0 && flags & 1 == 0 && stored == size,
        size,
        header,
    })
}

/// Reads extra fields. Values that `short` marks are replaced by the 64-bit values in one of these fields.
fn extras(directory: &mut Header<'_>, len: u16, short: [u32; 3], long: &mut [u64; 3]) -> Look<()> {
    let end = directory.at() + u64::from(len);
    while directory.at() + 4 <= end {
        let (kind, len) = (directory.u16()?, directory.u16()?);
        let field_end = directory.at() + u64::from(len);
        if field_end > end {
            return Err(Stop::Another);
        }
        for (short, long) in short.iter().zip(long.iter_mut()) {
            if kind == EXTRA_LONG && *short == LONG && directory.at() + 8 <= field_end {
                *long = directory.u64()?;
            }
        }
        directory.skip(field_end - directory.at())?;
    }
    directory.skip(end - directory.at())
}

/// Returns the range of an entry's bytes, which follow its local header.
fn place(file: &dyn ReadAt, directory: &Directory, header: u64, size: u64) -> Look<Range<u64>> {
    let fixed_end = header.checked_add(LOCAL_LEN).ok_or(Stop::Another)?;
    if fixed_end > directory.start {
        return Err(Stop::Another);
    }
    let mut local = Header::new(file, header, fixed_end);
    if local.array()? != *b"PK\x03\x04" {
        return Err(Stop::Another);
    }
    local.skip(22)?;
    let start = fixed_end + u64::from(local.u16()?) + u64::from(local.u16()?);
    let end = start
        .checked_add(size)
        .filter(|end| *end <= directory.start);
    Ok(start..end.ok_or(Stop::Another)?)
}
