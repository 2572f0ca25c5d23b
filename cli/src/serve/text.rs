//! Text in requests and answers: paths, queries, escapes.

use std::fmt::Write;

use hyper::header::HeaderName;
use hyper::http::request::Parts;
use percent_encoding::{
    AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode,
};

/// The prefix that a proxy puts before all paths.
const FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");
/// The characters that are escaped in a segment of a path.
pub(crate) const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
/// The characters that are escaped in a path of several segments.
pub(crate) const PATH: &AsciiSet = &SEGMENT.remove(b'/');
/// The characters that are escaped in a header.
const HEADER: &AsciiSet = &CONTROLS.add(b'%');

/// What a proxy puts before all paths, escaped; empty if it says none. It never begins with `//`, which names a host.
pub(crate) fn forwarded_prefix(head: &Parts) -> String {
    let prefix = head.headers.get(FORWARDED_PREFIX);
    let prefix = prefix
        .and_then(|prefix| prefix.to_str().ok())
        .unwrap_or_default()
        .trim_end_matches('/');
    match prefix.strip_prefix('/') {
        Some(rest) if !rest.starts_with('/') && is_inside(rest) => escaped_path(prefix),
        _ => String::new(),
    }
}

/// The segments of a path, each decoded once; `None` if one is not UTF-8 or contains NUL.
///
/// `+` stays `+`. A decoded segment may contain slashes; the caller decides what they mean.
pub(crate) fn segments(path: &str) -> Option<Vec<String>> {
    let path = path.strip_prefix('/')?;
    path.split('/').map(decoded).collect()
}

fn decoded(text: &str) -> Option<String> {
    let text = percent_decode_str(text).decode_utf8().ok()?;
    (!text.contains('\0')).then(|| text.into_owned())
}

/// The names and values of a query or a form, in order. Leaves out what is not UTF-8.
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

/// The first value with this name.
pub(crate) fn value<'p>(pairs: &'p [(String, String)], name: &str) -> Option<&'p str> {
    let found = pairs.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.as_str())
}

/// Whether a switch is on: `true`, `True` or `1`.
pub(crate) fn is_on(pairs: &[(String, String)], name: &str) -> bool {
    value(pairs, name)
        .is_some_and(|value| ["true", "1"].contains(&value.to_ascii_lowercase().as_str()))
}

/// Escapes one segment of a path.
pub(crate) fn escaped(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

/// Escapes a path of several segments.
pub(crate) fn escaped_path(text: &str) -> String {
    utf8_percent_encode(text, PATH).to_string()
}

/// Escapes a text for a header.
pub(crate) fn for_header(text: &str) -> String {
    utf8_percent_encode(text, HEADER).to_string()
}

/// Whether a path stays in its tree: no empty segment, no `.`, no `..`. The empty path is the whole tree.
pub(crate) fn is_inside(path: &str) -> bool {
    path.is_empty() || path.split('/').all(|name| !matches!(name, "" | "." | ".."))
}

/// The target of a symlink at `path`, if it is inside of the tree.
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

/// Encodes bytes as lower-case hex digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _always = write!(text, "{byte:02x}");
        text
    })
}

/// Decodes lower-case hex digits.
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

/// Whether the text consists of this many lower-case hex digits.
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
