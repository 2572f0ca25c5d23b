//! Sealed text: one line of JSON and one line with its checksum, readable with `head -1`.
//!
//! The JSON contains no newline, and nothing follows the second line. Both lines together have at most
//! [`SEALED_BYTES_MAX`] bytes.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::cursor::{check_version, corrupt};
use crate::error::{Error, Result};

/// Most bytes of sealed text, so that a hostile object cannot fill the memory.
pub const SEALED_BYTES_MAX: usize = 1 << 30;
/// Bytes of the second line: `blake3 `, 64 hex digits and a newline.
pub const SEAL_BYTES: usize = 72;

/// Returns the sealed text of `value`.
///
/// # Errors
/// When `value` is not valid JSON or its text is larger than [`SEALED_BYTES_MAX`].
pub fn seal<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    let mut text = serde_json::to_vec(value)
        .map_err(|source| Error::invalid("sealed text: value is no JSON").because(source))?;
    let line = seal_line(&text);
    text.push(b'\n');
    text.extend_from_slice(line.as_bytes());
    if text.len() <= SEALED_BYTES_MAX {
        return Ok(text);
    }
    Err(Error::invalid(format!(
        "sealed text: expected at most {SEALED_BYTES_MAX} bytes, found {}",
        text.len()
    )))
}

/// Returns the value in a sealed text; `object` names the text in errors.
///
/// # Errors
/// Corrupt, when the checksum does not match or the JSON does not hold such a value.
pub fn unseal<T: DeserializeOwned>(object: &str, bytes: &[u8]) -> Result<T> {
    parse(object, unseal_text(object, bytes)?)
}

/// Checks the checksum, and returns the line of JSON in a sealed text.
///
/// # Errors
/// Corrupt, when there are not exactly two lines or the second is not the checksum of the first.
pub fn unseal_text<'a>(object: &str, bytes: &'a [u8]) -> Result<&'a [u8]> {
    if bytes.len() > SEALED_BYTES_MAX {
        let detail = format_args!(
            "expected at most {SEALED_BYTES_MAX} bytes, found {}",
            bytes.len()
        );
        return Err(corrupt(object, detail));
    }
    let lines = bytes
        .len()
        .checked_sub(SEAL_BYTES)
        .and_then(|at| bytes.split_at_checked(at))
        .and_then(|(first, second)| Some((first.strip_suffix(b"\n")?, second)));
    let Some((text, found)) = lines.filter(|(text, _)| !text.contains(&b'\n')) else {
        let detail = format_args!(
            "expected a line of JSON and a line `blake3 <64 hex digits>`, found {} bytes of another shape",
            bytes.len()
        );
        return Err(corrupt(object, detail));
    };
    let expected = seal_line(text);
    if found == expected.as_bytes() {
        return Ok(text);
    }
    let detail = format_args!(
        "checksum of its first line is `{}`, its second line is `{}`",
        expected.trim_end(),
        found.escape_ascii()
    );
    Err(corrupt(object, detail))
}

/// Returns the sealed text of `value`, with `magic` and `version` as the first fields.
pub(super) fn seal_as<T: Serialize>(
    magic: &str,
    version: Option<u32>,
    value: &T,
) -> Result<Vec<u8>> {
    seal(&Marked {
        magic,
        version,
        value,
    })
}

/// Like [`unseal_text`], but also checks `magic` and `version`.
pub(super) fn unseal_as<'a>(
    object: &str,
    magic: &str,
    version: u32,
    bytes: &'a [u8],
) -> Result<&'a [u8]> {
    let text = unseal_text(object, bytes)?;
    let head: Head = parse(object, text)?;
    if head.magic != magic {
        let detail = format_args!("magic: expected {magic:?}, found {:?}", head.magic);
        return Err(corrupt(object, detail));
    }
    check_version(object, head.version, version)?;
    Ok(text)
}

/// Parses `text` as JSON.
pub(super) fn parse<'a, T: Deserialize<'a>>(object: &str, text: &'a [u8]) -> Result<T> {
    serde_json::from_slice(text)
        .map_err(|source| corrupt(object, format_args!("JSON: {source}")).because(source))
}

#[derive(Serialize)]
struct Marked<'a, T> {
    magic: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u32>,
    #[serde(flatten)]
    value: &'a T,
}

#[derive(Deserialize)]
struct Head {
    magic: String,
    version: u32,
}

fn seal_line(text: &[u8]) -> String {
    format!("blake3 {}\n", blake3::hash(text).to_hex())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    const SEALED: &str =
        "[1,2]\nblake3 f8cd3c6ea05fbb04a8e5abfccb09a8b5a7cc0e6cd8ffc4b4fddb9e7b5d38e0e1\n";

    #[test]
    fn sealed_text_is_two_lines() {
        let sealed = seal(&[1, 2]).unwrap();
        let text = String::from_utf8(sealed.clone()).unwrap();
        assert_eq!(text.lines().next(), Some("[1,2]"));
        assert_eq!(text.len(), "[1,2]\n".len() + SEAL_BYTES);
        assert_eq!(text.len(), SEALED.len());
        assert_eq!(unseal::<[u8; 2]>("x", &sealed).unwrap(), [1, 2]);
    }

    #[test]
    fn every_flipped_byte_is_noticed() {
        let sealed = seal(&[1, 2]).unwrap();
        for at in 0..sealed.len() {
            let mut bytes = sealed.clone();
            bytes[at] ^= 1;
            let error = unseal::<[u8; 2]>("x", &bytes).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at}");
        }
    }

    #[test]
    fn a_wrong_checksum_is_told_with_the_right_one() {
        let right = seal(&[1, 2]).unwrap();
        let right = String::from_utf8(right).unwrap();
        let right = right.lines().nth(1).unwrap();
        let error = unseal::<[u8; 2]>("x", SEALED.as_bytes()).unwrap_err();
        let wrong = SEALED.lines().nth(1).unwrap();
        assert_eq!(
            error.to_string(),
            format!("x: checksum of its first line is `{right}`, its second line is `{wrong}\\n`")
        );
    }

    #[test]
    fn other_shapes_are_refused() {
        let two_lines = [b"[1,\n2]\n", seal_line(b"[1,\n2]").as_bytes()].concat();
        let trailing = [seal(&[1, 2]).unwrap(), b"\n".to_vec()].concat();
        for bytes in [&b""[..], b"[1,2]\n", &two_lines, &trailing, &[0; 72]] {
            let error = unseal::<[u8; 2]>("x", bytes).unwrap_err();
            assert!(
                error
                    .to_string()
                    .starts_with("x: expected a line of JSON and a line"),
                "{error}"
            );
        }
    }

    #[test]
    fn json_of_another_shape_is_corrupt() {
        let error = unseal::<[u8; 3]>("x", &seal(&[1, 2]).unwrap()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "x: JSON: invalid length 2, expected an array of length 3 at line 1 column 5"
        );
    }
}
