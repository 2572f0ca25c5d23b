//! Answers: a status, headers, and a body that is there or is read while it is sent.

use bytes::Bytes;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{HeaderMap, StatusCode};

use crate::serve::body::FileBody;
use crate::serve::spool::Following;

/// What a door says to a request.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) content: Content,
    /// For the access log: what went wrong behind it.
    pub(crate) error: Option<String>,
    /// For the access log: the name of the token that it came with.
    pub(crate) token: Option<String>,
}

/// The body of an answer.
pub(crate) enum Content {
    Whole(Bytes),
    /// Part of a file of the store.
    File(Box<FileBody>),
    /// Part of a file that is arriving from elsewhere.
    Arriving(Box<Following>),
    /// What a GET would get has so many bytes.
    HeadOf(u64),
}

impl Answer {
    /// One without a body.
    pub(crate) fn new(status: StatusCode) -> Self {
        Self {
            status,
            headers: HeaderMap::new(),
            content: Content::Whole(Bytes::new()),
            error: None,
            token: None,
        }
    }

    /// JSON.
    pub(crate) fn json(status: StatusCode, value: &serde_json::Value) -> Self {
        Self::new(status)
            .with(CONTENT_TYPE, "application/json")
            .body(value.to_string())
    }

    /// Text.
    pub(crate) fn text(status: StatusCode, text: impl Into<Bytes>) -> Self {
        Self::new(status)
            .with(CONTENT_TYPE, "text/plain; charset=utf-8")
            .body(text)
    }

    /// With this body.
    pub(crate) fn body(mut self, bytes: impl Into<Bytes>) -> Self {
        self.content = Content::Whole(bytes.into());
        self
    }

    /// With this header; a value that no header can carry is left out.
    pub(crate) fn with(mut self, name: HeaderName, value: impl AsRef<str>) -> Self {
        if let Ok(value) = HeaderValue::from_str(value.as_ref()) {
            self.headers.insert(name, value);
        }
        self
    }

    /// The length that its headers must tell.
    pub(crate) fn len(&self) -> u64 {
        match &self.content {
            Content::Whole(bytes) => bytes.len() as u64,
            Content::File(file) => file.len(),
            Content::Arriving(file) => file.len(),
            Content::HeadOf(bytes) => *bytes,
        }
    }

    /// With its length among its headers, and without its body where only the head was asked for.
    pub(super) fn measured(mut self, is_head: bool) -> Self {
        let len = self.len();
        if is_head {
            self.content = Content::HeadOf(len);
        }
        self.headers.insert(CONTENT_LENGTH, HeaderValue::from(len));
        self
    }
}
