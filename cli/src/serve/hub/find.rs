//! Resolves a request in the store: the repo, the revision, its files and their hashes.
//!
//! With an upstream, a repo that the namespace does not own is first looked up there (`pull`), then in the store.

use std::sync::Arc;
use std::time::Duration;

use crate::serve::hub::fault::{Fault, Outcome};
use crate::serve::hub::files::{Entry, Etag, Files, What};
use crate::serve::hub::pull::Mirrored;
use crate::serve::hub::repos::{Commit, Repo};
use crate::serve::hub::route::{Id, Named, Type};
use crate::serve::hub::{Hub, Inner, REVISION_BYTES_MAX, Request};
use crate::serve::patience::{LOOK_TIME, within};
use crate::serve::source::{Sight, block};

/// How long a request waits for hashes. Clients treat a slower answer as a failure.
const HASHES_TIME: Duration = Duration::from_secs(8);

/// A revision of a repo and its files.
pub(super) struct Revision {
    pub(super) sight: Sight,
    pub(super) repo: Repo,
    pub(super) commit: Commit,
    pub(super) files: Arc<Files>,
}

impl Hub {
    /// Finds the repo in the newest state, or through the upstream.
    pub(super) async fn find(
        &self,
        request: &Request<'_>,
        kind: Type,
        id: Id,
    ) -> Outcome<(Sight, Repo)> {
        match self.mirrored(request, kind, &id, "main").await? {
            Some(found) => Ok((found.sight, found.repo)),
            None => self.find_here(request, kind, id).await,
        }
    }

    /// The revision of a repo of the upstream; `None` without an upstream, or if it does not apply.
    async fn mirrored(
        &self,
        request: &Request<'_>,
        kind: Type,
        id: &Id,
        rev: &str,
    ) -> Outcome<Option<Mirrored>> {
        let Some(pull) = &self.pull else {
            return Ok(None);
        };
        let named = request.named(kind, id.clone())?;
        let mut found = pull.find(&named, &request.who(), rev).await?;
        if let Some(note) = found.as_mut().and_then(|found| found.note.take()) {
            request.note(note);
        }
        Ok(found)
    }

    /// Finds the repo in the store.
    pub(super) async fn find_here(
        &self,
        request: &Request<'_>,
        kind: Type,
        id: Id,
    ) -> Outcome<(Sight, Repo)> {
        let named = request.named(kind, id)?;
        let (source, inner) = (Arc::clone(&self.source), Arc::clone(&self.inner));
        let found = block(move || {
            let sight = source.newest()?;
            let repo = inner.repos.find(&sight, &named)?;
            Ok(repo.map(|repo| (sight, repo)))
        });
        within(LOOK_TIME, found).await?.ok_or_else(Fault::repo)
    }

    /// Finds the revision and its files.
    pub(super) async fn revision(
        &self,
        request: &Request<'_>,
        kind: Type,
        id: Id,
        rev: &str,
    ) -> Outcome<Revision> {
        if rev.len() > REVISION_BYTES_MAX {
            return Err(Fault::revision("of this length"));
        }
        let found = match self.mirrored(request, kind, &id, rev).await? {
            Some(found) => {
                let inner = Arc::clone(&self.inner);
                block(move || {
                    inner
                        .revision(found.sight, found.repo, found.commit)
                        .map(Some)
                })
                .await
            }
            None => self.revision_here(request, kind, id, rev).await?,
        };
        found?.ok_or_else(|| Fault::revision(rev))
    }

    /// One blocking task for all steps: a switch to another thread takes as long as sending a small file.
    async fn revision_here(
        &self,
        request: &Request<'_>,
        kind: Type,
        id: Id,
        rev: &str,
    ) -> Outcome<store::Result<Option<Revision>>> {
        let named = request.named(kind, id)?;
        let (source, inner) = (Arc::clone(&self.source), Arc::clone(&self.inner));
        let wanted = rev.to_owned();
        let found = block(move || {
            let sight = source.newest()?;
            let Some(repo) = inner.repos.find(&sight, &named)? else {
                return Ok(None);
            };
            let commit = inner.repos.commit(&sight, &repo, &wanted)?;
            let found = commit.map(|commit| inner.revision(sight, repo, commit));
            Ok(Some(found.transpose()?))
        });
        let found = within(LOOK_TIME, found).await;
        found?.map(Ok).ok_or_else(Fault::repo)
    }

    /// The etags of entries; `None` for directories.
    pub(super) async fn etags(
        &self,
        sight: &Sight,
        entries: Vec<Entry>,
    ) -> Outcome<Vec<Option<Etag>>> {
        // Most etags are in memory, which is faster than a switch to another thread.
        let known: Option<Vec<_>> = entries
            .iter()
            .map(|entry| self.inner.known_etag(entry))
            .collect();
        if let Some(known) = known {
            return Ok(known);
        }
        let inner = Arc::clone(&self.inner);
        let hashers = Arc::clone(&self.hashers);
        let sight = Arc::clone(sight);
        let work = async move {
            let turn = hashers.acquire_owned().await;
            block(move || {
                let _turn = turn;
                let etags = entries.iter().map(|entry| inner.etag(&sight, entry));
                etags.collect::<store::Result<Vec<_>>>()
            })
            .await
        };
        hashed(HASHES_TIME, work).await
    }
}

/// Waits for hashes. The work continues after a timeout, so a retry may find it done.
async fn hashed<T: Send + 'static>(
    time: Duration,
    work: impl Future<Output = store::Result<T>> + Send + 'static,
) -> Outcome<T> {
    let Ok(done) = tokio::time::timeout(time, tokio::spawn(work)).await else {
        return Err(Fault::later(
            "the hashes of these files are being computed: ask again",
        ));
    };
    match done {
        Ok(done) => Ok(done?),
        Err(_) => Err(Fault::later(
            "the hashes of these files could not be computed",
        )),
    }
}

impl Inner {
    /// The revision for a commit.
    fn revision(&self, sight: Sight, repo: Repo, commit: Commit) -> store::Result<Revision> {
        let files = self.shelf.files(&sight, &commit, repo.name.path())?;
        Ok(Revision {
            sight,
            repo,
            commit,
            files,
        })
    }

    /// The etag of an entry, if it is in memory. The inner `None` is a directory.
    pub(super) fn known_etag(&self, entry: &Entry) -> Option<Option<Etag>> {
        match &entry.what {
            What::File(content, None) => {
                let hashes = self.known.remembered(content)?;
                Some(Some(Etag::by_rule(&entry.path, content.size, &hashes)))
            }
            _ => Some(entry.known_etag()),
        }
    }
}

impl Request<'_> {
    /// The repo's name, if the caller may see the namespace.
    fn named(&self, kind: Type, id: Id) -> Outcome<Named> {
        if self.caller.role(&self.namespace).is_none() {
            return Err(Fault::repo());
        }
        Ok(Named {
            namespace: self.namespace.clone(),
            kind,
            id,
        })
    }
}

impl Revision {
    fn entry(&self, path: &str) -> Outcome<&Entry> {
        let missing = || Fault::entry(path, &self.commit.hex);
        self.files.at(path).ok_or_else(missing)
    }

    /// A file and its size.
    pub(super) fn file(&self, path: &str) -> Outcome<(&Entry, u64)> {
        let entry = self.entry(path)?;
        let size = entry.size();
        size.map(|size| (entry, size))
            .ok_or_else(|| Fault::entry(path, &self.commit.hex))
    }
}

#[cfg(test)]
mod tests {
    use hyper::StatusCode;
    use hyper::header::RETRY_AFTER;
    use tokio::sync::oneshot;

    use super::*;
    use crate::serve::answer::Answer;

    #[test]
    fn who_waits_long_for_hashes_is_told_to_ask_again_and_they_are_computed() {
        let runtime = crate::serve::runtime().unwrap();
        runtime.block_on(async {
            let (go_on, told) = oneshot::channel::<()>();
            let (done, ended) = oneshot::channel();
            let work = async move {
                told.await.unwrap();
                done.send("hashed").unwrap();
                Ok(())
            };
            let fault = hashed(Duration::from_millis(20), work).await.unwrap_err();
            let answer = Answer::from(fault);
            assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
            assert!(answer.headers.contains_key(RETRY_AFTER));
            go_on.send(()).unwrap();
            assert_eq!(ended.await.unwrap(), "hashed");
        });
    }
}
