//! Rows of a checkpoint: one ref or one version per row, in a fixed encoding.
//!
//! Fields that this program does not know come last, as JSON. Decoding accepts any bytes without panicking.

use jiff::Timestamp;
use serde::Serialize;

use super::cursor::Cursor;
use super::extra::carries_unknown;
use super::sealed::parse;
use crate::error::{Error, Result};
use crate::format::{Content, Extra, Origin, Root, Side, Sides, Totals, Version, Who};
use crate::id::ChunkId;

/// What a state records about a ref, apart from its versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefHead {
    /// The highest version number ever given; 0 before the first.
    pub last: u64,
    /// The number of live versions.
    pub live: u64,
    /// The number of the newest live version; 0 if there is none.
    pub newest: u64,
    /// Bytes of that version's file, or of all files below its directory; 0 if there is no version.
    pub bytes: u64,
    /// Fields that this program does not know.
    pub extra: Extra,
}

const TREE: u8 = 1;
const EXECUTABLE: u8 = 2;
const PINNED: u8 = 4;
const PRIVATE: u8 = 8;
const EXPIRES: u8 = 16;
const FLAGS: u8 = 31;

/// The optional part after the fixed fields of a version.
#[derive(Serialize)]
struct Tail {
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<Box<Origin>>,
    #[serde(flatten)]
    extra: Extra,
}

carries_unknown!(Tail { origin = None });

impl RefHead {
    /// Encodes the value of its row.
    ///
    /// # Errors
    /// Invalid input, when the unknown fields are not valid JSON.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(32);
        for field in [self.last, self.live, self.newest, self.bytes] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        if !self.extra.is_empty() {
            json(&mut bytes, &self.extra)?;
        }
        Ok(bytes)
    }

    /// Parses the value of a row.
    ///
    /// # Errors
    /// Corrupt, when the bytes are malformed or contradict themselves.
    pub fn decode(object: &str, bytes: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new(object, bytes);
        let [last, live, newest, bytes] = [
            cursor.u64("last")?,
            cursor.u64("live")?,
            cursor.u64("newest")?,
            cursor.u64("bytes")?,
        ];
        let is_sound = newest <= last
            && live <= newest
            && (live == 0) == (newest == 0)
            && (live > 0 || bytes == 0);
        if !is_sound {
            return Err(cursor.error(format_args!(
                "ref: expected a newest version of at most {last}, found {newest} of {live}, with {bytes} bytes"
            )));
        }
        let tail = rest(&mut cursor)?;
        let extra = match tail {
            [] => Extra::new(),
            tail => parse(object, tail)?,
        };
        Ok(Self {
            last,
            live,
            newest,
            bytes,
            extra,
        })
    }
}

impl Version {
    /// Encodes the value of its row.
    ///
    /// # Errors
    /// Invalid input, when a field is too long or the unknown fields are not valid JSON.
    pub fn encode_row(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(192);
        let mut flags = 0;
        let totals = match self.root {
            Root::Tree { totals, .. } => {
                flags |= TREE;
                Some(totals)
            }
            Root::File { executable, .. } => {
                flags |= if executable { EXECUTABLE } else { 0 };
                None
            }
        };
        flags |= if self.pinned { PINNED } else { 0 };
        flags |= if self.private { PRIVATE } else { 0 };
        flags |= if self.expires.is_some() { EXPIRES } else { 0 };
        bytes.push(flags);
        put_content(&mut bytes, self.root.content());
        if let Some(totals) = totals {
            bytes.extend_from_slice(&totals.entries.to_le_bytes());
            bytes.extend_from_slice(&totals.bytes.to_le_bytes());
        }
        put_time(&mut bytes, self.time);
        if let Some(expires) = self.expires {
            put_time(&mut bytes, expires);
        }
        let sides = u16::try_from(self.sides.iter().count()).map_err(|_| too_long("sides"))?;
        bytes.extend_from_slice(&sides.to_le_bytes());
        for side in self.sides.iter() {
            bytes.push(u8::try_from(side.kind.len()).map_err(|_| too_long("kind"))?);
            bytes.extend_from_slice(side.kind.as_bytes());
            put_content(&mut bytes, &side.content);
        }
        let Who {
            host,
            user,
            program,
        } = &self.who;
        for text in [host, user, program, &self.message] {
            let len = u32::try_from(text.len()).map_err(|_| too_long("text"))?;
            bytes.extend_from_slice(&len.to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        if self.origin.is_some() || !self.extra.is_empty() {
            let tail = Tail {
                origin: self.origin.clone(),
                extra: self.extra.clone(),
            };
            json(&mut bytes, &tail)?;
        }
        Ok(bytes)
    }

    /// Parses the value of a row.
    ///
    /// # Errors
    /// Corrupt, when the bytes are malformed or contradict themselves.
    pub fn decode_row(object: &str, bytes: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new(object, bytes);
        let flags = cursor.u8("flags")?;
        let has = |flag: u8| flags & flag != 0;
        if flags & !FLAGS != 0 || (has(TREE) && has(EXECUTABLE)) {
            return Err(cursor.error_at(0, "flags", "known ones", flags));
        }
        let content = content(&mut cursor)?;
        let root = match has(TREE) {
            true => Root::Tree {
                content,
                totals: Totals {
                    entries: cursor.u64("entries")?,
                    bytes: cursor.u64("bytes")?,
                },
            },
            false => Root::File {
                content,
                executable: has(EXECUTABLE),
            },
        };
        let time = time(&mut cursor)?;
        let expires = has(EXPIRES).then(|| self::time(&mut cursor)).transpose()?;
        let sides = sides(&mut cursor)?;
        let who = Who {
            host: text(&mut cursor, "host")?,
            user: text(&mut cursor, "user")?,
            program: text(&mut cursor, "program")?,
        };
        let message = text(&mut cursor, "message")?;
        let tail = match rest(&mut cursor)? {
            [] => Tail {
                origin: None,
                extra: Extra::new(),
            },
            tail => parse(object, tail)?,
        };
        let version = Self {
            root,
            sides,
            time,
            who,
            message,
            pinned: has(PINNED),
            expires,
            origin: tail.origin,
            private: has(PRIVATE),
            extra: tail.extra,
        };
        match version.defect() {
            Some(defect) => Err(cursor.error(defect)),
            None => Ok(version),
        }
    }
}

fn json(bytes: &mut Vec<u8>, value: &impl Serialize) -> Result<()> {
    serde_json::to_writer(bytes, value)
        .map_err(|source| Error::invalid("checkpoint: value is no JSON").because(source))
}

fn too_long(what: &str) -> Error {
    Error::invalid(format!("checkpoint: {what} of a version: too long"))
}

fn put_content(bytes: &mut Vec<u8>, content: &Content) {
    bytes.extend_from_slice(&content.size.to_le_bytes());
    bytes.push(content.depth);
    bytes.extend_from_slice(&content.root.0);
}

fn content(cursor: &mut Cursor<'_>) -> Result<Content> {
    Ok(Content {
        size: cursor.u64("size")?,
        depth: cursor.u8("depth")?,
        root: ChunkId(cursor.array("root")?),
    })
}

fn put_time(bytes: &mut Vec<u8>, time: Timestamp) {
    bytes.extend_from_slice(&time.as_second().to_le_bytes());
    bytes.extend_from_slice(&time.subsec_nanosecond().to_le_bytes());
}

fn time(cursor: &mut Cursor<'_>) -> Result<Timestamp> {
    let at = cursor.at();
    let secs = i64::from_le_bytes(cursor.array("seconds")?);
    let nanos = i32::from_le_bytes(cursor.array("nanoseconds")?);
    let time = Timestamp::new(secs, nanos).ok();
    let same = |time: &Timestamp| (time.as_second(), time.subsec_nanosecond()) == (secs, nanos);
    time.filter(same).ok_or_else(|| {
        let found = format_args!("{secs} seconds and {nanos} nanoseconds");
        cursor.error_at(at, "time", "one of the years 0000 to 9999", found)
    })
}

fn sides(cursor: &mut Cursor<'_>) -> Result<Sides> {
    let count = cursor.u16("sides")?;
    let mut sides = Vec::new();
    for _ in 0..count {
        let len = usize::from(cursor.u8("kind length")?);
        sides.push(Side {
            kind: utf8(cursor, "kind", len)?,
            content: content(cursor)?,
        });
    }
    Ok(Sides::of(sides))
}

fn text(cursor: &mut Cursor<'_>, what: &str) -> Result<String> {
    let len = cursor.u32(what)?;
    utf8(cursor, what, usize::try_from(len).unwrap_or(usize::MAX))
}

fn utf8(cursor: &mut Cursor<'_>, what: &str, len: usize) -> Result<String> {
    let at = cursor.at();
    let bytes = cursor.take(what, len)?;
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(cursor.error_at(at, what, "UTF-8", bytes.escape_ascii())),
    }
}

/// Returns the remaining bytes: JSON, or nothing.
fn rest<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8]> {
    cursor.take("fields", cursor.left())
}
