//! Requests that read repos: their heads, lists of their files, branches, and history.

use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::LINK;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::serve::answer::Answer;
use crate::serve::hub::fault::{Fault, Outcome};
use crate::serve::hub::files::{Entry, Etag, What};
use crate::serve::hub::find::{LIST_TIME, Revision};
use crate::serve::hub::repos::Commit;
use crate::serve::hub::route::{Id, Type};
use crate::serve::hub::siblings::Siblings;
use crate::serve::hub::{Hub, Request};
use crate::serve::source::block;
use crate::serve::tokens::Role;
use crate::serve::{Asked, text};

/// Entries per page of a listing: without and with their last commit.
const PAGE_ENTRIES: (usize, usize) = (1000, 50);
/// Maximum bytes of a body that names paths.
const PATHS_BYTES_MAX: usize = 4 << 20;
/// Maximum number of repos and of commits in one answer.
const LISTED: (usize, usize) = (1000, 1000);

/// `GET /api/whoami-v2`. Clients use the name as the owner of repos that they name without one.
pub(super) fn who_am_i(request: &Request<'_>) -> Answer {
    let name = request.owner();
    let shown = request.caller.name().unwrap_or("everybody");
    let role = match request.caller.role(&request.namespace) {
        Some(Role::Write) => "write",
        _ => "read",
    };
    Answer::json(
        StatusCode::OK,
        &json!({
            "type": "user", "id": name, "name": name, "fullname": name, "email": null,
            "emailVerified": false, "canPay": false, "isPro": false, "periodEnd": null, "avatarUrl": "", "orgs": [],
            "auth": {"type": "access_token", "accessToken": {
                "displayName": shown, "role": role, "createdAt": "1970-01-01T00:00:00.000Z",
            }},
        }),
    )
}

impl Hub {
    /// `GET /api/models/ID`: describes a repo.
    pub(super) async fn info(
        &self,
        request: &Request<'_>,
        kind: Type,
        id: Id,
        rev: Option<&str>,
    ) -> Outcome<Answer> {
        let revision = self.revision(request, kind, id, rev.unwrap_or("main"));
        let revision = self.in_time(revision).await?;
        let with_hashes = text::is_on(&request.query, "blobs");
        let mut info = head_of(kind, revision.repo.named.id.as_str(), revision.commit.time);
        if let Some(info) = info.as_object_mut() {
            info.insert("sha".to_owned(), json!(revision.commit.hex));
        }
        let siblings = Siblings::new(self, &revision, with_hashes);
        siblings.answer(info.to_string()).await
    }

    /// `GET /api/models/ID/tree/REV/PATH`: lists a directory.
    pub(super) async fn tree(
        &self,
        request: &Request<'_>,
        kind: Type,
        id: Id,
        rev: &str,
        path: &str,
    ) -> Outcome<Answer> {
        let revision = self.in_time(self.revision(request, kind, id, rev)).await?;
        let query = &request.query;
        let is_expanded = text::is_on(query, "expand");
        let page = match is_expanded {
            true => PAGE_ENTRIES.1,
            false => PAGE_ENTRIES.0,
        };
        let limit = text::value(query, "limit").and_then(|limit| limit.parse().ok());
        let page = limit.unwrap_or(page).clamp(1, page);
        let cursor = match text::value(query, "cursor") {
            None => None,
            Some(cursor) => Some(place(cursor).ok_or_else(|| Fault::bad("no such cursor"))?),
        };
        let is_deep = text::is_on(query, "recursive");
        let missing = || Fault::entry(path, &revision.commit.hex);
        let inside = text::is_inside(path).then_some(());
        let below = inside.and_then(|()| revision.files.below(path, is_deep, cursor.as_deref()));
        let mut entries: Vec<Entry> = below.ok_or_else(missing)?.take(page + 1).cloned().collect();
        let has_more = entries.len() > page;
        entries.truncate(page);
        let last = entries
            .last()
            .map(|entry| entry.path.clone())
            .filter(|_| has_more);
        let listed = self.listed(&revision, entries, is_expanded).await?;
        let answer = Answer::json(StatusCode::OK, &Value::Array(listed));
        Ok(match last {
            Some(last) => answer.with(
                LINK,
                format!(
                    "<{}>; rel=\"next\"",
                    next(request, kind, &revision, (rev, path), &last)
                ),
            ),
            None => answer,
        })
    }

    /// `POST /api/models/ID/paths-info/REV`: describes some paths; missing ones are left out.
    pub(super) async fn paths_info(
        &self,
        request: &Request<'_>,
        kind: Type,
        id: Id,
        rev: &str,
        asked: &mut Asked,
    ) -> Outcome<Answer> {
        let body = asked.whole(PATHS_BYTES_MAX).await?;
        let (paths, is_expanded) =
            named_paths(&body).ok_or_else(|| Fault::bad("the body names no paths"))?;
        let revision = self.in_time(self.revision(request, kind, id, rev)).await?;
        let found = |path: &String| revision.files.at(path.trim_end_matches('/')).cloned();
        let entries: Vec<Entry> = paths.iter().filter_map(found).collect();
        let listed = self.listed(&revision, entries, is_expanded).await?;
        Ok(Answer::json(StatusCode::OK, &Value::Array(listed)))
    }

    async fn listed(
        &self,
        revision: &Revision,
        entries: Vec<Entry>,
        is_expanded: bool,
    ) -> Outcome<Vec<Value>> {
        let etags = self
            .etags(&revision.sight, entries.clone(), LIST_TIME)
            .await?;
        let last = is_expanded.then_some(&revision.commit);
        let listed = entries.iter().zip(etags);
        Ok(listed
            .map(|(entry, etag)| listed_as(entry, etag, last))
            .collect())
    }

    /// `GET /api/models/ID/refs`: lists branches and tags.
    pub(super) async fn refs(&self, request: &Request<'_>, kind: Type, id: Id) -> Outcome<Answer> {
        let (sight, repo) = self.find(request, kind, id).await?;
        let inner = Arc::clone(&self.inner);
        let [branches, tags] = block(move || inner.repos.refs(&sight, &repo)).await?;
        let of = |prefix: &str, (name, commit): &(String, String)| json!({"name": name, "ref": format!("{prefix}{name}"), "targetCommit": commit});
        let (pulls, branches): (Vec<_>, Vec<_>) = branches
            .into_iter()
            .partition(|(name, _)| name.starts_with("refs/pr/"));
        let branches: Vec<Value> = branches.iter().map(|one| of("refs/heads/", one)).collect();
        let tags: Vec<Value> = tags.iter().map(|one| of("refs/tags/", one)).collect();
        let mut told = json!({"branches": branches, "tags": tags, "converts": []});
        if let Some(told) = told.as_object_mut()
            && text::is_on(&request.query, "include_prs")
        {
            let pulls: Vec<Value> = pulls.iter().map(|one| of("", one)).collect();
            told.insert("pullRequests".to_owned(), Value::Array(pulls));
        }
        Ok(Answer::json(StatusCode::OK, &told))
    }

    /// `GET /api/models/ID/commits/REV`: lists commits, from a revision back.
    pub(super) async fn commits(
        &self,
        request: &Request<'_>,
        kind: Type,
        id: Id,
        rev: &str,
    ) -> Outcome<Answer> {
        let (sight, repo) = self.find(request, kind, id).await?;
        let (inner, wanted) = (Arc::clone(&self.inner), rev.to_owned());
        let commits = block(move || inner.repos.history(&sight, &repo, &wanted)).await?;
        let commits = commits.ok_or_else(|| Fault::revision(rev))?;
        let number =
            |name| text::value(&request.query, name).and_then(|text| text.parse::<usize>().ok());
        let limit = number("limit").unwrap_or(50).clamp(1, LISTED.1);
        let skip = number("p").unwrap_or(0).saturating_mul(limit);
        let told = commits.iter().skip(skip).take(limit).map(|commit| {
            json!({
                "id": commit.hex, "title": commit.title, "message": "", "date": time(commit.time), "authors": [{"user": "store"}],
            })
        });
        Ok(Answer::json(StatusCode::OK, &told.collect()))
    }

    /// `GET /api/models`: lists the repos of a namespace.
    pub(super) async fn list(&self, request: &Request<'_>, kind: Type) -> Outcome<Answer> {
        let (source, inner) = (Arc::clone(&self.source), Arc::clone(&self.inner));
        let namespace = request.namespace.clone();
        if request.caller.role(&namespace).is_none() {
            return Ok(Answer::json(StatusCode::OK, &json!([])));
        }
        let repos = block(move || {
            inner
                .repos
                .list(source.newest()?.as_ref(), &namespace, kind)
        })
        .await?;
        let query = &request.query;
        let limit = text::value(query, "limit").and_then(|limit| limit.parse().ok());
        let search = text::value(query, "search").map(str::to_ascii_lowercase);
        let author = text::value(query, "author").map(|author| format!("{author}/"));
        let is_wanted = |id: &str| {
            search
                .as_ref()
                .is_none_or(|text| id.to_ascii_lowercase().contains(text))
                && author.as_ref().is_none_or(|author| id.starts_with(author))
        };
        let repos = repos.iter().filter(|(id, _)| is_wanted(id.as_str()));
        let repos = repos.take(limit.unwrap_or(LISTED.0).min(LISTED.0));
        let told = repos.map(|(id, time)| head_of(kind, id.as_str(), *time));
        Ok(Answer::json(StatusCode::OK, &told.collect()))
    }
}

/// Parses the paths in the body of a request for paths, as a form or as JSON, and whether it wants more than hashes.
pub(super) fn named_paths(body: &[u8]) -> Option<(Vec<String>, bool)> {
    if body.first() == Some(&b'{') {
        let body: Value = serde_json::from_slice(body).ok()?;
        let paths = body.get("paths")?.as_array()?.iter();
        let paths = paths.map(|path| path.as_str().map(str::to_owned));
        let is_expanded = body.get("expand").and_then(Value::as_bool).unwrap_or(false);
        return Some((paths.collect::<Option<_>>()?, is_expanded));
    }
    let pairs = text::pairs(std::str::from_utf8(body).ok()?);
    let is_expanded = text::is_on(&pairs, "expand");
    let paths = pairs.into_iter().filter(|(name, _)| name == "paths");
    Some((paths.map(|(_, path)| path).collect(), is_expanded))
}

/// The URL of the next page.
fn next(
    request: &Request<'_>,
    kind: Type,
    revision: &Revision,
    (rev, path): (&str, &str),
    last: &str,
) -> String {
    let endpoint = &request.endpoint;
    let (kind, id) = (kind.plural(), revision.repo.named.id.as_str());
    let path = match path {
        "" => String::new(),
        path => format!("/{}", text::escaped(path)),
    };
    let kept = ["recursive", "expand", "limit"].into_iter();
    let kept = kept.filter_map(|name| {
        Some(format!(
            "{name}={}&",
            text::escaped(text::value(&request.query, name)?)
        ))
    });
    let kept: String = kept.collect();
    let (rev, cursor) = (text::escaped(rev), text::hex(last.as_bytes()));
    format!("{endpoint}/api/{kind}/{id}/tree/{rev}{path}?{kept}cursor={cursor}")
}

/// Decodes a cursor: the path after which a page begins.
pub(super) fn place(cursor: &str) -> Option<String> {
    String::from_utf8(text::unhex(cursor)?).ok()
}

fn head_of(kind: Type, id: &str, changed: Timestamp) -> Value {
    let author = id.split_once('/').map(|(author, _)| author);
    let mut head = json!({
        "_id": crate::serve::hub::hashes::derived(id).get(..24), "id": id, "author": author, "private": true, "gated": false,
        "disabled": false, "tags": [], "lastModified": time(changed), "createdAt": time(changed), "downloads": 0, "likes": 0,
    });
    if let (Some(head), Type::Model) = (head.as_object_mut(), kind) {
        head.insert("modelId".to_owned(), json!(id));
    }
    head
}

/// An entry of a listing, with its last commit if requested.
fn listed_as(entry: &Entry, etag: Option<Etag>, last: Option<&Commit>) -> Value {
    let mut told = match (&entry.what, entry.size(), etag) {
        (What::Directory(oid), ..) => {
            json!({"type": "directory", "path": entry.path, "oid": oid, "size": 0})
        }
        (_, Some(size), Some(etag)) => {
            let mut told =
                json!({"type": "file", "path": entry.path, "oid": etag.oid, "size": size});
            if let (Some(told), Some(sha256)) = (told.as_object_mut(), &etag.sha256) {
                let lfs = json!({"oid": sha256, "size": size, "pointerSize": etag.pointer_bytes});
                told.insert("lfs".to_owned(), lfs);
            }
            told
        }
        _ => json!({"type": "file", "path": entry.path}),
    };
    if let (Some(told), Some(commit)) = (told.as_object_mut(), last) {
        let commit = json!({"id": commit.hex, "title": commit.title, "date": time(commit.time)});
        told.insert("lastCommit".to_owned(), commit);
        told.insert("security".to_owned(), Value::Null);
    }
    told
}

/// A time in the Hub's format.
fn time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.000Z").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_come_as_a_form_or_as_json() {
        let expected = (vec!["a b".to_owned(), "c/d".to_owned()], true);
        assert_eq!(
            named_paths(b"paths=a+b&paths=c%2Fd&expand=True"),
            Some(expected.clone())
        );
        assert_eq!(
            named_paths(br#"{"paths":["a b","c/d"],"expand":true}"#),
            Some(expected)
        );
        assert_eq!(named_paths(b""), Some((Vec::new(), false)));
        for bad in [&b"{"[..], b"{\"paths\":1}", b"{\"paths\":[1]}", b"\xff"] {
            assert_eq!(named_paths(bad), None);
        }
    }
}
