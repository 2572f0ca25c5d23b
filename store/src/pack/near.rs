//! Decides which chunks may become deltas, and whether a trial is worth it.
//!
//! A trial reads and decodes a base, and encodes twice. So only one in 16 frames of a tensor is tried, and decides for
//! its neighbours.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::codec::DeltaBase;
use crate::error::Result;
use crate::format::FRAME_BASES_MAX;
use crate::id::ChunkId;

/// One in this many frames of a tensor is tried.
const TRIED_ONE_IN: u32 = 16;
/// Percent: the largest size of a delta, compared with the plain frame.
const LEFT_MOST: usize = 85;
/// The verdict on a tensor before its first trial.
const UNTRIED: u32 = 0;
/// The verdict that deltas are not worth it.
const IN_VAIN: u32 = 1;

/// Reads bases, and marks them as relied on.
pub(crate) trait BaseSource {
    /// Appends the verified bytes of these chunks to `out`; returns whether all could be read.
    ///
    /// # Errors
    /// When the store does not answer.
    fn append(&mut self, ids: &[ChunkId], out: &mut Vec<u8>) -> Result<bool>;

    /// Marks these chunks as relied on in plain frames; returns whether all are offered there.
    ///
    /// # Errors
    /// When the index cannot be read.
    fn rely(&mut self, ids: &[ChunkId]) -> Result<bool>;
}

/// For framers that never make deltas.
#[derive(Clone, Copy, Debug)]
pub struct NoSource;

impl BaseSource for NoSource {
    fn append(&mut self, _ids: &[ChunkId], _out: &mut Vec<u8>) -> Result<bool> {
        Ok(false)
    }

    fn rely(&mut self, _ids: &[ChunkId]) -> Result<bool> {
        Ok(false)
    }
}

/// The result of the last successful trial in a file: the size of the plain frame. Small tensors start with it.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    left: AtomicU32,
    family: Arc<Family>,
}

/// Counts failed trials in a row over several files. After many, only few files are tried.
#[derive(Debug, Default)]
pub(crate) struct Family {
    vain: AtomicU32,
}

impl Family {
    /// Whether to run trials for the file of this number.
    pub(crate) fn tries(&self, number: u64) -> bool {
        self.vain.load(Ordering::Relaxed) < TRIED_ONE_IN
            || number.is_multiple_of(TRIED_ONE_IN.into())
    }
}

impl Verdicts {
    /// Creates the record for a file of this family.
    pub(crate) fn of(family: Arc<Family>) -> Self {
        Self {
            family,
            ..Self::default()
        }
    }
}

/// The results of trials of one tensor; shared by all threads that store parts of it.
#[derive(Debug, Default)]
pub(crate) struct Trial {
    others: Arc<Verdicts>,
    frames: AtomicU32,
    /// [`UNTRIED`], [`IN_VAIN`], or the size of the plain frame in the last trial, per 65,536 raw bytes, plus 2.
    verdict: AtomicU32,
}

/// How to store a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Try {
    /// As a plain frame.
    No,
    /// Both ways, to compare the sizes.
    Both,
    /// As a delta, if that has at most this many bytes.
    Delta(usize),
}

/// The possible base of one chunk.
#[derive(Clone, Debug)]
pub(crate) struct Near {
    /// Chunks and their lengths, in order.
    pub(crate) chunks: Vec<(ChunkId, u32)>,
    /// Bytes of these chunks before the first that is used.
    pub(crate) skip: u32,
    pub(crate) trial: Arc<Trial>,
}

/// The possible base of the chunks that a frame has so far.
#[derive(Debug)]
pub(super) struct NearFrame {
    chunks: Vec<(ChunkId, u32)>,
    skip: u32,
    bytes: u64,
    pub(super) trial: Arc<Trial>,
}

impl Trial {
    /// Creates the record for a tensor; `others` is that of its file.
    pub(crate) fn of(others: Arc<Verdicts>) -> Self {
        Self {
            others,
            ..Self::default()
        }
    }

    /// Whether looking for a base is worth it.
    pub(crate) fn is_open(&self) -> bool {
        self.verdict.load(Ordering::Relaxed) != IN_VAIN
    }

    /// Decides how to store the next frame, of `raw_len` bytes.
    pub(super) fn next(&self, raw_len: usize) -> Try {
        let number = self.frames.fetch_add(1, Ordering::Relaxed);
        let (own, others) = (&self.verdict, &self.others.left);
        let verdict = match own.load(Ordering::Relaxed) {
            UNTRIED => others.load(Ordering::Relaxed),
            own if own != IN_VAIN && number.is_multiple_of(TRIED_ONE_IN) => UNTRIED,
            own => own,
        };
        match verdict {
            IN_VAIN => Try::No,
            UNTRIED => Try::Both,
            left => {
                let plain = (raw_len * usize::try_from(left - 2).unwrap_or(0)) >> 16;
                Try::Delta(plain / 100 * LEFT_MOST)
            }
        }
    }

    /// Records the sizes of both encodings of a frame of `raw_len` bytes, for its neighbours; returns whether to keep
    /// the delta.
    pub(super) fn decide(&self, raw_len: usize, plain: usize, delta: usize) -> bool {
        let is_kept = delta * 100 <= plain * LEFT_MOST;
        let left = u32::try_from((plain << 16) / raw_len.max(1)).unwrap_or(u32::MAX - 2);
        let verdict = if is_kept { left + 2 } else { IN_VAIN };
        self.verdict.store(verdict, Ordering::Relaxed);
        let vain = &self.others.family.vain;
        if is_kept {
            self.others.left.store(verdict, Ordering::Relaxed);
            vain.store(0, Ordering::Relaxed);
        } else {
            vain.fetch_add(1, Ordering::Relaxed);
        }
        is_kept
    }
}

impl NearFrame {
    /// Starts with the base of a frame's first chunk, which has `len` bytes.
    pub(super) fn begin(near: Near, len: usize) -> Self {
        Self {
            chunks: near.chunks,
            skip: near.skip,
            bytes: len as u64,
            trial: near.trial,
        }
    }

    /// Adds a chunk of `len` bytes if its base continues where that of the frame ends; returns whether it did.
    pub(super) fn join(&mut self, near: &Near, len: usize) -> bool {
        let all: u64 = self.chunks.iter().map(|(_, len)| u64::from(*len)).sum();
        let end = u64::from(self.skip) + self.bytes;
        let last = self.chunks.last().copied();
        let more = match (last, near.chunks.split_first()) {
            _ if end == all && near.skip == 0 => near.chunks.as_slice(),
            (Some(last), Some((first, behind)))
                if last == *first && (all - u64::from(last.1)) + u64::from(near.skip) == end =>
            {
                behind
            }
            _ => return false,
        };
        if self.chunks.len() + more.len() > usize::from(FRAME_BASES_MAX) {
            return false;
        }
        self.chunks.extend_from_slice(more);
        self.bytes += len as u64;
        true
    }

    pub(super) fn base(&self) -> DeltaBase {
        DeltaBase {
            ids: self.chunks.iter().map(|(id, _)| *id).collect(),
            skip: self.skip,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(chunks: &[(u8, u32)], skip: u32) -> Near {
        let chunk = |(id, len): &(u8, u32)| (ChunkId([*id; 32]), *len);
        Near {
            chunks: chunks.iter().map(chunk).collect(),
            skip,
            trial: Arc::default(),
        }
    }

    #[test]
    fn the_first_frame_of_a_tensor_decides_and_one_in_16_again() {
        let trial = Trial::default();
        assert_eq!(trial.next(1000), Try::Both);
        assert!(trial.decide(1000, 600, 510));
        for _ in 1..16 {
            assert_eq!(trial.next(2000), Try::Delta(11 * 85));
        }
        assert_eq!(trial.next(1000), Try::Both);
        assert!(!trial.decide(1000, 600, 511));
        assert!(!trial.is_open());
        assert_eq!(trial.next(1000), Try::No);
    }

    #[test]
    fn tensors_of_a_file_begin_with_what_was_worth_it_in_others() {
        let file = Arc::new(Verdicts::default());
        let [first, second, third] = [(); 3].map(|()| Trial::of(Arc::clone(&file)));
        assert_eq!(first.next(1000), Try::Both);
        assert!(!first.decide(1000, 600, 600));
        assert_eq!(second.next(1000), Try::Both);
        assert!(second.decide(1000, 600, 100));
        assert_eq!(third.next(2000), Try::Delta(11 * 85));
        assert!(!third.decide(2000, 1200, 1100));
        assert_eq!(third.next(2000), Try::No);
    }

    #[test]
    fn where_nothing_was_worth_it_one_file_in_16_is_tried() {
        let family = Arc::new(Family::default());
        for _ in 0..16 {
            assert!(family.tries(7));
            let file = Arc::new(Verdicts::of(Arc::clone(&family)));
            assert!(!Trial::of(file).decide(1000, 600, 600));
        }
        let tried: Vec<u64> = (1..40).filter(|number| family.tries(*number)).collect();
        assert_eq!(tried, [16, 32]);
        let file = Arc::new(Verdicts::of(Arc::clone(&family)));
        assert!(Trial::of(file).decide(1000, 600, 100));
        assert!(family.tries(7));
    }

    #[test]
    fn chunks_share_a_frame_while_what_they_are_near_to_goes_on() {
        let mut whole = NearFrame::begin(near(&[(1, 10)], 0), 10);
        assert!(!whole.join(&near(&[(2, 9)], 1), 8), "bytes are left out");
        assert!(whole.join(&near(&[(2, 9)], 0), 9));
        assert!(whole.join(&near(&[(3, 5), (4, 5)], 0), 7));
        assert!(
            !whole.join(&near(&[(5, 5)], 0), 5),
            "the last one is not used up"
        );
        assert!(whole.join(&near(&[(4, 5), (5, 5)], 2), 4));
        let ids: Vec<u8> = whole.base().ids.iter().map(|id| id.0[0]).collect();
        assert_eq!((ids, whole.base().skip), (vec![1, 2, 3, 4, 5], 0));
        let mut inside = NearFrame::begin(near(&[(1, 10)], 3), 4);
        assert!(!inside.join(&near(&[(1, 10)], 8), 2));
        assert!(inside.join(&near(&[(1, 10)], 7), 3));
        assert_eq!(inside.base().ids.len(), 1);
    }
}
