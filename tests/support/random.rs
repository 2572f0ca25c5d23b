//! Pseudorandom numbers from a seed, so that trees are reproducible.

/// SplitMix64, of Steele, Lea and Flood (2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number of the sequence.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound
    }

    /// Incompressible bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        // A plain loop, since nothing here is optimized: it is ten times as fast as an iterator over the bytes.
        let mut bytes = vec![0; len.next_multiple_of(8)];
        for eight in bytes.as_chunks_mut().0 {
            *eight = self.draw().to_le_bytes();
        }
        bytes.truncate(len);
        bytes
    }

    /// Text of a few words, which compresses well.
    pub fn text(&mut self, len: usize) -> Vec<u8> {
        const WORDS: [&str; 8] = [
            "tensor ",
            "gradient ",
            "loss ",
            "epoch ",
            "batch ",
            "layer ",
            "shard ",
            "token\n",
        ];
        let mut text = Vec::with_capacity(len + 16);
        while text.len() < len {
            let word = usize::try_from(self.below(8)).unwrap();
            text.extend_from_slice(WORDS.get(word).unwrap().as_bytes());
        }
        text.truncate(len);
        text
    }
}
