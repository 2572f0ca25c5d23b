//! Attributes kept beside a tree on request: modes, owners or extended attributes of all entries, in depth-first order,
//! beginning with the root.
//!
//! Like times, they are side objects in the order of the entries, and do not affect the id of any tree.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::cursor::{Cursor, corrupt};
use super::times::{push_varint, take_varint};
use crate::error::{Error, Result};

/// The first bytes of a list of modes.
pub const MODES_MAGIC: [u8; 4] = *b"mode";
/// The first bytes of a list of owners.
pub const OWNERS_MAGIC: [u8; 4] = *b"ownr";
/// The first bytes of a list of extended attributes.
pub const XATTRS_MAGIC: [u8; 4] = *b"xatr";
/// Version of all lists.
pub const KEPT_VERSION: u8 = 1;
/// Bytes before the first entry: magic, version, padding.
pub const KEPT_HEADER_LEN: usize = 4 + 1 + 3;
/// The highest mode: permissions and the bits for setuid, setgid and sticky.
pub const MODE_MAX: u32 = 0o7777;
/// The highest user or group number: the system uses the next one for "no user".
pub const OWNER_MAX: u32 = u32::MAX - 1;
/// Most bytes of the name of an extended attribute.
pub const XATTR_NAME_MAX: u32 = 255;
/// Most bytes of the value of an extended attribute.
pub const XATTR_VALUE_MAX: u32 = 1 << 16;
/// Most bytes of the encoded attributes of one entry.
pub const XATTRS_BYTES_MAX: usize = 1 << 20;

/// Extended attributes of an entry: values by name.
pub type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// A kind of side object that a put keeps on request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Permissions.
    Modes,
    /// Users and groups, by number.
    Owners,
    /// Extended attributes.
    Xattrs,
}

/// The kept attributes of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Its permissions.
    Mode(u32),
    /// Its user and group.
    Owner(u32, u32),
    /// Its extended attributes.
    Xattrs(Xattrs),
}

impl Keep {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Modes, Self::Owners, Self::Xattrs];

    /// Returns the kind of its side object.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Modes => "modes",
            Self::Owners => "owners",
            Self::Xattrs => "xattrs",
        }
    }

    /// Begins a list: appends its header to `out`.
    pub fn begin(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.magic());
        out.extend_from_slice(&[KEPT_VERSION, 0, 0, 0]);
    }

    const fn magic(self) -> [u8; 4] {
        match self {
            Self::Modes => MODES_MAGIC,
            Self::Owners => OWNERS_MAGIC,
            Self::Xattrs => XATTRS_MAGIC,
        }
    }

    fn check_header(self, header: &[u8]) -> Result<()> {
        let mut cursor = Cursor::new(self.as_str(), header);
        cursor.magic(&self.magic())?;
        let version = cursor.u8("version")?;
        cursor.version(version.into(), KEPT_VERSION.into())?;
        cursor.zeros(3)
    }

    /// Reads a number of at most `most`; returns it and its length in bytes.
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
            Self::Xattrs => {
                let found = self.xattrs(input)?;
                if found.as_ref().map_or(input.len(), |(_, len)| *len) > XATTRS_BYTES_MAX {
                    let expected =
                        format_args!("expected at most {XATTRS_BYTES_MAX} bytes an entry");
                    return Err(corrupt(self.as_str(), expected));
                }
                Ok(found.map(|(found, len)| (Kept::Xattrs(found), len)))
            }
        }
    }

    /// Reads attributes, which are sorted by name; returns them and their length in bytes.
    fn xattrs(self, input: &[u8]) -> Result<Option<(Xattrs, usize)>> {
        // Each attribute takes at least three bytes, so the bytes of an entry hold fewer than 2^19.
        let Some((count, mut at)) = self.number(input, 1 << 19)? else {
            return Ok(None);
        };
        let mut found = Xattrs::new();
        let mut text = |most: u32| -> Result<Option<Vec<u8>>> {
            let rest = input.get(at..).unwrap_or_default();
            let Some((len, taken)) = self.number(rest, most)? else {
                return Ok(None);
            };
            let text = rest.get(taken..taken + len as usize);
            at += taken + len as usize;
            Ok(text.map(<[u8]>::to_vec))
        };
        for _ in 0..count {
            let Some(name) = text(XATTR_NAME_MAX)? else {
                return Ok(None);
            };
            let is_next = found.last_key_value().is_none_or(|(last, _)| *last < name);
            if name.is_empty() || name.contains(&0) || !is_next {
                let expected = "expected names in order, each once, without a zero byte";
                return Err(corrupt(self.as_str(), expected));
            }
            let Some(value) = text(XATTR_VALUE_MAX)? else {
                return Ok(None);
            };
            found.insert(name, value);
        }
        Ok(Some((found, at)))
    }
}

impl Kept {
    /// Appends this entry to its list.
    pub fn push(&self, out: &mut Vec<u8>) {
        match self {
            Self::Mode(mode) => push_varint((mode & MODE_MAX).into(), out),
            Self::Owner(user, group) => {
                push_varint((*user).min(OWNER_MAX).into(), out);
                push_varint((*group).min(OWNER_MAX).into(), out);
            }
            Self::Xattrs(xattrs) => {
                push_varint(xattrs.len() as u64, out);
                for text in xattrs.iter().flat_map(|(name, value)| [name, value]) {
                    push_varint(text.len() as u64, out);
                    out.extend_from_slice(text);
                }
            }
        }
    }
}

/// Decodes entries one by one from bytes that arrive in pieces.
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

    /// Returns the next entry and how many bytes of `input` it took, including the header the first time. Returns
    /// `None` when `input` does not hold a whole entry.
    ///
    /// # Errors
    /// Corrupt, when a number is not in its shortest form or out of range; unsupported, when the version is unknown.
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

/// Decodes all entries of a complete list.
///
/// # Errors
/// Corrupt, when an entry is not encoded as [`Kept::push`] would, or is incomplete.
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
        found.ok_or_else(|| Error::invalid(format!("{name}: expected modes, owners or xattrs")))
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

    fn xattrs() -> impl Strategy<Value = Xattrs> {
        let value = proptest::collection::vec(any::<u8>(), 0..300);
        proptest::collection::btree_map(proptest::collection::vec(1..=255u8, 1..9), value, 0..4)
    }

    proptest! {
        #[test]
        fn lists_survive_in_pieces(
            modes in proptest::collection::vec(0..=MODE_MAX, 1..50),
            owners in proptest::collection::vec((0..=OWNER_MAX, 0..=OWNER_MAX), 1..50),
            xattrs in proptest::collection::vec(xattrs(), 1..10),
        ) {
            let xattrs: Vec<_> = xattrs.into_iter().map(Kept::Xattrs).collect();
            let modes: Vec<_> = modes.into_iter().map(Kept::Mode).collect();
            let owners: Vec<_> = owners.into_iter().map(|(u, g)| Kept::Owner(u, g)).collect();
            for (keep, entries) in [(Keep::Modes, modes), (Keep::Owners, owners), (Keep::Xattrs, xattrs)] {
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
    fn attributes_have_one_spelling_and_an_end() {
        let list = |entry: &[u8]| [&b"xatr\x01\0\0\0"[..], entry].concat();
        let good = list(b"\x02\x01a\x00\x01b\x02vw");
        let expected = [(b"a".to_vec(), Vec::new()), (b"b".to_vec(), b"vw".to_vec())];
        let expected = Kept::Xattrs(expected.into());
        assert_eq!(decode_kept(Keep::Xattrs, &good).unwrap(), [expected]);
        for (entry, said) in [
            (&b"\x02\x01b\x00\x01a\x00"[..], "in order"),
            (b"\x02\x01a\x00\x01a\x00", "in order"),
            (b"\x01\x00\x00", "in order"),
            (b"\x01\x02a\0\x00", "without a zero byte"),
            (b"\x01\x80\x02a", "at most 255"),
            (b"\x01\x01a\x81\x80\x04", "at most 65536"),
            (b"\xff\xff\xff\x01", "found more"),
            (b"\x01\x01a\x05vw", "expected a whole one"),
        ] {
            let error = decode_kept(Keep::Xattrs, &list(entry)).unwrap_err();
            assert!(error.to_string().contains(said), "{entry:?}: {error}");
        }
        let text = |len: usize| [&[0x80, 0x80, 0x04][..], &vec![7; len]].concat();
        let mut much = vec![17];
        for name in b'a'..=b'q' {
            much.extend_from_slice(&[1, name]);
            much.extend(text(1 << 16));
        }
        let error = decode_kept(Keep::Xattrs, &list(&much)).unwrap_err();
        assert!(error.to_string().contains("bytes an entry"), "{error}");
    }

    #[test]
    fn names_are_the_kinds() {
        for keep in Keep::ALL {
            assert_eq!(keep.to_string().parse::<Keep>().unwrap(), keep);
        }
        assert!("acls".parse::<Keep>().is_err());
    }
}
