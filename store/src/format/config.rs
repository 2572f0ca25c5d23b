//! The object `format`: what a program must know before it touches a store.

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::id::StoreId;

/// Newest version of the format that this program writes.
pub const FORMAT_VERSION: u32 = 1;

/// Parameters of the chunker; part of a store's identity, since they decide what deduplicates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkerParams {
    /// `fastcdc-v2020`.
    pub algorithm: String,
    /// Least bytes of a chunk but the last; even.
    pub min: u32,
    /// Average aimed at; even.
    pub avg: u32,
    /// Most bytes of a chunk; even, at most [`crate::format::CHUNK_BYTES_MAX`].
    pub max: u32,
    /// Normalization level, 0 to 3.
    pub normalization: u8,
    /// Seed of the gear table; 0 is the table of the paper.
    pub seed: u64,
}

/// Lists of features in use, by what a program that does not know one may still do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Features {
    /// Unknown ones may be ignored.
    pub compatible: Vec<String>,
    /// A program that does not know one may read, not write.
    pub read_only: Vec<String>,
    /// A program that does not know one must refuse the store.
    pub incompatible: Vec<String>,
}

/// The object `format`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Format {
    /// Version of the whole layout.
    pub version: u32,
    /// Random name of the store.
    pub id: StoreId,
    /// How files are cut.
    pub chunker: ChunkerParams,
    /// Features in use.
    pub features: Features,
}

impl Format {
    /// The format of a new store: version 1, FastCDC 16/64/256 KiB, no features.
    pub fn new(_id: StoreId) -> Self {
        todo!()
    }

    /// The object's bytes.
    pub fn encode(&self) -> Result<Vec<u8>> {
        todo!()
    }

    /// Parses and checks: version known, features known, chunker parameters within limits.
    pub fn decode(_bytes: &[u8]) -> Result<Self> {
        todo!()
    }

    /// Whether a program may write here, or the name of the feature that forbids it.
    pub fn check_writable(&self) -> Result<()> {
        todo!()
    }
}
