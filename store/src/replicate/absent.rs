//! Errors of what was asked for and is not at the source.

use super::Delete;
use crate::error::Error;
use crate::format::Namespace;
use crate::remedy::Remedy;

/// The error for a namespace of which the source has nothing.
pub(super) fn none_in(namespace: &Namespace) -> Error {
    Error::not_found(format!(
        "{namespace}: the source has no ref in this namespace"
    ))
}

/// Why nothing of what was asked for is there. What a source has dropped goes with the rest only where that is said: it
/// is all that the destination has of it, and a name may be misspelled.
pub(super) fn dropped_there(delete: Delete, was_there: bool, error: Error) -> Error {
    match (delete, was_there) {
        (Delete::Surplus { .. }, true) => error.hint(Remedy::DeleteAll),
        (Delete::All, false) => {
            let text = format!("{error}: the source never had it, and nothing is dropped");
            Error::not_found(text).hint("check the name")
        }
        _ => error,
    }
}
