//! Turns an error of a directory or of this process's memory into an error of this library, by what the caller can do.

use std::io;

use super::bucket::in_chain;
use crate::error::{Error, Kind};
use crate::remedy::Remedy;

pub(super) const READ: &str = "read from";
pub(super) const LIST: &str = "list";
pub(super) const WRITE: &str = "write to";
pub(super) const DELETE: &str = "delete from";

/// Returns the error of doing `doing` to `key` at `url`; `local` for a disk, as opposed to this process's memory.
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
        Kind::Corrupt => format!("{key}: a directory is in its place in {url}"),
        _ => format!("{key}: cannot {doing} {url}"),
    };
    let error = Error::new(kind, message);
    let error = match hint(kind, cause) {
        Some(hint) => error.hint(hint),
        None => error,
    };
    error.because(source)
}

/// Like [`failure`], for an error of the operating system.
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
        // Something else is stored in place of the object.
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
