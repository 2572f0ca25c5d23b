//! Who may see what the upstream does not show to everybody.
//!
//! The upstream is asked with the client's own token. Whom it let in is remembered, as hashes for the eyes of this
//! user alone, so that they are let in while it is away; nobody else is.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hyper::StatusCode;
use sha2::{Digest, Sha256};

use crate::host::files::{self, Use};
use crate::serve::hub::pull::upstream::{Failure, Upstream};
use crate::serve::hub::route::Named;
use crate::serve::text::{hex, is_hex};

/// How long an answer holds.
const ANSWER_TIME: Duration = Duration::from_secs(60);
const SILENCE_TIME: Duration = Duration::from_secs(10);
/// Answers that are kept.
const KNOWN_MAX: usize = 10_000;
const HASH_DIGITS: usize = 64;

/// Who asks, as far as the upstream is concerned.
#[derive(Clone, Debug, Default)]
pub(in crate::serve::hub) struct Who {
    /// A token of the upstream.
    pub(in crate::serve::hub) token: Option<String>,
    /// May see what the server's own token may see.
    pub(in crate::serve::hub) is_trusted: bool,
}

impl Who {
    /// What stands for the answers to these.
    pub(super) fn key(&self) -> String {
        let token = self.token.as_deref().unwrap_or_default();
        hex(&Sha256::digest(format!("{} {token}", self.is_trusted)))
    }
}

/// Whom the upstream has let in.
pub(super) struct Access {
    file: Option<PathBuf>,
    /// By a hash of upstream, repo and token: when it said so, unless that was before this process.
    known: Mutex<HashMap<String, Option<Instant>>>,
    /// When the upstream did not answer last: not everybody waits for that again.
    silent: Mutex<Option<(Failure, Instant)>>,
}

impl Access {
    /// Kept below `cache_dir`, if there is one.
    pub(super) fn new(cache_dir: Option<PathBuf>) -> Self {
        let file = cache_dir.map(|dir| dir.join("hub-allowed"));
        let text = file.as_ref().map(std::fs::read_to_string);
        // Who is not known asks again.
        let text = text.and_then(Result::ok).unwrap_or_default();
        let known = text.lines().filter(|line| is_hex(line, HASH_DIGITS));
        let known = known.map(|line| (line.to_owned(), None)).collect();
        Self {
            file,
            known: Mutex::new(known),
            silent: Mutex::default(),
        }
    }

    /// That `who` may have files of this repo. Says why the upstream could not be asked, where it is let in for what was known.
    ///
    /// # Errors
    /// What the upstream says; refused, where it cannot be asked and nothing is known.
    pub(super) async fn check(
        &self,
        upstream: Option<&Upstream>,
        base: &str,
        named: &Named,
        who: &Who,
    ) -> Result<Option<Failure>, Failure> {
        if who.is_trusted {
            return Ok(None);
        }
        let Some(token) = &who.token else {
            return Err(refused(StatusCode::UNAUTHORIZED));
        };
        let key = key(base, named, token);
        if self.is_fresh(&key) {
            return Ok(None);
        }
        let asked = match (upstream, self.silence()) {
            (_, Some(failure)) => Err(failure),
            (Some(upstream), None) => upstream.check(named, Some(token)).await,
            (None, None) => Err(Failure::Away("it is not asked".to_owned())),
        };
        match asked {
            Ok(()) => {
                self.note(key, true);
                Ok(None)
            }
            Err(failure) if failure.is_silence() => {
                self.note_silence(&failure, upstream.is_some());
                match self.is_known(&key) {
                    true => Ok(Some(failure)),
                    false => Err(refused(StatusCode::FORBIDDEN)),
                }
            }
            Err(failure) => {
                self.note(key, false);
                Err(failure)
            }
        }
    }

    fn silence(&self) -> Option<Failure> {
        let silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        let (failure, at) = silent.as_ref()?;
        (at.elapsed() < SILENCE_TIME).then(|| failure.clone())
    }

    fn note_silence(&self, failure: &Failure, was_asked: bool) {
        if was_asked && self.silence().is_none() {
            let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
            *silent = Some((failure.clone(), Instant::now()));
        }
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
            // What cannot be kept is asked again.
            let _kept = files::replace(file, lines.as_bytes(), Use::Settings);
        }
    }
}

fn key(base: &str, named: &Named, token: &str) -> String {
    let (kind, id) = (named.kind.plural(), named.id.as_str());
    hex(&Sha256::digest(format!("{base}\n{kind}\n{id}\n{token}")))
}

fn refused(status: StatusCode) -> Failure {
    Failure::Refused {
        status,
        code: None,
        later: Vec::new(),
    }
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
    fn nobody_is_let_in_unknown_while_the_upstream_is_away() {
        let access = Access::new(None);
        let named = Named {
            namespace: "project/demo".parse().unwrap(),
            kind: Type::Model,
            id: Id::parse("org/m").unwrap(),
        };
        let runtime = crate::serve::runtime().unwrap();
        let check = |who: &Who| runtime.block_on(access.check(None, "http://up", &named, who));
        let bearer = Who {
            token: Some("x".to_owned()),
            is_trusted: false,
        };
        assert!(check(&Who::default()).is_err() && check(&bearer).is_err());
        access.note(key("http://up", &named, "x"), true);
        assert!(check(&bearer).is_ok());
        let trusted = Who {
            token: None,
            is_trusted: true,
        };
        assert_eq!(check(&trusted), Ok(None));
    }
}
