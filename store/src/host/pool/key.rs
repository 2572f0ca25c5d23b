//! Names of pool files: the content and the executable bit, nothing else.
//!
//! A name is `<64 hex of the root>-<depth>-<size>`, followed by `-x` if the file is executable. It has everything that
//! a comparison needs, so only the file itself has to be inspected.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::format::{CONTENT_DEPTH_MAX, Content};
use crate::id::ChunkId;

/// The largest file that is read whole and hashed when it is copied.
const VERIFIED_BYTES_MAX: u64 = 64 << 10;

/// The key of a pool file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolKey {
    /// Its content.
    pub content: Content,
    /// Whether it is executable: mode 0555 instead of 0444.
    pub executable: bool,
}

impl PoolKey {
    /// The mode of its file.
    pub fn mode(&self) -> u32 {
        if self.executable { 0o555 } else { 0o444 }
    }

    /// Whether a copy of the file is verified while it is made: it is small, and a single chunk, whose id is in the
    /// name.
    pub(crate) fn is_verified_when_copied(&self) -> bool {
        self.content.depth == 0 && self.content.size <= VERIFIED_BYTES_MAX
    }

    /// The number of its directory, one of 256.
    pub(super) fn shard(&self) -> u8 {
        let [first, ..] = self.content.root.0;
        first
    }

    /// The name of its file.
    pub(super) fn name(&self) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut name = String::with_capacity(96);
        // Names are made for every link, and a formatter would take longer than the link.
        for byte in self.content.root.0 {
            for digit in [byte >> 4, byte & 15] {
                name.extend(
                    DIGITS
                        .get(usize::from(digit))
                        .map(|digit| char::from(*digit)),
                );
            }
        }
        name.push('-');
        name.push(char::from(b'0' + self.content.depth));
        name.push('-');
        name += &self.content.size.to_string();
        if self.executable {
            name += "-x";
        }
        name
    }
}

impl fmt::Display for PoolKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.name())
    }
}

impl FromStr for PoolKey {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        parse(name)
            .filter(|key| key.name() == name)
            .ok_or_else(|| Error::invalid(format!("{name}: is no name of a pool file")))
    }
}

fn parse(name: &str) -> Option<PoolKey> {
    let mut parts = name.split('-');
    let root: ChunkId = parts.next()?.parse().ok()?;
    let depth: u8 = parts.next()?.parse().ok()?;
    let size: u64 = parts.next()?.parse().ok()?;
    let executable = match parts.next() {
        None => false,
        Some("x") => true,
        Some(_) => return None,
    };
    let key = PoolKey {
        content: Content { size, depth, root },
        executable,
    };
    (depth <= CONTENT_DEPTH_MAX && parts.next().is_none()).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_everything_and_has_one_spelling() {
        for (size, depth, executable) in [(0, 0, false), (7, 0, true), (u64::MAX, 8, true)] {
            let root = ChunkId::of(&[depth]);
            let key = PoolKey {
                content: Content { size, depth, root },
                executable,
            };
            let name = key.to_string();
            assert!(name.starts_with(&root.to_string()), "{name}");
            assert_eq!(name.parse::<PoolKey>().unwrap(), key);
            let deep = PoolKey {
                content: Content {
                    depth: CONTENT_DEPTH_MAX + 1,
                    ..key.content
                },
                executable,
            };
            for wrong in [
                deep.to_string(),
                format!("{name}-"),
                name.to_uppercase(),
                name.replacen('-', "-0", 1),
                name.replacen('-', "-+", 1),
                format!("{name}-x-x"),
            ] {
                assert!(wrong.parse::<PoolKey>().is_err(), "{wrong}");
            }
        }
    }
}
