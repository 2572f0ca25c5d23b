//! Parses a commit as it arrives (pure): lines of JSON, one per change, in which one string may be a whole file.
//!
//! The value of `content` is decoded and passed on as it arrives; the rest of the line is small, and is parsed at its
//! end. Nothing is kept afterwards.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use store::{Error, Result};

/// Maximum bytes of a line without its file.
const LINE_BYTES_MAX: usize = 1 << 20;

/// A line of a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Line {
    pub(super) key: String,
    #[serde(default)]
    pub(super) value: Value,
}

impl Line {
    /// Whether a commit may begin with the line.
    pub(super) fn is_header(&self) -> bool {
        self.key == "header" && !self.value.summary.is_empty()
    }
}

/// The value of a line; its key decides which fields are set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Value {
    pub(super) path: String,
    pub(super) oid: String,
    pub(super) algo: String,
    pub(super) size: Option<u64>,
    pub(super) encoding: String,
    pub(super) summary: String,
    pub(super) description: String,
    pub(super) parent_commit: Option<String>,
}

/// An output of the parser.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Bytes of the file in the current line.
    Bytes(Vec<u8>),
    /// The end of a line, and whether it contained a file.
    Line(Line, bool),
}

/// The position in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Between strings.
    Outside,
    /// In a string; true after a backslash.
    String(bool),
    /// In the string that is a file.
    File,
}

/// A stream of lines.
#[derive(Debug)]
pub(super) struct Stream {
    line: Vec<u8>,
    at: At,
    /// The start of the line's last string after its quote, and its end.
    string: (usize, usize),
    has_file: bool,
    /// Base64 digits of an incomplete group.
    digits: Vec<u8>,
    /// Whether the last group was padded, so that no other may follow.
    is_padded: bool,
}

impl Stream {
    pub(super) fn new() -> Self {
        Self {
            line: Vec::new(),
            at: At::Outside,
            string: (0, 0),
            has_file: false,
            digits: Vec::new(),
            is_padded: false,
        }
    }

    /// Takes bytes up to the end of a line. Returns how many it took, and the event that they led to.
    ///
    /// # Errors
    /// Invalid input, if the bytes are not such a stream.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(usize, Option<Event>)> {
        if self.at == At::File {
            return self.take_file(bytes);
        }
        for (at, byte) in bytes.iter().enumerate() {
            if *byte == b'\n' && self.at == At::Outside {
                return Ok((at + 1, self.end_line()?));
            }
            self.push(*byte)?;
            if self.at == At::File {
                return Ok((at + 1, None));
            }
        }
        Ok((bytes.len(), None))
    }

    /// Ends the stream. Returns the last line, if it has no newline.
    pub(super) fn finish(&mut self) -> Result<Option<Event>> {
        match self.at {
            At::Outside => self.end_line(),
            _ => Err(Error::invalid("the commit ends within a line")),
        }
    }

    fn push(&mut self, byte: u8) -> Result<()> {
        if self.line.len() >= LINE_BYTES_MAX {
            return Err(Error::invalid(format!(
                "a line of the commit has more than {LINE_BYTES_MAX} bytes beside its file"
            )));
        }
        self.line.push(byte);
        let len = self.line.len();
        self.at = match (self.at, byte) {
            (At::Outside, b'"') if self.is_content() && !self.has_file => {
                self.has_file = true;
                At::File
            }
            (At::Outside, b'"') => {
                self.string.0 = len;
                At::String(false)
            }
            (At::String(false), b'"') => {
                self.string.1 = len - 1;
                At::Outside
            }
            (At::String(false), b'\\') => At::String(true),
            (At::String(_), _) => At::String(false),
            (at, _) => at,
        };
        Ok(())
    }

    /// Whether the string that begins here is the value of `content`.
    fn is_content(&self) -> bool {
        let (start, end) = self.string;
        let between = self
            .line
            .get(end + 1..self.line.len() - 1)
            .unwrap_or_default();
        let is_value =
            between.contains(&b':') && between.iter().all(|byte| b": \t\r".contains(byte));
        is_value && self.line.get(start..end) == Some(b"content")
    }

    fn take_file(&mut self, bytes: &[u8]) -> Result<(usize, Option<Event>)> {
        let end = bytes.iter().position(|byte| *byte == b'"');
        let digits = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
        self.digits.extend_from_slice(digits);
        let whole = match end {
            Some(_) => self.digits.len(),
            None => self.digits.len() / 4 * 4,
        };
        let group: Vec<u8> = self.digits.drain(..whole).collect();
        let not_base64 = || Error::invalid("a file of the commit is not base64");
        if self.is_padded && !group.is_empty() {
            return Err(not_base64());
        }
        self.is_padded = end.is_none() && (self.is_padded || group.ends_with(b"="));
        let decoded = STANDARD
            .decode(&group)
            .map_err(|source| not_base64().because(source))?;
        let used = match end {
            Some(end) => {
                self.line.push(b'"');
                self.at = At::Outside;
                self.string = (0, 0);
                end + 1
            }
            None => bytes.len(),
        };
        Ok((used, (!decoded.is_empty()).then_some(Event::Bytes(decoded))))
    }

    fn end_line(&mut self) -> Result<Option<Event>> {
        let line = std::mem::take(&mut self.line);
        let has_file = std::mem::take(&mut self.has_file);
        self.string = (0, 0);
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(None);
        }
        let line = serde_json::from_slice(&line).map_err(|source| {
            Error::invalid(format!("not the JSON of a line of a commit: {source}"))
        })?;
        Ok(Some(Event::Line(line, has_file)))
    }
}

/// The events of a commit that arrives in pieces of this size: for tests and fuzzing.
#[cfg(any(test, feature = "fuzzing"))]
#[expect(clippy::indexing_slicing, reason = "a broken word ends the run")]
pub(super) fn in_pieces(body: &[u8], piece: usize) -> Result<Vec<Event>> {
    let mut stream = Stream::new();
    let mut events: Vec<Event> = Vec::new();
    let mut add = |event: Option<Event>| match (event, events.last_mut()) {
        (Some(Event::Bytes(more)), Some(Event::Bytes(bytes))) => bytes.extend(more),
        (Some(event), _) => events.push(event),
        (None, _) => {}
    };
    for bytes in body.chunks(piece.max(1)) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (used, event) = stream.take(rest)?;
            assert!(used > 0);
            rest = &rest[used..];
            add(event);
        }
    }
    add(stream.finish()?);
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_comes_out_the_same_in_whatever_pieces_it_comes_in() {
        let text = br#"{"key": "header", "value": {"summary": "say \"content\": \"x\"", "parentCommit": "p"}}
{"key":"file","value":{"content":"aGVsbG8gd29ybGQ=","path":"a/content","encoding":"base64"}}

{"value": {"path": "content", "content": "", "encoding": "base64"}, "key": "file"}
{"key": "lfsFile", "value": {"path": "b", "algo": "sha256", "oid": "0a", "size": 5}}"#;
        let whole = in_pieces(text, text.len()).unwrap();
        for piece in 1..40 {
            assert_eq!(in_pieces(text, piece).unwrap(), whole, "{piece}");
        }
        assert_eq!(whole.len(), 5);
        assert_eq!(whole[1], Event::Bytes(b"hello world".to_vec()));
        let paths: Vec<_> = whole
            .iter()
            .filter_map(|event| match event {
                Event::Line(line, has_file) => Some((line.value.path.as_str(), *has_file)),
                Event::Bytes(_) => None,
            })
            .collect();
        assert_eq!(
            paths,
            [
                ("", false),
                ("a/content", true),
                ("content", true),
                ("b", false)
            ]
        );
    }

    #[test]
    fn what_is_no_commit_is_refused() {
        for bad in [
            &br#"{"key":"file","value":{"content":"a"#[..],
            br#"{"key":"file","value":{"content":"a","path":"b"}}"#,
            br#"{"key":"file","value":{"content":"aGV\n"}}"#,
            br#"{"key":"file","value":{"content":"aGVs=bG8="}}"#,
            b"{",
            b"[]",
            b"\"",
        ] {
            assert!(in_pieces(bad, 7).is_err(), "{}", bad.escape_ascii());
        }
        let padded_within = br#"{"key":"file","value":{"content":"aGVsbG8=aGVs"}}"#;
        for piece in 1..padded_within.len() {
            assert!(in_pieces(padded_within, piece).is_err(), "{piece}");
        }
        let long = [b"{\"key\":\"", "a".repeat(LINE_BYTES_MAX).as_bytes()].concat();
        assert!(in_pieces(&long, 4096).is_err());
    }
}
