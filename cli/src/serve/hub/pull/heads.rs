//! Finds the commit of a revision of the upstream, and stores its listing before anything is answered from it.
//!
//! A commit never changes. A branch is looked up again after a while, by one request for all waiting clients. While the
//! upstream is unreachable, the last known commit is used. A repo that is not public has a ref of its own, which
//! nothing else reads. A repo that somebody saved in the store is served whatever the upstream says.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use store::RefName;

use crate::serve::hub::REVISION_BYTES_MAX;
use crate::serve::hub::fault::{Fault, Outcome};
use crate::serve::hub::listing::Listing;
use crate::serve::hub::pull::access::{Reach, Who};
use crate::serve::hub::pull::keep::Revision;
use crate::serve::hub::pull::upstream::{Failure, Head};
use crate::serve::hub::pull::{ANSWER_TIME, Mirrored, Pull};
use crate::serve::hub::repos::Mirrors;
use crate::serve::hub::repos::{Commit, Repo};
use crate::serve::hub::route::Named;
use crate::serve::source::{Sight, block};
use crate::serve::text::{is_hex, is_inside};

/// How long the commit of a branch and a refusal are remembered.
const HEAD_TIME: Duration = Duration::from_secs(60);
const REFUSED_TIME: Duration = Duration::from_secs(10);
/// Maximum number of remembered revisions, and of refusals of one of them.
const HEADS_MAX: usize = 10_000;
const REFUSED_MAX: usize = 1000;
const NAME_BYTES_MAX: usize = 255;
const MAIN: &str = "main";

/// Answers of the upstream, by repo and revision.
#[derive(Default)]
pub(super) struct Heads(Mutex<HashMap<(Named, String), Slot>>);

/// The holder of the lock asks the upstream; others wait for its answer.
type Slot = Arc<tokio::sync::Mutex<Asked>>;

/// The last answers about one revision.
#[derive(Default)]
pub(super) struct Asked {
    head: Option<(Head, Instant)>,
    /// By credentials.
    refused: HashMap<String, (Failure, Instant)>,
}

/// What the store knows of a revision.
struct Known {
    sight: Sight,
    /// Whether the namespace owns the repo.
    is_own: bool,
    /// The two mirrors, and in each the commit of the revision, if its listing is stored.
    open: Option<(Repo, Option<Commit>)>,
    gated: Option<(Repo, Option<Commit>)>,
    /// A saved repo of this name in another ref, and the commit of the revision there.
    saved: Option<(Repo, Option<Commit>)>,
}

impl Heads {
    fn slot(&self, named: &Named, rev: &str) -> Slot {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= HEADS_MAX {
            all.retain(|_, slot| Arc::strong_count(slot) > 1);
        }
        Arc::clone(all.entry((named.clone(), rev.to_owned())).or_default())
    }
}

impl Asked {
    fn answer(&self, who: &str) -> Option<Result<Head, Failure>> {
        if let Some((head, at)) = &self.head
            && at.elapsed() < HEAD_TIME
        {
            return Some(Ok(head.clone()));
        }
        let (failure, at) = self.refused.get(who)?;
        (at.elapsed() < REFUSED_TIME).then(|| Err(failure.clone()))
    }

    fn note(&mut self, who: String, answer: &Result<Head, Failure>) {
        match answer {
            Ok(head) => {
                self.head = Some((head.clone(), Instant::now()));
                self.refused.clear();
            }
            Err(failure) => {
                if self.refused.len() >= REFUSED_MAX {
                    self.refused.clear();
                }
                self.refused.insert(who, (failure.clone(), Instant::now()));
            }
        }
    }
}

impl Known {
    /// The commit of the revision according to the store, and whether it is public.
    fn head(&self) -> Option<Head> {
        let of = |found: &Option<(Repo, Option<Commit>)>, is_open| {
            let (_, commit) = found.as_ref()?;
            let sha = commit.as_ref()?.hex.clone();
            Some(Head { sha, is_open })
        };
        of(&self.open, true).or_else(|| of(&self.gated, false))
    }

    /// The revision, if a mirror has the commit `head`.
    fn at(self, head: &Head, note: &mut Option<String>) -> Option<Mirrored> {
        let mirror = if head.is_open { self.open } else { self.gated };
        let (repo, commit) = mirror?;
        let commit = commit.filter(|commit| commit.hex == head.sha)?;
        Some(Mirrored {
            sight: self.sight,
            repo,
            commit,
            note: note.take(),
        })
    }

    /// The revision in a saved cache.
    fn as_saved(&self) -> Option<Mirrored> {
        let (repo, commit) = self.saved.as_ref()?;
        Some(Mirrored {
            sight: Arc::clone(&self.sight),
            repo: repo.clone(),
            commit: commit.clone()?,
            note: None,
        })
    }
}

impl Pull {
    /// Finds the revision `rev` of a repo that the namespace does not own. `None` means that only the store is to be
    /// searched.
    pub(in crate::serve::hub) async fn find(
        self: &Arc<Self>,
        named: &Named,
        who: &Who,
        rev: &str,
    ) -> Outcome<Option<Mirrored>> {
        let is_fit = rev.len() <= REVISION_BYTES_MAX && is_inside(rev) && !rev.is_empty();
        let is_fit = is_fit && rev.split('/').all(|name| name.len() <= NAME_BYTES_MAX);
        let known = self.known(named, rev).await?;
        if known.is_own || !is_fit {
            return Ok(None);
        }
        let (pull, named, who) = (Arc::clone(self), named.clone(), who.clone());
        let rev = rev.to_owned();
        let saved = known.as_saved();
        // Without a public mirror, the store's own search finds only the saved repo, which nothing restricts.
        let is_saved_alone = known.saved.is_some() && known.open.is_none();
        // The work continues after a timeout, so a retry may find it done.
        let work = tokio::spawn(async move { pull.search(&named, &who, &rev, known).await });
        let found = match tokio::time::timeout(ANSWER_TIME, work).await {
            Ok(Ok(found)) => found.map_err(|failure| (failure.fault(), failure.why())),
            Ok(Err(_)) => Err(later("this could not be found out")),
            Err(_) => Err(later(
                "the upstream is being asked what is in this revision: ask again",
            )),
        };
        match (found, saved) {
            // Somebody saved it here, so the upstream's permissions do not matter.
            (Err((_, why)), Some(saved)) => Ok(Some(Mirrored {
                note: Some(why),
                ..saved
            })),
            (Ok(None), saved @ Some(_)) => Ok(saved),
            (Err(_), None) if is_saved_alone => Ok(None),
            (found, _) => found.map_err(|(fault, _)| fault),
        }
    }

    /// Whether the upstream has this repo, and the namespace none of its own. A new repo of the namespace would hide it from
    /// everybody.
    pub(in crate::serve::hub) async fn has(&self, named: &Named, who: &Who) -> Outcome<bool> {
        let known = self.known(named, MAIN).await?;
        if known.is_own || known.open.is_some() || known.gated.is_some() {
            return Ok(!known.is_own);
        }
        if named.is_of_namespace() {
            return Ok(false);
        }
        if self.is_offline {
            let why = "the upstream is not asked whether it has a repo of this name: take the namespace's own name as owner";
            return Err(Fault::away(why));
        }
        // With the server's own token too: others may see with it what this caller may not.
        let all = Who {
            is_trusted: true,
            ..who.clone()
        };
        match self.ask(named, &all, MAIN).await {
            Ok(_) => Ok(true),
            Err(failure) if failure.is_of_repo() => Ok(true),
            Err(failure) if failure.is_no_repo() => Ok(false),
            Err(failure) if failure.is_silence() => Err(failure.fault()),
            // What a proxy says, and not a Hub.
            Err(failure) => {
                let told =
                    "the upstream does not say whether it has a repo of this name: ask again later";
                Err(Fault::later(told).because(failure.why()))
            }
        }
    }

    /// Finds the revision in a mirror. Updates the mirror if necessary.
    async fn search(
        &self,
        named: &Named,
        who: &Who,
        rev: &str,
        known: Known,
    ) -> Result<Option<Mirrored>, Failure> {
        let (mut note, mut reach) = (None, Reach::Asked(&self.upstream));
        if self.is_offline {
            reach = Reach::Offline;
        }
        let head = match self.head(named, who, rev, &known).await {
            Err(failure) if failure.is_silence() => {
                note = Some(failure.why());
                reach = Reach::Silent(failure.clone());
                // An unknown commit may exist upstream, so this is a failure and not "not found".
                Some(known.head().ok_or(failure)?)
            }
            head => head?,
        };
        let Some(head) = head else {
            return Ok(None);
        };
        if !head.is_open {
            let repo = (self.upstream.base(), named, rev);
            let silence = self.access.check(reach, repo, who).await?;
            note = note.or(silence.map(|failure| failure.why()));
        }
        let before = known.head();
        if let Some(found) = known.at(&head, &mut note) {
            return Ok(Some(found));
        }
        match self.mirrored(named, who, (rev, &head), note).await {
            Err(failure) if failure.is_silence() => {
                // The previously known commit is better than nothing, if the caller may see it.
                let before = before.filter(|before| before.is_open || !head.is_open);
                match before {
                    Some(before) if !is_hex(rev, 40) => {
                        let note = Some(failure.why());
                        self.mirrored(named, who, (rev, &before), note).await
                    }
                    _ => Err(failure),
                }
            }
            found => found,
        }
    }

    /// The commit of a revision. `None` if the upstream is not asked and the store does not know.
    async fn head(
        &self,
        named: &Named,
        who: &Who,
        rev: &str,
        known: &Known,
    ) -> Result<Option<Head>, Failure> {
        let there = known.head();
        let is_sure = there.is_some() && is_hex(rev, 40);
        if self.is_offline || is_sure {
            return Ok(there);
        }
        let slot = self.heads.slot(named, rev);
        let mut asked = slot.lock().await;
        if let Some(answer) = asked.answer(&who.key()) {
            return answer.map(Some);
        }
        let answer = self.ask(named, who, rev).await;
        asked.note(who.key(), &answer);
        answer.map(Some)
    }

    /// Asks without a token first, since public repos need none.
    async fn ask(&self, named: &Named, who: &Who, rev: &str) -> Result<Head, Failure> {
        let first = self.upstream.head(named, rev, None).await;
        let trusted = self.token.as_deref().filter(|_| who.is_trusted);
        let mut answer = first;
        for token in [who.token.as_deref(), trusted].into_iter().flatten() {
            match &answer {
                Err(failure) if failure.is_of_token() => {
                    answer = self.upstream.head(named, rev, Some(token)).await;
                }
                _ => break,
            }
        }
        answer
    }

    /// The revision in the store. Stores it first if necessary.
    async fn mirrored(
        &self,
        named: &Named,
        who: &Who,
        (rev, head): (&str, &Head),
        note: Option<String>,
    ) -> Result<Option<Mirrored>, Failure> {
        let own = |error: store::Error| Failure::own(&error);
        let is_known = note.is_some() || self.is_offline;
        let mut note = note;
        if !is_known {
            self.bring(named, who, (rev, head)).await?;
        }
        let known = self.known(named, &head.sha).await.map_err(own)?;
        Ok(known.at(head, &mut note))
    }

    /// Stores the listing of a commit, and which branch is at it.
    async fn bring(
        &self,
        named: &Named,
        who: &Who,
        (rev, head): (&str, &Head),
    ) -> Result<(), Failure> {
        let own = |error: store::Error| Failure::own(&error);
        // One at a time: the second request finds what the first one stored.
        let slot = self.heads.slot(named, &head.sha);
        let _turn = slot.lock().await;
        let there = self.known(named, rev).await.map_err(own)?;
        if there.at(head, &mut None).is_some() {
            return Ok(());
        }
        let (source, inner) = (Arc::clone(&self.source), Arc::clone(&self.inner));
        let (wanted, sha, is_open) = (named.clone(), head.sha.clone(), head.is_open);
        let looked = block(move || {
            let sight = source.newest()?;
            inner.repos.listing(&sight, (&wanted, is_open), &sha)
        });
        let listing = match looked.await.map_err(own)? {
            Some(listing) => listing,
            None => {
                let token = self.token_for(who, head.is_open);
                let listing = self.upstream.listing(named, &head.sha, token.as_deref());
                listing.await?
            }
        };
        let target = mirror_ref(named, head.is_open).map_err(own)?;
        let (source, inner) = (Arc::clone(&self.source), Arc::clone(&self.inner));
        let (wanted, sha, rev) = (named.clone(), head.sha.clone(), rev.to_owned());
        let upstream = self.upstream.base().to_owned();
        let kept = block(move || {
            let revision = Revision {
                held: held(&inner.repos, source.newest()?.as_ref(), &wanted, &listing)?,
                target,
                dir: dir_of(&wanted),
                branch: (!is_hex(&rev, 40)).then_some(rev.as_str()),
                commit: sha,
                listing: &listing,
            };
            revision.keep(source.store(), &upstream)
        });
        kept.await.map_err(own)
    }

    async fn known(&self, named: &Named, rev: &str) -> store::Result<Known> {
        let (source, inner) = (Arc::clone(&self.source), Arc::clone(&self.inner));
        let (named, rev) = (named.clone(), rev.to_owned());
        block(move || {
            let sight = source.newest()?;
            let Mirrors {
                open,
                gated,
                is_own,
                saved,
            } = inner.repos.mirrors(&sight, &named)?;
            let commit = |repo: Repo| -> store::Result<(Repo, Option<Commit>)> {
                let commit = inner.repos.commit(&sight, &repo, &rev)?;
                Ok((repo, commit))
            };
            Ok(Known {
                open: open.map(commit).transpose()?,
                gated: gated.map(commit).transpose()?,
                saved: saved.map(commit).transpose()?,
                is_own,
                sight,
            })
        })
        .await
    }
}

/// The answer to a client that is to retry, and the reason for the log.
fn later(why: &str) -> (Fault, String) {
    (Fault::later(why), why.to_owned())
}

/// The ref of a mirror.
fn mirror_ref(named: &Named, is_open: bool) -> store::Result<RefName> {
    match is_open {
        true => named.own_ref(),
        false => named.gated_ref(),
    }
}

/// The directory name of a repo in caches.
pub(in crate::serve::hub) fn dir_of(named: &Named) -> String {
    let (kind, id) = (named.kind.plural(), named.id.as_str());
    format!("{kind}--{}", id.replace('/', "--"))
}

/// Files of the listing that the namespace already has.
fn held(
    repos: &crate::serve::hub::repos::Repos,
    reader: &store::Reader<'_>,
    named: &Named,
    listing: &Listing,
) -> store::Result<HashMap<String, store::Content>> {
    let mut held = repos.hashed(reader, named)?;
    let wanted: std::collections::HashSet<&str> = listing
        .files()
        .values()
        .map(|listed| listed.name())
        .collect();
    held.retain(|name, _| wanted.contains(name.as_str()));
    Ok(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_to_one_is_not_refused_to_another() {
        let mut asked = Asked::default();
        let away = Failure::Away("x".to_owned());
        asked.note("one".to_owned(), &Err(away.clone()));
        assert_eq!(asked.answer("one"), Some(Err(away)));
        assert_eq!(asked.answer("other"), None);
        let head = Head {
            sha: "a".repeat(40),
            is_open: true,
        };
        asked.note("other".to_owned(), &Ok(head.clone()));
        assert_eq!(asked.answer("one"), Some(Ok(head)));
    }
}
