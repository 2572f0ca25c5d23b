//! Requests of clients before they commit.

use std::sync::Arc;

use hyper::StatusCode;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use store::{EditRequest, ErrorKind, Result};

use crate::serve::Asked;
use crate::serve::answer::Answer;
use crate::serve::hub::fault::{Fault, Outcome};
use crate::serve::hub::files::{What, is_large};
use crate::serve::hub::generation;
use crate::serve::hub::repos::Repo;
use crate::serve::hub::route::{Id, Named, Type};
use crate::serve::hub::{Hub, Request};
use crate::serve::source::{Sight, block};

/// Maximum bytes of a request's body.
const BODY_BYTES_MAX: usize = 4 << 20;
/// A client that would use Xet is asked to send files up to this size within its commit.
const WITHIN_BYTES: u64 = 64 << 20;
const OF_UPSTREAM: &str =
    "the upstream has a repo of this name, which one of your own would hide: choose another name";
/// The first version of the client library that sends large files only by Xet.
const XET_ONLY: (u32, u32) = (1, 20);

#[derive(Deserialize)]
struct Create {
    name: String,
    organization: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Preupload {
    pub(super) files: Vec<Planned>,
}

/// A file that a client plans to send.
#[derive(Deserialize)]
pub(super) struct Planned {
    path: String,
    #[serde(default)]
    sample: String,
    #[serde(default)]
    size: u64,
}

impl Hub {
    /// `POST /api/repos/create`: makes a repo whose first version is empty.
    pub(super) async fn create(&self, request: &Request<'_>, asked: &mut Asked) -> Outcome<Answer> {
        let body = asked.whole(BODY_BYTES_MAX).await?;
        let wanted: Create = parse(&body)?;
        request.check_may_write()?;
        let kind = match wanted.kind.as_deref() {
            None => Some(Type::Model),
            Some(kind) => Type::parse(&format!("{kind}s")),
        };
        let kind = kind.ok_or_else(|| Fault::bad("there is no such type of repos"))?;
        let owner = wanted.organization.as_deref().unwrap_or(request.owner());
        let id = match wanted.name.contains('/') {
            true => wanted.name.clone(),
            false => format!("{owner}/{}", wanted.name),
        };
        let id =
            Id::parse(&id).ok_or_else(|| Fault::bad(format!("{id:?} is no name of a repo")))?;
        let told =
            json!({"url": request.url_of(kind, &id), "name": id.as_str(), "id": id.as_str()});
        let named = Named {
            namespace: request.namespace.clone(),
            kind,
            id,
        };
        if self.is_upstreams(request, &named).await? {
            return Ok(taken(told, OF_UPSTREAM));
        }
        let (source, inner) = (Arc::clone(&self.source), Arc::clone(&self.inner));
        let is_new = block(move || {
            if inner
                .repos
                .find(source.newest()?.as_ref(), &named)?
                .is_some()
            {
                return Ok(false);
            }
            let edited = EditRequest {
                target: named.own_ref()?,
                onto: Some(0),
                message: "initial commit".to_owned(),
                expires: None,
                time: Timestamp::now(),
            };
            match store::edit(source.store(), &edited, |_| Ok(())) {
                Err(error) if error.kind() == ErrorKind::Conflict => Ok(false),
                // Somebody else made the same one just now.
                made => made.map(|(report, ())| !report.unchanged),
            }
        });
        match is_new.await? {
            true => Ok(Answer::json(StatusCode::OK, &told)),
            false => Ok(taken(told, "You already created this repo")),
        }
    }

    /// Whether the upstream has this repo, and the namespace none of its own.
    async fn is_upstreams(&self, request: &Request<'_>, named: &Named) -> Outcome<bool> {
        match &self.pull {
            Some(pull) => pull.has(named, &request.who()).await,
            None => Ok(false),
        }
    }

    /// `POST /api/validate-yaml`: checks the head of a README. This endpoint accepts everything.
    pub(super) async fn validate(&self, asked: &mut Asked) -> Outcome<Answer> {
        let body = asked.whole(BODY_BYTES_MAX).await?;
        let _told: Value = parse(&body)?;
        Ok(Answer::json(
            StatusCode::OK,
            &json!({"errors": [], "warnings": []}),
        ))
    }

    /// `POST preupload/REV`: says how to send each file, and which ones exist.
    pub(super) async fn preupload(
        &self,
        request: &Request<'_>,
        kind: Type,
        id: Id,
        rev: &str,
        asked: &mut Asked,
    ) -> Outcome<Answer> {
        let body = asked.whole(BODY_BYTES_MAX).await?;
        let planned: Preupload = parse(&body)?;
        let (sight, repo) = self.find_to_write(request, kind, id).await?;
        check_head(rev)?;
        let is_xet_only = speaks_xet_only(request.agent());
        let (inner, wanted) = (Arc::clone(&self.inner), rev.to_owned());
        let told = block(move || {
            let commit = inner.repos.commit(&sight, &repo, &wanted)?;
            let files = match &commit {
                Some(commit) => inner.shelf.files(&sight, commit, repo.name.path())?,
                None => Arc::default(),
            };
            let told = planned.files.iter().map(|file| {
                let is_lfs = file.goes_by_lfs(is_xet_only);
                let mode = if is_lfs { "lfs" } else { "regular" };
                let mut told =
                    json!({"path": file.path, "uploadMode": mode, "shouldIgnore": false});
                // If the size differs, the file differs, and no hash is needed.
                if let Some(What::File(content, _)) = files.at(&file.path).map(|entry| &entry.what)
                    && content.size == file.size
                    && let Some(told) = told.as_object_mut()
                {
                    let hashes = inner.known.of(&sight, content)?;
                    let oid = if is_lfs { &hashes.sha256 } else { &hashes.git };
                    told.insert("oid".to_owned(), json!(oid));
                }
                Ok(told)
            });
            told.collect::<Result<Vec<Value>>>()
        });
        Ok(Answer::json(StatusCode::OK, &json!({"files": told.await?})))
    }

    /// Branches and tags cannot be made here. A caller with the right to write is told so.
    pub(super) async fn branch(
        &self,
        request: &Request<'_>,
        kind: Type,
        id: Id,
        name: &str,
    ) -> Outcome<Answer> {
        self.find_to_write(request, kind, id).await?;
        match request.head.method == hyper::Method::DELETE {
            true => Err(Fault::revision(name)),
            false => Err(Fault::forbidden(
                "this endpoint makes no branches and no tags",
            )),
        }
    }

    /// Finds the repo, whose ref must be writable.
    pub(super) async fn find_to_write(
        &self,
        request: &Request<'_>,
        kind: Type,
        id: Id,
    ) -> Outcome<(Sight, Repo)> {
        let named = request.named(kind, id)?;
        let found = self.find_named(named.clone()).await;
        // Clients go on to write where a repo exists.
        if found.is_err()
            && request.check_may_write().is_ok()
            && self.is_upstreams(request, &named).await?
        {
            return Err(Fault::forbidden(OF_UPSTREAM));
        }
        let (sight, repo) = found?;
        request.check_may_write()?;
        if repo.is_saved() {
            return Err(Fault::forbidden(
                "this repo is part of a saved cache, which keeps what another hub said: make one of your own",
            ));
        }
        let (inner, at, own) = (Arc::clone(&self.inner), Arc::clone(&sight), repo.clone());
        let newest = block(move || inner.repos.commit(&at, &own, "main")).await?;
        match newest.is_some_and(|commit| commit.files.is_file()) {
            true => Err(Fault::forbidden(
                "this repo is a ref that is a single file, which takes no others: make one of your own",
            )),
            false => Ok((sight, repo)),
        }
    }
}

impl Planned {
    pub(super) fn goes_by_lfs(&self, is_xet_only: bool) -> bool {
        if is_xet_only {
            return self.size >= WITHIN_BYTES;
        }
        let sample =
            base64::Engine::decode(&base64::engine::general_purpose::STANDARD, &self.sample);
        is_large(
            &self.path,
            self.size,
            sample.unwrap_or_default().contains(&0),
        )
    }
}

/// The answer to a client that wants to make a repo of a name that is taken. Many go on with it.
fn taken(mut told: Value, why: &str) -> Answer {
    if let Some(told) = told.as_object_mut() {
        told.insert("error".to_owned(), json!(why));
    }
    Answer::json(StatusCode::CONFLICT, &told).because(why)
}

/// Checks that a revision is the one that can be written.
pub(super) fn check_head(rev: &str) -> Outcome<()> {
    match rev {
        "main" => Ok(()),
        _ => Err(Fault::revision(rev)),
    }
}

pub(super) fn parse<'b, T: Deserialize<'b>>(body: &'b [u8]) -> Outcome<T> {
    serde_json::from_slice(body)
        .map_err(|error| Fault::bad(format!("the body is not what it should be: {error}")))
}

/// Whether the client library in this User-Agent sends large files only by Xet.
fn speaks_xet_only(agent: &str) -> bool {
    // Datasets deletes its files before the commit, so it cannot send them within the commit.
    generation::version(agent)
        .is_some_and(|(before, version)| !before.starts_with("datasets/") && version >= XET_ONLY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_of_clients_are_told_apart() {
        for (agent, expected) in [
            ("unknown/None; hf_hub/2.4.0; python/3.11.2", true),
            ("transformers/5.2; hf_hub/1.20.1; python/3.11.2", true),
            ("datasets/5.2; hf_hub/1.20.1; python/3.11.2", false),
            ("unknown/None; hf_hub/1.19.3; python/3.11.2", false),
            ("unknown/None; hf_hub/0.36.2; python/3.11.2", false),
            ("hf_hub/2", true),
            ("hf_hub/x", false),
            ("curl/8", false),
        ] {
            assert_eq!(speaks_xet_only(agent), expected, "{agent}");
        }
    }
}
