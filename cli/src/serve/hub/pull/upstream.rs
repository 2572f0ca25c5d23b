//! The upstream: a Hub that has what this store lacks, and the meaning of its answers.
//!
//! Redirects are followed, but a token is sent to the upstream itself only. Errors pass on only status, code and retry
//! time of an answer: URLs of other hosts may contain signatures.

use std::collections::HashSet;
use std::time::Duration;

use hyper::header::{HeaderName, RETRY_AFTER};
use hyper::{HeaderMap, StatusCode};
use reqwest::Url;
use reqwest::header::{ACCEPT_ENCODING, AUTHORIZATION, HeaderValue, LINK, LOCATION, RANGE};
use serde::Deserialize;
use serde_json::Value;
use store::{Error, Result};

use crate::serve::hub::fault::{Fault, KNOWN_CODES};
use crate::serve::hub::listing::{FILES_MAX, Listing};
use crate::serve::hub::route::{Named, Type};
use crate::serve::text;
use crate::ui::failure::one_line;

/// Time limits for connecting, for the next bytes of a body, and for an API request.
const CONNECT_TIME: Duration = Duration::from_secs(5);
const PART_TIME: Duration = Duration::from_secs(20);
const API_TIME: Duration = Duration::from_secs(30);
/// Maximum bytes of one API answer.
const API_BYTES_MAX: usize = 64 << 20;
/// Maximum pages of a listing, more than any server needs: one that sends 50 files a page is the smallest known.
const PAGES_MAX: usize = FILES_MAX / 50;
/// Maximum pages in a row without a new file.
const IDLE_PAGES_MAX: u32 = 100;
/// Maximum number of redirects in a row.
const REDIRECTS_MAX: u32 = 10;
const ERROR_CODE: &str = "x-error-code";
pub(in crate::serve::hub) const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// The upstream's address and client.
pub(super) struct Upstream {
    base: String,
    http: reqwest::Client,
}

/// Why there is no usable answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The upstream refused.
    Refused {
        status: StatusCode,
        code: Option<&'static str>,
        /// Its headers that say when to retry.
        later: Vec<(HeaderName, String)>,
    },
    /// The upstream is never asked, and the store has nothing for this caller.
    NotAsked,
    /// The upstream does not answer.
    Away(String),
    /// It stopped sending within a file, or sends next to nothing.
    Stalled,
    /// It is silent, and so it is about too many files to wait for one more.
    Crowded,
    /// Its answer is invalid.
    Strange(String),
    /// The bytes do not match the announced hash.
    Wrong(String),
    /// A file system of this host or of the store is full.
    Full(String),
    /// This host or the store failed.
    Own(String),
}

/// What the API says of a revision: it also names all files, which are not read here.
#[derive(Deserialize)]
struct Told {
    sha: Option<String>,
    #[serde(default)]
    gated: Value,
}

/// The upstream's answer about a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) sha: String,
    /// Whether everybody who can see the repo may download its files.
    pub(super) is_open: bool,
}

/// Checks that a URL can be that of an upstream.
///
/// # Errors
/// If it cannot.
pub(crate) fn check_url(url: &str) -> Result<()> {
    let refuse = |why: &str| {
        Error::invalid(format!("upstream: {why}"))
            .hint("name a Hub, like --upstream https://hub.example")
    };
    let parsed = Url::parse(url).map_err(|_| refuse("this is no URL"))?;
    if !matches!(parsed.scheme(), "http" | "https") || parsed.host_str().is_none() {
        return Err(refuse("expected http:// or https:// and a host"));
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err(refuse("a URL with credentials ends up in logs")
            .hint("name the variable with the token: --upstream-token-env NAME"));
    }
    if parsed.query().is_some() || parsed.fragment().is_some() {
        return Err(refuse("expected no query"));
    }
    Ok(())
}

impl Upstream {
    /// The upstream at `url`.
    ///
    /// # Errors
    /// If the URL is invalid.
    pub(super) fn new(url: &str) -> Result<Self> {
        check_url(url)?;
        // Opening a bucket may have installed it already.
        let _chosen = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIME)
            .read_timeout(PART_TIME)
            // `ask` follows them: the client would send a token again where a foreign host redirects to itself.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("store/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|source| Error::unavailable("a client of HTTP").because(source))?;
        Ok(Self {
            base: url.trim_end_matches('/').to_owned(),
            http,
        })
    }

    /// The base URL.
    pub(super) fn base(&self) -> &str {
        &self.base
    }

    /// Looks up the revision `rev` of a repo.
    pub(super) async fn head(
        &self,
        named: &Named,
        rev: &str,
        token: Option<&str>,
    ) -> Result<Head, Failure> {
        let url = format!("{}/revision/{}", self.api(named), text::escaped(rev));
        let (body, _) = self.body(&url, token).await?;
        let told: Told = serde_json::from_slice(&body)
            .map_err(|error| Failure::Strange(format!("its answer about a repo: {error}")))?;
        let sha = told.sha.filter(|sha| text::is_hex(sha, 40));
        let sha = sha.ok_or_else(|| Failure::Strange("it names no commit".to_owned()))?;
        let is_gated = !matches!(told.gated, Value::Null | Value::Bool(false));
        Ok(Head {
            sha,
            is_open: token.is_none() && !is_gated,
        })
    }

    /// The files of a commit.
    pub(super) async fn listing(
        &self,
        named: &Named,
        commit: &str,
        token: Option<&str>,
    ) -> Result<Listing, Failure> {
        let strange = |error: Error| Failure::Strange(format!("its listing: {error}"));
        let mut listing = Listing::default();
        let mut url = format!("{}/tree/{commit}?recursive=true", self.api(named));
        let (mut asked, mut files, mut idle) = (HashSet::new(), 0, 0);
        loop {
            let (page, next) = self.body(&url, token).await?;
            listing.add_page(&page).map_err(strange)?;
            let Some(next) = next else { break };
            asked.insert(std::mem::replace(&mut url, next));
            let is_more = listing.files().len() > files;
            (files, idle) = (listing.files().len(), if is_more { 0 } else { idle + 1 });
            if asked.len() >= PAGES_MAX || asked.contains(&url) || idle >= IDLE_PAGES_MAX {
                return Err(Failure::Strange("its listing has no end".to_owned()));
            }
        }
        listing.check().map_err(strange)?;
        Ok(listing)
    }

    /// Checks that the holder of this token may download files.
    pub(super) async fn check(&self, named: &Named, token: Option<&str>) -> Result<(), Failure> {
        let url = format!("{}/auth-check", self.api(named));
        self.ask(&url, token, Some(API_TIME), 0).await.map(drop)
    }

    /// Requests a file from byte `from` on.
    pub(super) async fn file(
        &self,
        named: &Named,
        (commit, path): (&str, &str),
        token: Option<&str>,
        from: u64,
    ) -> Result<reqwest::Response, Failure> {
        let kind = match named.kind {
            Type::Model => String::new(),
            kind => format!("/{}", kind.plural()),
        };
        let (base, id) = (&self.base, named.id.as_str());
        let path = text::escaped_path(path);
        let url = format!("{base}{kind}/{id}/resolve/{commit}/{path}");
        self.ask(&url, token, None, from).await
    }

    fn api(&self, named: &Named) -> String {
        let (kind, id) = (named.kind.plural(), named.id.as_str());
        format!("{}/api/{kind}/{id}", self.base)
    }

    /// The body of an API answer, and the URL of the next page.
    async fn body(
        &self,
        url: &str,
        token: Option<&str>,
    ) -> Result<(Vec<u8>, Option<String>), Failure> {
        let mut answer = self.ask(url, token, Some(API_TIME), 0).await?;
        let next = match answer.headers().get(LINK) {
            None => None,
            Some(link) => self.next(link)?,
        };
        let mut body = Vec::new();
        while let Some(part) = answer.chunk().await.map_err(away)? {
            if body.len() + part.len() > API_BYTES_MAX {
                return Err(Failure::Strange("its answer has no end".to_owned()));
            }
            body.extend_from_slice(&part);
        }
        Ok((body, next))
    }

    /// The URL of the next page. It must be at the upstream, since the request carries a token.
    fn next(&self, link: &HeaderValue) -> Result<Option<String>, Failure> {
        let link = link.to_str().unwrap_or_default();
        let mut links = link.split(',').filter_map(|one| one.split_once(';'));
        let Some((url, _)) = links.find(|(_, more)| more.contains("rel=\"next\"")) else {
            return Ok(None);
        };
        let url = url.trim().trim_start_matches('<').trim_end_matches('>');
        let origin = |url: &str| Url::parse(url).ok().map(|url| url.origin());
        match origin(url).is_some() && origin(url) == origin(&self.base) {
            true => Ok(Some(url.to_owned())),
            false => Err(Failure::Strange(
                "its listing continues at another host".to_owned(),
            )),
        }
    }

    /// Sends a request, and follows redirects.
    async fn ask(
        &self,
        url: &str,
        token: Option<&str>,
        time: Option<Duration>,
        from: u64,
    ) -> Result<reqwest::Response, Failure> {
        let strange = |_| Failure::Strange("it is asked for an invalid URL".to_owned());
        let mut url = Url::parse(url).map_err(strange)?;
        let home = url.origin();
        for _ in 0..=REDIRECTS_MAX {
            let token = token.filter(|_| url.origin() == home);
            let answer = self.ask_once(&url, token, time, from).await?;
            match redirect(&url, &answer)? {
                Some(next) => url = next,
                None if answer.status().is_success() => return Ok(answer),
                None => return Err(Failure::of(answer.status(), answer.headers())),
            }
        }
        Err(Failure::Strange("its redirects have no end".to_owned()))
    }

    async fn ask_once(
        &self,
        url: &Url,
        token: Option<&str>,
        time: Option<Duration>,
        from: u64,
    ) -> Result<reqwest::Response, Failure> {
        let request = self.http.get(url.clone());
        let mut request = request.header(ACCEPT_ENCODING, "identity");
        if let Some(time) = time {
            request = request.timeout(time);
        }
        if let Some(token) = token {
            let value = HeaderValue::from_str(&format!("Bearer {token}"));
            let mut value = value.map_err(|_| refused(StatusCode::UNAUTHORIZED))?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        if from > 0 {
            request = request.header(RANGE, format!("bytes={from}-"));
        }
        request.send().await.map_err(away)
    }
}

/// Where a redirect leads to; `None` if the answer is none.
fn redirect(url: &Url, answer: &reqwest::Response) -> Result<Option<Url>, Failure> {
    let is_redirect = matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let Some(to) = answer.headers().get(LOCATION).filter(|_| is_redirect) else {
        return Ok(None);
    };
    let next = to.to_str().ok().and_then(|to| url.join(to).ok());
    let next = next.filter(|next| matches!(next.scheme(), "http" | "https"));
    let strange = || Failure::Strange("it redirects to an invalid URL".to_owned());
    next.map(Some).ok_or_else(strange)
}

/// The error without its URL, which may be a redirect with a signature.
fn away(error: reqwest::Error) -> Failure {
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    // The last one names the certificate, the name or the port; those before it only say "client error".
    while let Some(source) = cause.source() {
        cause = source;
    }
    Failure::Away(cause.to_string())
}

fn refused(status: StatusCode) -> Failure {
    Failure::Refused {
        status,
        code: None,
        later: Vec::new(),
    }
}

impl Failure {
    /// The upstream's answer to somebody without a token who wants a file of a gated repo.
    pub(super) fn gated() -> Self {
        Self::Refused {
            status: StatusCode::UNAUTHORIZED,
            code: Some("GatedRepo"),
            later: Vec::new(),
        }
    }

    /// An error of this host or of the store.
    pub(super) fn own(error: &Error) -> Self {
        match error.is_full() {
            true => Self::Full(one_line(error)),
            false => Self::Own(one_line(error)),
        }
    }

    fn of(status: StatusCode, headers: &HeaderMap) -> Self {
        let value = |name: &HeaderName| headers.get(name)?.to_str().ok().map(str::to_owned);
        let code = headers.get(ERROR_CODE).and_then(|code| code.to_str().ok());
        let code = code.and_then(|code| KNOWN_CODES.into_iter().find(|known| *known == code));
        let is_told = matches!(
            status,
            StatusCode::UNAUTHORIZED
                | StatusCode::FORBIDDEN
                | StatusCode::NOT_FOUND
                | StatusCode::GONE
                | StatusCode::UNAVAILABLE_FOR_LEGAL_REASONS
                | StatusCode::TOO_MANY_REQUESTS
        );
        if !is_told {
            return Self::Away(format!("it answers {status}"));
        }
        let later = [RETRY_AFTER, RATE_LIMIT].into_iter();
        let later = later.filter_map(|name| Some((name.clone(), value(&name)?)));
        Self::Refused {
            status,
            code,
            later: later.collect(),
        }
    }

    /// Whether another token may get a better answer.
    pub(super) fn is_of_token(&self) -> bool {
        let by_token = [
            StatusCode::UNAUTHORIZED,
            StatusCode::FORBIDDEN,
            StatusCode::NOT_FOUND,
        ];
        matches!(self, Self::Refused { status, .. } if by_token.contains(status))
    }

    /// Whether the upstream refused because of what the repo is, so that there is one.
    pub(super) fn is_of_repo(&self) -> bool {
        let of_repo = ["RevisionNotFound", "GatedRepo", "DisabledRepo"];
        matches!(self, Self::Refused { code: Some(code), .. } if of_repo.contains(code))
    }

    /// Whether the upstream knows no such repo, or shows it to none of those who asked.
    pub(super) fn is_no_repo(&self) -> bool {
        matches!(
            self,
            Self::Refused {
                code: Some("RepoNotFound"),
                ..
            }
        )
    }

    /// Whether the upstream gave no verdict, so that known data may be used.
    pub(super) fn is_silence(&self) -> bool {
        match self {
            Self::Refused { status, .. } => *status == StatusCode::TOO_MANY_REQUESTS,
            Self::Away(_) | Self::Stalled | Self::Strange(_) => true,
            // Not to be tried again at once.
            Self::Crowded => false,
            Self::NotAsked | Self::Wrong(_) | Self::Full(_) | Self::Own(_) => false,
        }
    }

    /// The reason, for the log.
    pub(super) fn why(&self) -> String {
        match self {
            Self::Refused { status, .. } => format!("the upstream answers {status}"),
            Self::NotAsked => "the upstream is not asked".to_owned(),
            Self::Away(why) | Self::Strange(why) => format!("the upstream: {why}"),
            Self::Crowded => {
                "the upstream: it is silent, and so it is about too many other files".to_owned()
            }
            Self::Stalled => {
                let secs = PART_TIME.as_secs();
                format!(
                    "the upstream: it sent nothing, or next to nothing, for {secs} seconds or more within a file"
                )
            }
            Self::Wrong(why) | Self::Full(why) | Self::Own(why) => why.clone(),
        }
    }

    /// The error for a client.
    pub(super) fn fault(&self) -> Fault {
        let fault = match self {
            Self::Refused {
                status: StatusCode::NOT_FOUND,
                code: None,
                ..
            } => Fault::repo(),
            Self::Refused {
                status,
                code,
                later,
            } => {
                let message = match (*status, code) {
                    (StatusCode::UNAUTHORIZED, _) => "the upstream wants a token for this",
                    (StatusCode::FORBIDDEN, Some("GatedRepo")) => {
                        "access to this repo is restricted: ask for it at the upstream"
                    }
                    (StatusCode::TOO_MANY_REQUESTS, _) => "the upstream is asked too often",
                    _ => "the upstream does not give this",
                };
                Fault::new(*status, message).coded(*code).told(later)
            }
            // As for a repo that nobody here has ever asked for.
            Self::NotAsked => Fault::repo(),
            Self::Away(_) | Self::Stalled | Self::Crowded => {
                Fault::later("the upstream does not answer: ask again later")
            }
            Self::Strange(_) => Fault::later(
                "the upstream's answer cannot be used: the log of the server says why; ask again later",
            ),
            Self::Wrong(_) => Fault::new(
                StatusCode::BAD_GATEWAY,
                "the upstream sent other bytes than it announced",
            ),
            Self::Full(_) => Fault::later(
                "there is no room left for it: ask again later; the log of the server says where",
            ),
            Self::Own(_) => {
                Fault::later("this could not be fetched: the log of the server says why")
            }
        };
        fault.because(self.why())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_is_a_server_and_its_address_holds_no_secret() {
        for bad in [
            "",
            "hub.example",
            "ftp://host",
            "http://user:secret@host",
            "http://host/?token=secret",
        ] {
            let error = Upstream::new(bad).err().unwrap();
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        assert_eq!(
            Upstream::new("http://host/a/").unwrap().base(),
            "http://host/a"
        );
    }

    #[test]
    fn a_listing_goes_on_at_the_upstream_alone() {
        let upstream = Upstream::new("http://host:80/project/x").unwrap();
        let next = |link: &'static str| upstream.next(&HeaderValue::from_static(link));
        assert_eq!(
            next("<http://host/a>; rel=\"next\""),
            Ok(Some("http://host/a".to_owned()))
        );
        assert_eq!(next("<http://host/a>; rel=\"prev\""), Ok(None));
        assert!(next("<http://other/a>; rel=\"next\"").is_err());
        assert!(next("</a>; rel=\"next\"").is_err());
    }

    #[test]
    fn what_the_upstream_says_is_told_and_what_it_fails_at_is_silence() {
        let of = |status: u16, code: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            if let Some(code) = code {
                headers.insert(ERROR_CODE, HeaderValue::from_static(code));
            }
            Failure::of(StatusCode::from_u16(status).unwrap(), &headers)
        };
        assert!(
            of(503, None).is_silence() && of(429, None).is_silence() && of(400, None).is_silence()
        );
        assert!(!of(404, Some("RepoNotFound")).is_silence() && of(401, None).is_of_token());
        let gated = of(403, Some("GatedRepo"));
        assert!(matches!(
            gated,
            Failure::Refused {
                code: Some("GatedRepo"),
                ..
            }
        ));
        let unheard = of(403, Some("Unheard"));
        assert!(matches!(unheard, Failure::Refused { code: None, .. }));
    }
}
