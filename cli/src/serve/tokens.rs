//! Tokens: who may read or write which namespaces through the doors of this host.
//!
//! They are kept in `tokens.json` beside the configuration, readable by its owner only, and as hashes, so that the file
//! does not reveal them. Without tokens, a server answers everybody who reaches it; once it has seen some, it never does so
//! again. Changes of the file take effect with the next request.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hyper::header::AUTHORIZATION;
use hyper::http::request::Parts;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use store::{Error, Namespace, Pattern, Result};

use crate::host::files::{self, Prepared, Use};
use crate::serve::foreign;
use crate::serve::text::{hex, unhex};

/// The prefix of tokens, by which `put` detects them in a tree and the access log blanks them.
const PREFIX: &str = "hf_store";
/// Most bytes of a list of tokens.
const BYTES_MAX: u64 = 256 << 20;
/// Mode bits that files with secrets must not have.
const OTHERS: u32 = 0o077;
/// Everybody may make and remove files in a directory; only those of their own, if the second one is set.
const OF_ALL: u32 = 0o002;
const STICKY: u32 = 0o1000;
/// Random bytes in a token.
const SECRET_BYTES: usize = 24;

/// What a token allows.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// Reading
    Read,
    /// Reading and writing
    Write,
}

/// One token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Token {
    pub(crate) name: String,
    /// SHA-256 of the token.
    hash: String,
    pub(crate) role: Role,
    /// Patterns, like `project/*`.
    pub(crate) namespaces: Vec<Pattern>,
    pub(crate) created: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) expires: Option<Timestamp>,
    /// Whether the bearer may see what the server's own upstream token may see.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub(crate) upstream: bool,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    tokens: Vec<Token>,
}

/// The sender of a request.
#[derive(Clone, Debug)]
pub(crate) enum Caller {
    /// The server has no tokens.
    Everybody,
    Bearer(Arc<Token>),
    /// The server has tokens, and the request has none.
    Nobody,
    /// The request's token is unknown or expired.
    Wrong,
}

/// The file of tokens, as last read.
pub(crate) struct Tokens {
    path: Option<PathBuf>,
    /// Whether there were tokens at any time since the server started. Then nobody is let in if all are removed: who
    /// replaces the last one would open the server in between.
    is_closed: AtomicBool,
    seen: Mutex<Option<(Stamp, Known)>>,
}

/// All tokens in the file.
type Known = Arc<Vec<Arc<Token>>>;

/// Detects changes of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp(u64, u64, i64, i64, u32);

impl Token {
    /// Creates a token. Returns it with its text, which is not stored.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub(crate) fn new(
        name: String,
        role: Role,
        namespaces: Vec<Pattern>,
        expires: Option<Timestamp>,
    ) -> Result<(Self, String)> {
        let mut secret = [0; SECRET_BYTES];
        getrandom::fill(&mut secret)
            .map_err(|source| Error::unavailable("randomness of the system").because(source))?;
        let text = format!("{PREFIX}{}", hex(&secret));
        let token = Self {
            name,
            hash: hex(&Sha256::digest(&text)),
            role,
            namespaces,
            created: Timestamp::now(),
            expires,
            upstream: false,
        };
        Ok((token, text))
    }

    fn is_live(&self, now: Timestamp) -> bool {
        self.expires.is_none_or(|end| now < end)
    }

    fn covers(&self, namespace: &Namespace) -> bool {
        let namespace = Pattern::new(namespace.as_str());
        self.namespaces
            .iter()
            .any(|pattern| pattern.covers(&namespace))
    }
}

impl Caller {
    /// The role in a namespace; `None` means that the namespace is to look missing.
    pub(crate) fn role(&self, namespace: &Namespace) -> Option<Role> {
        match self {
            Self::Everybody => Some(Role::Write),
            Self::Bearer(token) => token.covers(namespace).then_some(token.role),
            Self::Nobody | Self::Wrong => None,
        }
    }

    /// Whether the caller may read all namespaces.
    pub(crate) fn sees_all(&self) -> bool {
        match self {
            Self::Everybody => true,
            Self::Bearer(token) => {
                let all = Pattern::new("*");
                token.namespaces.iter().any(|own| own.covers(&all))
            }
            Self::Nobody | Self::Wrong => false,
        }
    }

    /// Why a request is refused before anything else: without tokens, it may come from a malicious page in a browser.
    pub(crate) fn refusal(&self, head: &Parts) -> Option<&'static str> {
        match self {
            Self::Everybody => foreign::refusal(head),
            Self::Bearer(_) | Self::Nobody | Self::Wrong => None,
        }
    }

    /// The name of the token.
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Self::Bearer(token) => Some(&token.name),
            _ => None,
        }
    }
}

/// Reads the tokens in `path`; none if there is no file.
///
/// # Errors
/// If it cannot be read, or others may read it.
pub(crate) fn read(path: &Path) -> Result<Vec<Token>> {
    check_place(path)?;
    let file = match store::open_regular(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        file => file.map_err(|source| Error::io("open", path, source))?,
    };
    let then = "see with `store token ls` whether all of them are yours";
    check_closed(&file, path, ("says who is let in", then))?;
    let mut text = Vec::new();
    file.take(BYTES_MAX)
        .read_to_end(&mut text)
        .map_err(|source| Error::io("read", path, source))?;
    let document: Document = serde_json::from_slice(&text).map_err(|source| {
        Error::invalid(format!("{}: expected a list of tokens", path.display()))
            .because(source)
            .hint("put a copy of it back; or move it away, and make all tokens anew with `store token add`")
    })?;
    Ok(document.tokens)
}

/// Checks that not everybody may remove the file at `path`, after which the server would let everybody in.
///
/// # Errors
/// Denied, if everybody may, or if another user's symlink leads there.
fn check_place(path: &Path) -> Result<()> {
    let dir = path.parent().unwrap_or(path);
    // Where there is no directory, there is nothing to remove.
    let Ok(about) = dir.metadata() else {
        return Ok(());
    };
    store::canonical(dir)?;
    match about.mode() & (OF_ALL | STICKY) {
        OF_ALL => Err(Error::denied(format!(
            "{}: its mode is {:o}, and it holds the file that says who is let in",
            dir.display(),
            about.mode() & 0o7777
        ))
        .hint(format!("chmod o-w {}", dir.display()))),
        _ => Ok(()),
    }
}

/// Checks that only the caller or root may read or write an open file: what it is, and what to do after it is closed to
/// others.
///
/// # Errors
/// Denied, if others may.
pub(in crate::serve) fn check_closed(
    file: &File,
    path: &Path,
    (what, then): (&str, &str),
) -> Result<()> {
    let about = file.metadata();
    let about = about.map_err(|source| Error::io("stat", path, source))?;
    let (owner, mode) = (about.uid(), about.mode());
    if !files::is_own(&about) {
        return Err(Error::denied(format!(
            "{}: belongs to user {owner}, and it {what}",
            path.display()
        ))
        .hint(format!(
            "run this as user {owner}, or let it be yours: as root, chown {} {}; and {then}",
            rustix::process::geteuid().as_raw(),
            path.display()
        )));
    }
    match mode & OTHERS {
        0 => Ok(()),
        _ => Err(Error::denied(format!(
            "{}: its mode is {:o}, and it {what}",
            path.display(),
            mode & 0o7777
        ))
        .hint(format!("chmod 600 {}, and {then}", path.display()))),
    }
}

/// Writes the tokens that are to replace those in `path`.
///
/// # Errors
/// If they cannot be written.
pub(crate) fn prepare(path: &Path, tokens: Vec<Token>) -> Result<Prepared> {
    let mut text = serde_json::to_vec_pretty(&Document { tokens })
        .map_err(|source| Error::invalid("tokens as JSON").because(source))?;
    text.push(b'\n');
    files::prepare(path, &text, Use::Settings)
}

/// The Authorization header. A value that is not text is not one of this server's tokens.
pub(crate) fn authorization(head: &Parts) -> Option<&str> {
    let value = head.headers.get(AUTHORIZATION);
    value.map(|value| value.to_str().unwrap_or_default())
}

/// Parses a glob of namespaces.
///
/// # Errors
/// If no namespace can have such a name.
pub(crate) fn parse_glob(text: &str) -> std::result::Result<Pattern, &'static str> {
    let begins = ["team/", "project/", "*"];
    match begins.iter().any(|begin| text.starts_with(begin)) {
        true if !may_match(text) => Err(
            "no namespace has such a name; one is team/NAME or project/NAME, and several are given one by one",
        ),
        true => Ok(Pattern::new(text)),
        false => Err(
            "expected a namespace, in which * stands for anything, like project/llama-ft or 'team/*'",
        ),
    }
}

/// Whether there can be a namespace that the glob matches.
fn may_match(glob: &str) -> bool {
    let is_namespace = |text: &str| text.parse::<Namespace>().is_ok();
    let Some((first, rest)) = glob.split_once('*') else {
        return is_namespace(glob);
    };
    // The first star may stand for the kind of a namespace; any star for nothing, or for a part of a name.
    let stars = ["project/a", "team/a", "a"];
    let stars = stars
        .iter()
        .flat_map(|star| (0..=star.len()).filter_map(|end| star.get(..end)));
    let rests = ["", "a"].map(|star| rest.replace('*', star));
    stars.into_iter().any(|star| {
        let mut rests = rests.iter();
        rests.any(|rest| is_namespace(&format!("{first}{star}{rest}")))
    })
}

impl Tokens {
    /// Opens the tokens in `path`. The file is read again when it changes.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn open(path: Option<PathBuf>) -> Result<Self> {
        let tokens = Self {
            path,
            is_closed: AtomicBool::new(false),
            seen: Mutex::new(None),
        };
        tokens.now()?;
        Ok(tokens)
    }

    /// Whether the server requires tokens.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// The caller with this Authorization header.
    ///
    /// # Errors
    /// If the tokens cannot be read.
    pub(crate) fn caller(&self, authorization: Option<&str>) -> Result<Caller> {
        let tokens = self.now()?;
        if !self.is_closed() {
            return Ok(Caller::Everybody);
        }
        let Some(text) = authorization else {
            return Ok(Caller::Nobody);
        };
        let secret = text.strip_prefix("Bearer ").unwrap_or_default();
        let hash = Sha256::digest(secret);
        let mut found = None;
        // Compares all tokens, so that the time does not depend on which one matches.
        for token in tokens.iter() {
            if is_equal(&unhex(&token.hash).unwrap_or_default(), &hash) {
                found = Some(token);
            }
        }
        let now = Timestamp::now();
        Ok(match found.filter(|token| token.is_live(now)) {
            Some(token) => Caller::Bearer(Arc::clone(token)),
            None => Caller::Wrong,
        })
    }

    /// A signature of `text` that only a server with this token, or its bearer, can make. `None` if no token with the
    /// name `by` may write in the namespace now. Without tokens, the name and the secret are empty.
    ///
    /// # Errors
    /// If the tokens cannot be read.
    pub(crate) fn sign(
        &self,
        by: &str,
        namespace: &Namespace,
        text: &str,
    ) -> Result<Option<String>> {
        let tokens = self.now()?;
        let is_open = !self.is_closed();
        let now = Timestamp::now();
        let of_name = tokens.iter().find(|token| token.name == by);
        // The token's bearer could sign anything, so the token must allow everything that a signature allows.
        let of_name = of_name.filter(|token| {
            token.is_live(now) && token.role == Role::Write && token.covers(namespace)
        });
        let secret = match of_name {
            Some(token) => token.hash.as_str(),
            None if is_open && by.is_empty() => "",
            None => return Ok(None),
        };
        let key = Sha256::digest(secret);
        let hash = |mark: u8, bytes: &[u8]| {
            let hash = Sha256::new().chain_update(key).chain_update([mark]);
            hash.chain_update(bytes).finalize()
        };
        let text = format!("{namespace} {by} {text}");
        Ok(Some(hex(&hash(1, &hash(0, text.as_bytes())))))
    }

    fn now(&self) -> Result<Known> {
        let Some(path) = &self.path else {
            return Ok(Arc::default());
        };
        let stamp = match path.metadata() {
            Ok(found) => {
                let time = (found.mtime(), found.mtime_nsec());
                Stamp(found.ino(), found.size(), time.0, time.1, found.mode())
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Stamp(0, 0, 0, 0, 0),
            // If the file cannot be looked at, it may have tokens.
            Err(source) => return Err(Error::io("look at", path, source)),
        };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, tokens)) = seen.as_ref()
            && *known == stamp
        {
            return Ok(Arc::clone(tokens));
        }
        let tokens: Arc<Vec<_>> = Arc::new(read(path)?.into_iter().map(Arc::new).collect());
        if !tokens.is_empty() {
            self.is_closed.store(true, Ordering::Relaxed);
        }
        *seen = Some((stamp, Arc::clone(&tokens)));
        Ok(tokens)
    }
}

/// Compares hashes in constant time.
pub(crate) fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let differing = one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
    one.len() == other.len() && std::hint::black_box(differing) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, tokens: Vec<Token>) -> Result<()> {
        prepare(path, tokens)?.put()
    }

    #[test]
    fn a_token_lets_its_bearer_in_where_it_says_and_as_long() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens.json");
        let tokens = Tokens::open(Some(path.clone())).unwrap();
        let caller = |header: Option<&str>| tokens.caller(header).unwrap();
        assert!(matches!(caller(None), Caller::Everybody));

        let globs = vec![Pattern::new("project/a*")];
        let (token, text) = Token::new("ci".to_owned(), Role::Read, globs.clone(), None).unwrap();
        let past = Some(Timestamp::UNIX_EPOCH);
        let (old, old_text) = Token::new("old".to_owned(), Role::Write, globs, past).unwrap();
        assert!(!format!("{token:?}").contains(text.strip_prefix(PREFIX).unwrap()));
        write(&path, vec![old, token]).unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);

        let bearer = caller(Some(&format!("Bearer {text}")));
        let role = |namespace: &str| bearer.role(&namespace.parse().unwrap());
        assert_eq!(
            (role("project/abc"), role("project/b")),
            (Some(Role::Read), None)
        );
        assert_eq!(bearer.name(), Some("ci"));
        assert!(matches!(caller(None), Caller::Nobody));
        for wrong in [old_text.as_str(), "", "x", text.get(1..).unwrap()] {
            assert!(
                matches!(caller(Some(&format!("Bearer {wrong}"))), Caller::Wrong),
                "{wrong}"
            );
        }
        assert!(matches!(caller(Some(&text)), Caller::Wrong));
    }

    #[test]
    fn a_signature_stands_and_falls_with_its_token() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens.json");
        let namespace: Namespace = "project/a".parse().unwrap();
        let token = |name: &str, role| {
            let globs = vec![Pattern::new("project/a")];
            Token::new(name.to_owned(), role, globs, None).unwrap().0
        };
        let sign = |tokens: &Tokens, by: &str| tokens.sign(by, &namespace, "x").unwrap();
        let open = Tokens::open(Some(path.clone())).unwrap();
        assert!(sign(&open, "").is_some() && sign(&open, "ci").is_none());

        let (ci, other) = (token("ci", Role::Write), token("other", Role::Write));
        let reader = token("reader", Role::Read);
        write(&path, vec![ci.clone()]).unwrap();
        let tokens = Tokens::open(Some(path.clone())).unwrap();
        let signed = sign(&tokens, "ci");
        assert!(signed.is_some() && sign(&tokens, "").is_none());
        write(&path, vec![reader, other, ci]).unwrap();
        assert_eq!(sign(&tokens, "ci"), signed);
        assert!(sign(&tokens, "other").is_some() && sign(&tokens, "other") != signed);
        assert_eq!(sign(&tokens, "reader"), None);
        let elsewhere = "project/b".parse().unwrap();
        assert_eq!(tokens.sign("ci", &elsewhere, "x").unwrap(), None);
        write(&path, vec![token("ci", Role::Write)]).unwrap();
        assert_ne!(sign(&tokens, "ci"), signed, "another token of this name");
        // A server that once had tokens accepts no signature after all tokens are removed.
        write(&path, Vec::new()).unwrap();
        assert_eq!((sign(&tokens, "ci"), sign(&tokens, "")), (None, None));
    }

    #[test]
    fn a_server_that_had_tokens_is_never_open() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens.json");
        let (token, _) = Token::new("ci".to_owned(), Role::Read, Vec::new(), None).unwrap();
        write(&path, vec![token]).unwrap();
        let tokens = Tokens::open(Some(path.clone())).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(tokens.caller(None).unwrap(), Caller::Nobody));
        std::fs::write(&path, "{").unwrap();
        assert!(tokens.caller(None).is_err());
    }

    #[test]
    fn hashes_are_equal_when_all_of_them_is() {
        assert!(is_equal(b"abc", b"abc"));
        for other in [&b"abd"[..], b"ab", b"abcd", b""] {
            assert!(!is_equal(b"abc", other));
        }
    }
}
