//! Answers: a status, headers, and a body that is in memory or is read while it is sent.

use bytes::Bytes;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{HeaderMap, StatusCode};

use crate::serve::body::Content;

/// The answer of a door to a request.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) content: Content,
    /// The cause of a failure, for the access log.
    pub(crate) error: Option<String>,
    /// The name of the request's token, for the access log.
    pub(crate) token: Option<String>,
}

impl Answer {
    /// An answer without a body.
    pub(crate) fn new(status: StatusCode) -> Self {
        Self {
            status,
            headers: HeaderMap::new(),
            content: Content::Whole(Bytes::new()),
            error: None,
            token: None,
        }
    }

    /// An answer with JSON.
    pub(crate) fn json(status: StatusCode, value: &serde_json::Value) -> Self {
        Self::json_text(status, value.to_string())
    }

    /// An answer with JSON that is written already.
    pub(crate) fn json_text(status: StatusCode, text: String) -> Self {
        Self::new(status)
            .with(CONTENT_TYPE, "application/json")
            .body(text)
    }

    /// An answer with text.
    pub(crate) fn text(status: StatusCode, text: impl Into<Bytes>) -> Self {
        Self::new(status)
            .with(CONTENT_TYPE, "text/plain; charset=utf-8")
            .body(text)
    }

    /// Sets the body.
    pub(crate) fn body(mut self, bytes: impl Into<Bytes>) -> Self {
        self.content = Content::Whole(bytes.into());
        self
    }

    /// Sets a header. Does nothing if the value is not valid in a header.
    pub(crate) fn with(mut self, name: HeaderName, value: impl AsRef<str>) -> Self {
        if let Ok(value) = HeaderValue::from_str(value.as_ref()) {
            self.headers.insert(name, value);
        }
        self
    }

    /// Sets the cause of a failure, for the access log.
    pub(crate) fn because(mut self, why: impl Into<String>) -> Self {
        self.error = Some(why.into());
        self
    }

    /// The value of Content-Length.
    pub(crate) fn len(&self) -> u64 {
        match &self.content {
            Content::Whole(bytes) => bytes.len() as u64,
            Content::File(file) => file.len(),
            Content::Arriving(file) => file.len(),
            Content::HeadOf(bytes) => *bytes,
        }
    }

    /// Sets Content-Length, and drops the body if the request is HEAD.
    pub(super) fn measured(mut self, is_head: bool) -> Self {
        let len = self.len();
        if is_head {
            self.content = Content::HeadOf(len);
        }
        self.headers.insert(CONTENT_LENGTH, HeaderValue::from(len));
        self
    }
}
