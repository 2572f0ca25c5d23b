//! Whether a store is out of reach, so that a save or a push to it may succeed later.

use std::path::Path;

use store::{Error, ErrorKind, Remedy};

use crate::context::Context;
use crate::ui::failure;

/// Whether the store failed because of the network, a mount, credentials or space, and not because of the request.
pub(super) fn is_out_of_reach(error: &Error, dir: &Path, context: &Context) -> bool {
    match error.kind() {
        ErrorKind::Unavailable | ErrorKind::Io => true,
        // A missing mount leaves an empty directory, or none.
        ErrorKind::NotFound => dir.is_dir() && is_store_gone(context),
        // Somebody has to decide which copy of the store is right; the save waits for that.
        ErrorKind::Corrupt => matches!(error.remedy(), Some(Remedy::AcceptRollback { .. })),
        // A store that reports an exceeded quota is within reach.
        ErrorKind::Denied => {
            failure::is_for_want_of_rights(error) && std::fs::read_dir(dir).is_ok()
        }
        _ => false,
    }
}

/// When a save or a push that failed so may succeed.
pub(super) fn when(error: &Error) -> &'static str {
    match error.kind() {
        // A mount that is read-only is within reach.
        ErrorKind::Denied => "once the store may be written to",
        _ => "when the store can be reached",
    }
}

fn is_store_gone(context: &Context) -> bool {
    context
        .open()
        .is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

/// Changes "not found" to "unavailable", whose advice is to try again later.
pub(super) fn out_of_reach(error: Error) -> Error {
    match error.kind() {
        ErrorKind::NotFound => Error::unavailable("the store cannot be reached").because(error),
        _ => error,
    }
}
