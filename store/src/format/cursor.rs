//! A cursor over the bytes of one object. Its errors name the offset, what was expected and what was found.
//!
//! Never reads past the end, never allocates. Integers are little-endian, as everywhere.

use crate::error::{Error, Result};
use crate::remedy::Remedy;

/// Reads one field after another.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    object: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// A cursor at the start of `bytes`; `object` names them in errors.
    pub(super) fn new(object: &'a str, bytes: &'a [u8]) -> Self {
        Self {
            object,
            bytes,
            at: 0,
        }
    }

    /// Offset of the next field.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Bytes that have not been read yet.
    pub(super) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// An error about the object: `object: detail`.
    pub(super) fn error(&self, detail: impl std::fmt::Display) -> Error {
        corrupt(self.object, detail)
    }

    /// An error about the field `what` that was just read at `at`.
    pub(super) fn error_at(
        &self,
        at: usize,
        what: &str,
        expected: impl std::fmt::Display,
        found: impl std::fmt::Display,
    ) -> Error {
        self.error(format_args!(
            "{what} at offset {at}: expected {expected}, found {found}"
        ))
    }

    /// Reads the next `len` bytes.
    pub(super) fn take(&mut self, what: &str, len: usize) -> Result<&'a [u8]> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some((taken, _)) = rest.split_at_checked(len) else {
            let expected = format_args!("{len} bytes");
            return Err(self.error_at(self.at, what, expected, rest.len()));
        };
        self.at += len;
        Ok(taken)
    }

    /// Reads the next `N` bytes.
    pub(super) fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(what, N)?);
        Ok(array)
    }

    pub(super) fn u8(&mut self, what: &str) -> Result<u8> {
        self.array(what).map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self, what: &str) -> Result<u16> {
        self.array(what).map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// Reads the magic that every object begins or ends with.
    pub(super) fn magic(&mut self, magic: &[u8]) -> Result<()> {
        let at = self.at;
        let found = self.take("magic", magic.len())?;
        if found == magic {
            return Ok(());
        }
        let expected = magic.escape_ascii();
        let found = found.escape_ascii();
        Err(self.error_at(at, "magic", expected, found))
    }

    /// Checks the version of this object's layout.
    pub(super) fn version(&self, found: u16, known: u16) -> Result<()> {
        check_version(self.object, u32::from(found), u32::from(known))
    }

    /// Reads padding, which must be zero in this version.
    pub(super) fn zeros(&mut self, len: usize) -> Result<()> {
        let at = self.at;
        let found = self.take("padding", len)?;
        if found.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        Err(self.error_at(at, "padding", "zeros", Hex(found)))
    }

    /// Checks that no bytes follow.
    pub(super) fn end(&self) -> Result<()> {
        if self.left() == 0 {
            return Ok(());
        }
        let (at, left) = (self.at, self.left());
        Err(self.error(format_args!(
            "expected its end at offset {at}, found {left} more bytes"
        )))
    }
}

/// Bytes as hex digits, for messages.
pub(super) struct Hex<'a>(pub(super) &'a [u8]);

impl std::fmt::Display for Hex<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

/// The error for an `object` whose bytes are not what was written.
pub(super) fn corrupt(object: &str, detail: impl std::fmt::Display) -> Error {
    Error::corrupt(format!("{object}: {detail}")).hint(Remedy::VerifyThenRepairOrPut)
}

/// Checks a version. One that this program does not read is unsupported, and the message names both.
pub(super) fn check_version(object: &str, found: u32, known: u32) -> Result<()> {
    if found == known {
        return Ok(());
    }
    let message = format!("{object}: version is {found}, this program reads {known}");
    Err(Error::unsupported(message).hint("update this program"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_field_that_is_cut_short_is_named_with_its_place() {
        let mut cursor = Cursor::new("tree 0", b"\x01\x02\x03");
        assert_eq!(cursor.u8("kind").unwrap(), 1);
        let error = cursor.u32("size").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert_eq!(
            error.to_string(),
            "tree 0: size at offset 1: expected 4 bytes, found 2"
        );
        assert_eq!(cursor.u16("count").unwrap(), 0x0302);
        cursor.end().unwrap();
    }

    #[test]
    fn magic_padding_and_end_are_compared() {
        let mut cursor = Cursor::new("x", b"abc\0\x01z");
        let error = cursor.clone().magic(b"abd").unwrap_err();
        assert_eq!(
            error.to_string(),
            "x: magic at offset 0: expected abd, found abc"
        );
        cursor.magic(b"abc").unwrap();
        let error = cursor.zeros(2).unwrap_err();
        assert_eq!(
            error.to_string(),
            "x: padding at offset 3: expected zeros, found 0001"
        );
        let error = cursor.end().unwrap_err();
        assert_eq!(
            error.to_string(),
            "x: expected its end at offset 5, found 1 more bytes"
        );
    }
}
