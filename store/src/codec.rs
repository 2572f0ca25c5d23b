//! Codecs of frames: the first byte of a stored frame names the codec, the rest is its payload.
//!
//! Pure: bytes in, bytes out. A stored frame is never longer than its raw bytes plus the byte for the codec. Decoding
//! trusts no input: the expected raw length limits what is allocated, and a frame that decodes to another length is
//! corrupt. The chunk ids, checked elsewhere, tell whether the decoded bytes are the right ones.

mod delta;
mod planes;
mod sample;

use std::io::Cursor;

use zstd::zstd_safe::{
    CCtx, CParameter, DCtx, ParamSwitch, SafeResult, compress_bound, get_error_name, min_c_level,
};

use crate::error::{Error, Result};
use crate::format::{CODEC_DELTA, CODEC_PLANES, CODEC_RAW, CODEC_ZSTD, FRAME_RAW_BYTES_MAX};

pub(crate) use delta::check_bases_len;
pub use delta::{BASE_BYTES_MAX, Bases, DeltaBase, NoBases, delta_base};
pub use sample::{Class, Elements};

/// The compression level of new frames, for all writers. On 1 MiB frames of binaries and source text, the output is 1
/// to 3 % larger than zstd's own level 3, at 1.1 to 1.35 times its speed; level 1 is 6 % larger, at 1.1 to 1.6 times.
pub const LEVEL: i32 = 3;

/// Frames that would save less than this fraction of their bytes (1/50) are stored raw, which decodes ten times as
/// fast.
const SAVING_LEAST: usize = 50;
/// 2^20: matches may refer to any byte of a 1 MiB frame.
const WINDOW_LOG: u32 = 20;
/// Above this size zstd chooses tables for inputs of unknown length. Tables for smaller inputs fit into the L1 cache.
const LARGE_BYTES: usize = 256 << 10;
/// 0 leaves the choice to zstd.
const OWN: Tables = Tables {
    hash_log: 0,
    chain_log: 0,
    min_match: 0,
};

/// Parameters of zstd's match finder.
#[derive(Clone, Copy)]
struct Tables {
    hash_log: u32,
    chain_log: u32,
    min_match: u32,
}

impl Tables {
    /// Returns the tables for frames of more than [`LARGE_BYTES`].
    const fn of_level(level: i32) -> Self {
        match level {
            // 1.5 to 3 % fewer bytes than with zstd's own tables, at the same speed.
            1 => Self {
                hash_log: 15,
                chain_log: 0,
                min_match: 6,
            },
            // A quarter of the size of zstd's own tables.
            3 => Self {
                hash_log: 15,
                chain_log: 14,
                min_match: 5,
            },
            _ => OWN,
        }
    }
}

/// Encodes frames; one for each thread.
pub struct Encoder {
    contexts: planes::Contexts,
    large: Tables,
    /// Buffers for planes and for trial encodings of a sample.
    planes: Vec<u8>,
    trial: Vec<u8>,
    differences: Vec<u8>,
}

/// Decodes frames; one for each thread.
pub struct Decoder {
    context: DCtx<'static>,
    planes: Vec<u8>,
    /// The bytes of the bases of a delta.
    base: Vec<u8>,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Decoder").finish_non_exhaustive()
    }
}

impl Encoder {
    /// Returns an encoder of zstd's `level`; stored frames use [`LEVEL`].
    ///
    /// # Errors
    /// Invalid input, when zstd has no such level; unavailable, when memory is short.
    pub fn new(level: i32) -> Result<Self> {
        if !zstd::compression_level_range().contains(&level) {
            return Err(Error::invalid(format!("zstd level {level}: no such level")));
        }
        Ok(Self {
            contexts: planes::Contexts {
                matches: context_of(level, &[CParameter::WindowLog(WINDOW_LOG)])?,
                huffman: context_of(
                    min_c_level(),
                    &[CParameter::LiteralCompressionMode(ParamSwitch::Enable)],
                )?,
            },
            large: Tables::of_level(level),
            planes: Vec::new(),
            trial: Vec::new(),
            differences: Vec::new(),
        })
    }

    /// Appends the stored form of `raw` to `out`: compressed by zstd, or raw if that saves less than 2 %. Appends at
    /// most `raw.len() + 1` bytes.
    ///
    /// # Errors
    /// Unavailable, when memory is short.
    pub fn encode(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<()> {
        self.tune(raw.len())?;
        let start = out.len();
        out.push(CODEC_ZSTD);
        append(&mut self.contexts.matches, raw, out)?;
        raw_where_little_is_saved(raw, start, out);
        Ok(())
    }

    /// Appends the stored form of `raw` to `out`; `class` is what a sample suggests about its contents.
    ///
    /// # Errors
    /// As [`Self::encode`].
    pub fn encode_as(&mut self, class: Class, raw: &[u8], out: &mut Vec<u8>) -> Result<()> {
        match class {
            Class::Noise => Self::encode_raw(raw, out),
            Class::Bytes => self.encode(raw, out)?,
            Class::Elements(elements) => self.encode_elements(raw, elements, out)?,
        }
        Ok(())
    }

    /// Like [`Self::encode`], for `raw` that seems to hold `elements`: stores planes if a sample shows that they save
    /// more.
    ///
    /// # Errors
    /// As [`Self::encode`].
    pub fn encode_elements(
        &mut self,
        raw: &[u8],
        elements: Elements,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        self.tune(raw.len())?;
        let Some(plan) = planes::plan(raw, elements, &mut self.contexts, &mut self.trial)? else {
            return self.encode(raw, out);
        };
        let start = out.len();
        out.push(CODEC_PLANES);
        planes::encode(raw, &plan, &mut self.contexts, &mut self.planes, out)?;
        raw_where_little_is_saved(raw, start, out);
        Ok(())
    }

    /// Appends `raw`, which seems to hold `elements`, to `out` as the difference to `base`, whose bytes are
    /// `base_bytes`. The result may be longer than `raw`; the caller decides whether to keep it.
    ///
    /// # Errors
    /// Invalid input, when the base is shorter than needed; otherwise as for [`Self::encode`].
    pub fn encode_delta(
        &mut self,
        raw: &[u8],
        elements: Elements,
        base: &DeltaBase,
        base_bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let mut differences = std::mem::take(&mut self.differences);
        differences.clear();
        delta::begin(base, elements, out)?;
        delta::differences(raw, base_bytes, base.skip, elements, &mut differences)?;
        let encoded = self.encode_elements(&differences, elements, out);
        self.differences = differences;
        encoded
    }

    fn tune(&mut self, raw_len: usize) -> Result<()> {
        let tables = match raw_len > LARGE_BYTES {
            true => self.large,
            false => OWN,
        };
        [
            CParameter::HashLog(tables.hash_log),
            CParameter::ChainLog(tables.chain_log),
            CParameter::MinMatch(tables.min_match),
        ]
        .into_iter()
        .try_for_each(|parameter| {
            let tuned = self.contexts.matches.set_parameter(parameter);
            checked(tuned, "zstd parameter").map(drop)
        })
    }

    /// Appends `raw` to `out` as an uncompressed frame.
    pub fn encode_raw(raw: &[u8], out: &mut Vec<u8>) {
        out.reserve(1 + raw.len());
        out.push(CODEC_RAW);
        out.extend_from_slice(raw);
    }
}

impl Decoder {
    /// Returns a decoder for all codecs.
    ///
    /// # Errors
    /// Unavailable, when memory is short.
    pub fn new() -> Result<Self> {
        let context = DCtx::try_create().ok_or_else(out_of_memory)?;
        let (planes, base) = (Vec::new(), Vec::new());
        Ok(Self {
            context,
            planes,
            base,
        })
    }

    /// Decodes `frame` of any codec to its `raw_len` bytes, like [`Self::decode_plain`]. For a delta, `bases` supplies
    /// the bytes of its bases.
    ///
    /// # Errors
    /// As for [`Self::decode_plain`]; any error of `bases`.
    pub fn decode<'a>(
        &mut self,
        object: &str,
        frame: &'a [u8],
        raw_len: u32,
        bases: &dyn Bases,
        out: &'a mut Vec<u8>,
    ) -> Result<&'a [u8]> {
        match frame.split_first() {
            Some((&CODEC_DELTA, payload)) => {
                self.decode_delta(object, payload, raw_len, bases, out)
            }
            _ => self.decode_plain(object, frame, raw_len, out),
        }
    }

    /// Decodes `frame`, which must not be a delta, to its `raw_len` bytes. A raw frame is borrowed; any other frame is
    /// decoded into `out`, which is cleared first and keeps its capacity. `object` names the frame in errors.
    ///
    /// # Errors
    /// Corrupt, when the frame is malformed, decodes to another length or is a delta.
    pub fn decode_plain<'a>(
        &mut self,
        object: &str,
        frame: &'a [u8],
        raw_len: u32,
        out: &'a mut Vec<u8>,
    ) -> Result<&'a [u8]> {
        check_raw_len(object, raw_len)?;
        let bytes = match frame.split_first() {
            Some((&CODEC_RAW, payload)) => payload,
            Some((&CODEC_ZSTD, payload)) => self.decode_zstd(object, payload, raw_len, out)?,
            Some((&CODEC_PLANES, payload)) => self.decode_planes(object, payload, raw_len, out)?,
            Some((&CODEC_DELTA, _)) => {
                let message = format!("{object}: is a delta, where a plain frame must be");
                return Err(Error::corrupt(message));
            }
            // A store whose frames may have other codecs has a feature that this program would not know.
            Some((codec, _)) => {
                return Err(Error::corrupt(format!(
                    "{object}: expected a codec up to {CODEC_DELTA}, found {codec}"
                )));
            }
            None => {
                return Err(Error::corrupt(format!(
                    "{object}: expected a codec, found no bytes"
                )));
            }
        };
        if u32::try_from(bytes.len()) != Ok(raw_len) {
            let message = format!(
                "{object}: raw length: expected {raw_len}, found {}",
                bytes.len()
            );
            return Err(Error::corrupt(message));
        }
        Ok(bytes)
    }

    /// Decodes a delta like [`Self::decode`]; `base_bytes` are all the bytes of its bases.
    ///
    /// # Errors
    /// As for [`Self::decode_plain`]; corrupt, when the frame is not a delta.
    pub(crate) fn decode_on<'a>(
        &mut self,
        object: &str,
        frame: &[u8],
        raw_len: u32,
        base_bytes: &[u8],
        out: &'a mut Vec<u8>,
    ) -> Result<&'a [u8]> {
        let Some((&CODEC_DELTA, payload)) = frame.split_first() else {
            return Err(Error::corrupt(format!("{object}: expected a delta")));
        };
        let (base, elements) = self.differences(object, payload, raw_len, out)?;
        delta::undo(object, out, base_bytes, base.skip, elements)?;
        Ok(out)
    }

    /// Decodes the differences into `out`, and returns the base that they refer to.
    fn differences(
        &mut self,
        object: &str,
        payload: &[u8],
        raw_len: u32,
        out: &mut Vec<u8>,
    ) -> Result<(DeltaBase, Elements)> {
        check_raw_len(object, raw_len)?;
        let (base, elements, inner) = delta::parse(object, payload)?;
        self.decode_plain(object, inner, raw_len, out)?;
        copy_raw(inner, out);
        Ok((base, elements))
    }

    fn decode_delta<'a>(
        &mut self,
        object: &str,
        payload: &[u8],
        raw_len: u32,
        bases: &dyn Bases,
        out: &'a mut Vec<u8>,
    ) -> Result<&'a [u8]> {
        // First come the checks that do not need the base.
        let (base, elements) = self.differences(object, payload, raw_len, out)?;
        let mut base_bytes = std::mem::take(&mut self.base);
        let brought = delta::bring(object, &base.ids, bases, &mut base_bytes);
        let undone =
            brought.and_then(|()| delta::undo(object, out, &base_bytes, base.skip, elements));
        self.base = base_bytes;
        undone.map(|()| out.as_slice())
    }

    fn decode_planes<'a>(
        &mut self,
        object: &str,
        payload: &[u8],
        raw_len: u32,
        out: &'a mut Vec<u8>,
    ) -> Result<&'a [u8]> {
        out.clear();
        let (context, planes) = (&mut self.context, &mut self.planes);
        planes::decode(object, payload, usize_of(raw_len), context, planes, out)?;
        Ok(out)
    }

    fn decode_zstd<'a>(
        &mut self,
        object: &str,
        payload: &[u8],
        raw_len: u32,
        out: &'a mut Vec<u8>,
    ) -> Result<&'a [u8]> {
        out.clear();
        out.reserve_exact(usize_of(raw_len));
        match self.context.decompress(out, payload) {
            Ok(_) => Ok(out),
            Err(code) => {
                let message = format!("{object}: expected a zstd frame of {raw_len} bytes");
                Err(Error::corrupt(message).because(get_error_name(code)))
            }
        }
    }
}

/// Returns a context of `level` that writes minimal frames: the table of the pack already holds a frame's length, and
/// the chunk ids serve as checksums.
fn context_of(level: i32, parameters: &[CParameter]) -> Result<CCtx<'static>> {
    let mut context = CCtx::try_create().ok_or_else(out_of_memory)?;
    let always = [
        CParameter::CompressionLevel(level),
        CParameter::ContentSizeFlag(false),
        CParameter::ChecksumFlag(false),
        CParameter::DictIdFlag(false),
    ];
    for parameter in always.iter().chain(parameters) {
        checked(context.set_parameter(*parameter), "zstd parameter")?;
    }
    Ok(context)
}

/// Appends a zstd frame of `bytes` to `out`, and returns its length.
fn append(context: &mut CCtx<'static>, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize> {
    let start = out.len();
    out.reserve(compress_bound(bytes.len()));
    let mut cursor = Cursor::new(std::mem::take(out));
    cursor.set_position(start as u64);
    let encoded = context.compress2(&mut cursor, bytes);
    *out = cursor.into_inner();
    checked(encoded, "zstd")
}

/// Returns the length of a zstd frame of `bytes`.
fn compressed(context: &mut CCtx<'static>, bytes: &[u8], trial: &mut Vec<u8>) -> Result<usize> {
    trial.clear();
    append(context, bytes, trial)
}

/// Replaces what was appended to `out` after `start` by a raw frame if it saves less than 2 %.
fn raw_where_little_is_saved(raw: &[u8], start: usize, out: &mut Vec<u8>) {
    if out.len() - start > 1 + raw.len() - raw.len() / SAVING_LEAST {
        out.truncate(start);
        Encoder::encode_raw(raw, out);
    }
}

/// Copies the payload of a raw frame into `out`. Frames of other codecs have already been decoded into `out`.
pub(crate) fn copy_raw(frame: &[u8], out: &mut Vec<u8>) {
    if let Some((&CODEC_RAW, bytes)) = frame.split_first() {
        out.clear();
        out.extend_from_slice(bytes);
    }
}

fn check_raw_len(object: &str, raw_len: u32) -> Result<()> {
    if raw_len <= FRAME_RAW_BYTES_MAX {
        return Ok(());
    }
    let message =
        format!("{object}: raw length: expected at most {FRAME_RAW_BYTES_MAX}, found {raw_len}");
    Err(Error::corrupt(message))
}

fn checked(result: SafeResult, what: &str) -> Result<usize> {
    result.map_err(|code| Error::unavailable(what).because(get_error_name(code)))
}

fn usize_of(len: u32) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}

fn out_of_memory() -> Error {
    Error::unavailable("zstd: not enough memory")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::ErrorKind;

    fn random(len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        blake3::Hasher::new().finalize_xof().fill(&mut bytes);
        bytes
    }

    fn encoded(raw: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        Encoder::new(LEVEL).unwrap().encode(raw, &mut out).unwrap();
        out
    }

    fn refused(frame: &[u8], raw_len: u32) -> Error {
        let mut out = Vec::new();
        Decoder::new()
            .unwrap()
            .decode_plain("frame 3", frame, raw_len, &mut out)
            .unwrap_err()
    }

    /// Bytes of many kinds: random, repetitive, or with few distinct values.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let distinct = prop_oneof![Just(1u8), Just(3), Just(100), Just(255)];
        (
            distinct,
            proptest::collection::vec(any::<u8>(), 0..5000),
            1usize..80,
        )
            .prop_map(|(distinct, bytes, times)| {
                bytes
                    .iter()
                    .map(|byte| byte % distinct)
                    .collect::<Vec<u8>>()
                    .repeat(times)
            })
    }

    proptest! {
        #[test]
        fn frames_come_back_and_never_grow(raws in proptest::collection::vec(bytes(), 1..6), level in -5i32..6) {
            let mut encoder = Encoder::new(level).unwrap();
            let mut decoder = Decoder::new().unwrap();
            let (mut stored, mut ends, mut out) = (b"before".to_vec(), Vec::new(), Vec::new());
            for raw in &raws {
                let start = stored.len();
                encoder.encode(raw, &mut stored).unwrap();
                prop_assert!(stored.len() - start <= raw.len() + 1);
                ends.push((start, stored.len()));
            }
            for (raw, (start, end)) in raws.iter().zip(ends) {
                let raw_len = u32::try_from(raw.len()).unwrap();
                let found = decoder.decode_plain("frame", &stored[start..end], raw_len, &mut out).unwrap();
                prop_assert_eq!(found, raw.as_slice());
            }
            prop_assert!(stored.starts_with(b"before"));
        }

        #[test]
        fn hostile_frames_are_errors(mut frame in bytes(), raw_len in 0u32..100_000, codec in 0u8..5) {
            if let Some(first) = frame.first_mut() {
                *first = codec;
            }
            let mut out = Vec::new();
            match Decoder::new().unwrap().decode_plain("frame", &frame, raw_len, &mut out) {
                Ok(found) => prop_assert_eq!(found.len(), raw_len as usize),
                Err(error) => prop_assert_eq!(error.kind(), ErrorKind::Corrupt),
            }
            prop_assert!(out.capacity() <= raw_len as usize);
        }
    }

    #[test]
    fn what_saves_little_is_stored_raw_and_not_copied() {
        let raw = random(100_000);
        let frame = encoded(&raw);
        assert_eq!((frame.len(), frame[0]), (100_001, CODEC_RAW));
        let mut out = Vec::new();
        let found = Decoder::new()
            .unwrap()
            .decode_plain("frame", &frame, 100_000, &mut out)
            .unwrap();
        assert_eq!(found.as_ptr(), frame[1..].as_ptr());
        let mut barely = random(100_000);
        barely[..1_900].fill(0);
        assert_eq!(encoded(&barely)[0], CODEC_RAW);
        barely[..10_000].fill(0);
        assert_eq!(encoded(&barely)[0], CODEC_ZSTD);
        assert_eq!(encoded(b""), [CODEC_RAW]);
    }

    /// The tables are set for each frame, so earlier frames must not influence a later one.
    #[test]
    fn a_frame_does_not_depend_on_those_before_it() {
        let text: Vec<u8> = (0..400_000u64)
            .flat_map(|n| (n * n % 9_973).to_string().into_bytes())
            .collect();
        let (small, large) = text.split_at(100_000);
        let mut encoder = Encoder::new(LEVEL).unwrap();
        for raw in [large, small, large, small] {
            let mut out = Vec::new();
            encoder.encode(raw, &mut out).unwrap();
            assert_eq!(out, encoded(raw));
        }
    }

    #[test]
    fn zstd_frames_carry_neither_length_nor_checksum() {
        let frame = encoded(&[7; 1 << 20]);
        // The codec, the magic, a frame header without any flag, a window of 2^20 bytes.
        assert_eq!(
            frame[..7],
            [CODEC_ZSTD, 0x28, 0xb5, 0x2f, 0xfd, 0, (20 - 10) << 3]
        );
    }

    #[test]
    fn damaged_frames_are_corrupt() {
        let raw: Vec<u8> = (0..50_000u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        let frame = encoded(&raw);
        assert_eq!(frame[0], CODEC_ZSTD);
        for len in 0..frame.len() {
            assert_eq!(
                refused(&frame[..len], 200_000).kind(),
                ErrorKind::Corrupt,
                "cut to {len} bytes"
            );
        }
        for wrong in [0, 1, 199_999, 200_001] {
            assert_eq!(
                refused(&frame, wrong).kind(),
                ErrorKind::Corrupt,
                "raw length {wrong}"
            );
        }
        assert_eq!(
            refused(&frame, 200_001).to_string(),
            "frame 3: raw length: expected 200001, found 200000"
        );
        assert_eq!(
            refused(&frame, 5).to_string(),
            "frame 3: expected a zstd frame of 5 bytes"
        );
        assert_eq!(
            refused(b"", 0).to_string(),
            "frame 3: expected a codec, found no bytes"
        );
        assert_eq!(
            refused(&[CODEC_RAW, 1, 2], 3).to_string(),
            "frame 3: raw length: expected 3, found 2"
        );
    }

    #[test]
    fn flipped_bits_never_change_the_length() {
        let raw: Vec<u8> = (0..500u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        let frame = encoded(&raw);
        let (mut decoder, mut out) = (Decoder::new().unwrap(), Vec::new());
        for bit in 0..frame.len() * 8 {
            let mut damaged = frame.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            if let Ok(found) = decoder.decode_plain("frame", &damaged, 2_000, &mut out) {
                assert_eq!(found.len(), 2_000, "bit {bit}");
            }
        }
    }

    #[test]
    fn lengths_beyond_the_limit_are_refused_before_memory_is_taken() {
        let mut out = Vec::new();
        let error = Decoder::new()
            .unwrap()
            .decode_plain("frame 3", &[CODEC_ZSTD], u32::MAX, &mut out)
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "frame 3: raw length: expected at most 8388608, found 4294967295"
        );
        assert_eq!(out.capacity(), 0);
    }

    #[test]
    fn unknown_codecs_are_damage() {
        for codec in [4, 255] {
            let error = refused(&[codec, 0], 1);
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert_eq!(
                error.to_string(),
                format!("frame 3: expected a codec up to 3, found {codec}")
            );
        }
    }

    #[test]
    fn a_decoder_goes_on_after_a_damaged_frame() {
        let frame = encoded(&[5; 10_000]);
        let (mut decoder, mut out) = (Decoder::new().unwrap(), Vec::new());
        decoder
            .decode_plain("frame", &frame[..9], 10_000, &mut out)
            .unwrap_err();
        assert_eq!(
            decoder
                .decode_plain("frame", &frame, 10_000, &mut out)
                .unwrap(),
            [5; 10_000]
        );
    }

    #[test]
    fn the_sample_tells_random_bytes_from_others() {
        let noise = random(8 << 20);
        for chunk in noise.chunks(80_000).filter(|chunk| chunk.len() >= 4096) {
            assert_eq!(Class::of(chunk), Class::Noise);
            // Every other byte has 4 random bits, like the exponents of half-precision floats.
            let halves: Vec<u8> = chunk
                .iter()
                .enumerate()
                .map(|(at, byte)| byte >> (at % 2 * 4))
                .collect();
            let elements = Elements { width: 2, phase: 0 };
            assert_eq!(Class::of(&halves), Class::Elements(elements));
            // 7.8 bits per byte.
            let biased: Vec<u8> = chunk.iter().map(|byte| byte % 218).collect();
            assert_eq!(Class::of(&biased), Class::Bytes);
        }
        assert_eq!(Class::of(&noise[..100]), Class::Bytes);
        assert_eq!(Class::of(&[0; 70_001]), Class::Bytes);
    }

    #[test]
    fn levels_that_do_not_exist_are_refused() {
        let error = Encoder::new(23).err().unwrap();
        assert_eq!(error.to_string(), "zstd level 23: no such level");
    }
}
