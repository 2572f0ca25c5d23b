//! A file of a revision, whole or a range of it: R3 and R4.

use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::{
    ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderName, IF_MATCH,
    IF_NONE_MATCH, IF_RANGE, RANGE,
};

use crate::serve::answer::{Answer, Content};
use crate::serve::body::FileBody;
use crate::serve::hub::fault::{COMMIT, Fault, Outcome};
use crate::serve::hub::files::Etag;
use crate::serve::hub::route::{Id, Type};
use crate::serve::hub::{Hub, Request};
use crate::serve::range::Wanted;
use crate::serve::text;

const LINKED_ETAG: HeaderName = HeaderName::from_static("x-linked-etag");
const LINKED_SIZE: HeaderName = HeaderName::from_static("x-linked-size");

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
        if value(IF_MATCH).is_some_and(|known| !matches(known, etag.value())) {
            let message = "the file is another one than If-Match names";
            return Err(Fault::new(StatusCode::PRECONDITION_FAILED, message));
        }
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
    fn an_etag_is_found_in_a_list() {
        assert!(matches("\"a\", W/\"b\"", "b") && matches("*", "b") && matches("b", "b"));
        assert!(!matches("\"bb\"", "b"));
    }
}
