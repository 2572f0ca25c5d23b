//! Turns an answer of a bucket into an error of this library, by what the caller can do, with a remedy.

mod answer;

use answer::Answer;
pub(in crate::remote) use answer::is_conflict;

use super::Settings;
use super::connect::Stopped;
use crate::error::{Error, ErrorKind};
use crate::format::FORMAT_KEY;
use crate::remedy::Remedy;
use crate::remote::failure::{WRITE, in_chain};

/// Returns the error of doing `doing` to `key` at `url`. Drops the text of object_store, which repeats whole requests
/// and answers.
pub(in crate::remote) fn bucket_failure(
    key: &str,
    doing: &str,
    url: &str,
    settings: &Settings,
    source: &object_store::Error,
) -> Error {
    let what = if key.is_empty() { "." } else { key };
    if in_chain::<Stopped>(source).is_some() {
        return Error::interrupted(format!(
            "{what}: stopped on request, while {url} did not answer"
        ));
    }
    let answer = Answer::of(source, settings);
    let (kind, hint) = match bucket_kind(source, &answer, doing) {
        // Without a bucket there is no store, so `format` is not found. For any other object, "not found" would be too
        // strong.
        (ErrorKind::Unavailable, hint) if key == FORMAT_KEY && hint == advice(BUCKET) => {
            (ErrorKind::NotFound, hint)
        }
        known => known,
    };
    let error = Error::new(kind, format!("{what}: cannot {doing} {url}"));
    let error = match hint {
        None => error,
        Some(hint) => error.hint(hint),
    };
    error.because(answer)
}

/// Returns what the caller can do about an answer, and the remedy.
fn bucket_kind(
    source: &object_store::Error,
    answer: &Answer,
    doing: &str,
) -> (ErrorKind, Option<Remedy>) {
    use object_store::Error as E;
    match (answer.status, answer.code.as_str()) {
        (
            _,
            "ExpiredToken"
            | "ExpiredTokenException"
            | "TokenRefreshRequired"
            | "RequestExpired"
            | "invalid_grant",
        ) => (ErrorKind::Denied, advice(EXPIRED)),
        (_, "RequestTimeTooSkewed") => (ErrorKind::Denied, advice("set the clock of this host")),
        (
            _,
            "InvalidAccessKeyId"
            | "SignatureDoesNotMatch"
            | "InvalidToken"
            | "AuthenticationFailed"
            | "InvalidAuthenticationInfo"
            | "invalid_client",
        ) => (ErrorKind::Denied, advice(WRONG)),
        (_, "NoSuchBucket" | "ContainerNotFound" | "InvalidBucketName") => {
            (ErrorKind::Unavailable, advice(BUCKET))
        }
        (
            _,
            "PermanentRedirect"
            | "AuthorizationHeaderMalformed"
            | "IllegalLocationConstraintException",
        )
        | (Some(301 | 302 | 307 | 308), _) => (ErrorKind::InvalidInput, advice(REGION)),
        _ if answer.credentials && !matches!(source, E::NotFound { .. }) => {
            (ErrorKind::Denied, Some(Remedy::Credentials))
        }
        (Some(401 | 403), _) | (_, "AccessDenied" | "AuthorizationPermissionMismatch") => {
            (ErrorKind::Denied, advice(DENIED))
        }
        (Some(501), _) => (ErrorKind::Unsupported, advice(NO_STORE)),
        (Some(429 | 500..), _) => (ErrorKind::Unavailable, advice(BUSY)),
        _ => match (source, answer.transport) {
            (E::NotFound { .. }, _) if doing != WRITE => (ErrorKind::NotFound, None),
            (E::AlreadyExists { .. } | E::Precondition { .. }, _) => (ErrorKind::Conflict, None),
            (E::InvalidPath { .. } | E::UnknownConfigurationKey { .. }, _) => {
                (ErrorKind::InvalidInput, None)
            }
            (E::NotSupported { .. } | E::NotImplemented { .. }, _) => {
                (ErrorKind::Unsupported, None)
            }
            _ if answer.untrusted => (ErrorKind::Unavailable, advice(UNTRUSTED)),
            _ if answer.plain => (ErrorKind::Unavailable, advice(PLAIN)),
            _ if answer.encrypted => (ErrorKind::Unavailable, advice(ENCRYPTED)),
            _ if answer.no_connection => (ErrorKind::Unavailable, advice(UNREACHABLE)),
            _ if answer.astray => (ErrorKind::Unavailable, advice(NO_STORE)),
            (_, Some(_)) => (ErrorKind::Unavailable, advice(BUSY)),
            _ => (ErrorKind::Unavailable, None),
        },
    }
}

const EXPIRED: &str =
    "the credentials have expired: renew them and run it again; what was stored stays";
const WRONG: &str =
    "these are no credentials of this endpoint: check them, and which profile they come from";
const DENIED: &str = "check what the credentials permit (reading, writing and listing below the prefix, for gc deleting), and \
     that they have not expired; where listing is not permitted, a missing object looks denied";
const BUCKET: &str = "make the bucket, or correct its name, the endpoint or the account";
const REGION: &str = "set the region of the bucket, and the endpoint where it is not the usual one; a proxy that asks for a login answers in the same way";
/// The hint when the server answers, but not as an object store would.
pub(in crate::remote) const NO_STORE: &str = "this is no object store: check the endpoint; a proxy may stand before it that asks for a login, or the page of a console";
const BUSY: &str =
    "run it again when the endpoint is well: that is safe, and nothing is stored twice";
const UNREACHABLE: &str = "check the setting of the endpoint (AWS_ENDPOINT_URL and its like, or `endpoint` in the profile), \
     and the way to it: name, port, network, proxy";
const PLAIN: &str = "does it speak http:// there? The setting of the endpoint says https://";
const ENCRYPTED: &str = "does it speak https:// there? The setting of the endpoint says http://";
const UNTRUSTED: &str = "name a file with the certificate of its authority in AWS_CA_BUNDLE, SSL_CERT_FILE or `ca-bundle` of \
     the profile, if this is the endpoint that is meant";

/// Whether the error is that no credentials were found.
pub(in crate::remote) fn is_without_credentials(error: &Error) -> bool {
    error.remedy() == Some(&Remedy::Credentials)
}

fn advice(advice: &'static str) -> Option<Remedy> {
    Some(advice.into())
}
