//! Texts of requests: paths, queries, and the parts of answers that are made of them.

use std::fmt::Write;

use percent_encoding::{
    AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode,
};

/// What stays as it is in a segment of a path.
pub(crate) const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
/// What stays as it is in a path of several segments.
pub(crate) const PATH: &AsciiSet = &SEGMENT.remove(b'/');
/// What a header cannot carry.
const HEADER: &AsciiSet = &CONTROLS.add(b'%');

/// The segments of a path, each decoded once; nothing, where one is no UTF-8 or holds a NUL.
///
/// `+` stays `+`. A segment that is decoded may hold slashes: whoever takes it says what they mean.
pub(crate) fn segments(path: &str) -> Option<Vec<String>> {
    let path = path.strip_prefix('/')?;
    path.split('/').map(decoded).collect()
}

fn decoded(text: &str) -> Option<String> {
    let text = percent_decode_str(text).decode_utf8().ok()?;
    (!text.contains('\0')).then(|| text.into_owned())
}

/// The names and values of a query or a form, in order; what is no UTF-8 is left out.
pub(crate) fn pairs(query: &str) -> Vec<(String, String)> {
    let plain = |text: &str| decoded(&text.replace('+', " "));
    let parts = query.split('&').filter(|part| !part.is_empty());
    parts
        .filter_map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            Some((plain(name)?, plain(value)?))
        })
        .collect()
}

/// The first value of this name.
pub(crate) fn value<'p>(pairs: &'p [(String, String)], name: &str) -> Option<&'p str> {
    let found = pairs.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.as_str())
}

/// Whether a switch is on: `true`, `True`, `1`.
pub(crate) fn is_on(pairs: &[(String, String)], name: &str) -> bool {
    value(pairs, name)
        .is_some_and(|value| ["true", "1"].contains(&value.to_ascii_lowercase().as_str()))
}

/// One segment of a path, escaped.
pub(crate) fn escaped(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

/// A path of several segments, escaped.
pub(crate) fn escaped_path(text: &str) -> String {
    utf8_percent_encode(text, PATH).to_string()
}

/// A text as a header may carry it.
pub(crate) fn for_header(text: &str) -> String {
    utf8_percent_encode(text, HEADER).to_string()
}

/// A path inside of a tree: no empty segment, no `.`, no `..`; empty for the whole.
pub(crate) fn is_inside(path: &str) -> bool {
    path.is_empty() || path.split('/').all(|name| !matches!(name, "" | "." | ".."))
}

/// Where a link at `path` leads to, if that is inside of the tree.
pub(crate) fn joined(path: &str, target: &str) -> Option<String> {
    let mut names: Vec<&str> = path.split('/').collect();
    names.pop();
    if target.starts_with('/') {
        return None;
    }
    for name in target.split('/') {
        match name {
            "" | "." => {}
            ".." => drop(names.pop()?),
            name => names.push(name),
        }
    }
    Some(names.join("/"))
}

/// Lower-case hex digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // A string takes all.
        let _always = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes of lower-case hex digits.
pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs
        .iter()
        .map(|[high, low]| Some(digit(high)? << 4 | digit(low)?));
    bytes.collect::<Option<_>>().filter(|_| rest.is_empty())
}

/// Whether it is this many lower-case hex digits.
pub(crate) fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_split_before_it_is_decoded() {
        let found = |path| segments(path);
        let some = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(found("/a/b%2Fc/d+e%2B%20"), some(&["a", "b/c", "d+e+ "]));
        assert_eq!(found("/a//b/"), some(&["a", "", "b", ""]));
        assert_eq!(found("/%252f"), some(&["%2f"]));
        assert_eq!(found("/a%00b"), None);
        assert_eq!(found("/%ff"), None);
        assert_eq!(found("*"), None);
    }

    #[test]
    fn a_query_is_decoded_and_switches_are_read_as_both_generations_write_them() {
        let pairs = pairs("recursive=True&expand=false&paths=a%2Fb+c&paths=d&x");
        assert!(is_on(&pairs, "recursive") && !is_on(&pairs, "expand") && !is_on(&pairs, "none"));
        assert_eq!(value(&pairs, "paths"), Some("a/b c"));
        assert_eq!(value(&pairs, "x"), Some(""));
    }

    #[test]
    fn paths_that_lead_elsewhere_are_not_inside() {
        for inside in ["", "a", "a/b.c", "..a/b", "a/.hidden"] {
            assert!(is_inside(inside), "{inside}");
        }
        for outside in ["/", "/a", "a/", "a//b", "..", "a/../b", "./a", "a/."] {
            assert!(!is_inside(outside), "{outside}");
        }
    }

    #[test]
    fn links_lead_to_files_inside_only() {
        assert_eq!(joined("a/b/c", "../d"), Some("a/d".to_owned()));
        assert_eq!(joined("c", "d//./e"), Some("d/e".to_owned()));
        assert_eq!(joined("c", "../d"), None);
        assert_eq!(joined("c", "/d"), None);
    }

    #[test]
    fn hex_there_and_back() {
        assert_eq!(unhex(&hex(&[0, 1, 0xfe])), Some(vec![0, 1, 0xfe]));
        for bad in ["0", "0G", "AB", "\u{e9}"] {
            assert_eq!(unhex(bad), None, "{bad}");
        }
        assert!(is_hex("0af", 3) && !is_hex("0aF", 3) && !is_hex("0a", 3));
    }
}
