//! Ids: hashes and 16-byte random names. Each kind has its own type.
//!
//! `Display` prints the full lower-case hex that keys contain; `short()` is for people. Ids never convert into each
//! other silently.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident, $len:expr, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; $len]);

        impl $name {
            /// Length of the id in bytes.
            pub const LEN: usize = $len;

            /// Returns the first eight hex digits, for people; never part of a key.
            pub fn short(&self) -> String {
                let mut hex = self.to_string();
                hex.truncate(8);
                hex
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(out, concat!(stringify!($name), "({})"), self)
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self> {
                parse_hex(text).map(Self).ok_or_else(|| {
                    Error::invalid(format!(
                        concat!($what, " id {:?}: expected {} lower-case hex digits"),
                        text,
                        2 * $len
                    ))
                })
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, out: S) -> std::result::Result<S::Ok, S::Error> {
                out.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(input: D) -> std::result::Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(input)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

macro_rules! random_id {
    ($($name:ident),*) => {$(
        impl $name {
            /// Draws a new random id, which is practically unique.
            ///
            /// # Errors
            /// When the system cannot provide randomness.
            pub fn random() -> Result<Self> {
                let mut bytes = [0; Self::LEN];
                getrandom::fill(&mut bytes)
                    .map_err(|source| Error::unavailable("randomness of the system").because(source))?;
                Ok(Self(bytes))
            }
        }
    )*};
}

id_type!(
    /// BLAKE3-256 of a chunk's bytes.
    ChunkId, 32, "chunk"
);
id_type!(
    /// Random name of a pack.
    PackId, 16, "pack"
);
id_type!(
    /// Name of the key that encrypts the contents of a pack; all zeros if they are not encrypted.
    KeyId, 16, "key"
);
id_type!(
    /// Random name of a segment.
    SegmentId, 16, "segment"
);
id_type!(
    /// Random name of one commit, by which a writer recognizes its own log entry.
    CommitId, 16, "commit"
);
id_type!(
    /// BLAKE3-256 of a log entry's own line of JSON; the next entry refers to it.
    EntryId, 32, "entry"
);
id_type!(
    /// The checksum in the trailer of a checkpoint; a checkpoint on top of it refers to it.
    CheckpointId, 32, "checkpoint"
);
id_type!(
    /// Random name of one pass of a writer. It marks the pass's segments as in use until the pass ends.
    PassId, 16, "pass"
);
id_type!(
    /// BLAKE3-256 of the name of what is claimed; part of the keys of its claims.
    ClaimId, 32, "claim"
);
id_type!(
    /// Random name of a process that makes what it claimed, or waits for it.
    OwnerId, 16, "owner"
);
id_type!(
    /// Random name of a store, given at `init`.
    StoreId, 16, "store"
);
id_type!(
    /// Identifies a version of a ref in the keys of its uses: the first half of BLAKE3-256 of `<ref>@<number>`.
    VersionId, 16, "version"
);
impl Default for StoreId {
    /// The id of an unknown store.
    fn default() -> Self {
        Self([0; Self::LEN])
    }
}

impl StoreId {
    /// Whether the store is known.
    pub fn is_known(self) -> bool {
        self != Self::default()
    }
}

random_id!(PackId, SegmentId, CommitId, PassId, OwnerId, StoreId);

impl ChunkId {
    /// Returns the id of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }
}

fn parse_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let [high, low] = pair else { return None };
        *byte = (hex_digit(*high)? << 4) | hex_digit(*low)?;
    }
    Some(bytes)
}

fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_its_text() {
        let id = ChunkId::of(b"abc");
        assert_eq!(id.to_string().parse::<ChunkId>().unwrap(), id);
        assert_eq!(id.short(), "6437b3ac");
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(serde_json::from_str::<ChunkId>(&json).unwrap(), id);
    }

    #[test]
    fn text_that_is_no_id_is_refused_by_kind_and_length() {
        for bad in [
            "",
            "6437b3ac",
            &"G".repeat(32),
            &"A".repeat(32),
            &"0".repeat(33),
        ] {
            let error = bad.parse::<PackId>().unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("pack id {bad:?}: expected 32 lower-case hex digits")
            );
        }
    }

    #[test]
    fn random_names_differ() {
        assert_ne!(PackId::random().unwrap(), PackId::random().unwrap());
    }
}
