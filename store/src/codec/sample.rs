//! Judges a chunk by a small sample: whether it compresses, and whether it holds elements of 2 or 4 bytes.

/// Number of pieces in a sample, and bytes of each.
const PIECES: usize = 16;
const PIECE_BYTES: usize = 64;
/// Smaller chunks are not judged, because trying to compress them costs less.
const CHUNK_BYTES_MIN: usize = 4 * PIECES * PIECE_BYTES;
/// Limit for the number of equal ordered pairs. In 1,024 random bytes, 1,024 * 1,023 / 256 pairs are equal, and 1,024
/// bytes equal themselves: 5,116 with a standard deviation of 90. At 7.84 bits per byte there are 22 % more pairs,
/// 6,016; the limit is in between.
const SQUARES_LEAST: u32 = 5_650;
/// Bits of information about a byte that its position in elements of 2 bytes must give. Weights in half precision, or
/// as the upper half of single precision: above 0.5; machine code: 0.1 in the median; text and quantized weights:
/// below.
const HALVES_TELL_LEAST: f32 = 0.25;
/// Bits that positions in elements of 4 bytes must give beyond those in elements of 2. Weights in single precision:
/// above 0.5; in half precision: below 0.22, by chance.
const QUARTERS_TELL_LEAST: f32 = 0.3;

/// The apparent contents of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Random or compressed bytes, which are stored raw.
    Noise,
    /// Text, code or integers, for zstd.
    Bytes,
    /// Numbers of fixed width, for planes.
    Elements(Elements),
}

/// A sequence of numbers without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elements {
    /// Bytes per number, 2 or 4.
    pub width: usize,
    /// Bytes before the first whole number, less than `width`.
    pub phase: usize,
}

impl Class {
    /// Judges `chunk` by 1 KiB of it: how often two bytes are equal, and how much the position of a byte in elements of
    /// 2 or 4 bytes tells about its value (mutual information). Does not detect repetitions of random bytes, which only
    /// long matches would save. Chunks that are too small are [`Class::Bytes`].
    pub fn of(chunk: &[u8]) -> Self {
        if chunk.len() < CHUNK_BYTES_MIN {
            return Self::Bytes;
        }
        let places = Places::of(chunk);
        if squares(&places.together(&[0, 1, 2, 3])) <= SQUARES_LEAST {
            return Self::Noise;
        }
        places.elements().map_or(Self::Bytes, Self::Elements)
    }

    /// Returns the class of data that begins `offset` bytes earlier.
    pub fn behind(self, offset: usize) -> Self {
        match self {
            Self::Elements(Elements { width, phase }) => Self::Elements(Elements {
                width,
                phase: (offset + phase) % width,
            }),
            other => other,
        }
    }
}

/// How often each byte value occurred at each position, which is the offset in the chunk modulo 4.
struct Places([[u16; 256]; 4]);

impl Places {
    fn of(chunk: &[u8]) -> Self {
        let mut counts = [[0; 256]; 4];
        // Pieces begin at whole elements of either width.
        let stride = chunk.len() / PIECES / 4 * 4;
        for piece in chunk.chunks_exact(stride).take(PIECES) {
            for four in piece.as_chunks::<4>().0.iter().take(PIECE_BYTES / 4) {
                for (byte, place) in four.iter().zip(&mut counts) {
                    bump(place, *byte);
                }
            }
        }
        Self(counts)
    }

    /// Returns how often each byte value occurred at any of `places`.
    fn together(&self, places: &[usize]) -> [u16; 256] {
        let mut total = [0; 256];
        for place in places.iter().filter_map(|place| self.0.get(*place)) {
            for (total, count) in total.iter_mut().zip(place) {
                *total += count;
            }
        }
        total
    }

    /// Returns the elements that best explain the bytes, if any do.
    fn elements(&self) -> Option<Elements> {
        let all = bits(&self.together(&[0, 1, 2, 3]));
        let halves = [[0, 2], [1, 3]].map(|places| bits(&self.together(&places)));
        let quarters = self.0.map(|counts| bits(&counts));
        let by_two = halves.iter().sum::<f32>() / 2.0;
        let by_four = quarters.iter().sum::<f32>() / 4.0;
        let each = if by_two - by_four >= QUARTERS_TELL_LEAST {
            quarters.as_slice()
        } else if all - by_two >= HALVES_TELL_LEAST {
            halves.as_slice()
        } else {
            return None;
        };
        // Little-endian: exponent and sign, which vary least, are the last byte of an element.
        let last = each.iter().enumerate().rev();
        let (last, _) = last.min_by(|(_, a), (_, b)| a.total_cmp(b))?;
        let width = each.len();
        Some(Elements {
            width,
            phase: (last + 1) % width,
        })
    }
}

/// Counts ordered pairs of equal bytes, including each byte with itself.
fn squares(counts: &[u16; 256]) -> u32 {
    let squares = counts
        .iter()
        .map(|count| u32::from(*count) * u32::from(*count));
    squares.sum()
}

/// Returns the entropy in bits per byte, with the correction of Miller and Madow (1955) for few samples.
fn bits(counts: &[u16; 256]) -> f32 {
    let (mut total, mut kinds, mut weighted) = (0.0, 0u16, 0.0);
    for count in counts.iter().filter(|count| **count > 0) {
        let count = f32::from(*count);
        total += count;
        kinds += 1;
        weighted += count * count.log2();
    }
    let correction = f32::from(kinds.saturating_sub(1)) * std::f32::consts::LOG2_E / 2.0;
    (total.log2() * total - weighted + correction) / total
}

#[expect(clippy::indexing_slicing, reason = "a byte is below 256")]
fn bump(counts: &mut [u16; 256], byte: u8) {
    counts[usize::from(byte)] += 1;
}
