//! What a bucket answered, in its own words and without what the request carried.
//!
//! Services repeat tokens, signatures and keys in the texts of their errors: of those texts only the code
//! and the message are kept, and of the message nothing that is the value of a secret setting.

use std::error::Error as StdError;
use std::fmt;
use std::io;

use object_store::client::{HttpError, HttpErrorKind};

use crate::remote::bucket::Settings;
use crate::remote::bucket::connect::NoConnection;

/// How object_store introduces the status of an answer.
const STATUS: &str = "status code: ";
/// What it says of a redirection that leads nowhere.
const REDIRECT: &str = "redirect without LOCATION";
/// What servers of TLS say to who does not speak it.
const TLS_WANTED: [&str; 3] = [
    "plain HTTP request was sent to HTTPS port",
    "HTTP request to an HTTPS server",
    "speaking plain HTTP to an SSL-enabled server port",
];
/// What object_store says of answers that no object store gives.
const ASTRAY: [&str; 1] = ["Unable to extract metadata from headers"];
const CODE_BYTES_MAX: usize = 64;
const MESSAGE_CHARS_MAX: usize = 300;

/// An answer, or why there was none.
#[derive(Debug)]
pub(super) struct Answer {
    /// The status, like `403`.
    pub(super) status: Option<u16>,
    /// What the service calls it, like `ExpiredToken`; empty when it does not say.
    pub(super) code: String,
    /// How the transport failed, when there was no answer.
    pub(super) transport: Option<HttpErrorKind>,
    /// Whether no connection came about.
    pub(super) no_connection: bool,
    /// Whether that is because of a certificate.
    pub(super) untrusted: bool,
    /// Whether TLS was spoken to somebody who does not speak it.
    pub(super) plain: bool,
    /// Whether it was not spoken to somebody who does.
    pub(super) encrypted: bool,
    /// Whether whoever answered is no object store.
    pub(super) astray: bool,
    /// Whether it was the search for credentials that failed.
    pub(super) credentials: bool,
    text: String,
}

impl Answer {
    pub(super) fn of(source: &object_store::Error, settings: &Settings) -> Self {
        let said = source.to_string();
        let body = said
            .split_once(STATUS)
            .map(|(_, rest)| rest.split_once(": ").unwrap_or((rest, "")));
        let (status_line, body) = body.unwrap_or_default();
        let (code, message) = code_and_message(body);
        let transport = in_chain::<HttpError>(source).map(HttpError::kind);
        let no_connection = in_chain::<NoConnection>(source);
        let text = match (status_line, transport) {
            ("", Some(_)) if no_connection.is_some() => {
                no_connection.map(ToString::to_string).unwrap_or_default()
            }
            ("", Some(kind)) => format!("{}: {}", told(kind), root(source)),
            ("", None) => said.clone(),
            _ => [status_line.trim(), &code, &message].into_iter().fold(
                String::new(),
                |text, part| match (text.as_str(), part) {
                    ("", part) => part.to_owned(),
                    (_, "") => text,
                    (before, part) => format!("{before}: {part}"),
                },
            ),
        };
        let redirected = said.contains(REDIRECT).then_some(301);
        Self {
            status: status_line
                .get(..3)
                .and_then(|digits| digits.parse().ok())
                .or(redirected),
            code,
            transport,
            no_connection: no_connection.is_some(),
            untrusted: no_connection.is_some_and(|no_connection| no_connection.is_untrusted),
            plain: no_connection.is_some_and(|no_connection| no_connection.is_plain),
            encrypted: TLS_WANTED.into_iter().any(|words| said.contains(words))
                || root(source) == "invalid HTTP version parsed",
            astray: ASTRAY.into_iter().any(|words| said.contains(words))
                || root(source) == "too many redirects",
            credentials: ["169.254.", "metadata.google", "credential", "token request"]
                .into_iter()
                .any(|word| said.contains(word)),
            text: settings.redact(&text),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl StdError for Answer {}

/// Whether the service answered 409: something else was done to the object at the same time.
pub(in crate::remote) fn is_conflict(source: &object_store::Error) -> bool {
    Answer::of(source, &Settings::default()).status == Some(409)
}

/// The first of this type among an error and its causes.
pub(in crate::remote) fn in_chain<'e, T: StdError + 'static>(
    error: &'e (dyn StdError + 'static),
) -> Option<&'e T> {
    let mut chain = std::iter::successors(Some(error), |error| (*error).source());
    chain.find_map(|error| error.downcast_ref())
}

/// What the cause of all causes says.
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

/// From the XML of S3, Google and Azure, or the JSON of those who give out tokens.
fn code_and_message(body: &str) -> (String, String) {
    let json = body
        .find('{')
        .and_then(|start| serde_json::from_str::<serde_json::Value>(body.get(start..)?).ok());
    let (code, message) = match &json {
        Some(json) => {
            let at = |place: &str| json.pointer(place).and_then(serde_json::Value::as_str);
            let code = at("/error").or_else(|| at("/error/status"));
            let message = at("/error_description").or_else(|| at("/error/message"));
            (
                code.or_else(|| at("/Code")),
                message.or_else(|| at("/message")),
            )
        }
        None => (within(body, "Code"), within(body, "Message")),
    };
    let plain = |code: &&str| {
        code.len() <= CODE_BYTES_MAX
            && code
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    let line = message
        .unwrap_or_default()
        .lines()
        .next()
        .unwrap_or_default();
    let short = line.chars().filter(|letter| !letter.is_control());
    (
        code.filter(plain).unwrap_or_default().to_owned(),
        short.take(MESSAGE_CHARS_MAX).collect(),
    )
}

fn within<'b>(body: &'b str, element: &str) -> Option<&'b str> {
    let (_, rest) = body.split_once(&format!("<{element}>"))?;
    rest.split_once(&format!("</{element}>"))
        .map(|(text, _)| text)
}
