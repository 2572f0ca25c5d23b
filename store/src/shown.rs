//! Paths as text: on one line for people, with every byte for machines.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

/// Whether a terminal interprets this character instead of showing it: control characters, line separators, marks that
/// change the direction of text, and other invisible characters.
pub fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// A path on one line; what is not printable is escaped, like `\n` or `\xff`.
pub fn shown(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for part in path.utf8_chunks() {
        for c in part.valid().chars() {
            match c {
                '\\' => text += "\\\\",
                _ if is_unseen(c) => text.extend(c.escape_default()),
                _ => text.push(c),
            }
        }
        text += &part.invalid().escape_ascii().to_string();
    }
    text
}

/// A path for machines. JSON holds only text, so a path that is not UTF-8 has its bytes beside it.
#[derive(Debug, Serialize, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShownPath {
    /// Escaped as for people if the bytes are not UTF-8.
    #[serde(serialize_with = "lossless_or_shown")]
    path: Vec<u8>,
    /// Only if the bytes are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
}

impl ShownPath {
    /// Takes any bytes.
    pub fn new(path: &[u8]) -> Self {
        Self {
            path: path.to_vec(),
            path_hex: hex(path),
        }
    }
}

impl fmt::Display for ShownPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&shown(&self.path))
    }
}

/// The bytes of a path in hex, if they are not UTF-8.
pub fn hex(path: &[u8]) -> Option<String> {
    let hex = || path.iter().map(|byte| format!("{byte:02x}")).collect();
    std::str::from_utf8(path).is_err().then(hex)
}

/// Serializes a path of the host as one text.
pub fn path_as_text<S: Serializer>(path: &Path, out: S) -> Result<S::Ok, S::Error> {
    lossless_or_shown(path.as_os_str().as_bytes(), out)
}

/// Serializes paths inside a tree, each as one text.
pub(crate) fn as_texts<S: Serializer>(paths: &[Vec<u8>], out: S) -> Result<S::Ok, S::Error> {
    out.collect_seq(paths.iter().map(|path| shown(path)))
}

/// Serializes an optional path of the host as one text.
#[expect(clippy::ref_option, reason = "serde passes references")]
pub(crate) fn path_if<S: Serializer>(path: &Option<PathBuf>, out: S) -> Result<S::Ok, S::Error> {
    match path {
        Some(path) => path_as_text(path, out),
        None => out.serialize_none(),
    }
}

/// Serializes several paths of the host, each as one text.
pub(crate) fn paths<S: Serializer>(paths: &[PathBuf], out: S) -> Result<S::Ok, S::Error> {
    struct Text<'p>(&'p Path);
    impl Serialize for Text<'_> {
        fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
            path_as_text(self.0, out)
        }
    }
    out.collect_seq(paths.iter().map(|path| Text(path)))
}

/// Serializes a path of a tree as `path` and, if needed, `path_hex`: for flattened fields.
pub(crate) fn in_tree<S: Serializer>(path: &[u8], out: S) -> Result<S::Ok, S::Error> {
    ShownPath::new(path).serialize(out)
}

/// Serializes a path of the host in the same way.
pub(crate) fn on_host<S: Serializer>(path: &Path, out: S) -> Result<S::Ok, S::Error> {
    in_tree(path.as_os_str().as_bytes(), out)
}

fn lossless_or_shown<S: Serializer>(path: &[u8], out: S) -> Result<S::Ok, S::Error> {
    match std::str::from_utf8(path) {
        Ok(text) => out.serialize_str(text),
        Err(_) => out.serialize_str(&shown(path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_line_and_unambiguous() {
        for (path, text) in [
            (&b"plain name.txt"[..], "plain name.txt"),
            (b"two\nlines\t", "two\\nlines\\t"),
            (b"\xff\xfeabc", "\\xff\\xfeabc"),
            (b"back\\slash", "back\\\\slash"),
            ("gr\u{fc}n".as_bytes(), "gr\u{fc}n"),
            (b"\x1b[31m", "\\u{1b}[31m"),
            (
                "a\u{202e}txt.b\u{2028}c\u{2066}d\u{feff}".as_bytes(),
                "a\\u{202e}txt.b\\u{2028}c\\u{2066}d\\u{feff}",
            ),
        ] {
            assert_eq!(shown(path), text);
        }
    }

    #[test]
    fn machines_get_every_byte() {
        let json = |path: &[u8]| serde_json::to_string(&ShownPath::new(path)).unwrap();
        assert_eq!(json(b"a\nb"), r#"{"path":"a\nb"}"#);
        assert_eq!(json(b"a\xff"), r#"{"path":"a\\xff","path_hex":"61ff"}"#);
    }
}
