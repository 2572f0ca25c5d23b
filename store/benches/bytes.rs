//! What each byte of a put passes through, one stage at a time and on one core: `cargo bench --workspace --bench bytes`.
//!
//! Three kinds of bytes: random, bf16 weights, and text of few words.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a benchmark that cannot go on stops"
)]

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use store::ChunkId;
use store::chunk::Chunker;
use store::codec::{Bases, Class, Decoder, DeltaBase, Elements, Encoder, LEVEL};
use store::format::ChunkerParams;

const KINDS: [&str; 3] = ["random", "weights", "text"];
const CHUNK_BYTES: usize = 64 << 10;
const FRAME_BYTES: usize = 1 << 20;

fn main() {
    divan::main();
}

/// `len` bytes of a kind; the same in every run.
fn generate(kind: &str, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    match kind {
        "weights" => {
            // The sum of a few random bits is nearly normal, as exponents of weights are.
            let exponent = |byte: &u8| 0x3a + u8::try_from(byte.count_ones()).unwrap_or(0) / 2;
            bytes
                .iter_mut()
                .skip(1)
                .step_by(2)
                .for_each(|byte| *byte = exponent(byte));
        }
        "text" => {
            let words = [
                "the ", "of ", "data ", "model ", "layer ", "token ", "batch\n", "weight ",
            ];
            let word = |byte: &u8| words[usize::from(byte % 8)].bytes();
            bytes = bytes.iter().flat_map(word).take(len).collect();
        }
        _ => {}
    }
    bytes
}

#[divan::bench(args = KINDS)]
fn cut(bencher: Bencher<'_, '_>, kind: &str) {
    let bytes = generate(kind, 8 << 20);
    let params = ChunkerParams {
        algorithm: "fastcdc-v2020".into(),
        min: 16 << 10,
        avg: 64 << 10,
        max: 256 << 10,
        normalization: 2,
        seed: 0,
        tensors: 0,
    };
    let chunker = Chunker::new(&params).unwrap();
    bencher
        .counter(BytesCount::of_slice(&bytes))
        .bench_local(|| {
            let mut rest = bytes.as_slice();
            while let Some(len) = chunker.cut(rest, true) {
                rest = &rest[len..];
            }
        });
}

#[divan::bench]
fn hash(bencher: Bencher<'_, '_>) {
    let bytes = generate("random", CHUNK_BYTES);
    bencher
        .counter(BytesCount::of_slice(&bytes))
        .bench_local(|| ChunkId::of(black_box(&bytes)));
}

#[divan::bench(args = KINDS)]
fn sample(bencher: Bencher<'_, '_>, kind: &str) {
    let bytes = generate(kind, CHUNK_BYTES);
    bencher
        .counter(BytesCount::of_slice(&bytes))
        .bench_local(|| Class::of(black_box(&bytes)));
}

#[divan::bench(args = KINDS)]
fn encode(bencher: Bencher<'_, '_>, kind: &str) {
    let bytes = generate(kind, FRAME_BYTES);
    let (mut encoder, mut out) = (Encoder::new(LEVEL).unwrap(), Vec::new());
    bencher
        .counter(BytesCount::of_slice(&bytes))
        .bench_local(|| {
            out.clear();
            let class = Class::of(&bytes);
            encoder.encode_as(class, &bytes, &mut out).unwrap();
        });
}

#[divan::bench(args = KINDS)]
fn decode(bencher: Bencher<'_, '_>, kind: &str) {
    let bytes = generate(kind, FRAME_BYTES);
    let (mut frame, mut out) = (Vec::new(), Vec::new());
    Encoder::new(LEVEL)
        .unwrap()
        .encode_as(Class::of(&bytes), &bytes, &mut frame)
        .unwrap();
    let mut decoder = Decoder::new().unwrap();
    let raw_len = u32::try_from(bytes.len()).unwrap();
    bencher
        .counter(BytesCount::of_slice(&bytes))
        .bench_local(|| {
            decoder
                .decode_plain("frame", &frame, raw_len, &mut out)
                .unwrap()
                .len()
        });
}

/// Weights, and what a little training made of them: an eighth of the numbers went one step up or down.
fn trained() -> (Vec<u8>, Vec<u8>) {
    let base = generate("weights", FRAME_BYTES);
    let mut bytes = base.clone();
    let mut steps = vec![0; FRAME_BYTES / 2];
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"steps").finalize_xof().fill(&mut steps);
    for (number, step) in bytes.chunks_exact_mut(2).zip(&steps) {
        let value = u16::from_le_bytes([number[0], number[1]]);
        let value = match step % 16 {
            0 => value.wrapping_add(1),
            1 => value.wrapping_sub(1),
            _ => value,
        };
        number.copy_from_slice(&value.to_le_bytes());
    }
    (base, bytes)
}

const HALVES: Elements = Elements { width: 2, phase: 0 };

fn base_of(bytes: &[u8]) -> DeltaBase {
    DeltaBase {
        ids: vec![ChunkId::of(bytes)],
        skip: 0,
    }
}

#[divan::bench]
fn encode_delta(bencher: Bencher<'_, '_>) {
    let (base, bytes) = trained();
    let (mut encoder, mut out) = (Encoder::new(LEVEL).unwrap(), Vec::new());
    let named = base_of(&base);
    bencher
        .counter(BytesCount::of_slice(&bytes))
        .bench_local(|| {
            out.clear();
            encoder.encode_delta(&bytes, HALVES, &named, &base, &mut out)
        });
}

/// A base that is there.
struct There<'b>(&'b [u8]);

impl Bases for There<'_> {
    fn append(&self, _ids: &[ChunkId], out: &mut Vec<u8>) -> store::Result<()> {
        out.extend_from_slice(self.0);
        Ok(())
    }
}

#[divan::bench]
fn decode_delta(bencher: Bencher<'_, '_>) {
    let (base, bytes) = trained();
    let (mut frame, mut out) = (Vec::new(), Vec::new());
    Encoder::new(LEVEL)
        .unwrap()
        .encode_delta(&bytes, HALVES, &base_of(&base), &base, &mut frame)
        .unwrap();
    let mut decoder = Decoder::new().unwrap();
    let raw_len = u32::try_from(bytes.len()).unwrap();
    bencher
        .counter(BytesCount::of_slice(&bytes))
        .bench_local(|| {
            let decoded = decoder.decode("frame", &frame, raw_len, &There(&base), &mut out);
            decoded.unwrap().len()
        });
}
