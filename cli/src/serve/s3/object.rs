//! HeadObject and GetObject: a file or a range of it, under the client's conditions.

use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE,
    CONTENT_RANGE, CONTENT_TYPE, ETAG, EXPIRES, HeaderName, HeaderValue, IF_MATCH,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, LAST_MODIFIED, RANGE,
};
use hyper::http::HeaderMap;
use jiff::Timestamp;
use jiff::fmt::rfc2822::{DateTimeParser, DateTimePrinter};

use crate::serve::answer::Answer;
use crate::serve::body::{Content, FileBody};
use crate::serve::range::{Wanted, content_range};
use crate::serve::s3::bucket::{Changed, Object};
use crate::serve::s3::fault::{Fault, Outcome};
use crate::serve::source::{Sight, Source};
use crate::serve::text;

/// Maximum part number, as in S3.
const PARTS_MAX: u32 = 10_000;
/// Query parameters that override headers of the answer.
const OVERRIDES: [(&str, HeaderName); 6] = [
    ("response-cache-control", CACHE_CONTROL),
    ("response-content-disposition", CONTENT_DISPOSITION),
    ("response-content-encoding", CONTENT_ENCODING),
    ("response-content-language", CONTENT_LANGUAGE),
    ("response-content-type", CONTENT_TYPE),
    ("response-expires", EXPIRES),
];

/// A request for a file.
pub(crate) struct Asked<'r> {
    pub(crate) headers: &'r HeaderMap,
    pub(crate) query: &'r [(String, String)],
    pub(crate) is_head: bool,
}

/// The result of the conditions.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Send,
    /// The client already has the file.
    Has,
    /// The condition in this header fails.
    Refuse(&'static str),
}

impl Asked<'_> {
    /// The answer: the file, or the requested range.
    pub(crate) async fn answer(
        &self,
        source: &Arc<Source>,
        sight: Sight,
        object: &Object,
        changed: Changed,
    ) -> Outcome<Answer> {
        let size = object.content.size;
        let etag = object.etag();
        match verdict(self.headers, &etag, changed) {
            Verdict::Send => {}
            Verdict::Has => return Ok(headed(StatusCode::NOT_MODIFIED, &etag, changed)),
            Verdict::Refuse(header) => return Err(Fault::condition(header)),
        }
        // If the object is another one now, a range would not fit to the part that the client has.
        let range = self
            .value(RANGE)
            .filter(|_| self.is_rest_of(&etag, changed));
        let wanted = match (self.part()?, range) {
            (true, Some(_)) => {
                let message = "Cannot specify both Range header and partNumber query parameter";
                return Err(Fault::request(message));
            }
            (true, None) if size > 0 => Wanted::Part(0..size),
            (_, range) => range.map_or(Wanted::All, |range| Wanted::parse(range, size)),
        };
        let (status, range) = match wanted {
            Wanted::All => (StatusCode::OK, 0..size),
            Wanted::Part(range) => (StatusCode::PARTIAL_CONTENT, range),
            Wanted::Nothing => {
                let asked = self.value(RANGE).unwrap_or_default();
                return Err(Fault::range(asked, size));
            }
        };
        let mut answer = headed(status, &etag, changed)
            .with(ACCEPT_RANGES, "bytes")
            .with(CONTENT_TYPE, "binary/octet-stream");
        if status == StatusCode::PARTIAL_CONTENT {
            answer = answer.with(CONTENT_RANGE, content_range(Some(&range), size));
        }
        let mut answer = self.overridden(answer)?;
        answer.content = match self.is_head {
            true => Content::HeadOf(range.end - range.start),
            false => {
                let file = FileBody::open(Arc::clone(source), sight, object.content, range);
                Content::File(Box::new(file.await?))
            }
        };
        Ok(answer)
    }

    fn value(&self, name: HeaderName) -> Option<&str> {
        value(self.headers, &name)
    }

    /// Whether `If-Range`, an ETag or a time, is of this object. True without the header.
    fn is_rest_of(&self, etag: &str, changed: Changed) -> bool {
        self.value(IF_RANGE).is_none_or(|known| {
            let is_weak = known.starts_with("W/") || known.contains('*');
            (!is_weak && names(known, etag)) || time_of(changed) == known
        })
    }

    /// Whether a part is requested. Every file has exactly one.
    fn part(&self) -> Outcome<bool> {
        let Some(number) = text::value(self.query, "partNumber") else {
            return Ok(false);
        };
        let message = "Part number must be an integer between 1 and 10000, inclusive";
        match number.parse::<u32>() {
            Ok(1) => Ok(true),
            Ok(2..=PARTS_MAX) => Err(Fault::new(
                StatusCode::RANGE_NOT_SATISFIABLE,
                "InvalidPartNumber",
                "The requested partnumber is not satisfiable",
            )),
            _ => Err(Fault::argument("partNumber", number, message)),
        }
    }

    fn overridden(&self, answer: Answer) -> Outcome<Answer> {
        let mut answer = answer;
        for (name, header) in OVERRIDES {
            let Some(wanted) = text::value(self.query, name) else {
                continue;
            };
            if HeaderValue::from_str(wanted).is_err() {
                let message = "Header value cannot be represented using ISO-8859-1.";
                return Err(Fault::argument(name, wanted, message));
            }
            answer = answer.with(header, wanted);
        }
        Ok(answer)
    }
}

fn value<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn headed(status: StatusCode, etag: &str, changed: Changed) -> Answer {
    Answer::new(status)
        .with(ETAG, etag)
        .with(LAST_MODIFIED, time_of(changed))
}

fn time_of(changed: Changed) -> String {
    let time = DateTimePrinter::new().timestamp_to_rfc9110_string(&changed.file);
    time.unwrap_or_default()
}

/// Evaluates the conditions. Those on the ETag take precedence over those on the time.
fn verdict(headers: &HeaderMap, etag: &str, changed: Changed) -> Verdict {
    let is_not_since = |name: HeaderName| {
        let time: Timestamp = DateTimeParser::new()
            .parse_timestamp(value(headers, &name)?)
            .ok()?;
        Some(changed.is_not_since(time))
    };
    match value(headers, &IF_MATCH) {
        Some(known) if !names(known, etag) => return Verdict::Refuse("If-Match"),
        None if is_not_since(IF_UNMODIFIED_SINCE) == Some(false) => {
            return Verdict::Refuse("If-Unmodified-Since");
        }
        _ => {}
    }
    let is_had = match value(headers, &IF_NONE_MATCH) {
        Some(known) => names(known, etag),
        None => is_not_since(IF_MODIFIED_SINCE) == Some(true),
    };
    if is_had { Verdict::Has } else { Verdict::Send }
}

/// Whether a list of ETags contains this one. Some clients omit the quotes.
fn names(known: &str, etag: &str) -> bool {
    known.split(',').any(|known| {
        let known = known.trim();
        let known = known.strip_prefix("W/").unwrap_or(known);
        known == "*" || known.trim_matches('"') == etag.trim_matches('"')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "Thu, 01 Jan 1970 00:01:39 GMT";
    const SAME: &str = "Thu, 01 Jan 1970 00:01:40 GMT";
    const NEW: &str = "Thu, 01 Jan 1970 00:10:00 GMT";

    #[test]
    fn conditions_in_their_order() {
        let at = |secs| Timestamp::from_second(secs).unwrap();
        let changed = Changed {
            file: at(100),
            put: at(500),
        };
        let (no_match, unmodified) = (
            Verdict::Refuse("If-Match"),
            Verdict::Refuse("If-Unmodified-Since"),
        );
        for (pairs, expected) in [
            (&[][..], Verdict::Send),
            (&[("if-match", "\"a\"")], Verdict::Send),
            (&[("if-match", "a")], Verdict::Send),
            (&[("if-match", "\"b\", \"a\"")], Verdict::Send),
            (&[("if-match", "*")], Verdict::Send),
            (&[("if-match", "\"b\"")], no_match),
            (
                &[("if-match", "\"a\""), ("if-unmodified-since", OLD)],
                Verdict::Send,
            ),
            (&[("if-unmodified-since", OLD)], unmodified),
            (&[("if-unmodified-since", SAME)], Verdict::Send),
            (&[("if-unmodified-since", "yesterday")], Verdict::Send),
            (&[("if-none-match", "W/\"a\"")], Verdict::Has),
            (&[("if-none-match", "\"b\"")], Verdict::Send),
            (
                &[("if-none-match", "\"b\""), ("if-modified-since", NEW)],
                Verdict::Send,
            ),
            (&[("if-modified-since", OLD)], Verdict::Send),
            (&[("if-modified-since", SAME)], Verdict::Has),
            (&[("if-modified-since", NEW)], Verdict::Has),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                );
            }
            assert_eq!(verdict(&headers, "\"a\"", changed), expected, "{pairs:?}");
        }
    }
}
