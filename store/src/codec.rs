//! Codecs of frames: the first byte of a stored frame names the codec, the rest is its payload.
//!
//! Pure: bytes in, bytes out. A stored frame is never longer than its raw bytes and the codec's number.
//! Decoding trusts nothing: a length from elsewhere bounds what is allocated, and bytes that decode
//! to another length are corrupt. Whether they are the right bytes, the ids of the chunks say.

use std::io::Cursor;

use zstd::zstd_safe::{CCtx, CParameter, DCtx, SafeResult, compress_bound, get_error_name};

use crate::error::{Error, Result};
use crate::format::{CODEC_PLANES, CODEC_RAW, CODEC_ZSTD, FRAME_RAW_BYTES_MAX};

/// The level of new frames. On 1 MiB of binaries: 42.5 % left at 490 MB/s on one core, against 39.4 %
/// at 280 MB/s for level 3, which would put encoding below everything else that a put does.
pub const LEVEL: i32 = 1;

/// Frames that save less than one part in this many are stored raw: they decode ten times as fast.
const SAVING_LEAST: usize = 50;
/// A frame of 1 MiB refers to any of its bytes.
const WINDOW_LOG: u32 = 20;
/// From this size on, matches are looked for as for small inputs (6 bytes at least, not 7): 3 % fewer
/// bytes on binaries at the same speed.
const LARGE_BYTES: usize = 256 << 10;
const LARGE_MIN_MATCH: u32 = 6;

/// Pieces of a chunk that are looked at to tell whether it compresses, and the bytes of each.
const SAMPLE_PIECES: usize = 16;
const SAMPLE_PIECE_BYTES: usize = 64;
/// Random bytes: 1,024 of them make 1,024 * 1,023 / 256 equal ordered pairs and 1,024 equal to themselves,
/// 5,116 with a standard deviation of 90. At 7.84 bits there are 22 % more pairs, 6,016: cut in between.
const SQUARES_LEAST: u32 = 5_650;

/// Encodes frames; one for each thread.
pub struct Encoder {
    context: CCtx<'static>,
    tunes_matches: bool,
}

/// Decodes frames; one for each thread.
pub struct Decoder {
    context: DCtx<'static>,
}

impl Encoder {
    /// An encoder of zstd's `level`; [`LEVEL`] for what is stored.
    ///
    /// # Errors
    /// Invalid input, when there is no such level; unavailable, when memory is short.
    pub fn new(level: i32) -> Result<Self> {
        let mut context = CCtx::try_create().ok_or_else(out_of_memory)?;
        if !zstd::compression_level_range().contains(&level) {
            return Err(Error::invalid(format!("zstd level {level}: no such level")));
        }
        // Length and checksum stand beside the frame already: in its table, and as the chunks' ids.
        for parameter in [
            CParameter::CompressionLevel(level),
            CParameter::WindowLog(WINDOW_LOG),
            CParameter::ContentSizeFlag(false),
            CParameter::ChecksumFlag(false),
            CParameter::DictIdFlag(false),
        ] {
            checked(context.set_parameter(parameter), "zstd parameter")?;
        }
        Ok(Self {
            context,
            tunes_matches: level == 1,
        })
    }

    /// Whether zstd is worth trying on `chunk`, from a sample of 1 KiB: whether two of its bytes are
    /// equal more often than in random bytes, by as much as an entropy of 7.84 bits (2 % saved) makes
    /// likely. Blind to repetitions of random bytes, which only long matches would save.
    pub fn is_compressible(chunk: &[u8]) -> bool {
        if chunk.len() < 4 * SAMPLE_PIECES * SAMPLE_PIECE_BYTES {
            return true;
        }
        is_skewed(chunk)
    }

    /// Appends the stored form of `raw` to `out`: by zstd, or raw where that saves less than 2 %; never
    /// more than `raw.len() + 1` bytes.
    ///
    /// # Errors
    /// Unavailable, when memory is short.
    pub fn encode(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<()> {
        if self.tunes_matches {
            let min_match = if raw.len() > LARGE_BYTES {
                LARGE_MIN_MATCH
            } else {
                0
            };
            checked(
                self.context.set_parameter(CParameter::MinMatch(min_match)),
                "zstd parameter",
            )?;
        }
        let start = out.len();
        out.reserve(1 + compress_bound(raw.len()));
        out.push(CODEC_ZSTD);
        let mut cursor = Cursor::new(std::mem::take(out));
        cursor.set_position(start as u64 + 1);
        let encoded = self.context.compress2(&mut cursor, raw);
        *out = cursor.into_inner();
        let len = checked(encoded, "zstd")?;
        if len > raw.len() - raw.len() / SAVING_LEAST {
            out.truncate(start);
            Self::encode_raw(raw, out);
        }
        Ok(())
    }

    /// Appends `raw` as a frame of its own bytes to `out`.
    pub fn encode_raw(raw: &[u8], out: &mut Vec<u8>) {
        out.reserve(1 + raw.len());
        out.push(CODEC_RAW);
        out.extend_from_slice(raw);
    }
}

impl Decoder {
    /// A decoder of all codecs.
    ///
    /// # Errors
    /// Unavailable, when memory is short.
    pub fn new() -> Result<Self> {
        let context = DCtx::try_create().ok_or_else(out_of_memory)?;
        Ok(Self { context })
    }

    /// The `raw_len` bytes that `frame` stands for: borrowed from it where it is raw, else decoded into
    /// `out`, which is cleared first and keeps its capacity. `object` names the frame in errors.
    ///
    /// # Errors
    /// Corrupt, when the frame is not what an encoder wrote or decodes to another length; unsupported,
    /// when its codec is not known here.
    pub fn decode<'a>(
        &mut self,
        object: &str,
        frame: &'a [u8],
        raw_len: u32,
        out: &'a mut Vec<u8>,
    ) -> Result<&'a [u8]> {
        if raw_len > FRAME_RAW_BYTES_MAX {
            let message = format!(
                "{object}: raw length: expected at most {FRAME_RAW_BYTES_MAX}, found {raw_len}"
            );
            return Err(Error::corrupt(message));
        }
        let bytes = match frame.split_first() {
            Some((&CODEC_RAW, payload)) => payload,
            Some((&CODEC_ZSTD, payload)) => self.decode_zstd(object, payload, raw_len, out)?,
            Some((&CODEC_PLANES, _)) => return Err(unsupported(object, "2 (float planes)")),
            Some((codec, _)) => return Err(unsupported(object, &codec.to_string())),
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

    fn decode_zstd<'a>(
        &mut self,
        object: &str,
        payload: &[u8],
        raw_len: u32,
        out: &'a mut Vec<u8>,
    ) -> Result<&'a [u8]> {
        out.clear();
        out.reserve_exact(usize::try_from(raw_len).unwrap_or(0));
        match self.context.decompress(out, payload) {
            Ok(_) => Ok(out),
            Err(code) => {
                let message = format!("{object}: expected a zstd frame of {raw_len} bytes");
                Err(Error::corrupt(message).because(get_error_name(code)))
            }
        }
    }
}

/// Counts how many pairs of sampled bytes are equal: one in 256 for random bytes, more otherwise.
fn is_skewed(chunk: &[u8]) -> bool {
    // Two tables, since adding twice to one cell in a row waits for the store in between.
    let mut even = [0u16; 256];
    let mut odd = [0u16; 256];
    let stride = chunk.len() / SAMPLE_PIECES;
    for piece in chunk.chunks_exact(stride).take(SAMPLE_PIECES) {
        for pair in piece.as_chunks::<2>().0.iter().take(SAMPLE_PIECE_BYTES / 2) {
            let [first, second] = *pair;
            bump(&mut even, first);
            bump(&mut odd, second);
        }
    }
    let squares: u32 = even
        .iter()
        .zip(&odd)
        .map(|(a, b)| u32::from(a + b) * u32::from(a + b))
        .sum();
    squares > SQUARES_LEAST
}

#[expect(clippy::indexing_slicing, reason = "a byte is below 256")]
fn bump(counts: &mut [u16; 256], byte: u8) {
    counts[usize::from(byte)] += 1;
}

fn checked(result: SafeResult, what: &str) -> Result<usize> {
    result.map_err(|code| Error::unavailable(what).because(get_error_name(code)))
}

fn out_of_memory() -> Error {
    Error::unavailable("zstd: not enough memory")
}

fn unsupported(object: &str, codec: &str) -> Error {
    Error::unsupported(format!("{object}: codec {codec} is not known here"))
        .hint("update this program")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::Kind;

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
            .decode("frame 3", frame, raw_len, &mut out)
            .unwrap_err()
    }

    /// Bytes of many kinds: random, repetitive, with few distinct values.
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
                let found = decoder.decode("frame", &stored[start..end], raw_len, &mut out).unwrap();
                prop_assert_eq!(found, raw.as_slice());
            }
            prop_assert!(stored.starts_with(b"before"));
        }

        #[test]
        fn hostile_frames_are_errors(mut frame in bytes(), raw_len in 0u32..100_000, codec in 0u8..4) {
            if let Some(first) = frame.first_mut() {
                *first = codec;
            }
            let mut out = Vec::new();
            match Decoder::new().unwrap().decode("frame", &frame, raw_len, &mut out) {
                Ok(found) => prop_assert_eq!(found.len(), raw_len as usize),
                Err(error) => prop_assert!(matches!(error.kind(), Kind::Corrupt | Kind::Unsupported)),
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
            .decode("frame", &frame, 100_000, &mut out)
            .unwrap();
        assert_eq!(found.as_ptr(), frame[1..].as_ptr());
        let mut barely = random(100_000);
        barely[..1_900].fill(0);
        assert_eq!(encoded(&barely)[0], CODEC_RAW);
        barely[..10_000].fill(0);
        assert_eq!(encoded(&barely)[0], CODEC_ZSTD);
        assert_eq!(encoded(b""), [CODEC_RAW]);
    }

    #[test]
    fn zstd_frames_carry_neither_length_nor_checksum() {
        let frame = encoded(&[7; 1 << 20]);
        // The codec, the magic, a descriptor without any flag, a window of 2^20 bytes.
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
                Kind::Corrupt,
                "cut to {len} bytes"
            );
        }
        for wrong in [0, 1, 199_999, 200_001] {
            assert_eq!(
                refused(&frame, wrong).kind(),
                Kind::Corrupt,
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
            if let Ok(found) = decoder.decode("frame", &damaged, 2_000, &mut out) {
                assert_eq!(found.len(), 2_000, "bit {bit}");
            }
        }
    }

    #[test]
    fn lengths_beyond_the_limit_are_refused_before_memory_is_taken() {
        let mut out = Vec::new();
        let error = Decoder::new()
            .unwrap()
            .decode("frame 3", &[CODEC_ZSTD], u32::MAX, &mut out)
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "frame 3: raw length: expected at most 8388608, found 4294967295"
        );
        assert_eq!(out.capacity(), 0);
    }

    #[test]
    fn unknown_codecs_are_unsupported_by_name() {
        for (codec, name) in [(2, "2 (float planes)"), (3, "3"), (255, "255")] {
            let error = refused(&[codec, 0], 1);
            assert_eq!(error.kind(), Kind::Unsupported);
            assert_eq!(
                error.to_string(),
                format!("frame 3: codec {name} is not known here")
            );
        }
    }

    #[test]
    fn a_decoder_goes_on_after_a_damaged_frame() {
        let frame = encoded(&[5; 10_000]);
        let (mut decoder, mut out) = (Decoder::new().unwrap(), Vec::new());
        decoder
            .decode("frame", &frame[..9], 10_000, &mut out)
            .unwrap_err();
        assert_eq!(
            decoder.decode("frame", &frame, 10_000, &mut out).unwrap(),
            [5; 10_000]
        );
    }

    #[test]
    fn the_sample_tells_random_bytes_from_others() {
        let noise = random(8 << 20);
        for chunk in noise.chunks(80_000).filter(|chunk| chunk.len() >= 4096) {
            assert!(!Encoder::is_compressible(chunk));
            // Every other byte with 4 random bits, as the exponents of half precision floats have.
            let halves: Vec<u8> = chunk
                .iter()
                .enumerate()
                .map(|(at, byte)| byte >> (at % 2 * 4))
                .collect();
            assert!(Encoder::is_compressible(&halves));
            // 7.8 bits a byte.
            let biased: Vec<u8> = chunk.iter().map(|byte| byte % 218).collect();
            assert!(Encoder::is_compressible(&biased));
        }
        assert!(Encoder::is_compressible(&noise[..100]));
        assert!(Encoder::is_compressible(&[0; 70_001]));
    }

    #[test]
    fn levels_that_do_not_exist_are_refused() {
        let error = Encoder::new(23).err().unwrap();
        assert_eq!(error.to_string(), "zstd level 23: no such level");
    }
}
