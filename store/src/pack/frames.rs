//! Reads all frames of one pack in order, stored or decoded.

use super::reader::FrameRows;
use crate::codec::{Bases, Decoder, check_bases_len, delta_base};
use crate::error::{Error, Result};
use crate::format::pack_key;
use crate::id::PackId;
use crate::remote::Read;

/// The most stored bytes that are read at once, unless a single frame is larger.
const READ_BYTES: u32 = 4 << 20;

/// Called with a frame and its bytes, or the error that prevents reading them.
pub(crate) type EachFrame<'e> = dyn FnMut(&FrameRows, Result<&[u8]>) -> Result<()> + 'e;

/// Passes every frame of a pack of `size` bytes to `each`, decoded or with an error. The error is not found if a base
/// of the frame cannot be read, but the frame itself can.
pub(crate) fn for_each_frame(
    remote: &dyn Read,
    bases: &dyn Bases,
    pack: PackId,
    rows: &[FrameRows],
    size: u64,
    told: &(dyn Fn(u64) -> Result<()> + Sync),
    each: &mut EachFrame<'_>,
) -> Result<()> {
    let key = pack_key(pack);
    let mut decoder = Decoder::new()?;
    let mut out = Vec::new();
    for_each_stored(remote, pack, rows, size, told, &mut |frame, stored| {
        let decoded = stored.and_then(|stored| match frame.bases.is_empty() {
            true => decoder.decode_plain(&key, stored, frame.raw_len, &mut out),
            false => decode_delta(&mut decoder, bases, (pack, frame), stored, &mut out),
        });
        each(frame, decoded)
    })
}

/// Decodes a delta. Its stored bytes must match the table, and must name the same bases as its row.
fn decode_delta<'a>(
    decoder: &mut Decoder,
    bases: &dyn Bases,
    (pack, frame): (PackId, &FrameRows),
    stored: &'a [u8],
    out: &'a mut Vec<u8>,
) -> Result<&'a [u8]> {
    frame.check_stored(pack, stored)?;
    let object = format!("{}: frame at offset {}", pack_key(pack), frame.offset);
    let named = delta_base(&object, stored)?.map(|base| base.ids);
    if named.as_ref() != Some(&frame.bases) {
        let named = named.unwrap_or_default().len();
        let rows = frame.bases.len();
        let message = format!("{object}: names {named} bases, which are not the {rows} of its row");
        return Err(Error::corrupt(message));
    }
    let mut brought = Vec::new();
    for id in &frame.bases {
        if let Err(error) = bases.append(std::slice::from_ref(id), &mut brought) {
            return match error.is_damage() {
                true => Err(Error::not_found(format!(
                    "{object}: base of a delta: {error}"
                ))),
                false => Err(error),
            };
        }
        // In this case the frame is corrupt, rather than the bases that it names.
        check_bases_len(&object, brought.len())?;
    }
    decoder.decode_on(&object, stored, frame.raw_len, &brought, out)
}

/// Like [`for_each_frame`], without decoding.
pub(crate) fn for_each_stored(
    remote: &dyn Read,
    pack: PackId,
    rows: &[FrameRows],
    size: u64,
    told: &(dyn Fn(u64) -> Result<()> + Sync),
    each: &mut EachFrame<'_>,
) -> Result<()> {
    let key = pack_key(pack);
    let mut rest = rows;
    while let Some(first) = rest.first() {
        let start = first.offset;
        let fits = |frame: &&FrameRows| frame.offset + frame.stored_len - start <= READ_BYTES;
        let count = rest.iter().take_while(fits).count().max(1);
        let (run, behind) = rest.split_at_checked(count).unwrap_or((rest, &[]));
        let end = run
            .last()
            .map_or(start, |last| last.offset + last.stored_len);
        let range = u64::from(start)..u64::from(end).min(size);
        rest = behind;
        let read = match range.is_empty() {
            true => Ok(Vec::new()),
            false => remote.get_ranges(&key, std::slice::from_ref(&range)),
        };
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(error) if error.is_damage() => {
                let failed = || Err(Error::corrupt(error.to_string()));
                run.iter().try_for_each(|frame| each(frame, failed()))?;
                continue;
            }
            Err(error) => return Err(error),
        };
        let bytes = bytes.first().map(AsRef::as_ref).unwrap_or_default();
        for frame in run {
            let at = (frame.offset - start) as usize;
            let stored = match bytes.get(at..at + frame.stored_len as usize) {
                Some(stored) => Ok(stored),
                None => Err(Error::corrupt(format!(
                    "{key}: ends at {size}, inside of the frame at offset {}",
                    frame.offset
                ))),
            };
            each(frame, stored)?;
        }
        told(u64::from(end - start))?;
    }
    Ok(())
}
