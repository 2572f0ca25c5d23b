//! Trees: one directory, its entries sorted by name, as canonical bytes that can be streamed.
//!
//! A directory has exactly one encoding: names are sorted by bytes and unique, and redundant forms are refused. A name
//! never leads out of its directory.

use super::cursor::Cursor;
use crate::error::{Error, Result};
use crate::format::{Content, Node, Totals};
use crate::id::ChunkId;

/// Most bytes of a name.
pub const NAME_BYTES_MAX: usize = 255;
/// Most bytes of a symlink's target.
pub const TARGET_BYTES_MAX: usize = 4095;
/// The first bytes of a tree.
pub const TREE_MAGIC: [u8; 4] = *b"tree";
/// Version of trees.
pub const TREE_VERSION: u8 = 1;
/// Bytes before the first entry: magic, version, padding. Also the least size of a tree.
pub const TREE_HEADER_LEN: usize = 4 + 1 + 3;

const _: () = assert!(TREE_HEADER_LEN == 8);

const KIND_FILE: u8 = 0;
const KIND_EXECUTABLE: u8 = 1;
const KIND_SYMLINK: u8 = 2;
const KIND_TREE: u8 = 3;

/// One entry of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeEntry {
    /// 1 to 255 bytes; no `/`, no NUL, not `.` or `..`.
    pub name: Vec<u8>,
    /// What the name refers to.
    pub node: Node,
}

/// Writes a tree entry by entry, and refuses invalid names and wrong order.
#[derive(Debug, Default)]
pub struct TreeEncoder {
    last: Vec<u8>,
}

impl TreeEncoder {
    /// Begins a tree: appends its header to `out`.
    pub fn new(out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(&TREE_MAGIC);
        out.extend_from_slice(&[TREE_VERSION, 0, 0, 0]);
        Self::default()
    }

    /// Appends one entry to `out`.
    ///
    /// # Errors
    /// Invalid input, when [`decode_tree`] would refuse it; `out` is then unchanged.
    pub fn push(&mut self, entry: &TreeEntry, out: &mut Vec<u8>) -> Result<()> {
        let name = &entry.name;
        let refuse = |detail: String| Error::invalid(format!("{}: {detail}", shown(name)));
        let last = (!self.last.is_empty()).then_some(&*self.last);
        match name_defect(last, name).or_else(|| node_defect(&entry.node)) {
            Some(defect) => return Err(refuse(defect)),
            None => encode_entry(entry, out),
        }
        self.last.clone_from(name);
        Ok(())
    }
}

/// Parses a whole tree and checks that its names are valid, sorted and unique; `object` names the tree in errors.
///
/// # Errors
/// Corrupt, when this is not the canonical encoding of a directory; unsupported, when the version is unknown.
pub fn decode_tree(object: &str, bytes: &[u8]) -> Result<Vec<TreeEntry>> {
    TreeDecoder::new(object, bytes)?.collect()
}

/// Reads a tree entry by entry, without holding more than one; ends at the first error.
#[derive(Debug)]
pub struct TreeDecoder<'a> {
    cursor: Cursor<'a>,
    last: Option<&'a [u8]>,
}

impl<'a> TreeDecoder<'a> {
    /// A decoder at the first entry of the tree in `bytes`; `object` names it in errors.
    ///
    /// # Errors
    /// When `bytes` do not begin with the header of a tree.
    pub fn new(object: &'a str, bytes: &'a [u8]) -> Result<Self> {
        let mut cursor = Cursor::new(object, bytes);
        cursor.magic(&TREE_MAGIC)?;
        let version = cursor.u8("version")?;
        cursor.version(version.into(), TREE_VERSION.into())?;
        cursor.zeros(3)?;
        Ok(Self { cursor, last: None })
    }

    fn entry(&mut self) -> Result<TreeEntry> {
        let at = self.cursor.at();
        let kind = self.cursor.u8("kind")?;
        let name_len = self.cursor.u8("name length")?;
        let name = self.cursor.take("name", name_len.into())?;
        if let Some(defect) = name_defect(self.last, name) {
            let detail = format_args!("entry at offset {at}: {}: {defect}", shown(name));
            return Err(self.cursor.error(detail));
        }
        let node = decode_node(&mut self.cursor, at, kind)?;
        if let Some(defect) = node_defect(&node) {
            let detail = format_args!("entry at offset {at}: {}: {defect}", shown(name));
            return Err(self.cursor.error(detail));
        }
        self.last = Some(name);
        Ok(TreeEntry {
            name: name.to_vec(),
            node,
        })
    }
}

impl Iterator for TreeDecoder<'_> {
    type Item = Result<TreeEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.cursor.left() == 0 {
            return None;
        }
        let entry = self.entry();
        if entry.is_err() {
            self.cursor = Cursor::new("", &[]);
        }
        Some(entry)
    }
}

fn encode_entry(entry: &TreeEntry, out: &mut Vec<u8>) {
    out.push(match &entry.node {
        Node::File {
            executable: false, ..
        } => KIND_FILE,
        Node::File {
            executable: true, ..
        } => KIND_EXECUTABLE,
        Node::Symlink { .. } => KIND_SYMLINK,
        Node::Tree { .. } => KIND_TREE,
    });
    // Names that are too long were refused before.
    out.push(u8::try_from(entry.name.len()).unwrap_or(u8::MAX));
    out.extend_from_slice(&entry.name);
    match &entry.node {
        Node::File { content, .. } => encode_content(content, out),
        Node::Symlink { target } => {
            let len = u16::try_from(target.len()).unwrap_or(u16::MAX);
            out.extend_from_slice(&len.to_le_bytes());
            out.extend_from_slice(target);
        }
        Node::Tree { content, totals } => {
            encode_content(content, out);
            out.extend_from_slice(&totals.entries.to_le_bytes());
            out.extend_from_slice(&totals.bytes.to_le_bytes());
        }
    }
}

fn encode_content(content: &Content, out: &mut Vec<u8>) {
    out.extend_from_slice(&content.size.to_le_bytes());
    if content.size > 0 {
        out.push(content.depth);
        out.extend_from_slice(&content.root.0);
    }
}

fn decode_node(cursor: &mut Cursor<'_>, at: usize, kind: u8) -> Result<Node> {
    match kind {
        KIND_FILE | KIND_EXECUTABLE => Ok(Node::File {
            content: decode_content(cursor)?,
            executable: kind == KIND_EXECUTABLE,
        }),
        KIND_SYMLINK => {
            let len = cursor.u16("target length")?;
            let target = cursor.take("target", len.into())?.to_vec();
            Ok(Node::Symlink { target })
        }
        KIND_TREE => Ok(Node::Tree {
            content: decode_content(cursor)?,
            totals: Totals {
                entries: cursor.u64("entries")?,
                bytes: cursor.u64("bytes")?,
            },
        }),
        _ => Err(cursor.error_at(at, "kind", "0 to 3", kind)),
    }
}

fn decode_content(cursor: &mut Cursor<'_>) -> Result<Content> {
    let size = cursor.u64("size")?;
    if size == 0 {
        return Ok(Content::empty());
    }
    Ok(Content {
        size,
        depth: cursor.u8("depth")?,
        root: ChunkId(cursor.array("root")?),
    })
}

/// Returns why `name` cannot follow `last`, if it cannot.
fn name_defect(last: Option<&[u8]>, name: &[u8]) -> Option<String> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        let found = name.len();
        return Some(format!(
            "expected a name of 1 to {NAME_BYTES_MAX} bytes, found {found}"
        ));
    }
    if matches!(name, b"." | b"..") || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
        return Some("expected a name without `/` and NUL that is not `.` or `..`".to_owned());
    }
    let last = last.filter(|last| *last >= name)?;
    let last = shown(last);
    Some(format!("expected a name that sorts behind {last}"))
}

/// Returns why `node` is impossible, if it is.
fn node_defect(node: &Node) -> Option<String> {
    match node {
        Node::File { content, .. } => content.defect(),
        Node::Symlink { target } => target_defect(target),
        Node::Tree { content, .. } => {
            let least = u64::try_from(TREE_HEADER_LEN).unwrap_or(u64::MAX);
            if content.size < least {
                let found = content.size;
                return Some(format!(
                    "expected a tree of at least {least} bytes, found {found}"
                ));
            }
            content.defect()
        }
    }
}

fn target_defect(target: &[u8]) -> Option<String> {
    if target.is_empty() || target.len() > TARGET_BYTES_MAX {
        let found = target.len();
        return Some(format!(
            "expected a target of 1 to {TARGET_BYTES_MAX} bytes, found {found}"
        ));
    }
    target
        .contains(&0)
        .then(|| "expected a target without NUL".to_owned())
}

fn shown(name: &[u8]) -> String {
    format!("name \"{}\"", name.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn content(size: u64) -> Content {
        Content {
            size,
            depth: 1,
            root: ChunkId([5; 32]),
        }
    }

    fn file(name: &[u8], content: Content, executable: bool) -> TreeEntry {
        TreeEntry {
            name: name.to_vec(),
            node: Node::File {
                content,
                executable,
            },
        }
    }

    fn link(name: &[u8], target: &[u8]) -> TreeEntry {
        TreeEntry {
            name: name.to_vec(),
            node: Node::Symlink {
                target: target.to_vec(),
            },
        }
    }

    fn subtree(name: &[u8], size: u64) -> TreeEntry {
        TreeEntry {
            name: name.to_vec(),
            node: Node::Tree {
                content: content(size),
                totals: Totals {
                    entries: 3,
                    bytes: u64::MAX,
                },
            },
        }
    }

    fn encode(entries: &[TreeEntry]) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        let mut encoder = TreeEncoder::new(&mut out);
        for entry in entries {
            encoder.push(entry, &mut out)?;
        }
        Ok(out)
    }

    /// Encodes entries without checking them.
    fn unchecked(entries: &[TreeEntry]) -> Vec<u8> {
        let mut out = encode(&[]).unwrap();
        entries
            .iter()
            .for_each(|entry| encode_entry(entry, &mut out));
        out
    }

    fn every_kind() -> Vec<TreeEntry> {
        vec![
            file(b"-", Content::empty(), false),
            file(b"\n", content(7), true),
            link(b"a", &[b'x'; TARGET_BYTES_MAX]),
            subtree(b"a.b", 8),
            subtree(b"a0", u64::MAX),
            file(&[0xff; 255], content(u64::MAX), false),
        ]
    }

    #[test]
    fn a_tree_survives() {
        let mut entries = every_kind();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let bytes = encode(&entries).unwrap();
        assert_eq!(decode_tree("x", &bytes).unwrap(), entries);
        assert_eq!(encode(&[]).unwrap(), b"tree\x01\0\0\0");
        assert_eq!(decode_tree("x", &encode(&[]).unwrap()).unwrap(), []);
    }

    #[test]
    fn defects_are_refused_both_ways_with_the_same_words() {
        let deep = Content {
            depth: 9,
            ..content(1)
        };
        let not = "expected a name without `/` and NUL that is not `.` or `..`";
        let empty = || Content::empty();
        let cases: Vec<(Vec<TreeEntry>, String)> = vec![
            (
                vec![file(b"", empty(), false)],
                "name \"\": expected a name of 1 to 255 bytes, found 0".into(),
            ),
            (
                vec![file(b".", empty(), false)],
                format!("name \".\": {not}"),
            ),
            (
                vec![file(b"..", empty(), false)],
                format!("name \"..\": {not}"),
            ),
            (
                vec![file(b"a/b", empty(), false)],
                format!("name \"a/b\": {not}"),
            ),
            (
                vec![file(b"a\0", empty(), false)],
                format!("name \"a\\x00\": {not}"),
            ),
            (
                vec![link(b"b", b"x"), link(b"a", b"x")],
                "name \"a\": expected a name that sorts behind name \"b\"".into(),
            ),
            (
                vec![link(b"a", b"x"), link(b"a", b"x")],
                "name \"a\": expected a name that sorts behind name \"a\"".into(),
            ),
            (
                vec![link(b"a", b"")],
                "name \"a\": expected a target of 1 to 4095 bytes, found 0".into(),
            ),
            (
                vec![link(b"a", &[b'x'; 4096])],
                "name \"a\": expected a target of 1 to 4095 bytes, found 4096".into(),
            ),
            (
                vec![link(b"a", b"x\0")],
                "name \"a\": expected a target without NUL".into(),
            ),
            (
                vec![subtree(b"a", 7)],
                "name \"a\": expected a tree of at least 8 bytes, found 7".into(),
            ),
            (
                vec![file(b"a", deep, false)],
                "name \"a\": content depth: expected at most 8, found 9".into(),
            ),
        ];
        for (entries, message) in cases {
            let error = encode(&entries).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert_eq!(error.to_string(), message);
            let error = decode_tree("x", &unchecked(&entries)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            let text = error.to_string();
            assert!(
                text.starts_with("x: entry at offset ") && text.ends_with(&message),
                "{text}"
            );
        }
    }

    #[test]
    fn long_names_and_unknown_kinds_are_refused() {
        let error = encode(&[link(&[b'a'; 256], b"x")]).unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("expected a name of 1 to 255 bytes, found 256")
        );
        let mut bytes = encode(&[link(b"a", b"x")]).unwrap();
        bytes[8] = 4;
        let error = decode_tree("x", &bytes).unwrap_err();
        assert_eq!(
            error.to_string(),
            "x: kind at offset 8: expected 0 to 3, found 4"
        );
    }

    #[test]
    fn a_tree_that_is_cut_between_entries_is_shorter_and_elsewhere_corrupt() {
        let mut entries = every_kind();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let bytes = encode(&entries).unwrap();
        let ends: Vec<usize> = (0..=entries.len())
            .map(|count| encode(&entries[..count]).unwrap().len())
            .collect();
        for len in 0..bytes.len() {
            assert_eq!(
                decode_tree("x", &bytes[..len]).is_ok(),
                ends.contains(&len),
                "{len}"
            );
        }
    }

    #[test]
    fn a_later_version_is_unsupported_and_padding_is_zero() {
        let error = decode_tree("x", b"tree\x02\0\0\0").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let error = decode_tree("x", b"tree\x01\0\0\x01").unwrap_err();
        assert_eq!(
            error.to_string(),
            "x: padding at offset 5: expected zeros, found 000001"
        );
    }

    #[test]
    fn a_refused_entry_leaves_the_tree_as_it_was() {
        let mut out = Vec::new();
        let mut encoder = TreeEncoder::new(&mut out);
        encoder.push(&link(b"b", b"x"), &mut out).unwrap();
        let before = out.clone();
        encoder.push(&link(b"a", b"x"), &mut out).unwrap_err();
        assert_eq!(out, before);
        encoder.push(&link(b"c", b"x"), &mut out).unwrap();
    }
}
