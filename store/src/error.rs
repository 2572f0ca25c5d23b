//! One error type, sorted by what the caller can do about it.
//!
//! A message names the object and the place, what was expected and what was found. The remedy is a separate field. The
//! cause is chained, not repeated. The library returns errors and never logs them.

use std::fmt;
use std::path::Path;

use crate::remedy::Remedy;

/// The result of every function of this library that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The named thing does not exist: name another one.
    NotFound,
    /// Somebody else was first, or the destination is in use: decide and try again.
    Conflict,
    /// Bytes are not what was written: repair, or put the originals again.
    Corrupt,
    /// Written by a newer or differently configured program: update this one.
    Unsupported,
    /// Not permitted: fix modes or credentials.
    Denied,
    /// A service, a disk or a network does not answer: try again later.
    Unavailable,
    /// The request itself makes no sense: ask for something else.
    InvalidInput,
    /// The operating system reported an error: see the cause.
    Io,
    /// Only part of the work was done; the message names the rest.
    Partial,
    /// The user, or a signal, asked to stop.
    Interrupted,
}

/// One of the two stores of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The store from which versions are copied.
    Source,
    /// The store to which they are copied.
    Destination,
}

/// What went wrong, where, why, and what to do next.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    details: Vec<String>,
    missing: Option<String>,
    is_given_up: bool,
    end: Option<End>,
    remedy: Option<Remedy>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident => $kind:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name(message: impl Into<String>) -> Self {
            Self::new(ErrorKind::$kind, message)
        }
    )*};
}

impl Error {
    /// Creates an error of `kind`. `message` is in lower case and has no full stop.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            details: Vec::new(),
            missing: None,
            is_given_up: false,
            end: None,
            remedy: None,
            source: None,
        }))
    }

    constructors! {
        /// See [`ErrorKind::NotFound`].
        not_found => NotFound;
        /// See [`ErrorKind::Conflict`].
        conflict => Conflict;
        /// See [`ErrorKind::Corrupt`].
        corrupt => Corrupt;
        /// See [`ErrorKind::Unsupported`].
        unsupported => Unsupported;
        /// See [`ErrorKind::Denied`].
        denied => Denied;
        /// See [`ErrorKind::Unavailable`].
        unavailable => Unavailable;
        /// See [`ErrorKind::InvalidInput`].
        invalid => InvalidInput;
        /// See [`ErrorKind::Partial`].
        partial => Partial;
        /// See [`ErrorKind::Interrupted`].
        interrupted => Interrupted;
    }

    /// Wraps an error of the operating system about `path`; its error code determines the kind.
    pub fn io(doing: &str, path: impl AsRef<Path>, source: std::io::Error) -> Self {
        let kind = match source.kind() {
            std::io::ErrorKind::NotFound => ErrorKind::NotFound,
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                ErrorKind::Denied
            }
            _ => ErrorKind::Io,
        };
        let error = Self::new(kind, format!("{doing} {}", path.as_ref().display()));
        let error = match source.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                error.hint("free some space there, or name another place")
            }
            std::io::ErrorKind::PermissionDenied if doing.starts_with("open") => error
                .hint("give yourself the right to open it, and to search the directories above it"),
            _ => error,
        };
        error.because(source)
    }

    /// Adds the cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Adds details, one line each.
    #[must_use]
    pub fn list(mut self, details: impl IntoIterator<Item = String>) -> Self {
        self.0.details.extend(details);
        self
    }

    /// Records that the error is about a ref named `name`, which does not exist.
    #[must_use]
    pub fn of_missing(mut self, name: impl Into<String>) -> Self {
        self.0.missing = Some(name.into());
        self
    }

    /// Records whether retries went on for as long as the caller wants to wait.
    #[must_use]
    pub(crate) fn given_up(mut self, is_given_up: bool) -> Self {
        self.0.is_given_up = is_given_up;
        self
    }

    /// Records which store of a transfer the error is about, unless that is known already.
    #[must_use]
    pub(crate) fn at(mut self, end: End) -> Self {
        self.0.end.get_or_insert(end);
        self
    }

    /// Adds what to do next. Plain text must name no flag and no verb: the library does not know which program uses it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<Remedy>) -> Self {
        self.0.remedy = Some(hint.into());
        self
    }

    /// Prefixes the message with the object that contains the problem: `outer: message`.
    #[must_use]
    pub fn within(mut self, outer: impl fmt::Display) -> Self {
        self.0.message = format!("{outer}: {}", self.0.message);
        self
    }

    /// Returns what the caller can do about the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether retries went on for as long as the caller wants to wait, so that nobody should retry again.
    pub(crate) fn is_given_up(&self) -> bool {
        self.0.is_given_up
    }

    /// Whether the cause is a full disk or an exceeded quota of a file system.
    pub fn is_full(&self) -> bool {
        // An error of any other kind leaves the outcome unknown, even if a full disk is among its causes.
        let mut cause = match self.kind() {
            ErrorKind::Io => std::error::Error::source(self),
            _ => None,
        };
        while let Some(error) = cause {
            if let Some(error) = error.downcast_ref::<std::io::Error>() {
                use std::io::ErrorKind::{QuotaExceeded, StorageFull};
                return matches!(error.kind(), StorageFull | QuotaExceeded);
            }
            cause = error.source();
        }
        false
    }

    /// Whether an object is damaged or missing, as opposed to a remote that does not answer.
    pub fn is_damage(&self) -> bool {
        matches!(
            self.kind(),
            ErrorKind::Corrupt
                | ErrorKind::NotFound
                | ErrorKind::Unsupported
                | ErrorKind::InvalidInput
                | ErrorKind::Io
        )
    }

    /// Returns the details, one line each, that the message alone cannot hold.
    pub fn details(&self) -> &[String] {
        &self.0.details
    }

    /// Returns the name of the ref that does not exist, if that is the error.
    pub fn missing(&self) -> Option<&str> {
        self.0.missing.as_deref()
    }

    /// Returns which store of a transfer the error is about, if that is known.
    pub fn end(&self) -> Option<End> {
        self.0.end
    }

    /// Returns what to do next.
    pub fn remedy(&self) -> Option<&Remedy> {
        self.0.remedy.as_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}: {}", self.0.kind, self.0.message)?;
        for detail in &self.0.details {
            write!(out, "; {detail}")?;
        }
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            write!(out, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_where_and_chains_its_cause() {
        let cause = std::io::Error::from_raw_os_error(28);
        let error = Error::io("write", "/data/x", cause).within("put project/a/b");
        assert_eq!(error.to_string(), "put project/a/b: write /data/x");
        assert_eq!((error.kind(), error.is_full()), (ErrorKind::Io, true));
        assert_eq!(
            error.remedy(),
            Some(&Remedy::from(
                "free some space there, or name another place"
            ))
        );
        assert!(format!("{error:?}").ends_with("No space left on device (os error 28)"));
    }
}
