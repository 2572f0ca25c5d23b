//! Resolves a request in the store: the repo, the revision, its files and their hashes.
//!
//! With an upstream, a repo that the namespace does not own is first looked up there (`pull`), then in the store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::StatusCode;
use hyper::header::LOCATION;
use hyper::http::request::Parts;

use crate::serve::answer::Answer;
use crate::serve::hub::fault::{Fault, Outcome};
use crate::serve::hub::files::{Entry, Etag, Files, What};
use crate::serve::hub::pull::Mirrored;
use crate::serve::hub::repos::{Commit, Repo};
use crate::serve::hub::route::{self, Id, Named, Type};
use crate::serve::hub::{Hub, Inner, REVISION_BYTES_MAX, Request, check_known};
use crate::serve::patience::{LOOK_TIME, within};
use crate::serve::source::{Sight, block};
use crate::serve::tokens::Caller;
use crate::serve::{person, text};

/// How long a request for a file waits for hashes, and how long any request does without progress. Clients treat a
/// slower answer with a file as a failure.
pub(super) const HASHES_TIME: Duration = Duration::from_secs(8);
/// How long a request for a list waits for hashes. Its clients wait without a limit, and many do not ask again.
pub(super) const LIST_TIME: Duration = Duration::from_secs(300);

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
            None => self.find_named(request.named(kind, id)?).await,
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
    pub(super) async fn find_named(&self, named: Named) -> Outcome<(Sight, Repo)> {
        let (source, inner) = (Arc::clone(&self.source), Arc::clone(&self.inner));
        let found = block(move || {
            let sight = source.newest()?;
            let repo = inner.repos.find(&sight, &named)?;
            Ok(repo.map(|repo| (sight, repo)))
        });
        within(LOOK_TIME, found).await?.ok_or_else(Fault::repo)
    }

    /// The repo that a person looks for, at an address that a client printed.
    pub(super) fn printed(&self, head: &Parts) -> Option<Named> {
        if !person::is_looking(head) {
            return None;
        }
        let segments = text::segments(head.uri.path())?;
        let (namespace, rest) = route::endpoint(&segments);
        let is_for_machines = namespace.is_none() && route::is_for_machines(rest);
        let namespace = namespace.or_else(|| self.root.clone());
        let (kind, id) = route::printed(rest).filter(|_| !is_for_machines)?;
        Some(Named {
            namespace: namespace?,
            kind,
            id,
        })
    }

    /// Sends a browser to the page of a repo's ref.
    pub(super) async fn page(
        &self,
        head: &Parts,
        named: Named,
        caller: &Caller,
    ) -> Outcome<Answer> {
        check_known(caller)?;
        let (_, repo) = self.find_named(seen(named, caller)?).await?;
        // Without the host, which a cache or a proxy may have from somebody else.
        let (prefix, name) = (text::forwarded_prefix(head), repo.name.as_str());
        let page = format!("{prefix}/-/{}", text::escaped_path(name));
        Ok(Answer::new(StatusCode::SEE_OTHER).with(LOCATION, page))
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

    async fn revision_here(
        &self,
        request: &Request<'_>,
        kind: Type,
        id: Id,
        rev: &str,
    ) -> Outcome<store::Result<Option<Revision>>> {
        let found = self.revision_of(request.named(kind, id)?, rev);
        let found = within(LOOK_TIME, found).await;
        found?.map(Ok).ok_or_else(Fault::repo)
    }

    /// The revision of a repo, if there is such a repo, and such a revision in it. What is in memory needs no other thread: to
    /// switch to one takes as long as to send a small file.
    async fn revision_of(
        &self,
        named: Named,
        rev: &str,
    ) -> store::Result<Option<Option<Revision>>> {
        let sight = self.source.newest_soon().await?;
        if let Some(known) = self.inner.known_revision(&sight, &named, rev) {
            return Ok(Some(Some(known)));
        }
        let (inner, wanted) = (Arc::clone(&self.inner), rev.to_owned());
        let found = block(move || {
            let Some(repo) = inner.repos.find(&sight, &named)? else {
                return Ok(None);
            };
            let commit = inner.repos.commit(&sight, &repo, &wanted)?;
            let found = commit.map(|commit| inner.revision(sight, repo, commit));
            Ok(Some(found.transpose()?))
        });
        found.await
    }

    /// The etags of entries; `None` for directories. Waits at most for `time`, and only as long as hashes are computed.
    pub(super) async fn etags(
        &self,
        sight: &Sight,
        entries: Vec<Entry>,
        time: Duration,
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
        let hashed_bytes = || self.shared.numbers.hashed_bytes.now();
        hashed((time, HASHES_TIME), hashed_bytes, work).await
    }
}

/// Waits for hashes: at most for the first time, and at most for the second one without progress. The work continues
/// after a timeout, so a retry may find it done.
async fn hashed<T: Send + 'static>(
    (most, pause): (Duration, Duration),
    progress: impl Fn() -> u64,
    work: impl Future<Output = store::Result<T>> + Send + 'static,
) -> Outcome<T> {
    let (began, mut work) = (Instant::now(), tokio::spawn(work));
    loop {
        let before = progress();
        let left = most.saturating_sub(began.elapsed());
        match tokio::time::timeout(pause.min(left), &mut work).await {
            Ok(Ok(done)) => return Ok(done?),
            Ok(Err(_)) => {
                return Err(Fault::later(
                    "the hashes of these files could not be computed",
                ));
            }
            Err(_) if began.elapsed() < most && progress() != before => {}
            Err(_) => {
                return Err(Fault::later(
                    "the hashes of these files are being computed: ask again",
                ));
            }
        }
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

    /// The revision, if all of it is in memory.
    fn known_revision(&self, sight: &Sight, named: &Named, rev: &str) -> Option<Revision> {
        let (repo, commit) = self.repos.known(sight, named, rev)?;
        let files = self.shelf.known(&commit, repo.name.path())?;
        Some(Revision {
            sight: Arc::clone(sight),
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
    pub(super) fn named(&self, kind: Type, id: Id) -> Outcome<Named> {
        let namespace = self.namespace.clone();
        seen(
            Named {
                namespace,
                kind,
                id,
            },
            &self.caller,
        )
    }
}

/// A namespace that the caller may not read is as if it did not exist.
fn seen(named: Named, caller: &Caller) -> Outcome<Named> {
    let role = caller.role(&named.namespace);
    role.map(|_| named).ok_or_else(Fault::repo)
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
    use std::cell::Cell;

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
            let times = (Duration::from_secs(60 * 60), Duration::from_millis(20));
            let fault = hashed(times, || 7, work).await.unwrap_err();
            let answer = Answer::from(fault);
            assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
            assert!(answer.headers.contains_key(RETRY_AFTER));
            go_on.send(()).unwrap();
            assert_eq!(ended.await.unwrap(), "hashed");
        });
    }

    #[test]
    fn who_asks_for_a_list_waits_as_long_as_hashes_are_computed() {
        let runtime = crate::serve::runtime().unwrap();
        runtime.block_on(async {
            let (go_on, told) = oneshot::channel::<()>();
            let work = async move {
                told.await.unwrap();
                Ok("hashed")
            };
            let (bytes, go_on) = (Cell::new(0), Cell::new(Some(go_on)));
            let progress = || {
                bytes.set(bytes.get() + 1);
                if bytes.get() == 10 {
                    go_on.take().unwrap().send(()).unwrap();
                }
                bytes.get()
            };
            let times = (Duration::from_secs(60 * 60), Duration::from_millis(5));
            assert_eq!(hashed(times, progress, work).await.unwrap(), "hashed");
            // It waits no longer than that.
            let times = (Duration::from_millis(20), Duration::from_millis(5));
            let never = std::future::pending::<store::Result<()>>();
            bytes.set(20);
            assert!(hashed(times, progress, never).await.is_err());
        });
    }
}
