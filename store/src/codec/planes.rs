//! The codec of numbers: groups the bytes at each position of elements of 2 or 4 bytes into planes, and stores each
//! plane raw or with zstd. FORMATS.md, "Planes".
//!
//! In weights, the exponents compress. Huffman codes alone encode them at twice the speed of a search for matches;
//! mantissas are stored raw. Rotating an IEEE float left by one bit puts its whole exponent into one byte.

use zstd::zstd_safe::{CCtx, DCtx, get_error_name};

use super::sample::Elements;
use super::{append, compressed};
use crate::error::{Error, Result};

/// Bytes per plane in a sample, taken from [`SAMPLE_PIECES`] places of the frame as whole elements.
const SAMPLE_BYTES: usize = 4 << 10;
const SAMPLE_PIECES: usize = 4;
/// Per mille: a plane is not tried if the order-0 entropy of its sample exceeds this part of its bytes.
const PLANE_LEFT_MOST: usize = 985;
/// Planes must save at least this fraction (1/100) of the raw bytes compared with zstd on the same elements.
const PLANES_SAVE_PART: usize = 100;
/// Per mille: zstd's matches are used only if they leave less than this part of what Huffman codes alone leave.
const MATCHES_LEFT_MOST: usize = 975;

/// How many elements of 4 bytes are split at a time.
const SPLIT_ELEMENTS: usize = 64;

/// Bits in the first byte of a payload.
const WIDTH_TWO: u8 = 1;
const WIDTH_FOUR: u8 = 2;
const WIDTH_MASK: u8 = 3;
const TURNED: u8 = 1 << 2;
const PHASE_SHIFT: u8 = 3;
const PHASE_MASK: u8 = 3;
const UNKNOWN_BITS: u8 = !(WIDTH_MASK | TURNED | PHASE_MASK << PHASE_SHIFT);
/// Length of the field with the stored length of a plane.
const LEN_BYTES: usize = 4;

/// How a frame is divided into planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    elements: Elements,
    /// Whether elements are rotated left by one bit.
    is_turned: bool,
}

/// How a plane is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Raw,
    Huffman,
    Matches,
}

/// A layout, and the best method for each plane.
pub(super) struct Plan {
    layout: Layout,
    methods: [Method; 4],
}

/// Contexts of an encoder: for Huffman codes alone, and for zstd with matches.
pub(super) struct Contexts {
    pub(super) huffman: CCtx<'static>,
    pub(super) matches: CCtx<'static>,
}

impl Layout {
    fn first_byte(self) -> u8 {
        let width = match self.elements.width {
            2 => WIDTH_TWO,
            _ => WIDTH_FOUR,
        };
        let phase = u8::try_from(self.elements.phase).unwrap_or(0);
        width | if self.is_turned { TURNED } else { 0 } | phase << PHASE_SHIFT
    }

    fn from_first_byte(byte: u8) -> Option<Self> {
        let width = match byte & WIDTH_MASK {
            WIDTH_TWO => 2,
            WIDTH_FOUR => 4,
            _ => return None,
        };
        let phase = usize::from(byte >> PHASE_SHIFT & PHASE_MASK);
        let is_known = byte & UNKNOWN_BITS == 0 && phase < width;
        is_known.then_some(Self {
            elements: Elements { width, phase },
            is_turned: byte & TURNED != 0,
        })
    }

    /// Returns the bytes before the first element, of all elements, and after the last one.
    fn parts(self, raw: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
        let Elements { width, phase } = self.elements;
        let (head, rest) = raw.split_at_checked(phase)?;
        let (body, tail) = rest.split_at_checked(rest.len() / width * width)?;
        Some((head, body, tail))
    }
}

/// Chooses how to store `raw`, which seems to hold `elements`, in planes. Returns `None` if zstd does as well on a
/// sample.
///
/// # Errors
/// When a context fails.
pub(super) fn plan(
    raw: &[u8],
    elements: Elements,
    contexts: &mut Contexts,
    scratch: &mut Vec<u8>,
) -> Result<Option<Plan>> {
    let straight = Layout {
        elements,
        is_turned: false,
    };
    let Some((_, body, _)) = straight.parts(raw) else {
        return Ok(None);
    };
    let sample = sampled(body, elements.width);
    if sample.is_empty() {
        return Ok(None);
    }
    let turned = Layout {
        is_turned: true,
        ..straight
    };
    let candidates = [straight, turned].map(|layout| {
        let mut planes = vec![0; sample.len()];
        split(&sample, layout, &mut planes);
        let left = (planes.chunks_exact(sample.len() / elements.width))
            .map(bytes_at_order_0)
            .sum::<usize>();
        (left, layout, planes)
    });
    let Some((_, layout, planes)) = candidates.into_iter().min_by_key(|(left, ..)| *left) else {
        return Ok(None);
    };
    let mut methods = [Method::Raw; 4];
    let mut left = 0;
    for (plane, method) in (planes.chunks_exact(sample.len() / elements.width)).zip(&mut methods) {
        let len = plane.len();
        if bytes_at_order_0(plane) * 1000 > len * PLANE_LEFT_MOST {
            left += len;
            continue;
        }
        let huffman = compressed(&mut contexts.huffman, plane, scratch)?;
        let matches = compressed(&mut contexts.matches, plane, scratch)?;
        *method = match matches * 1000 < huffman * MATCHES_LEFT_MOST {
            true => Method::Matches,
            false => Method::Huffman,
        };
        left += huffman.min(matches);
    }
    let by_zstd = compressed(&mut contexts.matches, &sample, scratch)?.min(sample.len());
    let saves = left + sample.len() / PLANES_SAVE_PART < by_zstd;
    Ok(saves.then_some(Plan { layout, methods }))
}

/// Appends the payload for `raw` to `out`. `planes` is a scratch buffer.
///
/// # Errors
/// When a context fails.
pub(super) fn encode(
    raw: &[u8],
    plan: &Plan,
    contexts: &mut Contexts,
    planes: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let Plan { layout, methods } = plan;
    let Some((head, body, tail)) = layout.parts(raw) else {
        return Err(Error::invalid("planes of a frame without elements"));
    };
    planes.resize(body.len(), 0);
    split(body, *layout, planes);
    out.push(layout.first_byte());
    let lens = out.len();
    out.resize(lens + layout.elements.width * LEN_BYTES, 0);
    out.extend_from_slice(head);
    let len = body.len() / layout.elements.width;
    for (n, (plane, method)) in planes.chunks_exact(len.max(1)).zip(methods).enumerate() {
        let start = out.len();
        let stored = match method {
            Method::Raw => len,
            Method::Huffman => append(&mut contexts.huffman, plane, out)?,
            Method::Matches => append(&mut contexts.matches, plane, out)?,
        };
        // A plane that did not get shorter is stored raw.
        if stored >= len {
            out.truncate(start);
            out.extend_from_slice(plane);
        }
        let stored = u32::try_from(out.len() - start).unwrap_or(u32::MAX);
        let at = lens + n * LEN_BYTES;
        if let Some(len) = out.get_mut(at..at + LEN_BYTES) {
            len.copy_from_slice(&stored.to_le_bytes());
        }
    }
    out.extend_from_slice(tail);
    Ok(())
}

/// Decodes `payload` to `raw_len` bytes in `out`, which must be empty. `planes` is a scratch buffer.
///
/// # Errors
/// Corrupt, when the payload is not what [`encode`] wrote; `object` names the frame.
pub(super) fn decode(
    object: &str,
    payload: &[u8],
    raw_len: usize,
    context: &mut DCtx<'static>,
    planes: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let corrupt = |what: &str| Error::corrupt(format!("{object}: planes: {what}"));
    let layout = payload
        .first()
        .and_then(|first| Layout::from_first_byte(*first));
    let layout = layout.ok_or_else(|| corrupt("unknown layout"))?;
    let Elements { width, phase } = layout.elements;
    let body_len = raw_len
        .checked_sub(phase)
        .map(|rest| rest / width * width)
        .ok_or_else(|| corrupt("fewer bytes than before the first element"))?;
    let len = body_len / width;
    if len == 0 {
        return Err(corrupt("fewer bytes than one element"));
    }
    let (lens, rest) = payload
        .get(1..)
        .and_then(|rest| rest.split_at_checked(width * LEN_BYTES))
        .ok_or_else(|| corrupt("cut in the lengths"))?;
    let (head, mut rest) = rest
        .split_at_checked(phase)
        .ok_or_else(|| corrupt("cut before the first element"))?;
    planes.resize(body_len, 0);
    let mut sources: [&[u8]; 4] = [&[]; 4];
    let places = planes.chunks_exact_mut(len).zip(&mut sources);
    for (stored, (plane, source)) in lens.as_chunks::<LEN_BYTES>().0.iter().zip(places) {
        let stored = usize::try_from(u32::from_le_bytes(*stored)).unwrap_or(usize::MAX);
        let (bytes, behind) = (stored <= len)
            .then(|| rest.split_at_checked(stored))
            .flatten()
            .ok_or_else(|| corrupt("a plane is longer than its elements or than the frame"))?;
        rest = behind;
        if stored == len {
            *source = bytes;
            continue;
        }
        let decoded = (context.decompress(plane, bytes))
            .map_err(|code| corrupt("not a zstd frame").because(get_error_name(code)))?;
        if decoded != len {
            return Err(corrupt("a plane is shorter than its elements"));
        }
        *source = plane;
    }
    if rest.len() != raw_len - phase - body_len {
        let message = format!(
            "{} bytes behind the last element, expected {}",
            rest.len(),
            raw_len - phase - body_len
        );
        return Err(corrupt(&message));
    }
    out.reserve_exact(raw_len);
    out.extend_from_slice(head);
    join(&sources, len, layout, out);
    out.extend_from_slice(rest);
    Ok(())
}

/// Returns whole elements from [`SAMPLE_PIECES`] places of `body`, [`SAMPLE_BYTES`] per plane, or all if there are
/// fewer.
fn sampled(body: &[u8], width: usize) -> Vec<u8> {
    let piece = SAMPLE_BYTES / SAMPLE_PIECES * width;
    if body.len() <= SAMPLE_PIECES * piece {
        return body.to_vec();
    }
    let stride = body.len() / SAMPLE_PIECES / width * width;
    (body.chunks_exact(stride).take(SAMPLE_PIECES))
        .filter_map(|part| part.get(..piece))
        .collect::<Vec<_>>()
        .concat()
}

/// Returns the order-0 entropy of `plane` in bytes.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a sample of some KiB"
)]
fn bytes_at_order_0(plane: &[u8]) -> usize {
    let mut counts = [0u32; 256];
    for byte in plane {
        if let Some(count) = counts.get_mut(usize::from(*byte)) {
            *count += 1;
        }
    }
    let len = plane.len() as f32;
    let bits: f32 = (counts.iter().filter(|count| **count > 0))
        .map(|count| *count as f32 * (len / *count as f32).log2())
        .sum();
    (bits / 8.0).ceil() as usize
}

/// Splits `body` into planes, which are written to `planes` one after another; both have the same length.
fn split(body: &[u8], layout: Layout, planes: &mut [u8]) {
    let turn = u32::from(layout.is_turned);
    let (low, high) = planes.split_at_mut(body.len() / 2);
    if layout.elements.width == 2 {
        for ((element, low), high) in body.as_chunks().0.iter().zip(low).zip(high) {
            [*low, *high] = u16::from_le_bytes(*element).rotate_left(turn).to_le_bytes();
        }
        return;
    }
    let (a, b) = low.split_at_mut(body.len() / 4);
    let (c, d) = high.split_at_mut(body.len() / 4);
    // Splits into halves first, block by block: the available instructions make this twice as fast as splitting into
    // bytes.
    let blocks = body.chunks(4 * SPLIT_ELEMENTS).zip(
        (a.chunks_mut(SPLIT_ELEMENTS)
            .zip(b.chunks_mut(SPLIT_ELEMENTS)))
        .zip(
            c.chunks_mut(SPLIT_ELEMENTS)
                .zip(d.chunks_mut(SPLIT_ELEMENTS)),
        ),
    );
    for (block, ((a, b), (c, d))) in blocks {
        let mut lower = [0u16; SPLIT_ELEMENTS];
        let mut upper = [0u16; SPLIT_ELEMENTS];
        let halves = lower.iter_mut().zip(&mut upper);
        for (element, (lower, upper)) in block.as_chunks().0.iter().zip(halves) {
            let turned = u32::from_le_bytes(*element).rotate_left(turn);
            let [first, second, third, fourth] = turned.to_le_bytes();
            *lower = u16::from_le_bytes([first, second]);
            *upper = u16::from_le_bytes([third, fourth]);
        }
        for ((half, low), high) in lower.iter().zip(a).zip(b) {
            [*low, *high] = half.to_le_bytes();
        }
        for ((half, low), high) in upper.iter().zip(c).zip(d) {
            [*low, *high] = half.to_le_bytes();
        }
    }
}

/// Reverses [`split`]: appends `len` elements to `out`.
fn join(planes: &[&[u8]; 4], len: usize, layout: Layout, out: &mut Vec<u8>) {
    let turn = u32::from(layout.is_turned);
    let [a, b, c, d] = planes;
    let start = out.len();
    out.resize(start + len * layout.elements.width, 0);
    let body = out.get_mut(start..).unwrap_or_default();
    if layout.elements.width == 2 {
        for ((element, low), high) in body.as_chunks_mut().0.iter_mut().zip(*a).zip(*b) {
            let turned = u16::from_le_bytes([*low, *high]);
            *element = turned.rotate_right(turn).to_le_bytes();
        }
        return;
    }
    let elements = body.as_chunks_mut().0.iter_mut();
    for ((((element, a), b), c), d) in elements.zip(*a).zip(*b).zip(*c).zip(*d) {
        let turned = u32::from_le_bytes([*a, *b, *c, *d]);
        *element = turned.rotate_right(turn).to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Decoder, Encoder, LEVEL};
    use super::*;
    use crate::error::ErrorKind;
    use crate::format::{CODEC_PLANES, CODEC_RAW};

    #[test]
    fn bytes_at_order_0_are_those_of_the_counts() {
        let halves = [[0; 4000], [9; 4000]].concat();
        assert_eq!(bytes_at_order_0(&halves), 1000);
        assert_eq!(bytes_at_order_0(&[7; 4000]), 0);
        let each: Vec<u8> = (0..=255).cycle().take(2560).collect();
        assert_eq!(bytes_at_order_0(&each), 2560);
    }

    fn layouts() -> impl Strategy<Value = Layout> {
        (prop_oneof![Just(2usize), Just(4)], 0usize..4, any::<bool>()).prop_map(
            |(width, phase, is_turned)| Layout {
                elements: Elements {
                    width,
                    phase: phase % width,
                },
                is_turned,
            },
        )
    }

    fn methods() -> impl Strategy<Value = [Method; 4]> {
        proptest::array::uniform4(prop_oneof![
            Just(Method::Raw),
            Just(Method::Huffman),
            Just(Method::Matches)
        ])
    }

    /// Stores `raw` in planes of `layout`, without looking at a sample.
    fn frame(raw: &[u8], layout: Layout, methods: [Method; 4]) -> Vec<u8> {
        let mut encoder = Encoder::new(LEVEL).unwrap();
        let mut out = vec![CODEC_PLANES];
        let plan = Plan { layout, methods };
        encode(raw, &plan, &mut encoder.contexts, &mut Vec::new(), &mut out).unwrap();
        out
    }

    fn decoded(frame: &[u8], raw_len: usize) -> Result<Vec<u8>> {
        let (mut out, raw_len) = (Vec::new(), u32::try_from(raw_len).unwrap());
        Decoder::new()?
            .decode_plain("frame 3", frame, raw_len, &mut out)
            .map(<[u8]>::to_vec)
    }

    /// Numbers whose high bytes vary little, with special floats of all kinds.
    fn numbers() -> impl Strategy<Value = Vec<u8>> {
        let special = [
            0u32,
            0x8000_0000,
            0x7fc0_0001,
            0xff80_0000,
            1,
            0x007f_ffff,
            u32::MAX,
        ];
        let number = prop_oneof![
            4 => (0u32..1 << 25).prop_map(|bits| 0x3d00_0000 + bits),
            1 => proptest::sample::select(special.to_vec()),
        ];
        proptest::collection::vec(number, 0..3000)
            .prop_map(|numbers| numbers.into_iter().flat_map(u32::to_le_bytes).collect())
    }

    proptest! {
        #[test]
        fn every_layout_gives_back_the_bytes(
            raw in numbers(), cut in 0usize..4, layout in layouts(), methods in methods(),
        ) {
            let raw = raw.get(cut..).unwrap_or_default();
            prop_assume!(raw.len() >= layout.elements.phase + layout.elements.width);
            let frame = frame(raw, layout, methods);
            prop_assert!(frame.len() <= raw.len() + 2 + 4 * LEN_BYTES);
            prop_assert_eq!(decoded(&frame, raw.len()).unwrap(), raw);
        }

        #[test]
        fn what_an_encoder_chooses_comes_back_and_never_grows(raw in numbers(), layout in layouts()) {
            let mut out = Vec::new();
            Encoder::new(LEVEL).unwrap().encode_elements(&raw, layout.elements, &mut out).unwrap();
            prop_assert!(out.len() <= raw.len() + 1);
            prop_assert_eq!(decoded(&out, raw.len()).unwrap(), raw);
        }

        #[test]
        fn hostile_payloads_are_errors(mut payload in proptest::collection::vec(any::<u8>(), 0..300), first in 0u8..32, raw_len in 0u32..5000) {
            payload.insert(0, CODEC_PLANES);
            if let Some(byte) = payload.get_mut(1) {
                *byte = first;
            }
            let mut out = Vec::new();
            match Decoder::new().unwrap().decode_plain("frame", &payload, raw_len, &mut out) {
                Ok(found) => prop_assert_eq!(found.len(), raw_len as usize),
                Err(error) => prop_assert_eq!(error.kind(), ErrorKind::Corrupt),
            }
            prop_assert!(out.capacity() <= raw_len as usize);
        }

        #[test]
        fn damage_never_changes_the_length(raw in numbers(), layout in layouts(), methods in methods(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
            prop_assume!(raw.len() >= 8);
            let mut frame = frame(&raw, layout, methods);
            let at = at.index(frame.len() - 1) + 1;
            frame[at] ^= 1 << bit;
            match decoded(&frame, raw.len()) {
                Ok(found) => prop_assert_eq!(found.len(), raw.len()),
                Err(error) => prop_assert_eq!(error.kind(), ErrorKind::Corrupt),
            }
        }
    }

    fn half(width: usize, phase: usize, is_turned: bool) -> Layout {
        let elements = Elements { width, phase };
        Layout {
            elements,
            is_turned,
        }
    }

    #[test]
    fn a_payload_is_as_the_format_says() {
        let raw = [9, 1, 2, 3, 0x84, 7];
        let frame = frame(&raw, half(2, 1, true), [Method::Raw; 4]);
        // 0x0201 and 0x8403, rotated left by one bit, are 0x0402 and 0x0807.
        let expected: [u8; 16] = [
            CODEC_PLANES,
            0b0000_1101,
            2,
            0,
            0,
            0,
            2,
            0,
            0,
            0,
            9,
            0x02,
            0x07,
            0x04,
            0x08,
            7,
        ];
        assert_eq!(frame, expected);
        assert_eq!(decoded(&frame, 6).unwrap(), raw);
    }

    #[test]
    fn odd_payloads_are_corrupt_by_name() {
        let raw: Vec<u8> = (0..4000u32)
            .flat_map(|n| (0x3f80_0000 + n).to_le_bytes())
            .collect();
        let whole = frame(&raw, half(4, 0, false), [Method::Huffman; 4]);
        assert_eq!(decoded(&whole, raw.len()).unwrap(), raw);
        let refused = |frame: &[u8], raw_len| {
            let error = decoded(frame, raw_len).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            error.to_string()
        };
        for len in 1..whole.len() {
            refused(&whole[..len], raw.len());
        }
        let with = |at: usize, byte: u8| {
            let mut frame = whole.clone();
            frame[at] = byte;
            frame
        };
        let len = raw.len();
        for layout in [0, 3, 0b0010_0010, 0b1000_0010, 0b0001_0001] {
            assert_eq!(
                refused(&with(1, layout), len),
                "frame 3: planes: unknown layout"
            );
        }
        let longer = "frame 3: planes: a plane is longer than its elements or than the frame";
        assert_eq!(refused(&with(5, 0xff), len), longer);
        let mut behind = whole.clone();
        behind.push(0);
        let message = "frame 3: planes: 1 bytes behind the last element, expected 0";
        assert_eq!(refused(&behind, len), message);
        let few = "frame 3: planes: fewer bytes than one element";
        assert_eq!(refused(&whole, 3), few);
        let short = frame(&[7; 4000], half(4, 0, false), [Method::Matches; 4]);
        let shorter = "frame 3: planes: a plane is shorter than its elements";
        assert_eq!(refused(&short, 4004), shorter);
    }

    /// Normally distributed weights, like those of trained models, each the sum of twelve random numbers.
    fn weights(count: u32) -> Vec<f32> {
        let mut seed = 1u64;
        let mut uniform = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            f32::from(u16::try_from(seed >> 48).unwrap()) / 65_536.0 - 0.5
        };
        (0..count)
            .map(|_| (0..12).map(|_| uniform()).sum::<f32>() * 0.02)
            .collect()
    }

    #[test]
    fn weights_leave_their_mantissas_and_little_of_their_exponents() {
        let weights = weights(200_000);
        let single: Vec<u8> = weights
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        let halved: Vec<u8> = single
            .as_chunks::<4>()
            .0
            .iter()
            .flat_map(|[_, _, c, d]| [*c, *d])
            .collect();
        for (raw, width, most) in [(single, 4, 0.85), (halved, 2, 0.68)] {
            for phase in 0..width {
                // Cut at any byte.
                let raw = &raw[(width - phase) % width..];
                let class = super::super::Class::of(raw);
                let elements = Elements { width, phase };
                assert_eq!(class, super::super::Class::Elements(elements));
                let (mut planes, mut zstd) = (Vec::new(), Vec::new());
                let mut encoder = Encoder::new(LEVEL).unwrap();
                encoder.encode_elements(raw, elements, &mut planes).unwrap();
                encoder.encode(raw, &mut zstd).unwrap();
                assert_eq!(planes[0], CODEC_PLANES);
                assert!(planes.len() < zstd.len() * 93 / 100);
                let share = planes.len() as f64 / raw.len() as f64;
                assert!(share < most, "{width}, {phase}: {share}");
                assert_eq!(decoded(&planes, raw.len()).unwrap(), raw);
            }
        }
    }

    #[test]
    fn bytes_taken_for_elements_are_left_to_zstd() {
        let text = b"what is repeated is for matches; ".repeat(5000);
        let elements = Elements { width: 2, phase: 0 };
        let mut out = Vec::new();
        let mut encoder = Encoder::new(LEVEL).unwrap();
        encoder.encode_elements(&text, elements, &mut out).unwrap();
        assert_ne!(out[0], CODEC_PLANES);
        let mut noise = vec![0; 100_000];
        blake3::Hasher::new().finalize_xof().fill(&mut noise);
        out.clear();
        encoder.encode_elements(&noise, elements, &mut out).unwrap();
        assert_eq!((out[0], out.len()), (CODEC_RAW, 100_001));
        for tiny in 0..5 {
            out.clear();
            encoder
                .encode_elements(&noise[..tiny], elements, &mut out)
                .unwrap();
            assert_eq!(decoded(&out, tiny).unwrap(), &noise[..tiny]);
        }
    }
}
