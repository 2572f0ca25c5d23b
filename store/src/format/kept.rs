//! What a put was asked to keep beside a tree: the modes or the owners of all entries, in depth-first order, the
//! root's first.
//!
//! Side objects like times, and in the same order; they change the id of no tree.

use std::fmt;
use std::str::FromStr;

use super::cursor::{Cursor, corrupt};
use super::times::{push_varint, take_varint};
use crate::error::{Error, Result};

/// The first bytes of a list of modes.
pub const MODES_MAGIC: [u8; 4] = *b"mode";
/// The first bytes of a list of owners.
pub const OWNERS_MAGIC: [u8; 4] = *b"ownr";
/// Version of both lists.
pub const KEPT_VERSION: u8 = 1;
/// Bytes before the first entry: magic, version, padding.
pub const KEPT_HEADER_LEN: usize = 4 + 1 + 3;
/// Most of a mode: permissions, and the bits for setuid, setgid and sticky.
pub const MODE_MAX: u32 = 0o7777;
/// Most of the number of a user or group: the one above means nobody to the system.
pub const OWNER_MAX: u32 = u32::MAX - 1;

/// A kind of side object that a put keeps when it is asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Permissions.
    Modes,
    /// Users and groups, by number.
    Owners,
}

/// What is kept of one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Its permissions.
    Mode(u32),
    /// Its user and group.
    Owner(u32, u32),
}

impl Keep {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Modes, Self::Owners];

    /// The kind of its side object.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Modes => "modes",
            Self::Owners => "owners",
        }
    }

    /// A new list: appends its header to `out`.
    pub fn begin(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.magic());
        out.extend_from_slice(&[KEPT_VERSION, 0, 0, 0]);
    }

    const fn magic(self) -> [u8; 4] {
        match self {
            Self::Modes => MODES_MAGIC,
            Self::Owners => OWNERS_MAGIC,
        }
    }

    fn check_header(self, header: &[u8]) -> Result<()> {
        let mut cursor = Cursor::new(self.as_str(), header);
        cursor.magic(&self.magic())?;
        let version = cursor.u8("version")?;
        cursor.version(version.into(), KEPT_VERSION.into())?;
        cursor.zeros(3)
    }

    /// A number of at most `most`, and its bytes.
    fn number(self, input: &[u8], most: u32) -> Result<Option<(u32, usize)>> {
        let Some((value, len)) = take_varint(self.as_str(), input)? else {
            return Ok(None);
        };
        let value = u32::try_from(value).ok().filter(|value| *value <= most);
        let value = value.ok_or_else(|| {
            corrupt(
                self.as_str(),
                format_args!("expected at most {most}, found more"),
            )
        })?;
        Ok(Some((value, len)))
    }

    fn entry(self, input: &[u8]) -> Result<Option<(Kept, usize)>> {
        match self {
            Self::Modes => {
                let mode = self.number(input, MODE_MAX)?;
                Ok(mode.map(|(mode, len)| (Kept::Mode(mode), len)))
            }
            Self::Owners => {
                let Some((user, len)) = self.number(input, OWNER_MAX)? else {
                    return Ok(None);
                };
                let group = self.number(input.get(len..).unwrap_or_default(), OWNER_MAX)?;
                Ok(group.map(|(group, more)| (Kept::Owner(user, group), len + more)))
            }
        }
    }
}

impl Kept {
    /// Appends this entry to its list.
    pub fn push(self, out: &mut Vec<u8>) {
        match self {
            Self::Mode(mode) => push_varint((mode & MODE_MAX).into(), out),
            Self::Owner(user, group) => {
                push_varint(user.min(OWNER_MAX).into(), out);
                push_varint(group.min(OWNER_MAX).into(), out);
            }
        }
    }
}

/// Reads entries one after another out of bytes that arrive in pieces.
#[derive(Debug)]
pub struct KeptDecoder {
    keep: Keep,
    started: bool,
}

impl KeptDecoder {
    /// A decoder at the start of a list.
    pub fn new(keep: Keep) -> Self {
        Self {
            keep,
            started: false,
        }
    }

    /// The next entry and how many bytes of `input` it took (the header included, the first time); `None` when
    /// `input` is too short to hold one.
    ///
    /// # Errors
    /// Corrupt, when a number has another spelling or is out of range; unsupported, when the version is another.
    pub fn next(&mut self, input: &[u8]) -> Result<Option<(Kept, usize)>> {
        let header = if self.started { 0 } else { KEPT_HEADER_LEN };
        let Some((header, rest)) = input.split_at_checked(header) else {
            return Ok(None);
        };
        if !self.started {
            self.keep.check_header(header)?;
        }
        let Some((kept, len)) = self.keep.entry(rest)? else {
            return Ok(None);
        };
        self.started = true;
        Ok(Some((kept, header.len() + len)))
    }
}

/// All entries of a whole list.
///
/// # Errors
/// Corrupt, when an entry is not spelled as [`Kept::push`] spells it or is cut short.
pub fn decode_kept(keep: Keep, bytes: &[u8]) -> Result<Vec<Kept>> {
    let (mut decoder, mut found, mut rest) = (KeptDecoder::new(keep), Vec::new(), bytes);
    while let Some((kept, taken)) = decoder.next(rest)? {
        found.push(kept);
        rest = rest.get(taken..).unwrap_or_default();
    }
    if rest.is_empty() && !found.is_empty() {
        return Ok(found);
    }
    let at = bytes.len() - rest.len();
    let detail = format_args!(
        "entry at offset {at}: expected a whole one, found {} bytes",
        rest.len()
    );
    Err(corrupt(keep.as_str(), detail))
}

impl fmt::Display for Keep {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl FromStr for Keep {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|keep| keep.as_str() == name);
        found.ok_or_else(|| Error::invalid(format!("{name}: expected modes or owners")))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encode(keep: Keep, entries: &[Kept]) -> Vec<u8> {
        let mut bytes = Vec::new();
        keep.begin(&mut bytes);
        entries.iter().for_each(|entry| entry.push(&mut bytes));
        bytes
    }

    proptest! {
        #[test]
        fn lists_survive_in_pieces(
            modes in proptest::collection::vec(0..=MODE_MAX, 1..50),
            owners in proptest::collection::vec((0..=OWNER_MAX, 0..=OWNER_MAX), 1..50),
        ) {
            let modes: Vec<_> = modes.into_iter().map(Kept::Mode).collect();
            let owners: Vec<_> = owners.into_iter().map(|(u, g)| Kept::Owner(u, g)).collect();
            for (keep, entries) in [(Keep::Modes, modes), (Keep::Owners, owners)] {
                let bytes = encode(keep, &entries);
                prop_assert_eq!(decode_kept(keep, &bytes).unwrap(), entries.clone());
                let (mut decoder, mut found, mut start) = (KeptDecoder::new(keep), Vec::new(), 0);
                for end in 0..=bytes.len() {
                    while let Some((kept, used)) = decoder.next(&bytes[start..end]).unwrap() {
                        found.push(kept);
                        start += used;
                    }
                }
                prop_assert_eq!(found, entries);
            }
        }
    }

    #[test]
    fn numbers_that_no_system_has_are_refused() {
        for (keep, number) in [(Keep::Modes, 0o10000), (Keep::Owners, u64::from(u32::MAX))] {
            let mut bytes = encode(keep, &[]);
            push_varint(number, &mut bytes);
            push_varint(0, &mut bytes);
            let error = decode_kept(keep, &bytes).unwrap_err().to_string();
            assert!(error.ends_with("found more"), "{error}");
        }
    }

    #[test]
    fn names_are_the_kinds() {
        for keep in Keep::ALL {
            assert_eq!(keep.to_string().parse::<Keep>().unwrap(), keep);
        }
        assert!("xattrs".parse::<Keep>().is_err());
    }
}
