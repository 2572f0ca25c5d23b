//! Errors of the S3 door in the form that its clients understand: a status, a code, a message.

use hyper::StatusCode;
use hyper::header::{ALLOW, CONTENT_RANGE, RETRY_AFTER};
use store::{Error, ErrorKind};

use crate::serve::answer::Answer;
use crate::serve::range::content_range;
use crate::serve::s3::xml::Xml;
use crate::ui::failure::one_line;

/// Seconds until a client may retry while the store is unreachable.
const LATER_SECS: &str = "5";

/// Why a request is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    status: StatusCode,
    pub(crate) code: &'static str,
    message: String,
    /// Additional elements of the answer.
    more: Vec<(&'static str, String)>,
    /// The size of the file, if the requested range is outside of it.
    size: Option<u64>,
    /// The cause, for the access log only.
    behind: Option<String>,
}

pub(crate) type Outcome<T> = Result<T, Fault>;

impl Fault {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
            more: Vec::new(),
            size: None,
            behind: None,
        }
    }

    /// Adds an element.
    pub(crate) fn and(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.more.push((name, value.into()));
        self
    }

    pub(crate) fn no_bucket(name: &str) -> Self {
        let message = "The specified bucket does not exist";
        Self::new(StatusCode::NOT_FOUND, "NoSuchBucket", message).and("BucketName", name)
    }

    pub(crate) fn no_key(key: &str) -> Self {
        let message = "The specified key does not exist.";
        Self::new(StatusCode::NOT_FOUND, "NoSuchKey", message).and("Key", key)
    }

    pub(crate) fn argument(name: &str, value: &str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "InvalidArgument", message)
            .and("ArgumentName", name)
            .and("ArgumentValue", value)
    }

    pub(crate) fn uri() -> Self {
        let message = "Couldn't parse the specified URI.";
        Self::new(StatusCode::BAD_REQUEST, "InvalidURI", message)
    }

    pub(crate) fn denied(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "AccessDenied", message)
    }

    pub(crate) fn request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "InvalidRequest", message)
    }

    pub(crate) fn method(method: &str) -> Self {
        let message = "The specified method is not allowed against this resource.";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).and("Method", method)
    }

    pub(crate) fn not_here() -> Self {
        let message =
            "A header or query you provided implies functionality that is not implemented.";
        Self::new(StatusCode::NOT_IMPLEMENTED, "NotImplemented", message)
    }

    pub(crate) fn condition(header: &'static str) -> Self {
        let message = "At least one of the pre-conditions you specified did not hold";
        Self::new(
            StatusCode::PRECONDITION_FAILED,
            "PreconditionFailed",
            message,
        )
        .and("Condition", header)
    }

    pub(crate) fn range(asked: &str, size: u64) -> Self {
        let message = "The requested range is not satisfiable";
        let status = StatusCode::RANGE_NOT_SATISFIABLE;
        let fault = Self::new(status, "InvalidRange", message)
            .and("RangeRequested", asked)
            .and("ActualObjectSize", size.to_string());
        Self {
            size: Some(size),
            ..fault
        }
    }

    /// Sets the cause for the access log.
    pub(crate) fn because(mut self, error: &Error) -> Self {
        self.behind = Some(one_line(error));
        self
    }

    /// The answer. Requests for the head get no body.
    pub(crate) fn answer(self, resource: &str, request: &str, is_head: bool) -> Answer {
        let mut xml = Xml::error();
        xml.leaf("Code", self.code);
        xml.leaf("Message", &self.message);
        for (name, value) in &self.more {
            xml.leaf(name, value);
        }
        xml.leaf("Resource", resource);
        xml.leaf("RequestId", request);
        let mut answer = xml.answer(self.status);
        if is_head {
            answer = answer.body("");
        }
        if let Some(size) = self.size {
            answer = answer.with(CONTENT_RANGE, content_range(None, size));
        }
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            answer = answer.with(ALLOW, "GET, HEAD");
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            answer = answer.with(RETRY_AFTER, LATER_SECS);
        }
        answer.error = Some(self.behind.unwrap_or(self.message));
        answer
    }
}

/// The engine's message goes to the access log only, since it names paths of this host.
impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let internal = StatusCode::INTERNAL_SERVER_ERROR;
        let (status, code, message) = match error.kind() {
            // A failing disk or mount may recover, so the client may retry.
            ErrorKind::Unavailable | ErrorKind::Interrupted | ErrorKind::Io => (
                StatusCode::SERVICE_UNAVAILABLE,
                "ServiceUnavailable",
                "The store does not answer now. Please try again.",
            ),
            ErrorKind::Corrupt => (
                internal,
                "InternalError",
                "The store lacks what it must have, or has other bytes: see whether it is there, then run `store verify`.",
            ),
            _ => (
                internal,
                "InternalError",
                "The store cannot give this: the log of the server says why.",
            ),
        };
        Self {
            behind: Some(one_line(&error)),
            ..Self::new(status, code, message)
        }
    }
}
