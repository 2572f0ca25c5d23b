//! The answer of a bucket, in the words of the service but without what the request contained.
//!
//! Services repeat tokens, signatures and keys in their error texts. So only the code and the message are kept, and
//! values of secret settings are removed from the message. This module does not parse texts of services: what is known
//! about an answer was recorded when it arrived.

use std::error::Error as StdError;
use std::fmt;
use std::io;

use object_store::client::{HttpError, HttpErrorKind};

use crate::remote::bucket::Settings;
use crate::remote::bucket::connect::{NoConnection, Refusal};
use crate::remote::bucket::credentials::{Failed, NoCredentials};
use crate::remote::failure::in_chain;

/// The text of object_store for answers that no object store would give; the type of that error is private.
const ASTRAY: &str = "Unable to extract metadata from headers";

/// An answer, or the reason why there was none.
#[derive(Debug)]
pub(super) struct Answer {
    /// The status, like `403`.
    pub(super) status: Option<u16>,
    /// The error code of the service, like `ExpiredToken`; empty if there is none.
    pub(super) code: String,
    /// How the transport failed, when there was no answer.
    pub(super) transport: Option<HttpErrorKind>,
    /// Whether no connection could be made.
    pub(super) no_connection: bool,
    /// Whether that was because of a certificate.
    pub(super) untrusted: bool,
    /// Whether TLS was used with a server that does not speak it.
    pub(super) plain: bool,
    /// Whether plain HTTP was used with a server that expects TLS.
    pub(super) encrypted: bool,
    /// Whether the server is not an object store.
    pub(super) astray: bool,
    /// Whether looking for credentials failed.
    pub(super) credentials: bool,
    text: String,
}

impl Answer {
    pub(super) fn of(source: &object_store::Error, settings: &Settings) -> Self {
        let refusal = in_chain::<Refusal>(source);
        let no_connection = in_chain::<NoConnection>(source);
        let transport = in_chain::<HttpError>(source).filter(|_| refusal.is_none());
        let transport = transport.map(HttpError::kind);
        let text = match (refusal, no_connection, transport) {
            (Some(refusal), ..) => joined(refusal),
            (None, Some(no_connection), _) => no_connection.to_string(),
            (None, None, Some(kind)) => format!("{}: {}", told(kind), root(source)),
            (None, None, None) => match in_chain::<Failed>(source) {
                Some(failed) => failed.to_string(),
                None => source.to_string(),
            },
        };
        let is_no_http = in_chain::<hyper::Error>(source).is_some_and(is_no_http);
        Self {
            status: refusal.map(|refusal| refusal.status),
            code: refusal.map_or_else(String::new, |refusal| refusal.code.clone()),
            transport,
            no_connection: no_connection.is_some(),
            untrusted: no_connection.is_some_and(|no_connection| no_connection.is_untrusted),
            plain: no_connection.is_some_and(|no_connection| no_connection.is_plain),
            encrypted: is_no_http || refusal.is_some_and(|refusal| refusal.wants_tls),
            astray: source.to_string().contains(ASTRAY)
                || in_chain::<reqwest::Error>(source).is_some_and(reqwest::Error::is_redirect),
            credentials: in_chain::<NoCredentials>(source).is_some(),
            text: settings.redact(&text),
        }
    }
}

/// Joins status, code and message, if present.
fn joined(refusal: &Refusal) -> String {
    let mut text = refusal.to_string().trim_end().to_owned();
    for part in [&refusal.code, &refusal.message] {
        if !part.is_empty() {
            text += ": ";
            text += part;
        }
    }
    text
}

/// Whether the response is not HTTP at all.
fn is_no_http(error: &hyper::Error) -> bool {
    error.is_parse() && !error.is_parse_status()
}

impl fmt::Display for Answer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl StdError for Answer {}

/// Whether the service answered 409: another request changed the object at the same time.
pub(in crate::remote) fn is_conflict(source: &object_store::Error) -> bool {
    in_chain::<Refusal>(source).is_some_and(|refusal| refusal.status == 409)
}

/// Returns the text of the last cause.
fn root(error: &(dyn StdError + 'static)) -> String {
    if let Some(found) = in_chain::<io::Error>(error).filter(|found| found.raw_os_error().is_some())
    {
        return found.to_string();
    }
    let last = std::iter::successors(Some(error), |error| (*error).source()).last();
    last.map(ToString::to_string).unwrap_or_default()
}

fn told(kind: HttpErrorKind) -> &'static str {
    match kind {
        HttpErrorKind::Timeout => "no answer in time",
        HttpErrorKind::Interrupted | HttpErrorKind::Request => "the connection broke",
        HttpErrorKind::Decode => "the answer is no HTTP",
        _ => "the request failed",
    }
}
