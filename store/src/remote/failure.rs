//! What a backend said, as an error of this library: by what the caller can do about it.

use std::io;

use super::answer::{Answer, in_chain};
use super::settings::Settings;
use super::wire::Stopped;
use crate::error::{Error, Kind};
use crate::format::FORMAT_KEY;
use crate::remedy::Remedy;

pub(super) const READ: &str = "read from";
pub(super) const LIST: &str = "list";
pub(super) const WRITE: &str = "write to";
pub(super) const DELETE: &str = "delete from";

/// The error of doing `doing` to `key` at `url`; `local` when a disk answered, and not this process's memory.
pub(super) fn failure(
    key: &str,
    doing: &str,
    url: &str,
    local: bool,
    source: object_store::Error,
) -> Error {
    let cause = in_chain::<io::Error>(&source);
    let kind = kind(&source, cause, doing, local);
    let message = match kind {
        Kind::Corrupt => format!("{key}: a directory lies in its place in {url}"),
        _ => format!("{key}: cannot {doing} {url}"),
    };
    let error = Error::new(kind, message);
    let error = match hint(kind, cause) {
        Some(hint) => error.hint(hint),
        None => error,
    };
    error.because(source)
}

/// The same for a bucket. What object_store says is not kept: it repeats requests and answers whole.
pub(super) fn bucket_failure(
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
        // Without the bucket there is no store; of any other object this would say too much.
        (Kind::Unavailable, hint) if key == FORMAT_KEY && hint == advice(BUCKET) => {
            (Kind::NotFound, hint)
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

/// What the caller can do about an answer, and what is to be done next.
fn bucket_kind(
    source: &object_store::Error,
    answer: &Answer,
    doing: &str,
) -> (Kind, Option<Remedy>) {
    use object_store::Error as E;
    match (answer.status, answer.code.as_str()) {
        (
            _,
            "ExpiredToken"
            | "ExpiredTokenException"
            | "TokenRefreshRequired"
            | "RequestExpired"
            | "invalid_grant",
        ) => (Kind::Denied, advice(EXPIRED)),
        (_, "RequestTimeTooSkewed") => (Kind::Denied, advice("set the clock of this host")),
        (
            _,
            "InvalidAccessKeyId"
            | "SignatureDoesNotMatch"
            | "InvalidToken"
            | "AuthenticationFailed"
            | "InvalidAuthenticationInfo"
            | "invalid_client",
        ) => (Kind::Denied, advice(WRONG)),
        (_, "NoSuchBucket" | "ContainerNotFound" | "InvalidBucketName") => {
            (Kind::Unavailable, advice(BUCKET))
        }
        (
            _,
            "PermanentRedirect"
            | "AuthorizationHeaderMalformed"
            | "IllegalLocationConstraintException",
        )
        | (Some(301 | 302 | 307 | 308), _) => (Kind::InvalidInput, advice(REGION)),
        _ if answer.credentials && !matches!(source, E::NotFound { .. }) => {
            (Kind::Denied, Some(Remedy::Credentials))
        }
        (Some(401 | 403), _) | (_, "AccessDenied" | "AuthorizationPermissionMismatch") => {
            (Kind::Denied, advice(DENIED))
        }
        (Some(429 | 500..), _) => (Kind::Unavailable, advice(BUSY)),
        _ => match (source, answer.transport) {
            (E::NotFound { .. }, _) if doing != WRITE => (Kind::NotFound, None),
            (E::AlreadyExists { .. } | E::Precondition { .. }, _) => (Kind::Conflict, None),
            (E::InvalidPath { .. } | E::UnknownConfigurationKey { .. }, _) => {
                (Kind::InvalidInput, None)
            }
            (E::NotSupported { .. } | E::NotImplemented { .. }, _) => (Kind::Unsupported, None),
            _ if answer.untrusted => (Kind::Unavailable, advice(UNTRUSTED)),
            _ if answer.plain => (Kind::Unavailable, advice(PLAIN)),
            _ if answer.encrypted => (Kind::Unavailable, advice(ENCRYPTED)),
            _ if answer.no_contact => (Kind::Unavailable, advice(UNREACHABLE)),
            (_, Some(_)) => (Kind::Unavailable, advice(BUSY)),
            _ => (Kind::Unavailable, None),
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
const REGION: &str = "set the region of the bucket, and the endpoint where it is not the usual one";
const BUSY: &str =
    "run it again when the endpoint is well: that is safe, and nothing is stored twice";
const UNREACHABLE: &str = "check the setting of the endpoint (AWS_ENDPOINT_URL and its like, or `endpoint` in the profile), \
     and the way to it: name, port, network, proxy";
const PLAIN: &str = "does it speak http:// there? The setting of the endpoint says https://";
const ENCRYPTED: &str = "does it speak https:// there? The setting of the endpoint says http://";
const UNTRUSTED: &str = "name a file with the certificate of its authority in AWS_CA_BUNDLE, SSL_CERT_FILE or `ca-bundle` of \
     the profile, if this is the endpoint that is meant";

/// Whether it says that no credentials were found.
pub(super) fn is_without_credentials(error: &Error) -> bool {
    error.remedy() == Some(&Remedy::Credentials)
}

/// The same for what the operating system said.
pub(super) fn io_failure(key: &str, doing: &str, url: &str, source: io::Error) -> Error {
    let kind = io_kind(&source, doing, true);
    let message = match kind {
        Kind::Corrupt => format!("{key}: {source} in {url}"),
        _ => format!("{key}: cannot {doing} {url}"),
    };
    let error = Error::new(kind, message);
    let error = match hint(kind, Some(&source)) {
        Some(hint) => error.hint(hint),
        None => error,
    };
    error.because(source)
}

fn kind(source: &object_store::Error, cause: Option<&io::Error>, doing: &str, local: bool) -> Kind {
    use object_store::Error as E;
    match source {
        E::NotFound { .. } => Kind::NotFound,
        E::AlreadyExists { .. } | E::Precondition { .. } => Kind::Conflict,
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => Kind::Denied,
        E::InvalidPath { .. } | E::UnknownConfigurationKey { .. } => Kind::InvalidInput,
        E::NotSupported { .. } | E::NotImplemented { .. } => Kind::Unsupported,
        _ => match cause {
            Some(cause) => io_kind(cause, doing, local),
            None if local => Kind::Io,
            None => Kind::Unavailable,
        },
    }
}

fn io_kind(cause: &io::Error, doing: &str, local: bool) -> Kind {
    use io::ErrorKind as E;
    match cause.kind() {
        _ if !local => Kind::Unavailable,
        E::NotFound => Kind::NotFound,
        E::NotADirectory | E::IsADirectory if doing == READ => Kind::NotFound,
        E::IsADirectory if doing == WRITE => Kind::Corrupt,
        // Something else lies where the object should.
        E::InvalidData if doing == READ => Kind::Corrupt,
        E::PermissionDenied | E::ReadOnlyFilesystem => Kind::Denied,
        E::TimedOut | E::StaleNetworkFileHandle => Kind::Unavailable,
        _ => Kind::Io,
    }
}

fn advice(advice: &'static str) -> Option<Remedy> {
    Some(advice.into())
}

fn hint(kind: Kind, cause: Option<&io::Error>) -> Option<Remedy> {
    match (kind, cause.map(io::Error::kind)) {
        (_, Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)) => advice(
            "free some space there, or name another place; nothing that was stored before is touched",
        ),
        (Kind::Corrupt, _) => Some(Remedy::VerifyThenMoveAway),
        (Kind::Denied, Some(io::ErrorKind::ReadOnlyFilesystem)) => advice(
            "the file system is mounted read-only; name another place, or mount it for writing",
        ),
        (Kind::Denied, Some(_)) => Some(Remedy::SharedStore),
        (Kind::Denied, None) => advice("check the credentials and what they permit"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(source: io::Error) -> object_store::Error {
        object_store::Error::Generic {
            store: "test",
            source: Box::new(source),
        }
    }

    #[test]
    fn a_full_disk_is_io_with_a_hint_and_keeps_its_cause() {
        let error = failure(
            "packs/a",
            "write to",
            "file:///s",
            true,
            generic(io::Error::from_raw_os_error(28)),
        );
        assert_eq!(error.kind(), Kind::Io);
        assert_eq!(error.to_string(), "packs/a: cannot write to file:///s");
        let remedy = error.remedy().unwrap().to_string();
        assert!(remedy.starts_with("free some space"), "{remedy}");
        assert!(format!("{error:?}").contains("No space left on device"));
    }

    #[test]
    fn errors_are_sorted_by_what_the_caller_can_do() {
        let kind = |local, code| {
            failure(
                "k",
                "x",
                "u",
                local,
                generic(io::Error::from_raw_os_error(code)),
            )
            .kind()
        };
        assert_eq!(kind(true, 13), Kind::Denied);
        assert_eq!(kind(true, 30), Kind::Denied);
        assert_eq!(kind(true, 5), Kind::Io);
        assert_eq!(kind(true, 2), Kind::NotFound);
        assert_eq!(kind(false, 111), Kind::Unavailable);
        assert_eq!(kind(false, 2), Kind::Unavailable);
    }
}
