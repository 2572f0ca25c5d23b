//! The frame of all pages: head, navigation, one style sheet, and headers that forbid scripts.

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::StatusCode;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, RETRY_AFTER,
    X_CONTENT_TYPE_OPTIONS,
};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest, Sha256};
use store::{Error, ErrorKind};

use crate::serve::answer::Answer;
use crate::serve::page::route::{Href, Links};
use crate::serve::page::words::Name;
use crate::serve::person;
use crate::ui::failure::one_line;

const STYLE: &str = include_str!("style.css");
/// An icon in the page itself, so that browsers do not request one.
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath fill='%230e5a6b' d='M1 1h8v8H1zM10 1h5v5h-5zM10 7h5v8h-5zM1 10h8v5H1z'/%3E%3C/svg%3E";

/// The content security policy: no scripts, nothing from other hosts, and only the style sheet with this hash.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = STANDARD.encode(Sha256::digest(STYLE));
    format!(
        "default-src 'none'; style-src 'sha256-{hash}'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
});

/// The content of a page.
pub(crate) struct Sheet {
    pub(crate) title: String,
    /// The links from the overview to this page.
    pub(crate) crumbs: Vec<(Href, Name)>,
    pub(crate) body: Markup,
    /// Whether a survey for this page is still running.
    pub(crate) is_pending: bool,
    /// A failure, for the access log.
    pub(crate) failure: Option<String>,
}

impl Sheet {
    pub(crate) fn new(title: impl Into<String>, crumbs: Vec<(Href, Name)>, body: Markup) -> Self {
        Self {
            title: title.into(),
            crumbs,
            body,
            is_pending: false,
            failure: None,
        }
    }

    /// Renders the page with its frame.
    pub(crate) fn answer(self, status: StatusCode, links: &Links) -> Answer {
        let nav = [
            (links.overview(), "Store"),
            (links.page("space"), "Space"),
            (links.page("host"), "Clusters and jobs"),
            (links.page("caches"), "Compile caches"),
        ];
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    meta name="robots" content="noindex";
                    @if self.is_pending { meta http-equiv="refresh" content="3"; }
                    title { (self.title) " \u{b7} store" }
                    link rel="icon" href=(ICON);
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    a.skip href="#main" { "Skip to the content" }
                    header {
                        nav aria-label="Pages" {
                            @for (href, name) in &nav { a href=(href) { (name) } }
                        }
                    }
                    main #main {
                        @if !self.crumbs.is_empty() {
                            nav.crumbs aria-label="Where this is" {
                                ol {
                                    @for (href, name) in &self.crumbs { li { a href=(href) { (name) } } }
                                }
                            }
                        }
                        (self.body)
                    }
                    footer {
                        p { "store " (env!("CARGO_PKG_VERSION")) ". Times are UTC, sizes decimal: 1 MB is 1,000,000 bytes. Nothing can be changed here." }
                    }
                }
            }
        };
        let mut answer = guarded(Answer::new(status))
            .with(CONTENT_TYPE, "text/html; charset=utf-8")
            .with(CACHE_CONTROL, "no-store")
            .body(page.into_string());
        answer.error = self.failure;
        answer
    }
}

/// Adds headers that keep a browser from running scripts and guessing types.
pub(crate) fn guarded(answer: Answer) -> Answer {
    answer
        .with(CONTENT_SECURITY_POLICY, POLICY.as_str())
        .with(X_CONTENT_TYPE_OPTIONS, "nosniff")
        .with(REFERRER_POLICY, "same-origin")
}

/// Why there is no page.
#[derive(Debug)]
pub(crate) enum Fault {
    /// There is nothing with this name, or the caller may not see it.
    Nowhere,
    /// The token is missing or invalid.
    Unknown,
    /// The request comes from another site, or names another host.
    Foreign(&'static str),
    Method,
    /// The tokens cannot be read.
    Tokens(Error),
    Store(Error),
}

pub(crate) type Outcome<T> = Result<T, Fault>;

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound => Self::Nowhere,
            _ => Self::Store(error),
        }
    }
}

impl Fault {
    pub(crate) fn answer(self, links: &Links) -> Answer {
        let (status, title, told) = self.told();
        let body = html! {
            h1 { (title) }
            p.lead { (told) }
            p { a href=(links.overview()) { "To the store" } }
        };
        let mut sheet = Sheet::new(title, Vec::new(), body);
        sheet.failure = Some(match &self {
            // The message names paths of this host, so it goes to the log only.
            Self::Store(error) | Self::Tokens(error) => one_line(error),
            Self::Unknown => "the token is missing or unknown".to_owned(),
            _ => told.to_owned(),
        });
        let answer = person::challenged(sheet.answer(status, links));
        match status {
            StatusCode::SERVICE_UNAVAILABLE => answer.with(RETRY_AFTER, "5"),
            _ => answer,
        }
    }

    fn told(&self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::Nowhere => (
                StatusCode::NOT_FOUND,
                "Nothing here",
                "There is no such namespace, ref, version or path; or it is gone by now.",
            ),
            Self::Unknown => (
                StatusCode::UNAUTHORIZED,
                "Who asks?",
                "This store is read with a token: take it as the password, with any name.",
            ),
            Self::Foreign(why) => (StatusCode::FORBIDDEN, "Not from there", why),
            Self::Method => (
                StatusCode::METHOD_NOT_ALLOWED,
                "Only for reading",
                "Pages are read with GET.",
            ),
            Self::Tokens(_) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "Nobody is let in now",
                "The server cannot read its tokens. Its log says why; try again once that is mended.",
            ),
            Self::Store(error) => match error.kind() {
                ErrorKind::Unavailable
                | ErrorKind::Interrupted
                | ErrorKind::Io
                | ErrorKind::NotFound => (
                    StatusCode::SERVICE_UNAVAILABLE,
                    "The store does not answer",
                    "It cannot be reached, or is too slow. The log of the server says why; try again in a moment.",
                ),
                ErrorKind::Corrupt => (
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "Damage",
                    "The store lacks what it must have, or has other bytes: see whether all of it is there, then run `store verify`.",
                ),
                _ => (
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "The store cannot give this",
                    "The log of the server says why.",
                ),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_knows_the_style_and_allows_nothing_else() {
        let answer =
            Sheet::new("x", Vec::new(), html! {}).answer(StatusCode::OK, &Links::default());
        let policy = answer.headers.get(CONTENT_SECURITY_POLICY).unwrap();
        let policy = policy.to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"));
        assert!(!policy.contains("script") && !policy.contains("unsafe"));
        // A `<` could end the style element early.
        assert!(!STYLE.contains('<') && !STYLE.contains("url("));
    }
}
