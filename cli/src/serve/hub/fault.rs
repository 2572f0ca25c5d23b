//! Errors of the Hub door in the form that its clients understand: a status, a code, a message.

use hyper::StatusCode;
use hyper::header::{HeaderName, RETRY_AFTER, WWW_AUTHENTICATE};
use store::{Error, ErrorKind};

use crate::serve::answer::Answer;
use crate::serve::text;
use crate::ui::failure::one_line;

const CODE: HeaderName = HeaderName::from_static("x-error-code");
const MESSAGE: HeaderName = HeaderName::from_static("x-error-message");
/// The commit of the requested revision.
pub(crate) const COMMIT: HeaderName = HeaderName::from_static("x-repo-commit");
/// Seconds until a client may retry a temporary failure.
const LATER_SECS: &str = "5";

/// Error codes that clients know and that an upstream may send.
pub(super) const KNOWN_CODES: [&str; 5] = [
    "RepoNotFound",
    "RevisionNotFound",
    "EntryNotFound",
    "GatedRepo",
    "DisabledRepo",
];

/// Why a request is refused.
#[derive(Debug)]
pub(crate) struct Fault {
    status: StatusCode,
    code: Option<&'static str>,
    message: String,
    /// The commit in which an entry is missing. Clients cache that it is missing.
    commit: Option<String>,
    /// Additional headers.
    more: Vec<(HeaderName, String)>,
    /// The cause, for the access log only.
    behind: Option<String>,
    /// Whether the same request would fail again.
    is_final: bool,
}

pub(crate) type Outcome<T> = Result<T, Fault>;

impl Fault {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            code: None,
            message: message.into(),
            commit: None,
            more: Vec::new(),
            behind: None,
            is_final: false,
        }
    }

    pub(crate) fn repo() -> Self {
        Self {
            code: Some("RepoNotFound"),
            ..Self::new(StatusCode::NOT_FOUND, "Repository not found")
        }
    }

    pub(crate) fn revision(rev: &str) -> Self {
        Self {
            code: Some("RevisionNotFound"),
            ..Self::new(StatusCode::NOT_FOUND, format!("Invalid rev id: {rev}"))
        }
    }

    pub(crate) fn entry(path: &str, commit: &str) -> Self {
        Self {
            code: Some("EntryNotFound"),
            commit: Some(commit.to_owned()),
            ..Self::new(
                StatusCode::NOT_FOUND,
                format!("{path} does not exist on revision {commit}"),
            )
        }
    }

    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, message)
    }

    /// The request has no token and needs one.
    pub(crate) fn unknown() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Invalid username or password.")
    }

    /// The request has an invalid token.
    pub(crate) fn wrong_token() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "Invalid credentials in Authorization header",
        )
    }

    /// The server cannot read its tokens. Where they are is told in the access log only.
    pub(super) fn no_tokens(error: &Error) -> Self {
        let told = "the server cannot read its tokens: its log says why";
        Self::later(told).because(one_line(error))
    }

    /// The path is unknown.
    pub(crate) fn no_route() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "there is nothing here: the endpoint is http://HOST:PORT/NAMESPACE, like /project/llama-ft",
        )
    }

    /// The API of a Hub has this, or may have it, and this server does not.
    pub(crate) fn no_call() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "this server does not do that: `store help doors` says what it does",
        )
    }

    /// Sets the error code.
    pub(super) fn coded(self, code: Option<&'static str>) -> Self {
        Self { code, ..self }
    }

    /// Sets the additional headers.
    pub(super) fn told(self, headers: &[(HeaderName, String)]) -> Self {
        let more = headers.to_vec();
        Self { more, ..self }
    }

    /// Sets the cause for the access log.
    pub(super) fn because(self, why: String) -> Self {
        let behind = Some(why);
        Self { behind, ..self }
    }

    /// What this server will not have, however often it is asked, and which is not missing either.
    pub(super) fn away(message: impl Into<String>) -> Self {
        Self {
            is_final: true,
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
        }
    }

    /// A temporary failure: the answer is still being computed.
    pub(crate) fn later(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
    }
}

/// The engine's message goes to the access log only, since it names paths of this host.
impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let mut code = None;
        let (status, message) = match error.kind() {
            ErrorKind::Unavailable | ErrorKind::Interrupted => (
                StatusCode::SERVICE_UNAVAILABLE,
                "the store does not answer now",
            ),
            ErrorKind::Conflict => (StatusCode::CONFLICT, "somebody else was first"),
            ErrorKind::InvalidInput => return Self::bad(error.to_string()),
            ErrorKind::Denied => (
                StatusCode::FORBIDDEN,
                "the store does not allow it: a quota may be used up, or the server may only read; its log says why",
            ),
            ErrorKind::Corrupt => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "the store lacks what it must have, or has other bytes: see whether it is there, then run `store verify`",
            ),
            _ if error.is_full() => {
                code = Some("InsufficientStorage");
                (
                    StatusCode::INSUFFICIENT_STORAGE,
                    "the store has no room left",
                )
            }
            // A failing disk or mount may recover, so the client may retry.
            ErrorKind::Io => (
                StatusCode::SERVICE_UNAVAILABLE,
                "the store cannot be reached now: the log of the server says why",
            ),
            _ => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "the store cannot give this: the log of the server says why",
            ),
        };
        Self {
            code,
            behind: Some(one_line(&error)),
            ..Self::new(status, message)
        }
    }
}

impl From<Fault> for Answer {
    fn from(fault: Fault) -> Self {
        let error = serde_json::json!({ "error": fault.message });
        let mut answer =
            Self::json(fault.status, &error).with(MESSAGE, text::for_header(&fault.message));
        if let Some(code) = fault.code {
            answer = answer.with(CODE, code);
        }
        if let Some(commit) = fault.commit {
            answer = answer.with(COMMIT, commit);
        }
        if fault.status == StatusCode::SERVICE_UNAVAILABLE && !fault.is_final {
            answer = answer.with(RETRY_AFTER, LATER_SECS);
        }
        if fault.status == StatusCode::UNAUTHORIZED {
            answer = answer.with(WWW_AUTHENTICATE, "Bearer");
        }
        for (name, value) in fault.more {
            answer = answer.with(name, value);
        }
        answer.error = Some(fault.behind.unwrap_or(fault.message));
        answer
    }
}
