//! A file of a revision, whole or a range of it: R3 and R4.

use std::ops::Range;
use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::{
    ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderName,
    IF_NONE_MATCH, IF_RANGE, RANGE,
};

use crate::serve::answer::{Answer, Content};
use crate::serve::body::FileBody;
use crate::serve::hub::fault::{COMMIT, Fault, Outcome};
use crate::serve::hub::files::Etag;
use crate::serve::hub::route::{Id, Type};
use crate::serve::hub::{Hub, Request};
use crate::serve::text;

const LINKED_ETAG: HeaderName = HeaderName::from_static("x-linked-etag");
const LINKED_SIZE: HeaderName = HeaderName::from_static("x-linked-size");

/// Which bytes of a file are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    All,
    Part(Range<u64>),
    /// None that there are.
    Nothing,
}

impl Wanted {
    /// `bytes=a-b`, `a-` or `-n`; what is none of these, or several, asks for all.
    pub(crate) fn parse(text: &str, size: u64) -> Self {
        let Some(text) = text.strip_prefix("bytes=") else {
            return Self::All;
        };
        let Some((first, last)) = text.split_once('-') else {
            return Self::All;
        };
        let (first, last) = (first.trim(), last.trim());
        let number = |text: &str| {
            text.bytes()
                .all(|byte| byte.is_ascii_digit())
                .then(|| text.parse().unwrap_or(u64::MAX))
        };
        let range = match (first, last) {
            ("", "") => return Self::All,
            ("", tail) => number(tail).map(|tail| size.saturating_sub(tail)..size),
            (first, "") => number(first).map(|first| first..size),
            (first, last) => match (number(first), number(last)) {
                (Some(first), Some(last)) if first > last => return Self::All,
                (Some(first), Some(last)) => Some(first..last.saturating_add(1).min(size)),
                _ => None,
            },
        };
        match range {
            None => Self::All,
            Some(range) if range.start < range.end => Self::Part(range),
            Some(_) => Self::Nothing,
        }
    }
}

impl Hub {
    pub(super) async fn resolve(
        &self,
        request: &Request<'_>,
        kind: Type,
        id: Id,
        rev: &str,
        path: &str,
    ) -> Outcome<Answer> {
        let revision = self.revision(request, kind, id, rev).await?;
        let (entry, content) = revision.file(path)?;
        let etags = self.etags(&revision.sight, vec![entry.clone()]).await?;
        let etag = etags.into_iter().flatten().next();
        let etag = etag.ok_or_else(|| Fault::entry(path, &revision.commit.hex))?;
        let answer = |status| {
            headed(
                Answer::new(status),
                &revision.commit.hex,
                &etag,
                path,
                content.size,
            )
        };
        let value = |name: HeaderName| {
            request
                .head
                .headers
                .get(name)
                .and_then(|value| value.to_str().ok())
        };
        if value(IF_NONE_MATCH).is_some_and(|known| matches(known, etag.value())) {
            return Ok(answer(StatusCode::NOT_MODIFIED));
        }
        // A part of another file is no use to who has the rest of that one.
        let is_same = value(IF_RANGE).is_none_or(|known| matches(known, etag.value()));
        let wanted = value(RANGE)
            .filter(|_| is_same)
            .map_or(Wanted::All, |range| Wanted::parse(range, content.size));
        let (answer, range) = match wanted {
            Wanted::All => (answer(StatusCode::OK), 0..content.size),
            Wanted::Part(range) => {
                let told = format!("bytes {}-{}/{}", range.start, range.end - 1, content.size);
                (
                    answer(StatusCode::PARTIAL_CONTENT).with(CONTENT_RANGE, told),
                    range,
                )
            }
            Wanted::Nothing => {
                let told = format!("bytes */{}", content.size);
                return Ok(answer(StatusCode::RANGE_NOT_SATISFIABLE).with(CONTENT_RANGE, told));
            }
        };
        let mut answer = answer;
        answer.content = match request.is_head() {
            true => Content::HeadOf(range.end - range.start),
            false => {
                let (name, number) = (&revision.repo.name, revision.commit.number);
                self.inner.used.note(self.source.store(), name, number);
                let source = Arc::clone(&self.source);
                let file = FileBody::open(source, Arc::clone(&revision.sight), content, range);
                Content::File(Box::new(file.await?))
            }
        };
        Ok(answer)
    }
}

/// Whether a list of etags names this one.
fn matches(known: &str, etag: &str) -> bool {
    known.split(',').any(|known| {
        let known = known.trim();
        known == "*" || known.trim_start_matches("W/").trim_matches('"') == etag
    })
}

fn headed(answer: Answer, commit: &str, etag: &Etag, path: &str, size: u64) -> Answer {
    let quoted = format!("\"{}\"", etag.value());
    let name = path.rsplit('/').next().unwrap_or(path);
    let name = format!("inline; filename*=UTF-8''{}", text::escaped(name));
    let answer = answer
        .with(COMMIT, commit)
        .with(ETAG, &quoted)
        .with(ACCEPT_RANGES, "bytes")
        .with(CONTENT_TYPE, "application/octet-stream")
        .with(CONTENT_DISPOSITION, name);
    match etag.sha256 {
        Some(_) => answer
            .with(LINKED_ETAG, quoted)
            .with(LINKED_SIZE, size.to_string()),
        None => answer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_every_form() {
        for (text, expected) in [
            ("bytes=0-", Wanted::Part(0..100)),
            ("bytes=0-0", Wanted::Part(0..1)),
            ("bytes=10-11272", Wanted::Part(10..100)),
            ("bytes=99-", Wanted::Part(99..100)),
            ("bytes=-10", Wanted::Part(90..100)),
            ("bytes=-1000", Wanted::Part(0..100)),
            ("bytes=0-18446744073709551615", Wanted::Part(0..100)),
            ("bytes=100-", Wanted::Nothing),
            ("bytes=100-200", Wanted::Nothing),
            ("bytes=-0", Wanted::Nothing),
            ("bytes=99999999999999999999-", Wanted::Nothing),
            ("bytes=5-4", Wanted::All),
            ("bytes=0-1,3-4", Wanted::All),
            ("bytes=a-b", Wanted::All),
            ("bytes=-", Wanted::All),
            ("lines=0-1", Wanted::All),
        ] {
            assert_eq!(Wanted::parse(text, 100), expected, "{text}");
        }
        assert_eq!(Wanted::parse("bytes=0-", 0), Wanted::Nothing);
    }

    #[test]
    fn an_etag_is_found_in_a_list() {
        assert!(matches("\"a\", W/\"b\"", "b") && matches("*", "b") && matches("b", "b"));
        assert!(!matches("\"bb\"", "b"));
    }
}
