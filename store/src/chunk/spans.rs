//! Finds the cut points of one file on many threads; the result is the same as on one thread.
//!
//! The end of a chunk depends on its beginning, and so on all cuts before it. But two sequences of cuts that share one
//! point are identical from there on. So each span of a file is cut as if a chunk began there, by any free thread, and
//! the true sequence is recomputed in each span only until it meets that guess.

use std::ops::Range;

use super::Chunker;

/// The possible chunk ends of a span, found without knowing where its first chunk begins.
#[derive(Debug, Default)]
pub(crate) struct Guess(Vec<usize>);

impl Guess {
    /// Cuts `bytes` as if a chunk began there, until a chunk begins after `span` bytes. `bytes` must contain
    /// [`Chunker::max`] more bytes than the span, unless `is_end` is set.
    pub(crate) fn of(chunker: &Chunker, bytes: &[u8], span: usize, is_end: bool) -> Self {
        let (mut ends, mut at) = (Vec::new(), 0);
        while at < span
            && let Some(len) = bytes.get(at..).and_then(|rest| chunker.cut(rest, is_end))
        {
            at += len;
            ends.push(at);
        }
        Self(ends)
    }

    /// Returns the chunks that actually begin in the span, the first at `start`; the last may end after the span.
    pub(crate) fn stitched(
        &self,
        chunker: &Chunker,
        bytes: &[u8],
        (start, span): (usize, usize),
        is_end: bool,
    ) -> Vec<Range<usize>> {
        let (mut chunks, mut at) = (Vec::new(), start);
        while at < span {
            if let Some(met) = self.from(at) {
                chunks.extend(
                    met.iter()
                        .scan(at, |begin, end| Some(std::mem::replace(begin, *end)..*end)),
                );
                break;
            }
            let Some(len) = bytes.get(at..).and_then(|rest| chunker.cut(rest, is_end)) else {
                break;
            };
            chunks.push(at..at + len);
            at += len;
        }
        chunks
    }

    /// Returns the guessed ends after a chunk that begins at `at`, if the guess has such a chunk.
    fn from(&self, at: usize) -> Option<&[usize]> {
        match at {
            0 => (!self.0.is_empty()).then_some(self.0.as_slice()),
            at => self.0.get(self.0.binary_search(&at).ok()? + 1..),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::format::{CHUNKER_ALGORITHM, ChunkerParams};

    fn chunker() -> Chunker {
        let params = ChunkerParams {
            algorithm: CHUNKER_ALGORITHM.into(),
            min: 64,
            avg: 256,
            max: 1024,
            normalization: 2,
            seed: 0,
            tensors: 0,
        };
        Chunker::new(&params).unwrap()
    }

    fn by_one(chunker: &Chunker, bytes: &[u8]) -> Vec<usize> {
        Guess::of(chunker, bytes, bytes.len(), true).0
    }

    /// The ends of all chunks, span by span, and how many bytes were cut twice.
    fn by_spans(chunker: &Chunker, bytes: &[u8], span: usize) -> (Vec<usize>, usize) {
        let (mut ends, mut again, mut base, mut start) = (Vec::new(), 0, 0, 0);
        while base < bytes.len() {
            let end = bytes.len().min(base + span + chunker.max());
            let (is_end, here) = (end == bytes.len(), &bytes[base..end]);
            let guess = Guess::of(chunker, here, span, is_end);
            let chunks = guess.stitched(chunker, here, (start, span), is_end);
            again += chunks
                .iter()
                .take_while(|chunk| guess.from(chunk.start).is_none())
                .map(ExactSizeIterator::len)
                .sum::<usize>();
            let last = chunks.last().map_or(start, |last| last.end);
            ends.extend(chunks.iter().map(|chunk| base + chunk.end));
            start = last.saturating_sub(span);
            base += span;
        }
        (ends, again)
    }

    /// Runs of zeros, of one byte, of text with few letters and of noise, in which cuts are rare or frequent.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let run = (any::<u64>(), 0usize..6000, 0u8..4).prop_map(|(seed, len, kind)| {
            let mut noise = vec![0; len];
            blake3::Hasher::new()
                .update(&seed.to_le_bytes())
                .finalize_xof()
                .fill(&mut noise);
            match kind {
                0 => vec![0; len],
                1 => noise.iter().map(|byte| byte & 1).collect(),
                2 => b"layer.weight ".iter().copied().cycle().take(len).collect(),
                _ => noise,
            }
        });
        proptest::collection::vec(run, 0..8).prop_map(|runs| runs.concat())
    }

    proptest! {
        #[test]
        fn many_cut_as_one_does(bytes in bytes(), span in 1usize..5000) {
            let chunker = chunker();
            prop_assert_eq!(by_spans(&chunker, &bytes, span).0, by_one(&chunker, &bytes));
        }
    }

    /// The bytes that are cut twice limit how many threads can help.
    #[test]
    fn little_is_cut_twice_where_cuts_follow_content() {
        let chunker = Chunker::new(&ChunkerParams::default()).unwrap();
        let mut noise = vec![0; 64 << 20];
        blake3::Hasher::new().finalize_xof().fill(&mut noise);
        let (ends, again) = by_spans(&chunker, &noise, 2 << 20);
        assert_eq!(ends, by_one(&chunker, &noise));
        let share = 100 * again / noise.len();
        assert!((1..25).contains(&share), "{share} % were cut again");
    }
}
