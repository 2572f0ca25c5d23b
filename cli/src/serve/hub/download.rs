//! Downloads of a file of a revision, or of a range of it: `GET` and `HEAD` of `ID/resolve/REV/PATH`.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{
    ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderName, IF_MATCH,
    IF_NONE_MATCH, IF_RANGE, LOCATION, RANGE,
};

use crate::serve::answer::Answer;
use crate::serve::body::{Content, FileBody};
use crate::serve::hub::fault::{COMMIT, Fault, Outcome};
use crate::serve::hub::files::{Entry, Etag, What};
use crate::serve::hub::find::{HASHES_TIME, Revision};
use crate::serve::hub::pull::{self, Place, Pull};
use crate::serve::hub::route::{Id, Named, Type};
use crate::serve::hub::{Hub, Request};
use crate::serve::range::{Wanted, content_range, outside};
use crate::serve::source::block;
use crate::serve::spool::Following;
use crate::serve::text;

/// How long a request waits for the first byte of an arriving file. Clients wait a little longer.
const FIRST_TIME: Duration = Duration::from_secs(8);

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
        let (entry, size) = revision.file(path)?;
        let etags = self
            .etags(&revision.sight, vec![entry.clone()], HASHES_TIME)
            .await?;
        let etag = etags.into_iter().flatten().next();
        let etag = etag.ok_or_else(|| Fault::entry(path, &revision.commit.hex))?;
        let answer = |status| headed(Answer::new(status), &revision.commit.hex, &etag, path, size);
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
        if request.is_head() && rev != revision.commit.hex && self.leads_here(&revision).await? {
            let moved = answer(StatusCode::TEMPORARY_REDIRECT);
            return Ok(moved.with(LOCATION, fixed(request, &revision, path)));
        }
        // If the file is another one now, a range would not fit to the part that the client has.
        let is_same = value(IF_RANGE).is_none_or(|known| is_strong(known, etag.value()));
        let wanted = value(RANGE)
            .filter(|_| is_same)
            .map_or(Wanted::All, |range| Wanted::parse(range, size));
        let (answer, range) = match wanted {
            Wanted::All => (answer(StatusCode::OK), 0..size),
            Wanted::Part(range) => {
                let told = content_range(Some(&range), size);
                (
                    answer(StatusCode::PARTIAL_CONTENT).with(CONTENT_RANGE, told),
                    range,
                )
            }
            // The Rust client asks for the first byte of any file to learn its size, and cannot handle 416 for an empty
            // file.
            Wanted::Nothing if size == 0 => {
                let told = content_range(None, size);
                (answer(StatusCode::OK).with(CONTENT_RANGE, told), 0..0)
            }
            Wanted::Nothing => {
                let told = content_range(None, size);
                return Ok(answer(StatusCode::RANGE_NOT_SATISFIABLE)
                    .with(CONTENT_RANGE, told)
                    .because(outside(size)));
            }
        };
        let mut answer = answer;
        answer.content = match request.is_head() {
            true => Content::HeadOf(range.end - range.start),
            false => self.bytes(request, &revision, entry, range).await?,
        };
        Ok(answer)
    }

    /// Whether the commit means the same files as the revision. In a saved cache, `vN` may have files of a commit that the
    /// newest version with this commit lacks.
    async fn leads_here(&self, revision: &Revision) -> Outcome<bool> {
        if !revision.repo.is_saved() {
            return Ok(true);
        }
        let (sight, repo) = (Arc::clone(&revision.sight), revision.repo.clone());
        let (inner, commit) = (Arc::clone(&self.inner), &revision.commit);
        let (hex, files) = (commit.hex.clone(), commit.files);
        let found = block(move || inner.repos.commit(&sight, &repo, &hex)).await?;
        Ok(found.is_some_and(|found| found.files == files))
    }

    /// The bytes of a file, from the store or from the upstream.
    async fn bytes(
        &self,
        request: &Request<'_>,
        revision: &Revision,
        entry: &Entry,
        range: Range<u64>,
    ) -> Outcome<Content> {
        let is_later = range.start > 0;
        if let (Some(pull), Some(etag)) = (&self.pull, entry.known_etag())
            && is_later
            && pull.was_wrong(&revision.repo.name, etag.value())
        {
            // A client that continues after wrong bytes would have a corrupt file of the right size.
            return Err(Fault::new(
                StatusCode::BAD_GATEWAY,
                "the upstream sent wrong bytes of this file in the last hour: delete what you have of it, and get it whole",
            ));
        }
        if let What::Absent(size, name) = &entry.what {
            let place = self
                .fetched(request, revision, (entry, *size, name))
                .await?;
            if let Place::Arriving(spool, flight) = place {
                let source = Arc::clone(&self.source);
                let opened = Following::open(source, spool, range);
                return match tokio::time::timeout(FIRST_TIME, opened).await {
                    Ok(Ok(following)) => Ok(Content::Arriving(Box::new(following))),
                    Ok(Err(error)) => Err(Pull::fault_of(&flight, error)),
                    Err(_) => Err(Fault::later("this file is being fetched: ask again")),
                };
            }
            let Named { kind, id, .. } = revision.repo.named.clone();
            let again = self.revision(request, kind, id, &revision.commit.hex);
            let again = again.await?;
            return match again.file(&entry.path)?.0.what {
                What::File(content, _) => self.stored(&again, content, range).await,
                _ => Err(Fault::later("this file was removed meanwhile: ask again")),
            };
        }
        match entry.what {
            What::File(content, _) => self.stored(revision, content, range).await,
            _ => Err(Fault::entry(&entry.path, &revision.commit.hex)),
        }
    }

    async fn stored(
        &self,
        revision: &Revision,
        content: store::Content,
        range: Range<u64>,
    ) -> Outcome<Content> {
        let (name, number) = (&revision.repo.name, revision.commit.number);
        self.inner.used.note(self.source.store(), name, number);
        let source = Arc::clone(&self.source);
        let file = FileBody::open(source, Arc::clone(&revision.sight), content, range);
        Ok(Content::File(Box::new(file.await?)))
    }

    /// A file that is not in the store, fetched from the upstream.
    async fn fetched(
        &self,
        request: &Request<'_>,
        revision: &Revision,
        (entry, size, name): (&Entry, u64, &str),
    ) -> Outcome<Place> {
        let Some(pull) = &self.pull else {
            return Err(Fault::away("this file was never fetched from the upstream"));
        };
        let repo = &revision.repo;
        pull.file(pull::Wanted {
            token: pull.token_for(&request.who(), repo.is_open()),
            named: repo.named.clone(),
            target: repo.name.clone(),
            dir: pull::dir_of(&repo.named),
            commit: revision.commit.hex.clone(),
            path: entry.path.clone(),
            name: name.to_owned(),
            size,
            files: Arc::clone(&revision.files),
        })
        .await
    }
}

/// The path of the file in this commit. Clients ask by HEAD first, and then get the file where they were led, so that the
/// bytes are those of the etag, and a download that broke off does not continue in another version. Without the host,
/// which a proxy may know better.
fn fixed(request: &Request<'_>, revision: &Revision, path: &str) -> String {
    let Named { kind, id, .. } = &revision.repo.named;
    let (url, hex) = (request.url_of(*kind, id), &revision.commit.hex);
    let repo = url.splitn(4, '/').nth(3).unwrap_or_default();
    format!("/{repo}/resolve/{hex}/{}", text::escaped_path(path))
}

/// Whether `If-Range` names this etag. A weak one is of a file that may have other bytes (RFC 9110, section 13.1.5).
fn is_strong(known: &str, etag: &str) -> bool {
    let known = known.trim();
    !known.starts_with("W/") && known.trim_matches('"') == etag
}

/// Whether a list of etags contains this one.
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
        assert!(is_strong("\"b\"", "b") && is_strong("b", "b"));
        assert!(
            !is_strong("W/\"b\"", "b") && !is_strong("*", "b") && !is_strong("\"a\", \"b\"", "b")
        );
    }
}
