//! List nodes: the chunk list of a content that is larger than one chunk.
//!
//! A node is stored as a chunk, so its chunk id is its checksum, and every reader verifies it first. No size is 0, and
//! the sum of the sizes fits into 64 bits.

use super::cursor::Cursor;
use super::{CHUNK_BYTES_MAX, CONTENT_DEPTH_MAX};
use crate::error::Result;
use crate::id::ChunkId;

/// Most children of a node.
pub const LIST_FANOUT_MAX: usize = 1024;
/// From this many children on, the id of the last child may end a node.
pub const LIST_FANOUT_MIN: usize = 64;
/// The first bytes of a list node.
pub const LIST_MAGIC: [u8; 4] = *b"clst";
/// Version of list nodes.
pub const LIST_VERSION: u8 = 1;
/// Bytes before the first child: magic, version, level, count.
pub const LIST_HEADER_LEN: usize = 4 + 1 + 1 + 2;
/// Bytes of one child: id, size.
pub const LIST_CHILD_LEN: usize = 32 + 8;

const _: () = assert!(LIST_HEADER_LEN == 8 && LIST_CHILD_LEN == 40);

/// One child: a data chunk (level 0) or a list node of the level below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListChild {
    /// Its id.
    pub id: ChunkId,
    /// Bytes of content below it.
    pub size: u64,
}

/// A list node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListNode {
    /// 0: the children are data chunks.
    pub level: u8,
    /// 1 to [`LIST_FANOUT_MAX`] children, none of size 0.
    pub children: Vec<ListChild>,
}

impl ListNode {
    /// Returns the canonical bytes. If the node exceeds a limit, [`Self::decode`] refuses these bytes.
    pub fn encode(&self) -> Vec<u8> {
        let count = u16::try_from(self.children.len()).unwrap_or(u16::MAX);
        let mut out = Vec::with_capacity(LIST_HEADER_LEN + self.children.len() * LIST_CHILD_LEN);
        out.extend_from_slice(&LIST_MAGIC);
        out.push(LIST_VERSION);
        out.push(self.level);
        out.extend_from_slice(&count.to_le_bytes());
        for child in &self.children {
            out.extend_from_slice(&child.id.0);
            out.extend_from_slice(&child.size.to_le_bytes());
        }
        out
    }

    /// Parses a node; `object` names it in errors. The sum of the sizes must not overflow.
    ///
    /// # Errors
    /// Corrupt, when a limit is exceeded or bytes are missing or left over; unsupported, when the version is unknown.
    pub fn decode(object: &str, bytes: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new(object, bytes);
        cursor.magic(&LIST_MAGIC)?;
        let version = cursor.u8("version")?;
        cursor.version(version.into(), LIST_VERSION.into())?;
        let at = cursor.at();
        let level = cursor.u8("level")?;
        if level >= CONTENT_DEPTH_MAX {
            let expected = format_args!("less than {CONTENT_DEPTH_MAX}");
            return Err(cursor.error_at(at, "level", expected, level));
        }
        let at = cursor.at();
        let count = usize::from(cursor.u16("count")?);
        if count == 0 || count > LIST_FANOUT_MAX {
            let expected = format_args!("1 to {LIST_FANOUT_MAX}");
            return Err(cursor.error_at(at, "count", expected, count));
        }
        if cursor.left() != count * LIST_CHILD_LEN {
            let expected = format_args!("{} bytes", count * LIST_CHILD_LEN);
            return Err(cursor.error_at(cursor.at(), "children", expected, cursor.left()));
        }
        let children = decode_children(&mut cursor, level, count)?;
        Ok(Self { level, children })
    }

    /// Bytes of content below the node.
    pub fn size(&self) -> u64 {
        let sizes = self.children.iter().map(|child| child.size);
        sizes.fold(0, u64::saturating_add)
    }

    /// Whether a node with `children` so far ends after the last of them. Where nodes end depends on the content (the
    /// first byte of the last id, after at least 64 children; or 1024 children), so an insertion changes few nodes.
    pub fn is_full(children: &[ListChild]) -> bool {
        let ends = |last: &ListChild| matches!(last.id.0, [0, ..]);
        children.len() >= LIST_FANOUT_MAX
            || children.len() >= LIST_FANOUT_MIN && children.last().is_some_and(ends)
    }
}

fn decode_children(cursor: &mut Cursor<'_>, level: u8, count: usize) -> Result<Vec<ListChild>> {
    let mut children = Vec::with_capacity(count);
    let most = match level {
        0 => u64::from(CHUNK_BYTES_MAX),
        _ => u64::MAX,
    };
    let mut sum: u64 = 0;
    for _ in 0..count {
        let id = ChunkId(cursor.array("id")?);
        let at = cursor.at();
        let size = cursor.u64("size")?;
        if size == 0 || size > most {
            return Err(cursor.error_at(at, "size", format_args!("1 to {most}"), size));
        }
        sum = sum.checked_add(size).ok_or_else(|| {
            let expected = format_args!("a sum of at most {}", u64::MAX);
            cursor.error_at(at, "size", expected, size)
        })?;
        children.push(ListChild { id, size });
    }
    Ok(children)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn child(first: u8, size: u64) -> ListChild {
        ListChild {
            id: ChunkId([first; 32]),
            size,
        }
    }

    fn node(level: u8, children: &[ListChild]) -> ListNode {
        ListNode {
            level,
            children: children.to_vec(),
        }
    }

    #[test]
    fn a_node_survives() {
        for node in [
            node(0, &[child(1, 1)]),
            node(7, &[child(0, u64::MAX - 5), child(2, 5)]),
            node(0, &[child(9, 1 << 22); LIST_FANOUT_MAX]),
        ] {
            assert_eq!(ListNode::decode("x", &node.encode()).unwrap(), node);
        }
        assert_eq!(node(1, &[child(1, 7), child(2, 8)]).size(), 15);
    }

    #[test]
    fn limits_are_told() {
        let cases = [
            (
                node(8, &[child(1, 1)]),
                "x: level at offset 5: expected less than 8, found 8",
            ),
            (
                node(0, &[]),
                "x: count at offset 6: expected 1 to 1024, found 0",
            ),
            (
                node(0, &[child(1, 1); 1025]),
                "x: count at offset 6: expected 1 to 1024, found 1025",
            ),
            (
                node(0, &[child(1, 0)]),
                "x: size at offset 40: expected 1 to 4194304, found 0",
            ),
            (
                node(0, &[child(1, (1 << 22) + 1)]),
                "x: size at offset 40: expected 1 to 4194304, found 4194305",
            ),
            (
                node(1, &[child(1, u64::MAX), child(1, 1)]),
                "x: size at offset 80: expected a sum of at most 18446744073709551615, found 1",
            ),
        ];
        for (node, message) in cases {
            let error = ListNode::decode("x", &node.encode()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert_eq!(error.to_string(), message);
        }
    }

    #[test]
    fn missing_and_left_over_bytes_are_refused() {
        let bytes = node(0, &[child(1, 1), child(2, 2)]).encode();
        for len in 0..bytes.len() {
            ListNode::decode("x", &bytes[..len]).unwrap_err();
        }
        let error = ListNode::decode("x", &[&bytes[..], b"!"].concat()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "x: children at offset 8: expected 80 bytes, found 81"
        );
        let mut later = bytes;
        later[4] = 2;
        let error = ListNode::decode("x", &later).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert_eq!(error.to_string(), "x: version is 2, this program reads 1");
    }

    #[test]
    fn a_node_ends_where_its_content_says() {
        let mut children = vec![child(0, 1); 63];
        assert!(!ListNode::is_full(&children));
        children.push(child(1, 1));
        assert!(!ListNode::is_full(&children));
        children.push(child(0, 1));
        assert!(ListNode::is_full(&children));
        assert!(!ListNode::is_full(&vec![child(1, 1); 1023]));
        assert!(ListNode::is_full(&vec![child(1, 1); 1024]));
        assert!(!ListNode::is_full(&[]));
    }
}
