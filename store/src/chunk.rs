//! Cut points of files: FastCDC 2020 as the crate `fastcdc` computes it, with the parameters of the store.
//!
//! Pure: takes bytes, returns lengths. The cut points depend only on the bytes of the file and the parameters, never on
//! how the file was read. If cut points moved, every byte would be stored again, so `fixtures/chunks/boundaries.txt`
//! pins them; other implementations can be checked against that file.

mod cutter;
mod gguf;
mod header;
mod pytorch;
mod safetensors;
mod spans;
mod tensors;

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use fastcdc::v2020::{self, Normalization};

use crate::error::{Error, Result};
use crate::format::{CHUNK_BYTES_MAX, CHUNKER_ALGORITHM, CHUNKER_TENSORS_MAX, ChunkerParams};
use crate::id::ChunkId;

pub(crate) use cutter::Cutter;
pub(crate) use header::{ReadAt, Tensor, TensorName};
pub(crate) use spans::Guess;
pub(crate) use tensors::tensors;

/// Finds cut points; clones share their tables.
#[derive(Clone)]
pub struct Chunker(Arc<Tables>);

struct Tables {
    params: ChunkerParams,
    min: usize,
    avg: usize,
    max: usize,
    /// The strict mask applies below the average size, the relaxed mask above it. `_ls` masks are shifted left by one.
    mask_s: u64,
    mask_l: u64,
    mask_s_ls: u64,
    mask_l_ls: u64,
    gear: Cow<'static, [u64]>,
    gear_ls: Cow<'static, [u64]>,
    zero_chunk: OnceLock<(ChunkId, u32)>,
}

impl Chunker {
    /// Returns a chunker with the parameters of a store.
    ///
    /// # Errors
    /// Unsupported, when the store uses another algorithm; invalid input, when a parameter is outside of the range that
    /// the algorithm and this program support.
    pub fn new(params: &ChunkerParams) -> Result<Self> {
        let level = check(params)?;
        let (mask_s, mask_l) = v2020::select_masks(usize_of(params.avg), level);
        let (gear, gear_ls) = v2020::get_gear_with_seed(params.seed);
        Ok(Self(Arc::new(Tables {
            params: params.clone(),
            min: usize_of(params.min),
            avg: usize_of(params.avg),
            max: usize_of(params.max),
            mask_s,
            mask_l,
            mask_s_ls: mask_s << 1,
            mask_l_ls: mask_l << 1,
            gear,
            gear_ls,
            zero_chunk: OnceLock::new(),
        })))
    }

    /// The maximum length of a chunk: this many bytes must be available before a cut point can be determined.
    pub fn max(&self) -> usize {
        self.0.max
    }

    /// Returns the length of the first chunk of `bytes`, which must begin at a cut point. `end` says that the file ends
    /// with `bytes`. Returns `None` when more bytes are needed (fewer than [`Self::max`], and not the end) or when
    /// `bytes` is empty.
    pub fn cut(&self, bytes: &[u8], end: bool) -> Option<usize> {
        let tables = &*self.0;
        if bytes.is_empty() || (bytes.len() < tables.max && !end) {
            return None;
        }
        let (_, len) = v2020::cut_gear(
            bytes,
            tables.min,
            tables.avg,
            tables.max,
            tables.mask_s,
            tables.mask_l,
            tables.mask_s_ls,
            tables.mask_l_ls,
            &tables.gear,
            &tables.gear_ls,
        );
        Some(len)
    }

    /// Returns the id and length of the chunk that a long run of zeros is cut into, so that holes need not be read. It
    /// applies wherever a chunk begins with at least [`Self::max`] zeros. Computed once.
    pub fn zero_chunk(&self) -> (ChunkId, u32) {
        *self.0.zero_chunk.get_or_init(|| {
            let zeros = vec![0; self.0.max];
            let chunk = zeros.get(..self.cut(&zeros, false).unwrap_or(self.0.max));
            let chunk = chunk.unwrap_or(&zeros);
            // The length is at most `max`, which is a u32.
            (
                ChunkId::of(chunk),
                u32::try_from(chunk.len()).unwrap_or(self.0.params.max),
            )
        })
    }
}

impl fmt::Debug for Chunker {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Chunker").field(&self.0.params).finish()
    }
}

fn check(params: &ChunkerParams) -> Result<Normalization> {
    if params.algorithm != CHUNKER_ALGORITHM {
        let message = format!(
            "chunker {:?}: expected {CHUNKER_ALGORITHM:?}",
            params.algorithm
        );
        return Err(Error::unsupported(message).hint("update this program"));
    }
    let (min, avg, max) = (params.min, params.avg, params.max);
    within("min", min, v2020::MINIMUM_MIN, v2020::MINIMUM_MAX)?;
    within("avg", avg, v2020::AVERAGE_MIN, v2020::AVERAGE_MAX)?;
    within("max", max, v2020::MAXIMUM_MIN, usize_of(CHUNK_BYTES_MAX))?;
    if !(min < avg && avg < max) {
        return Err(Error::invalid(format!(
            "chunker: expected min < avg < max, found {min}, {avg}, {max}"
        )));
    }
    if params.tensors > CHUNKER_TENSORS_MAX {
        let message = format!(
            "chunker tensors: rule {} is unknown, this program has {CHUNKER_TENSORS_MAX}",
            params.tensors
        );
        return Err(Error::unsupported(message).hint("update this program"));
    }
    match params.normalization {
        0 => Ok(Normalization::Level0),
        1 => Ok(Normalization::Level1),
        2 => Ok(Normalization::Level2),
        3 => Ok(Normalization::Level3),
        found => Err(Error::invalid(format!(
            "chunker: normalization: expected 0 to 3, found {found}"
        ))),
    }
}

/// The scan reads two bytes at a time, so the crate would silently shift odd limits by one.
fn within(name: &str, found: u32, least: usize, most: usize) -> Result<()> {
    if (least..=most).contains(&usize_of(found)) && found.is_multiple_of(2) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "chunker: {name}: expected an even number from {least} to {most}, found {found}"
    )))
}

const fn usize_of(value: u32) -> usize {
    value as usize
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use proptest::prelude::*;

    use super::*;

    const BOUNDARIES: &str = include_str!("../../fixtures/chunks/boundaries.txt");

    const TABLES: &str = include_str!("../../fixtures/chunks/tables.txt");

    fn params(min: u32, avg: u32, max: u32) -> ChunkerParams {
        ChunkerParams {
            algorithm: CHUNKER_ALGORITHM.into(),
            min,
            avg,
            max,
            normalization: 1,
            seed: 0,
            tensors: 0,
        }
    }

    fn standard() -> ChunkerParams {
        params(16 << 10, 64 << 10, 256 << 10)
    }

    fn lengths(chunker: &Chunker, mut bytes: &[u8]) -> Vec<usize> {
        let mut lengths = Vec::new();
        while let Some(len) = chunker.cut(bytes, true) {
            lengths.push(len);
            bytes = &bytes[len..];
        }
        lengths
    }

    /// Implements the generators that the head of the vectors file describes.
    fn generate(kind: &str, len: usize) -> Vec<u8> {
        let mut random = vec![0; len];
        if kind != "zeros" {
            blake3::Hasher::new()
                .update(kind.as_bytes())
                .finalize_xof()
                .fill(&mut random);
        }
        if kind != "text" {
            return random;
        }
        let words =
            "the of data model layer token batch weight epoch loss step rank node shard cache ref";
        let words: Vec<&str> = words.split(' ').collect();
        let mut text = Vec::new();
        for byte in random {
            text.extend_from_slice(words[usize::from(byte & 15)].as_bytes());
            text.push(if byte < 16 { b'\n' } else { b' ' });
        }
        text.truncate(len);
        text
    }

    /// Renders the vectors, without the comment at the head of the file.
    fn render() -> String {
        let (min, avg, max) = (16 << 10, 64 << 10, 256 << 10);
        let edges = [
            1,
            min - 1,
            min,
            min + 1,
            avg - 1,
            avg,
            avg + 1,
            max - 1,
            max,
            max + 1,
            2 * max + 1,
        ];
        let zeros = edges.iter().map(|len| (standard(), "zeros", *len));
        let random = edges.iter().map(|len| (standard(), "random", *len));
        let seeded = ChunkerParams {
            seed: 0x5eed,
            ..standard()
        };
        let large = [
            (standard(), "random", 8 << 20),
            (standard(), "text", 4 << 20),
            (seeded, "random", 2 << 20),
            (
                ChunkerParams {
                    normalization: 3,
                    ..standard()
                },
                "random",
                2 << 20,
            ),
            (
                ChunkerParams {
                    normalization: 0,
                    ..standard()
                },
                "text",
                2 << 20,
            ),
            (params(4 << 10, 12 << 10, 64 << 10), "random", 1 << 20),
            (ChunkerParams::default(), "random", 8 << 20),
            (ChunkerParams::default(), "text", 4 << 20),
        ];
        let mut out = String::new();
        for (params, kind, len) in zeros.chain(random).chain(large) {
            render_case(&mut out, &params, kind, len);
        }
        out
    }

    fn render_case(out: &mut String, params: &ChunkerParams, kind: &str, len: usize) {
        let ChunkerParams {
            min,
            avg,
            max,
            normalization,
            seed,
            ..
        } = params;
        writeln!(
            out,
            "case {min} {avg} {max} {normalization} {seed} {kind} {len}"
        )
        .unwrap();
        let data = generate(kind, len);
        let mut rest = data.as_slice();
        for len in lengths(&Chunker::new(params).unwrap(), &data) {
            let (chunk, tail) = rest.split_at(len);
            writeln!(out, "{len} {}", ChunkId::of(chunk)).unwrap();
            rest = tail;
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn cut_points_are_those_of_the_vectors() {
        let expected: String = BOUNDARIES
            .lines()
            .filter(|line| !line.starts_with('#'))
            .flat_map(|line| [line, "\n"])
            .collect();
        let found = render();
        let first = expected
            .lines()
            .zip(found.lines())
            .find(|(expected, found)| expected != found);
        assert_eq!(first, None, "a cut point moved");
        assert_eq!(expected.lines().count(), found.lines().count());
    }

    /// Implements the paper directly: one byte at a time, without shifted tables.
    fn cut_by_the_paper(params: &ChunkerParams, bytes: &[u8]) -> usize {
        let (gear, _) = v2020::get_gear_with_seed(params.seed);
        let bits = usize_of(params.avg).ilog2();
        let level = u32::from(params.normalization);
        let strict = v2020::MASKS[usize_of(bits + level)];
        let relaxed = v2020::MASKS[usize_of(bits - level)];
        let len = bytes.len().min(usize_of(params.max));
        let mut hash = 0u64;
        // The crate reads pairs of bytes, so an odd last byte is never tested.
        for at in usize_of(params.min)..len / 2 * 2 {
            hash = (hash << 1).wrapping_add(gear[usize::from(bytes[at])]);
            let mask = if at < usize_of(params.avg) / 2 * 2 {
                strict
            } else {
                relaxed
            };
            if hash & mask == 0 {
                return at;
            }
        }
        len
    }

    fn small_params() -> impl Strategy<Value = ChunkerParams> {
        (0u32..3, 0u8..4, prop_oneof![Just(0), any::<u64>()]).prop_map(
            |(size, normalization, seed)| ChunkerParams {
                normalization,
                seed,
                ..params(64 << size, 256 << size, 1024 << size)
            },
        )
    }

    /// Random bytes, in which every second byte may be zero. Drawn as a whole, because a strategy per byte is too slow.
    fn bytes(len: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
        (any::<u64>(), len, any::<bool>()).prop_map(|(seed, len, has_zeros)| {
            let mut bytes = generate(&seed.to_string(), len);
            for byte in bytes.iter_mut().filter(|byte| **byte & 1 == 1) {
                *byte *= u8::from(!has_zeros);
            }
            bytes
        })
    }

    proptest! {
        #[test]
        fn cut_points_are_those_of_the_paper(
            params in small_params(),
            bytes in bytes(0..20_000),
        ) {
            let chunker = Chunker::new(&params).unwrap();
            let mut rest = bytes.as_slice();
            while let Some(len) = chunker.cut(rest, true) {
                prop_assert_eq!(len, cut_by_the_paper(&params, rest));
                rest = &rest[len..];
            }
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn cut_points_do_not_depend_on_how_a_file_is_read(
            params in small_params(),
            bytes in bytes(0..30_000),
            reads in proptest::collection::vec(1usize..6000, 1..20),
        ) {
            let chunker = Chunker::new(&params).unwrap();
            let (mut found, mut start, mut filled) = (Vec::new(), 0, 0);
            for read in reads.iter().cycle() {
                filled = (filled + read).min(bytes.len());
                while let Some(len) = chunker.cut(&bytes[start..filled], filled == bytes.len()) {
                    found.push(len);
                    start += len;
                }
                if filled == bytes.len() {
                    break;
                }
            }
            prop_assert_eq!(found, lengths(&chunker, &bytes));
        }
    }

    #[test]
    fn the_printed_tables_are_those_that_cut() {
        let (gear, _) = v2020::get_gear_with_seed(0);
        let mut found = String::new();
        for (name, table) in [("gear", &gear[..]), ("mask", &v2020::MASKS[..])] {
            for (index, value) in table.iter().enumerate() {
                writeln!(found, "{name} {index} {value:016x}").unwrap();
            }
        }
        let lines = TABLES.lines().filter(|line| !line.starts_with('#'));
        assert!(lines.eq(found.lines()));
    }

    #[test]
    fn the_slice_iterator_of_the_crate_agrees() {
        let data = generate("random", 3 << 20);
        let theirs: Vec<usize> = v2020::FastCDC::new(&data, 16 << 10, 64 << 10, 256 << 10)
            .map(|chunk| chunk.length)
            .collect();
        assert_eq!(lengths(&Chunker::new(&standard()).unwrap(), &data), theirs);
    }

    #[test]
    fn fewer_bytes_than_the_maximum_are_cut_at_the_end_only() {
        let chunker = Chunker::new(&standard()).unwrap();
        let bytes = vec![7; chunker.max()];
        assert_eq!(chunker.cut(&[], true), None);
        assert_eq!(chunker.cut(&bytes[1..], false), None);
        assert!(chunker.cut(&bytes[1..], true).is_some());
        assert!(chunker.cut(&bytes, false).is_some());
    }

    #[test]
    fn the_zero_chunk_is_what_zeros_are_cut_into() {
        for seed in [0, 1, u64::MAX] {
            let chunker = Chunker::new(&ChunkerParams { seed, ..standard() }).unwrap();
            let (id, len) = chunker.zero_chunk();
            let zeros = vec![0; 3 * chunker.max()];
            assert_eq!(chunker.cut(&zeros, false), Some(usize_of(len)));
            assert_eq!(ChunkId::of(&zeros[..usize_of(len)]), id);
        }
        assert_eq!(Chunker::new(&standard()).unwrap().zero_chunk().1, 256 << 10);
    }

    #[test]
    fn parameters_out_of_range_are_refused_by_name() {
        let cases = [
            (
                params(62, 256, 1024),
                "chunker: min: expected an even number from 64 to 1048576, found 62",
            ),
            (
                params(65, 256, 1024),
                "chunker: min: expected an even number from 64 to 1048576, found 65",
            ),
            (
                params(64, 257, 1024),
                "chunker: avg: expected an even number from 256 to 4194304, found 257",
            ),
            (
                params(64, 256, 8 << 20),
                "chunker: max: expected an even number from 1024 to 4194304, found 8388608",
            ),
            (
                params(512, 256, 1024),
                "chunker: expected min < avg < max, found 512, 256, 1024",
            ),
            (
                params(256, 256, 1024),
                "chunker: expected min < avg < max, found 256, 256, 1024",
            ),
            (
                params(64, 1024, 1024),
                "chunker: expected min < avg < max, found 64, 1024, 1024",
            ),
            (
                ChunkerParams {
                    normalization: 4,
                    ..standard()
                },
                "chunker: normalization: expected 0 to 3, found 4",
            ),
            (
                ChunkerParams {
                    algorithm: "rabin".into(),
                    ..standard()
                },
                "chunker \"rabin\": expected \"fastcdc-v2020\"",
            ),
        ];
        for (params, message) in cases {
            assert_eq!(Chunker::new(&params).unwrap_err().to_string(), message);
        }
    }
}
