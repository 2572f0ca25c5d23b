//! UTF-16 text, which some editors and shells write.

/// Bytes at the beginning by which UTF-16 is recognized.
const HEAD_BYTES: usize = 8 << 10;
/// Without a byte order mark, at most one of this many letters may be outside of Latin.
const LATIN_OF: usize = 4;

/// The text as UTF-8; none, if it is not UTF-16.
pub(super) fn text(bytes: &[u8]) -> Option<Vec<u8>> {
    let (letters, rest) = bytes.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let read: fn([u8; 2]) -> u16 = match bytes {
        [0xff, 0xfe, ..] => u16::from_le_bytes,
        [0xfe, 0xff, ..] => u16::from_be_bytes,
        _ => unmarked(letters.get(..HEAD_BYTES / 2).unwrap_or(letters))?,
    };
    let letters = letters.iter().map(|pair| read(*pair));
    let text: String = char::decode_utf16(letters)
        .map(|letter| letter.unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect();
    Some(text.trim_start_matches('\u{feff}').as_bytes().to_vec())
}

/// Recognizes UTF-16 without a mark: zeros are on one side of nearly all letters, and never on the other.
fn unmarked(letters: &[[u8; 2]]) -> Option<fn([u8; 2]) -> u16> {
    if !letters.as_flattened().contains(&0) {
        return None;
    }
    let zeros = |side: usize| {
        let zeros = letters.iter().filter(|pair| pair.get(side) == Some(&0));
        zeros.count()
    };
    let latin_min = letters.len() - letters.len() / LATIN_OF;
    match (zeros(0), zeros(1)) {
        (0, zeros) if zeros > 0 && zeros >= latin_min => Some(u16::from_le_bytes),
        (zeros, 0) if zeros > 0 && zeros >= latin_min => Some(u16::from_be_bytes),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wide(text: &str, to: fn(u16) -> [u8; 2]) -> Vec<u8> {
        text.encode_utf16().flat_map(to).collect()
    }

    #[test]
    fn both_orders_are_read_with_and_without_a_mark() {
        let said = "HF_TOKEN=x \u{e4}\u{4e2d}\n";
        for to in [u16::to_le_bytes, u16::to_be_bytes] {
            for marked in [said.to_owned(), format!("\u{feff}{said}")] {
                let found = text(&wide(&marked, to)).unwrap();
                assert_eq!(String::from_utf8(found).unwrap(), said);
            }
        }
    }

    #[test]
    fn other_bytes_are_no_such_text() {
        for bytes in [
            &b""[..],
            b"plain",
            b"text",
            b"\x7fELF\0\0",
            &[0; 64],
            b"a\0b",
        ] {
            assert_eq!(text(bytes), None, "{bytes:?}");
        }
        assert_eq!(text(&[1, 0, 0, 2]), None);
    }
}
