//! The codec of deltas: replaces numbers of 2 or 4 bytes by their difference to the numbers at the same position of
//! other chunks, the base, and encodes the differences like any bytes. FORMATS.md, "Deltas".
//!
//! Differences wrap around and are mapped so that small ones of either sign become small numbers. This is a bijection,
//! whatever the bits mean. For weights after a little more training only the low bytes remain, so the other planes are
//! empty.

use super::sample::Elements;
use crate::error::{Error, Result};
use crate::format::{FRAME_BASES_MAX, FRAME_RAW_BYTES_MAX};
use crate::id::ChunkId;

/// The most bytes of all bases of a frame: as many as the frame, and parts of a chunk on both sides.
pub const BASE_BYTES_MAX: usize = 2 * FRAME_RAW_BYTES_MAX as usize;

/// Values of the byte that describes the elements.
const WIDTH_TWO: u8 = 1;
const WIDTH_FOUR: u8 = 2;
const PHASE_SHIFT: u8 = 2;

/// The chunks that a frame is the difference to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeltaBase {
    /// Chunks, in the order of their bytes.
    pub ids: Vec<ChunkId>,
    /// Bytes of these chunks before the first that is used.
    pub skip: u32,
}

/// Provides the bytes of base chunks.
pub trait Bases: Sync {
    /// Appends the bytes of these chunks, in order. They need not be verified, because the decoded delta is compared
    /// with its ids later.
    ///
    /// # Errors
    /// When a chunk is in no plain frame, or cannot be read.
    fn append(&self, ids: &[ChunkId], out: &mut Vec<u8>) -> Result<()>;
}

/// For frames that must not be deltas.
#[derive(Clone, Copy, Debug)]
pub struct NoBases;

impl Bases for NoBases {
    fn append(&self, ids: &[ChunkId], _out: &mut Vec<u8>) -> Result<()> {
        let id = ids.first().map(ToString::to_string).unwrap_or_default();
        Err(Error::corrupt(format!(
            "chunk {id}: is a base where none may be"
        )))
    }
}

/// Collects the bytes of bases in `out`, up to the limit of a frame. `object` names the frame in errors.
pub(super) fn bring(
    object: &str,
    ids: &[ChunkId],
    bases: &dyn Bases,
    out: &mut Vec<u8>,
) -> Result<()> {
    out.clear();
    for id in ids {
        let brought = bases.append(std::slice::from_ref(id), out);
        brought.map_err(|error| error.within(format!("{object}: base of a delta")))?;
        check_bases_len(object, out.len())?;
    }
    Ok(())
}

/// Checks the total length of bases. If they are too long, the frame that names them is corrupt, rather than the bases.
///
/// # Errors
/// Corrupt, naming the frame, which is `object`.
pub(crate) fn check_bases_len(object: &str, len: usize) -> Result<()> {
    match len <= BASE_BYTES_MAX {
        true => Ok(()),
        false => Err(Error::corrupt(format!(
            "{object}: bases of a delta: expected at most {BASE_BYTES_MAX} bytes, found {len}"
        ))),
    }
}

/// Returns the base of a stored frame; `None` if the frame is plain.
///
/// # Errors
/// Corrupt, when the frame is a malformed delta.
pub fn delta_base(object: &str, stored: &[u8]) -> Result<Option<DeltaBase>> {
    match stored.split_first() {
        Some((&crate::format::CODEC_DELTA, payload)) => {
            parse(object, payload).map(|(base, ..)| Some(base))
        }
        _ => Ok(None),
    }
}

/// Appends codec, base and elements to `out`; the frame of the differences must follow.
pub(super) fn begin(base: &DeltaBase, elements: Elements, out: &mut Vec<u8>) -> Result<()> {
    let count = u16::try_from(base.ids.len())
        .ok()
        .filter(|count| (1..=FRAME_BASES_MAX).contains(count));
    let count = count
        .ok_or_else(|| Error::invalid(format!("delta: {} bases of a frame", base.ids.len())))?;
    let width = match elements.width {
        2 => WIDTH_TWO,
        _ => WIDTH_FOUR,
    };
    let phase = u8::try_from(elements.phase).unwrap_or(0);
    out.push(crate::format::CODEC_DELTA);
    out.push(width | phase << PHASE_SHIFT);
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(&base.skip.to_le_bytes());
    for id in &base.ids {
        out.extend_from_slice(&id.0);
    }
    Ok(())
}

/// Parses the base, the elements and the frame of the differences.
pub(super) fn parse<'p>(
    object: &str,
    payload: &'p [u8],
) -> Result<(DeltaBase, Elements, &'p [u8])> {
    let corrupt = |what: &str| Error::corrupt(format!("{object}: delta: {what}"));
    let ([layout, low, high, skip @ ..], rest) = payload
        .split_first_chunk::<7>()
        .ok_or_else(|| corrupt("cut before its bases"))?;
    let elements = elements_of(*layout).ok_or_else(|| corrupt("unknown elements"))?;
    let count = u16::from_le_bytes([*low, *high]);
    if !(1..=FRAME_BASES_MAX).contains(&count) {
        let what = format!("expected 1 to {FRAME_BASES_MAX} bases, found {count}");
        return Err(corrupt(&what));
    }
    let (ids, inner) = rest
        .split_at_checked(usize::from(count) * ChunkId::LEN)
        .ok_or_else(|| corrupt("cut in its bases"))?;
    let (ids, _) = ids.as_chunks();
    let base = DeltaBase {
        ids: ids.iter().map(|id| ChunkId(*id)).collect(),
        skip: u32::from_le_bytes(*skip),
    };
    Ok((base, elements, inner))
}

fn elements_of(layout: u8) -> Option<Elements> {
    let width = match layout & (WIDTH_TWO | WIDTH_FOUR) {
        WIDTH_TWO => 2,
        WIDTH_FOUR => 4,
        _ => return None,
    };
    let phase = usize::from(layout >> PHASE_SHIFT);
    (phase < width).then_some(Elements { width, phase })
}

/// Appends `raw` to `out`, which must be empty, with each element replaced by its difference to that of the base.
pub(super) fn differences(
    raw: &[u8],
    base: &[u8],
    skip: u32,
    elements: Elements,
    out: &mut Vec<u8>,
) -> Result<()> {
    out.extend_from_slice(raw);
    let (body, base) =
        bodies("", out, base, skip, elements).map_err(|error| Error::invalid(error.to_string()))?;
    match elements.width {
        2 => {
            let both = body.as_chunks_mut().0.iter_mut().zip(base.as_chunks().0);
            for (own, base) in both {
                let by = u16::from_le_bytes(*own).wrapping_sub(u16::from_le_bytes(*base));
                *own = (by << 1 ^ 0u16.wrapping_sub(by >> 15)).to_le_bytes();
            }
        }
        _ => {
            let both = body.as_chunks_mut().0.iter_mut().zip(base.as_chunks().0);
            for (own, base) in both {
                let by = u32::from_le_bytes(*own).wrapping_sub(u32::from_le_bytes(*base));
                *own = (by << 1 ^ 0u32.wrapping_sub(by >> 31)).to_le_bytes();
            }
        }
    }
    Ok(())
}

/// Reverses [`differences`] in place.
pub(super) fn undo(
    object: &str,
    differences: &mut [u8],
    base: &[u8],
    skip: u32,
    elements: Elements,
) -> Result<()> {
    let (body, base) = bodies(object, differences, base, skip, elements)?;
    match elements.width {
        2 => {
            let both = body.as_chunks_mut().0.iter_mut().zip(base.as_chunks().0);
            for (own, base) in both {
                let folded = u16::from_le_bytes(*own);
                let by = folded >> 1 ^ 0u16.wrapping_sub(folded & 1);
                *own = u16::from_le_bytes(*base).wrapping_add(by).to_le_bytes();
            }
        }
        _ => {
            let both = body.as_chunks_mut().0.iter_mut().zip(base.as_chunks().0);
            for (own, base) in both {
                let folded = u32::from_le_bytes(*own);
                let by = folded >> 1 ^ 0u32.wrapping_sub(folded & 1);
                *own = u32::from_le_bytes(*base).wrapping_add(by).to_le_bytes();
            }
        }
    }
    Ok(())
}

/// Returns the whole elements of a frame and those of its base.
fn bodies<'b>(
    object: &str,
    frame: &'b mut [u8],
    base: &'b [u8],
    skip: u32,
    elements: Elements,
) -> Result<(&'b mut [u8], &'b [u8])> {
    let Elements { width, phase } = elements;
    let (found, needed) = (base.len(), frame.len());
    let skip = usize::try_from(skip).unwrap_or(usize::MAX);
    let counted = base.get(skip..).and_then(|base| base.get(..needed));
    let (Some(base), true) = (counted, phase <= needed) else {
        let message = format!(
            "{object}: delta: expected {needed} bytes of its base behind the first {skip}, found {found} in all"
        );
        return Err(Error::corrupt(message));
    };
    let whole = (needed - phase) / width * width;
    let body = frame.get_mut(phase..phase + whole).unwrap_or_default();
    let base = base.get(phase..phase + whole).unwrap_or_default();
    Ok((body, base))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Decoder, Encoder, LEVEL};
    use super::*;
    use crate::error::ErrorKind;
    use crate::format::{CODEC_DELTA, CODEC_RAW};

    /// Holds the bytes of the first chunk of [`base`]; all others are empty.
    struct Held(Vec<u8>);

    impl Bases for Held {
        fn append(&self, ids: &[ChunkId], out: &mut Vec<u8>) -> Result<()> {
            if ids.contains(&ChunkId([3; 32])) {
                out.extend_from_slice(&self.0);
            }
            Ok(())
        }
    }

    fn base(skip: u32) -> DeltaBase {
        let ids = vec![ChunkId([3; 32]), ChunkId([4; 32])];
        DeltaBase { ids, skip }
    }

    fn encoded(raw: &[u8], elements: Elements, skip: u32, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut encoder = Encoder::new(LEVEL).unwrap();
        encoder
            .encode_delta(raw, elements, &base(skip), bytes, &mut out)
            .unwrap();
        out
    }

    fn decoded(frame: &[u8], raw_len: usize, bytes: &[u8]) -> Result<Vec<u8>> {
        let (mut out, raw_len) = (Vec::new(), u32::try_from(raw_len).unwrap());
        let held = Held(bytes.to_vec());
        Decoder::new()?
            .decode("frame 3", frame, raw_len, &held, &mut out)
            .map(<[u8]>::to_vec)
    }

    fn elements() -> impl Strategy<Value = Elements> {
        (prop_oneof![Just(2usize), Just(4)], 0usize..4).prop_map(|(width, phase)| Elements {
            width,
            phase: phase % width,
        })
    }

    /// Numbers of all kinds: NaNs with payloads, infinities, denormals, both zeros, noise.
    fn numbers() -> impl Strategy<Value = Vec<u8>> {
        let special = [
            0u32,
            0x8000_0000,
            0x7fc0_0001,
            0xffbf_ffff,
            0xff80_0000,
            1,
            0x007f_ffff,
            u32::MAX,
        ];
        let number = prop_oneof![
            4 => (0u32..1 << 25).prop_map(|bits| 0x3d00_0000 + bits),
            2 => any::<u32>(),
            1 => proptest::sample::select(special.to_vec()),
        ];
        proptest::collection::vec(number, 0..400)
            .prop_map(|numbers| numbers.into_iter().flat_map(u32::to_le_bytes).collect())
    }

    proptest! {
        #[test]
        fn anything_comes_back_from_its_difference_to_anything(
            raw in numbers(), other in numbers(), cut in 0usize..4, skip in 0u32..9, more in 0usize..9, elements in elements(),
        ) {
            let raw = raw.get(cut..).unwrap_or_default();
            prop_assume!(raw.len() >= elements.phase);
            let mut bytes = other;
            bytes.resize(raw.len() + skip as usize + more, 0xa5);
            let frame = encoded(raw, elements, skip, &bytes);
            prop_assert!(frame.len() <= raw.len() + 2 + 7 + 64);
            prop_assert_eq!(decoded(&frame, raw.len(), &bytes).unwrap(), raw);
            prop_assert_eq!(delta_base("frame", &frame).unwrap(), Some(base(skip)));
        }

        #[test]
        fn hostile_payloads_are_errors(
            mut payload in proptest::collection::vec(any::<u8>(), 0..200), ids in 0u8..3, layout in 0u8..16, raw_len in 0u32..3000, held in 0usize..4000,
        ) {
            let head = [CODEC_DELTA, layout, ids, 0, 0, 0, 0, 0];
            payload.splice(..0, head);
            match decoded(&payload, raw_len as usize, &vec![7; held]) {
                Ok(found) => prop_assert_eq!(found.len(), raw_len as usize),
                Err(error) => prop_assert_eq!(error.kind(), ErrorKind::Corrupt),
            }
        }
    }

    #[test]
    fn a_payload_is_as_the_format_says() {
        let elements = Elements { width: 2, phase: 1 };
        let (raw, bytes) = ([9, 5, 0, 3, 0x80, 7], [0, 1, 7, 0, 4, 0x80, 1, 1]);
        let frame = encoded(&raw, elements, 1, &bytes);
        let expected = [
            &[CODEC_DELTA, 0b0101, 2, 0, 1, 0, 0, 0][..],
            &[3; 32],
            &[4; 32],
            // 5 - 7 = -2 is encoded as 3; 0x8003 - 0x8004 = -1 is encoded as 1.
            &[CODEC_RAW, 9, 3, 0, 1, 0, 7],
        ];
        assert_eq!(frame, expected.concat());
        assert_eq!(decoded(&frame, 6, &bytes).unwrap(), raw);
    }

    #[test]
    fn odd_payloads_are_corrupt_by_name() {
        let elements = Elements { width: 4, phase: 0 };
        let raw = vec![7; 4000];
        let whole = encoded(&raw, elements, 0, &vec![6; 4000]);
        let refused = |frame: &[u8], len, held: usize| {
            let error = decoded(frame, len, &vec![6; held]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            error.to_string()
        };
        for len in 1..whole.len() {
            refused(&whole[..len], 4000, 4000);
        }
        let with = |at: usize, byte: u8| {
            let mut frame = whole.clone();
            frame[at] = byte;
            frame
        };
        for layout in [0, 3, 0b1010_0010, 0b1_0010, 0b1001] {
            assert_eq!(
                refused(&with(1, layout), 4000, 4000),
                "frame 3: delta: unknown elements"
            );
        }
        let none = "frame 3: delta: expected 1 to 1024 bases, found 0";
        assert_eq!(refused(&with(2, 0), 4000, 4000), none);
        let many = "frame 3: delta: expected 1 to 1024 bases, found 1282";
        assert_eq!(refused(&with(3, 5), 4000, 4000), many);
        let short =
            "frame 3: delta: expected 4000 bytes of its base behind the first 0, found 3999 in all";
        assert_eq!(refused(&whole, 4000, 3999), short);
        let skipped =
            "frame 3: delta: expected 4000 bytes of its base behind the first 1, found 4000 in all";
        assert_eq!(refused(&with(4, 1), 4000, 4000), skipped);
        let inside = 1 + 7 + 64;
        assert_eq!(
            refused(&with(inside, CODEC_DELTA), 4000, 4000),
            "frame 3: is a delta, where a plain frame must be"
        );
    }

    #[test]
    fn a_delta_is_refused_where_none_may_be() {
        let frame = encoded(&[1; 40], Elements { width: 2, phase: 0 }, 0, &[1; 40]);
        let (mut decoder, mut out) = (Decoder::new().unwrap(), Vec::new());
        let error = decoder
            .decode("frame 3", &frame, 40, &NoBases, &mut out)
            .unwrap_err();
        let message = error.to_string();
        assert!(
            message.contains(&"03".repeat(32)) && message.contains("base of a delta"),
            "{message}"
        );
        let error = decoder
            .decode_plain("frame 3", &frame, 40, &mut out)
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "frame 3: is a delta, where a plain frame must be"
        );
        assert_eq!(delta_base("frame 3", &[CODEC_RAW, 1]).unwrap(), None);
    }

    /// Weights, and the same weights after a little more training.
    #[test]
    fn what_was_trained_further_leaves_little() {
        let mut seed = 1u64;
        let mut uniform = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            f32::from(u16::try_from(seed >> 48).unwrap()) / 65_536.0 - 0.5
        };
        let mut normal = || (0..12).map(|_| uniform()).sum::<f32>();
        let pairs: Vec<[f32; 2]> = (0..200_000)
            .map(|_| {
                let weight = normal() * 0.02;
                [weight, weight + normal() * 0.000_06]
            })
            .collect();
        let single = |which: usize| -> Vec<u8> {
            pairs
                .iter()
                .flat_map(|pair| pair[which].to_le_bytes())
                .collect()
        };
        let halved = |bytes: &[u8]| -> Vec<u8> {
            let values = bytes.as_chunks::<4>().0;
            values.iter().flat_map(|[_, _, c, d]| [*c, *d]).collect()
        };
        let (old, new) = (single(0), single(1));
        for (old, new, width, most) in [(halved(&old), halved(&new), 2, 0.27), (old, new, 4, 0.62)]
        {
            let elements = Elements { width, phase: 0 };
            let delta = encoded(&new, elements, 0, &old);
            assert_eq!(decoded(&delta, new.len(), &old).unwrap(), new);
            let share = delta.len() as f64 / new.len() as f64;
            assert!(share < most, "{width}: {share}");
            let mut planes = Vec::new();
            let mut encoder = Encoder::new(LEVEL).unwrap();
            encoder
                .encode_elements(&new, elements, &mut planes)
                .unwrap();
            assert!(delta.len() * 100 < planes.len() * 85, "{width}: {share}");
        }
    }
}
