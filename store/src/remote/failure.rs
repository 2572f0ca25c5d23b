//! Turns an error of a directory or of this process's memory into an error of this library, by what the caller can do.

use std::error::Error as StdError;
use std::io;
use std::path::Path;

use rustix::io::Errno;

use super::directory::Planted;
use crate::error::{Error, ErrorKind};
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
        ErrorKind::Corrupt => format!("{key}: a directory is in its place in {url}"),
        _ => format!("{key}: cannot {doing} {url}"),
    };
    let error = Error::new(kind, message);
    let misplaced = || in_place_of_directory(key, doing, kind, cause.filter(|_| local)?);
    let error = match hint(kind, cause).or_else(misplaced) {
        Some(hint) => error.hint(hint),
        None => error,
    };
    error.because(source)
}

/// What to do if a file is where a directory for `key` is to be made.
fn in_place_of_directory(
    key: &str,
    doing: &str,
    kind: ErrorKind,
    cause: &io::Error,
) -> Option<Remedy> {
    let above = Path::new(key)
        .parent()
        .filter(|above| *above != Path::new(""))?;
    let is_in_place = matches!(
        cause.kind(),
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory
    );
    (doing == WRITE && kind == ErrorKind::Io && is_in_place).then(|| {
        let above = above.display();
        let advice = format!(
            "a directory is expected at {above}, and a file is in its place: move that out of the store"
        );
        Remedy::Advice(advice.into())
    })
}

/// Like [`failure`], for an error of the operating system.
pub(super) fn io_failure(key: &str, doing: &str, url: &str, source: io::Error) -> Error {
    if let Some(planted) = Planted::of(&source) {
        return Error::denied(format!("{key}: cannot {doing} {url}: {planted}"))
            .hint("it may lead to what only you may write or delete: look at it, and remove it");
    }
    let kind = io_kind(&source, doing, true);
    let message = match kind {
        ErrorKind::Corrupt => format!("{key}: {source} in {url}"),
        _ => format!("{key}: cannot {doing} {url}"),
    };
    let error = Error::new(kind, message);
    let misplaced = || in_place_of_directory(key, doing, kind, &source);
    let error = match hint(kind, Some(&source)).or_else(misplaced) {
        Some(hint) => error.hint(hint),
        None => error,
    };
    error.because(source)
}

/// Returns the first error of this type among an error and its causes.
pub(super) fn in_chain<'e, T: StdError + 'static>(
    error: &'e (dyn StdError + 'static),
) -> Option<&'e T> {
    let mut chain = std::iter::successors(Some(error), |error| (*error).source());
    chain.find_map(|error| error.downcast_ref())
}

fn kind(
    source: &object_store::Error,
    cause: Option<&io::Error>,
    doing: &str,
    local: bool,
) -> ErrorKind {
    use object_store::Error as E;
    match source {
        E::NotFound { .. } => ErrorKind::NotFound,
        E::AlreadyExists { .. } | E::Precondition { .. } => ErrorKind::Conflict,
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => ErrorKind::Denied,
        E::InvalidPath { .. } | E::UnknownConfigurationKey { .. } => ErrorKind::InvalidInput,
        E::NotSupported { .. } | E::NotImplemented { .. } => ErrorKind::Unsupported,
        _ => match cause {
            Some(cause) => io_kind(cause, doing, local),
            None if local => ErrorKind::Io,
            None => ErrorKind::Unavailable,
        },
    }
}

fn io_kind(cause: &io::Error, doing: &str, local: bool) -> ErrorKind {
    use io::ErrorKind as E;
    match cause.kind() {
        _ if !local => ErrorKind::Unavailable,
        E::NotFound => ErrorKind::NotFound,
        E::NotADirectory | E::IsADirectory if doing == READ => ErrorKind::NotFound,
        E::IsADirectory if doing == WRITE => ErrorKind::Corrupt,
        // Something else is stored in place of the object.
        E::InvalidData if doing == READ => ErrorKind::Corrupt,
        E::PermissionDenied | E::ReadOnlyFilesystem => ErrorKind::Denied,
        E::TimedOut | E::StaleNetworkFileHandle => ErrorKind::Unavailable,
        // What this process or this host lacks says nothing about the object.
        _ => match Errno::from_io_error(cause) {
            Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => ErrorKind::Unavailable,
            _ => ErrorKind::Io,
        },
    }
}

fn advice(advice: &'static str) -> Option<Remedy> {
    Some(advice.into())
}

fn hint(kind: ErrorKind, cause: Option<&io::Error>) -> Option<Remedy> {
    match (kind, cause.map(io::Error::kind)) {
        (_, Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)) => advice(
            "free some space there, or name another place; nothing that was stored before is touched",
        ),
        (ErrorKind::Corrupt, _) => Some(Remedy::VerifyThenMoveAway),
        (ErrorKind::Denied, Some(io::ErrorKind::ReadOnlyFilesystem)) => advice(
            "the file system is mounted read-only; name another place, or mount it for writing",
        ),
        (ErrorKind::Denied, Some(_)) => Some(Remedy::SharedStore),
        (ErrorKind::Denied, None) => advice("check the credentials and what they permit"),
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
        assert_eq!(error.kind(), ErrorKind::Io);
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
        assert_eq!(kind(true, 13), ErrorKind::Denied);
        assert_eq!(kind(true, 30), ErrorKind::Denied);
        assert_eq!(kind(true, 5), ErrorKind::Io);
        // Too many open files, no memory: not the object's fault.
        assert_eq!(
            [12, 23, 24].map(|code| kind(true, code)),
            [ErrorKind::Unavailable; 3]
        );
        assert_eq!(kind(true, 2), ErrorKind::NotFound);
        assert_eq!(kind(false, 111), ErrorKind::Unavailable);
        assert_eq!(kind(false, 2), ErrorKind::Unavailable);
    }
}
