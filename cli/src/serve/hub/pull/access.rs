//! Who may see repos of the upstream that are not public.
//!
//! The upstream is asked with the client's own token. Its permissions are remembered as hashes, in a file that only
//! this user can read. While the upstream is unreachable, only clients with a remembered permission are let in.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use crate::host::files::{self, Use};
use crate::serve::hub::pull::upstream::{Failure, Upstream};
use crate::serve::hub::route::Named;
use crate::serve::text::{hex, is_hex};

/// How long a permission of the upstream is remembered; how long a refusal, or its silence.
const ANSWER_TIME: Duration = Duration::from_secs(60);
const REFUSED_TIME: Duration = Duration::from_secs(10);
/// Maximum number of permissions, and of refusals.
const KNOWN_MAX: usize = 10_000;
const REFUSED_MAX: usize = 1000;
const HASH_DIGITS: usize = 64;

/// The caller's credentials for the upstream.
#[derive(Clone, Debug, Default)]
pub(in crate::serve::hub) struct Who {
    /// A token of the upstream.
    pub(in crate::serve::hub) token: Option<String>,
    /// Whether the caller may use the server's own token.
    pub(in crate::serve::hub) is_trusted: bool,
}

impl Who {
    /// The key for answers that depend on these credentials.
    pub(super) fn key(&self) -> String {
        let token = self.token.as_deref().unwrap_or_default();
        hex(&Sha256::digest(format!("{} {token}", self.is_trusted)))
    }
}

/// Whether the upstream can be asked.
pub(super) enum Reach<'u> {
    Asked(&'u Upstream),
    /// It gave no answer a moment ago.
    Silent(Failure),
    Offline,
}

/// The permissions that the upstream has given.
pub(super) struct Access {
    file: Option<PathBuf>,
    /// By a hash of upstream, repo and token: the time of the answer, or `None` if it was before this process started.
    known: Mutex<HashMap<String, Option<Instant>>>,
    /// By the same hash.
    refused: Mutex<HashMap<String, (Failure, Instant)>>,
    /// When the upstream last failed to answer, so that not every request waits for it.
    silent: Mutex<Option<(Failure, Instant)>>,
}

impl Access {
    /// Keeps permissions below `cache_dir`, if there is one.
    pub(super) fn new(cache_dir: Option<PathBuf>) -> Self {
        let file = cache_dir.map(|dir| dir.join("hub-allowed"));
        let text = file.as_ref().map(std::fs::read_to_string);
        // If the file is lost, the upstream is asked again.
        let text = text.and_then(Result::ok).unwrap_or_default();
        let known = text.lines().filter(|line| is_hex(line, HASH_DIGITS));
        let known = known.map(|line| (line.to_owned(), None)).collect();
        Self {
            file,
            known: Mutex::new(known),
            refused: Mutex::default(),
            silent: Mutex::default(),
        }
    }

    /// Checks that `who` may have the files of this repo. If a remembered permission was used, returns why the upstream
    /// could not be asked. Who has no permission is answered as if the store did not know the repo.
    ///
    /// # Errors
    /// Those of the upstream.
    pub(super) async fn check(
        &self,
        reach: Reach<'_>,
        (base, named, rev): (&str, &Named, &str),
        who: &Who,
    ) -> Result<Option<Failure>, Failure> {
        if who.is_trusted {
            return Ok(None);
        }
        let token = who.token.as_deref();
        let key = key(base, named, token.unwrap_or_default());
        if self.is_fresh(&key) {
            return Ok(None);
        }
        let asked = match (reach, self.silence()) {
            (Reach::Offline, _) => Err(Failure::NotAsked),
            (Reach::Silent(failure), _) | (_, Some(failure)) => Err(failure),
            (Reach::Asked(upstream), None) => match self.refusal(&key) {
                Some(failure) => Err(failure),
                None => self.ask(upstream, (named, rev), token).await,
            },
        };
        match asked {
            Ok(()) => {
                if token.is_some() {
                    self.note(key, true);
                }
                Ok(None)
            }
            Err(failure) if failure.is_silence() || failure == Failure::NotAsked => {
                match self.is_known(&key) {
                    true => Ok(Some(failure)),
                    false => Err(failure),
                }
            }
            Err(failure) => {
                self.note_refusal(key.clone(), &failure);
                self.note(key, false);
                Err(failure)
            }
        }
    }

    async fn ask(
        &self,
        upstream: &Upstream,
        (named, rev): (&Named, &str),
        token: Option<&str>,
    ) -> Result<(), Failure> {
        let asked = match token {
            Some(_) => upstream.check(named, token).await,
            // What is asked for a repo that the store does not know, so the answer is the same.
            None => match upstream.head(named, rev, None).await {
                Ok(head) if !head.is_open => Err(Failure::gated()),
                asked => asked.map(drop),
            },
        };
        if let Err(failure) = &asked
            && failure.is_silence()
        {
            let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
            *silent = Some((failure.clone(), Instant::now()));
        }
        asked
    }

    fn refusal(&self, key: &str) -> Option<Failure> {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let (failure, at) = refused.get(key)?;
        (at.elapsed() < REFUSED_TIME).then(|| failure.clone())
    }

    fn note_refusal(&self, key: String, failure: &Failure) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        // A refusal that is only remembered is not a new one.
        refused.retain(|_, (_, at)| at.elapsed() < REFUSED_TIME);
        if refused.len() >= REFUSED_MAX {
            refused.clear();
        }
        refused
            .entry(key)
            .or_insert((failure.clone(), Instant::now()));
    }

    fn silence(&self) -> Option<Failure> {
        let silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        let (failure, at) = silent.as_ref()?;
        (at.elapsed() < REFUSED_TIME).then(|| failure.clone())
    }

    fn is_fresh(&self, key: &str) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let at = known.get(key).copied().flatten();
        at.is_some_and(|at| at.elapsed() < ANSWER_TIME)
    }

    fn is_known(&self, key: &str) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.contains_key(key)
    }

    fn note(&self, key: String, is_let_in: bool) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = match is_let_in {
            true => {
                if known.len() >= KNOWN_MAX {
                    known.clear();
                }
                known.insert(key, Some(Instant::now())).is_none()
            }
            false => known.remove(&key).is_some(),
        };
        if let (true, Some(file)) = (is_new, &self.file) {
            let lines: String = known.keys().map(|key| format!("{key}\n")).collect();
            // If writing fails, the upstream is asked again later.
            let _kept = files::replace(file, lines.as_bytes(), Use::Settings);
        }
    }
}

fn key(base: &str, named: &Named, token: &str) -> String {
    let (kind, id) = (named.kind.plural(), named.id.as_str());
    hex(&Sha256::digest(format!("{base}\n{kind}\n{id}\n{token}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::hub::route::{Id, Type};

    #[test]
    fn who_was_let_in_is_known_to_the_next_server_and_its_token_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let named = Named {
            namespace: "project/demo".parse().unwrap(),
            kind: Type::Model,
            id: Id::parse("org/m").unwrap(),
        };
        let key = key("http://up", &named, "hf_secret");
        let access = || Access::new(Some(dir.path().to_owned()));
        access().note(key.clone(), true);
        let next = access();
        assert!(next.is_known(&key) && !next.is_fresh(&key));
        let text = std::fs::read_to_string(dir.path().join("hub-allowed")).unwrap();
        assert!(!text.contains("secret"));
        next.note(key.clone(), false);
        assert!(!access().is_known(&key));
    }

    #[test]
    fn nobody_is_let_in_unknown_while_the_upstream_is_not_asked() {
        let access = Access::new(None);
        let named = Named {
            namespace: "project/demo".parse().unwrap(),
            kind: Type::Model,
            id: Id::parse("org/m").unwrap(),
        };
        let runtime = crate::serve::runtime().unwrap();
        let repo = ("http://up", &named, "main");
        let check = |who: &Who| runtime.block_on(access.check(Reach::Offline, repo, who));
        let bearer = Who {
            token: Some("x".to_owned()),
            is_trusted: false,
        };
        for caller in [&Who::default(), &bearer] {
            assert_eq!(check(caller), Err(Failure::NotAsked));
        }
        let silent = || Reach::Silent(Failure::Away("x".to_owned()));
        let asked = runtime.block_on(access.check(silent(), repo, &bearer));
        assert_eq!(asked, Err(Failure::Away("x".to_owned())));
        access.note(key("http://up", &named, "x"), true);
        assert!(check(&bearer).is_ok() && check(&Who::default()).is_err());
        let trusted = Who {
            token: None,
            is_trusted: true,
        };
        assert_eq!(check(&trusted), Ok(None));
    }
}
