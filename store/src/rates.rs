//! rates: how fast this host does the steps of a put and a get, and which step limits them.
//!
//! Each stage runs alone on one core for a moment, over three kinds of bytes that are made here. The disk is measured
//! with an unnamed file beside the store. The rates are a hint for people, not a promise: other work on the host slows
//! it, and a put does more than its slowest stage.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};
use serde::Serialize;

use crate::chunk::Chunker;
use crate::codec::{Class, Decoder, Encoder, LEVEL};
use crate::error::{Error, Result};
use crate::format::FORMAT_KEY;
use crate::id::ChunkId;
use crate::store::Store;

/// How long each stage runs at least.
const STAGE_TIME: Duration = Duration::from_millis(200);
/// Bytes of a sample: more than the caches of a core hold.
const SAMPLE_BYTES: usize = 8 << 20;
/// Bytes of one chunk and of one frame.
const CHUNK_BYTES: usize = 64 << 10;
const FRAME_BYTES: usize = 1 << 20;
/// Bytes that are written to disk, 1 MiB at a time.
const DISK_BYTES: u64 = 128 << 20;

/// Kinds of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Sample {
    /// Random bytes, like those of compressed files.
    Noise,
    /// Half-precision floats of 16 bits, normally distributed.
    Weights,
    /// Words of English text.
    Text,
}

/// What limits a put or a get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// Cutting, hashing and the codec, on all cores.
    Cores,
    /// The disk of the store.
    Disk,
}

/// Rates for one kind of bytes, in raw bytes per second.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SampleRates {
    /// The kind.
    pub sample: Sample,
    /// Stored bytes for 1,000 raw bytes.
    pub stored_permille: u64,
    /// Cutting, on one core.
    pub cut: u64,
    /// Encoding of frames, on one core.
    pub encode: u64,
    /// Decoding of frames, on one core.
    pub decode: u64,
    /// The upper limit for a put of new bytes.
    pub put: u64,
    /// What limits the put.
    pub put_bound: Bound,
    /// The upper limit for a get from the disk.
    pub get: u64,
    /// What limits the get.
    pub get_bound: Bound,
}

/// Rates of a host, in bytes per second.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rates {
    /// Cores that a put uses.
    pub threads: usize,
    /// Hashing of chunks, on one core.
    pub hash: u64,
    /// Durable writes to the disk of the store; none for a bucket.
    pub disk_write: Option<u64>,
    /// Reads from that disk, past the page cache.
    pub disk_read: Option<u64>,
    /// The rates for each kind of bytes.
    pub samples: Vec<SampleRates>,
}

/// Measures the host of `store` and the disk that the store is on; takes some seconds.
///
/// # Errors
/// When the disk cannot be written or read, or memory is short.
pub fn rates(store: &Store) -> Result<Rates> {
    let threads = store.host().threads.max(1);
    let chunker = Chunker::new(&store.format().chunker)?;
    let noise = noise();
    let hash = rate(SAMPLE_BYTES, || {
        for chunk in noise.chunks(CHUNK_BYTES) {
            std::hint::black_box(ChunkId::of(chunk));
        }
        Ok(())
    })?;
    let format = store.remote().local_path(FORMAT_KEY);
    let disk = format.as_deref().and_then(Path::parent).map(disk);
    let (disk_write, disk_read) = disk.transpose()?.unzip();
    let samples = [Sample::Noise, Sample::Weights, Sample::Text].into_iter();
    let samples = samples.map(|sample| {
        let bytes = sample.bytes(&noise);
        let host = HostRates {
            threads,
            hash,
            disk_write,
            disk_read,
        };
        of_sample(sample, &bytes, &chunker, &host)
    });
    Ok(Rates {
        threads,
        hash,
        disk_write,
        disk_read,
        samples: samples.collect::<Result<_>>()?,
    })
}

struct HostRates {
    threads: usize,
    hash: u64,
    disk_write: Option<u64>,
    disk_read: Option<u64>,
}

fn of_sample(
    sample: Sample,
    bytes: &[u8],
    chunker: &Chunker,
    host: &HostRates,
) -> Result<SampleRates> {
    let cut = rate(bytes.len(), || {
        let mut rest = bytes;
        while let Some(len) = chunker.cut(rest, true) {
            rest = rest.get(len..).unwrap_or_default();
        }
        Ok(())
    })?;
    let mut encoder = Encoder::new(LEVEL)?;
    let mut frames = Vec::new();
    let encode = rate(bytes.len(), || {
        frames.clear();
        for raw in bytes.chunks(FRAME_BYTES) {
            let mut stored = Vec::new();
            encoder.encode_as(Class::of(raw), raw, &mut stored)?;
            frames.push((raw.len(), stored));
        }
        Ok(())
    })?;
    let (mut decoder, mut out) = (Decoder::new()?, Vec::new());
    let decode = rate(bytes.len(), || {
        for (len, stored) in &frames {
            let len = u32::try_from(*len).unwrap_or(u32::MAX);
            let raw = decoder.decode_plain("frame just encoded", stored, len, &mut out)?;
            std::hint::black_box(raw);
        }
        Ok(())
    })?;
    let stored: usize = frames.iter().map(|(_, stored)| stored.len()).sum();
    let stored_permille = (stored as u64 * 1000).div_ceil(bytes.len().max(1) as u64);
    let (put, put_bound) = bound(
        on_all(host.threads, &[cut, host.hash, encode]),
        of_raw(host.disk_write, stored_permille),
    );
    let (get, get_bound) = bound(
        on_all(host.threads, &[host.hash, decode]),
        of_raw(host.disk_read, stored_permille),
    );
    Ok(SampleRates {
        sample,
        stored_permille,
        cut,
        encode,
        decode,
        put,
        put_bound,
        get,
        get_bound,
    })
}

impl Sample {
    /// Makes bytes of this kind out of random ones.
    fn bytes(self, noise: &[u8]) -> Vec<u8> {
        match self {
            Self::Noise => noise.to_vec(),
            Self::Weights => {
                // The number of one bits in a byte is nearly normally distributed, as the exponents of weights are.
                let high = |byte: u8| 0x3a + u8::try_from(byte.count_ones()).unwrap_or(0) / 2;
                let halves = noise.as_chunks::<2>().0.iter();
                halves.flat_map(|[low, byte]| [*low, high(*byte)]).collect()
            }
            Self::Text => {
                const WORDS: [&str; 8] = [
                    "the ", "of ", "data ", "model ", "layer ", "token ", "batch\n", "weight ",
                ];
                let word = |byte: &u8| WORDS.get(usize::from(byte % 8)).copied().unwrap_or("");
                let words = noise.iter().flat_map(|byte| word(byte).bytes());
                words.take(noise.len()).collect()
            }
        }
    }
}

fn noise() -> Vec<u8> {
    let mut bytes = vec![0; SAMPLE_BYTES];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    bytes
}

/// Uses the shortest of several runs, since other work can only add to the time.
fn rate(bytes: usize, mut run: impl FnMut() -> Result<()>) -> Result<u64> {
    let (begun, mut least) = (Instant::now(), Duration::MAX);
    while begun.elapsed() < STAGE_TIME {
        let once = Instant::now();
        run()?;
        least = least.min(once.elapsed());
    }
    Ok(per_second(bytes as u64, least))
}

fn per_second(bytes: u64, time: Duration) -> u64 {
    let nanos = time.as_nanos().max(1);
    u64::try_from(u128::from(bytes) * 1_000_000_000 / nanos).unwrap_or(u64::MAX)
}

/// Raw bytes per second of stages that run one after another, on `threads` cores.
fn on_all(threads: usize, stages: &[u64]) -> u64 {
    // Nanoseconds per GB.
    let time: u64 = stages
        .iter()
        .map(|rate| 1_000_000_000_000_000_000 / rate.max(&1))
        .fold(0, u64::saturating_add);
    (1_000_000_000_000_000_000 / time.max(1)).saturating_mul(threads as u64)
}

/// Raw bytes per second, when `disk` moves that many stored bytes.
fn of_raw(disk: Option<u64>, stored_permille: u64) -> Option<u64> {
    disk.map(|rate| rate.saturating_mul(1000) / stored_permille.max(1))
}

fn bound(cores: u64, disk: Option<u64>) -> (u64, Bound) {
    match disk.filter(|disk| *disk < cores) {
        Some(disk) => (disk, Bound::Disk),
        None => (cores, Bound::Cores),
    }
}

/// Measures durable writes to `dir` and reads from it, in bytes per second.
fn disk(dir: &Path) -> Result<(u64, u64)> {
    let failed = |source| Error::io("measure the disk below", dir, source);
    let mut file = tempfile::tempfile_in(dir).map_err(failed)?;
    let piece: Vec<u8> = noise().into_iter().take(1 << 20).collect();
    let begun = Instant::now();
    for _ in 0..DISK_BYTES / piece.len() as u64 {
        file.write_all(&piece).map_err(failed)?;
    }
    file.sync_data().map_err(failed)?;
    let write = per_second(DISK_BYTES, begun.elapsed());
    // If the system keeps pages nevertheless, the read rate comes out too high.
    let _kept = fadvise(&file, 0, None, Advice::DontNeed);
    let begun = Instant::now();
    read(&file).map_err(failed)?;
    Ok((write, per_second(DISK_BYTES, begun.elapsed())))
}

fn read(file: &File) -> std::io::Result<()> {
    let mut piece = vec![0; 1 << 20];
    let mut at = 0;
    while at < DISK_BYTES {
        file.read_exact_at(&mut piece, at)?;
        at += piece.len() as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slower_of_cores_and_disk_bounds() {
        assert_eq!(on_all(2, &[1_000_000_000, 1_000_000_000]), 1_000_000_000);
        assert_eq!(bound(5, Some(3)), (3, Bound::Disk));
        assert_eq!(bound(3, Some(5)), (3, Bound::Cores));
        assert_eq!(bound(3, None), (3, Bound::Cores));
        assert_eq!(of_raw(Some(100), 500), Some(200));
    }

    #[test]
    fn samples_are_what_they_are_called() {
        let noise = noise();
        let class = |sample: Sample| Class::of(&sample.bytes(&noise)[..CHUNK_BYTES]);
        assert_eq!(class(Sample::Noise), Class::Noise);
        assert!(matches!(class(Sample::Weights), Class::Elements(_)));
        assert_eq!(class(Sample::Text), Class::Bytes);
    }
}
