//! A store in one file: objects one after another, and the end of the valid bytes. FORMATS.md, "Bundle".
//!
//! Pure: bytes in, bytes out. The key of an object tells its type; the format of that type checks its bytes.

use super::ref_index::sum;
use crate::error::{Error, Result};

/// The first bytes of a bundle.
pub const BUNDLE_MAGIC: [u8; 8] = *b"STOREBDL";
/// Its version.
pub const BUNDLE_VERSION: u16 = 1;
/// Offset of the first record.
pub const BUNDLE_RECORDS: u64 = 4096;
/// Offsets of the two ends; the first pair is for even numbers. Each end is written twice, in separate sectors, so that
/// damage to one copy hides nothing.
pub const BUNDLE_ENDS: [[u64; 2]; 2] = [[512, 2560], [1024, 3072]];
/// Bytes of an end.
pub const BUNDLE_END_BYTES: usize = 32;
/// Bytes of the head of a record, without its key.
pub const BUNDLE_HEAD_BYTES: usize = 32;

/// How far the valid bytes of a bundle go. The newest intact end counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BundleEnd {
    /// Incremented with each new end.
    pub number: u64,
    /// Length of the bundle in bytes; a write beyond it was never finished.
    pub bytes: u64,
}

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BundleKind {
    /// An object; it replaces earlier objects of the same key.
    Object,
    /// The object of this key was removed.
    Removed,
}

/// The head before the bytes of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleRecord {
    /// The kind of the record.
    pub kind: BundleKind,
    /// The key of the object.
    pub key: String,
    /// Length of the object that follows, in bytes.
    pub body_bytes: u64,
    /// When it was written, in milliseconds since 1970; for people.
    pub modified: u64,
}

/// Returns the first bytes of a bundle, with all ends set to `end`.
pub fn encode_bundle_start(end: BundleEnd) -> Vec<u8> {
    let mut start = vec![0; usize::try_from(BUNDLE_RECORDS).unwrap_or(0)];
    let mut place = |at: u64, bytes: &[u8]| {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        if let Some(there) = start
            .get_mut(at..)
            .and_then(|rest| rest.get_mut(..bytes.len()))
        {
            there.copy_from_slice(bytes);
        }
    };
    place(0, &BUNDLE_MAGIC);
    place(8, &BUNDLE_VERSION.to_le_bytes());
    for at in BUNDLE_ENDS.into_iter().flatten() {
        place(at, &end.encode());
    }
    start
}

/// Returns the end of the bundle whose first bytes are `start`.
///
/// # Errors
/// Unsupported, when the version is unknown; corrupt, when this is not a bundle or no end is intact.
pub fn decode_bundle_start(start: &[u8]) -> Result<BundleEnd> {
    let short = || Error::corrupt("too short for a bundle");
    let (magic, rest) = start.split_first_chunk::<8>().ok_or_else(short)?;
    if *magic != BUNDLE_MAGIC {
        return Err(Error::corrupt("no bundle: another magic"));
    }
    if (start.len() as u64) < BUNDLE_RECORDS {
        return Err(short());
    }
    let version = rest
        .first_chunk::<2>()
        .map_or(0, |bytes| u16::from_le_bytes(*bytes));
    if version != BUNDLE_VERSION {
        let message = format!("version {version} of a bundle: expected {BUNDLE_VERSION}");
        return Err(Error::unsupported(message).hint("update this program"));
    }
    check_padding(start)?;
    let ends = BUNDLE_ENDS.into_iter().flatten().filter_map(|at| {
        let at = usize::try_from(at).ok()?;
        BundleEnd::decode(start.get(at..)?.first_chunk()?)
    });
    let end = ends.max_by_key(|end| end.number);
    let end = end.ok_or_else(|| Error::corrupt("neither of the two ends is whole"))?;
    match end.bytes >= BUNDLE_RECORDS && end.number < u64::MAX {
        true => Ok(end),
        false => Err(Error::corrupt("its end makes no sense")),
    }
}

/// Checks that all bytes other than the magic, the version and the ends are zero.
fn check_padding(start: &[u8]) -> Result<()> {
    let mut from = 10;
    let ends = [0, 1].into_iter().flat_map(|copy| {
        let ends = BUNDLE_ENDS.into_iter();
        ends.filter_map(move |copies| copies.get(copy).copied())
    });
    for at in ends.chain([BUNDLE_RECORDS]) {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let padding = start.get(from..at).unwrap_or_default();
        if padding.iter().any(|byte| *byte != 0) {
            return Err(Error::corrupt("there is something where nothing belongs"));
        }
        from = at.saturating_add(BUNDLE_END_BYTES);
    }
    Ok(())
}

impl BundleEnd {
    /// Returns the encoded bytes.
    pub fn encode(&self) -> [u8; BUNDLE_END_BYTES] {
        let mut bytes = [0; BUNDLE_END_BYTES];
        let fields = self
            .number
            .to_le_bytes()
            .into_iter()
            .chain(self.bytes.to_le_bytes());
        bytes
            .iter_mut()
            .zip(fields)
            .for_each(|(to, from)| *to = from);
        let (fields, own) = bytes.split_at_mut(24);
        own.copy_from_slice(&sum(fields));
        bytes
    }

    fn decode(bytes: &[u8; BUNDLE_END_BYTES]) -> Option<Self> {
        let (number, rest) = bytes.split_first_chunk::<8>()?;
        let end = Self {
            number: u64::from_le_bytes(*number),
            bytes: u64::from_le_bytes(*rest.first_chunk()?),
        };
        (end.encode() == *bytes).then_some(end)
    }
}

impl BundleRecord {
    /// Returns the head, followed by the key.
    ///
    /// # Errors
    /// Invalid input, when the key is longer than 65,535 bytes.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let key_bytes = u16::try_from(self.key.len())
            .map_err(|_| Error::invalid(format!("key {}: too long for a bundle", self.key)))?;
        let kind = match self.kind {
            BundleKind::Object => 1,
            BundleKind::Removed => 2,
        };
        let mut head = vec![kind, 0];
        head.extend(key_bytes.to_le_bytes());
        head.extend([0; 4]);
        head.extend(self.body_bytes.to_le_bytes());
        head.extend(self.modified.to_le_bytes());
        let own = sum(&[head.as_slice(), self.key.as_bytes()].concat());
        head.extend(own);
        head.extend(self.key.as_bytes());
        Ok(head)
    }

    /// Returns the length of the key that follows a head.
    pub fn key_bytes(head: &[u8; BUNDLE_HEAD_BYTES]) -> usize {
        usize::from(u16::from_le_bytes([head[2], head[3]]))
    }

    /// Parses a record from its head and its key.
    ///
    /// # Errors
    /// Corrupt, when their checksum does not match.
    pub fn decode(head: &[u8; BUNDLE_HEAD_BYTES], key: &[u8]) -> Result<Self> {
        let corrupt = || Error::corrupt("the head of a record is not what was written");
        let kind = match head[0] {
            1 => BundleKind::Object,
            2 => BundleKind::Removed,
            _ => return Err(corrupt()),
        };
        let number = |at: usize| {
            let bytes = head.get(at..).and_then(|rest| rest.first_chunk());
            bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        let record = Self {
            kind,
            key: String::from_utf8(key.to_vec()).map_err(|_| corrupt())?,
            body_bytes: number(8),
            modified: number(16),
        };
        match record.encode()?.starts_with(head) {
            true => Ok(record),
            false => Err(corrupt()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    const END: BundleEnd = BundleEnd {
        number: 7,
        bytes: 5000,
    };

    #[test]
    fn the_newest_whole_end_counts() {
        let mut start = encode_bundle_start(END);
        assert_eq!(decode_bundle_start(&start).unwrap(), END);
        let next = BundleEnd {
            number: 8,
            bytes: 6000,
        };
        for at in [512, 2560] {
            start[at..at + 32].copy_from_slice(&next.encode());
        }
        // Damage to one copy hides nothing.
        for bit in 0..256 {
            let mut damaged = start.clone();
            damaged[512 + bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode_bundle_start(&damaged).unwrap(), next, "bit {bit}");
        }
        // If both copies are torn, the end was never acknowledged.
        start[513] ^= 1;
        start[2561] ^= 1;
        assert_eq!(decode_bundle_start(&start).unwrap(), END);
        start[1025] ^= 1;
        start[3073] ^= 1;
        let error = decode_bundle_start(&start).unwrap_err();
        assert_eq!(error.to_string(), "neither of the two ends is whole");
    }

    #[test]
    fn ends_that_make_no_sense_and_stray_bytes_are_corrupt() {
        for (number, bytes) in [(u64::MAX, 5000), (7, 4095)] {
            let start = encode_bundle_start(BundleEnd { number, bytes });
            assert_eq!(
                decode_bundle_start(&start).unwrap_err().kind(),
                ErrorKind::Corrupt
            );
        }
        for at in [10, 511, 544, 1056, 2559, 2592, 3104, 4095] {
            let mut start = encode_bundle_start(END);
            start[at] = 1;
            let error = decode_bundle_start(&start).unwrap_err();
            assert_eq!(
                error.to_string(),
                "there is something where nothing belongs"
            );
        }
    }

    #[test]
    fn other_files_and_versions_are_refused() {
        let kind = |start: &[u8]| decode_bundle_start(start).unwrap_err().kind();
        assert_eq!(kind(b""), ErrorKind::Corrupt);
        assert_eq!(kind(&[0; 4096]), ErrorKind::Corrupt);
        let mut newer = encode_bundle_start(END);
        newer[8] = 2;
        assert_eq!(kind(&newer), ErrorKind::Unsupported);
        assert_eq!(kind(&encode_bundle_start(END)[..600]), ErrorKind::Corrupt);
    }

    #[test]
    fn records_come_back_and_every_flipped_bit_is_seen() {
        let object = BundleRecord {
            kind: BundleKind::Object,
            key: "packs/ab/abcd".into(),
            body_bytes: 1 << 40,
            modified: 1_700_000_000_000,
        };
        let removed = BundleRecord {
            kind: BundleKind::Removed,
            body_bytes: 0,
            ..object.clone()
        };
        for record in [object, removed] {
            check_record(&record);
        }
    }

    fn check_record(record: &BundleRecord) {
        let bytes = record.encode().unwrap();
        let (head, key) = bytes.split_first_chunk::<BUNDLE_HEAD_BYTES>().unwrap();
        assert_eq!(BundleRecord::key_bytes(head), key.len());
        assert_eq!(BundleRecord::decode(head, key).unwrap(), *record);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let (head, key) = damaged.split_first_chunk().unwrap();
            let error = BundleRecord::decode(head, key).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "bit {bit}");
        }
    }
}
