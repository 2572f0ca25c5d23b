//! An answer with an error status: the status, and the error code of the service.
//!
//! object_store turns both into plain text. So the body of such an answer fails here with a structured error, which the
//! errors of object_store carry as their cause. object_store reads the body only after its retries; what it would then
//! do by the status is done by [`by_status`].

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};
use object_store::Error;
use object_store::client::{HttpError, HttpErrorKind, HttpResponse, HttpResponseBody};

use crate::remote::bucket::credentials::NoCredentials;
use crate::remote::failure::in_chain;

/// The most bytes of a body that are examined.
const BODY_BYTES_MAX: usize = 64 << 10;
const CODE_BYTES_MAX: usize = 64;
const MESSAGE_CHARS_MAX: usize = 300;
/// Texts that TLS servers send to clients that do not use TLS.
const TLS_WANTED: [&str; 3] = [
    "plain HTTP request was sent to HTTPS port",
    "HTTP request to an HTTPS server",
    "speaking plain HTTP to an SSL-enabled server port",
];

/// The error answer of an endpoint. Its message may contain secrets.
#[derive(Debug)]
pub(in crate::remote::bucket) struct Refusal {
    /// The status, like `403`.
    pub(in crate::remote::bucket) status: u16,
    /// The standard name of the status.
    pub(in crate::remote::bucket) reason: &'static str,
    /// The error code of the service, like `ExpiredToken`; empty if there is none.
    pub(in crate::remote::bucket) code: String,
    /// One line for people, or empty.
    pub(in crate::remote::bucket) message: String,
    /// Whether the server expected TLS.
    pub(in crate::remote::bucket) wants_tls: bool,
}

/// The body of an answer whose status is an error.
pub(super) struct Refused {
    status: u16,
    reason: &'static str,
    inner: HttpResponseBody,
    read: Vec<u8>,
}

impl Refusal {
    fn new(status: u16, reason: &'static str, body: &str) -> Self {
        let (code, message) = code_and_message(body);
        Self {
            status,
            reason,
            code,
            message,
            wants_tls: TLS_WANTED.into_iter().any(|words| body.contains(words)),
        }
    }

    /// Whether the bucket does not exist, or cannot exist.
    pub(in crate::remote::bucket) fn is_of_bucket(&self) -> bool {
        let codes = ["NoSuchBucket", "ContainerNotFound", "InvalidBucketName"];
        codes.contains(&self.code.as_str())
    }
}

impl Refused {
    /// Replaces the body of `answer` by one that fails when it is read.
    pub(super) fn body(answer: HttpResponse) -> HttpResponse {
        let (status, reason) = told(&answer);
        answer.map(|inner| HttpResponseBody::new(Self::new(status, reason, inner)))
    }

    /// Reads the body of `answer` now, and returns the error.
    pub(super) async fn error(answer: HttpResponse) -> HttpError {
        let (status, reason) = told(&answer);
        let mut body = Self::new(status, reason, answer.into_body());
        std::future::poll_fn(|context| body.poll_error(context)).await
    }

    fn new(status: u16, reason: &'static str, inner: HttpResponseBody) -> Self {
        Self {
            status,
            reason,
            inner,
            read: Vec::new(),
        }
    }

    /// Reads the body to its end, and then returns the error.
    fn poll_error(&mut self, context: &mut Context<'_>) -> Poll<HttpError> {
        loop {
            match ready!(Pin::new(&mut self.inner).poll_frame(context)) {
                Some(Err(error)) => return Poll::Ready(error),
                Some(Ok(frame)) => {
                    let data = frame.into_data().unwrap_or_default();
                    let room = BODY_BYTES_MAX.saturating_sub(self.read.len());
                    self.read.extend(data.iter().take(room));
                }
                None => {
                    let body = String::from_utf8_lossy(&self.read);
                    let refusal = Refusal::new(self.status, self.reason, &body);
                    // Prevents retries: object_store considers this kind of failure final.
                    return Poll::Ready(HttpError::new(HttpErrorKind::Unknown, refusal));
                }
            }
        }
    }
}

impl Body for Refused {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        self.poll_error(context).map(|error| Some(Err(error)))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.status, self.reason)
    }
}

impl std::error::Error for Refusal {}

fn told(answer: &HttpResponse) -> (u16, &'static str) {
    let status = answer.status();
    (
        status.as_u16(),
        status.canonical_reason().unwrap_or_default(),
    )
}

/// Converts `error` to the variant that object_store derives from the status. A 404 while looking for credentials does
/// not mean that an object is missing.
pub(in crate::remote) fn by_status(error: Error) -> Error {
    let path = String::new();
    match in_chain::<Refusal>(&error) {
        Some(refusal) if refusal.is_of_bucket() || in_chain::<NoCredentials>(&error).is_some() => {
            error
        }
        Some(Refusal { status: 404, .. }) => Error::NotFound {
            path,
            source: error.into(),
        },
        Some(Refusal { status: 409, .. }) => Error::AlreadyExists {
            path,
            source: error.into(),
        },
        Some(Refusal { status: 412, .. }) => Error::Precondition {
            path,
            source: error.into(),
        },
        _ => error,
    }
}

/// Extracts both from the XML of S3, Google and Azure, or from the JSON of token services.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_found_in_xml_and_in_json() {
        let xml = "<?xml version=\"1.0\"?><Error><Code>NoSuchBucket</Code><Message>one\ntwo</Message></Error>";
        for (body, code, message) in [
            (xml, "NoSuchBucket", "one"),
            (
                r#"{"error": "invalid_grant", "error_description": "gone"}"#,
                "invalid_grant",
                "gone",
            ),
            (
                r#"{"error": {"status": "NOT_FOUND", "message": "no"}}"#,
                "NOT_FOUND",
                "no",
            ),
            ("<Error><Code>a b</Code></Error>", "", ""),
            ("nothing of the kind", "", ""),
        ] {
            let refusal = Refusal::new(404, "Not Found", body);
            assert_eq!(
                (refusal.code.as_str(), refusal.message.as_str()),
                (code, message)
            );
        }
        assert!(Refusal::new(404, "", xml).is_of_bucket());
        assert!(Refusal::new(400, "", "the plain HTTP request was sent to HTTPS port").wants_tls);
    }
}
