//! Hints in the words of `store run`: others name options that it does not have.

use std::path::Path;

use store::{Error, RefName, Remedy};

use crate::ui::{names, remedy};

/// The command was not started, since its directories cannot be used.
pub(super) fn not_started(error: Error) -> Error {
    error.hint("the command was not started: name another directory with --base")
}

/// A save of `dir` failed.
pub(super) fn not_saved(error: Error, dir: &Path, name: &RefName) -> Error {
    let advice = error.remedy().map(remedy::words);
    match advice.filter(|advice| advice.contains("--")) {
        Some(advice) => error.hint(format!(
            "{advice}; such options are those of `store save {} {}`",
            names::quoted_path(dir),
            names::quoted(name)
        )),
        None => error,
    }
}

/// The newest version could not be materialized.
pub(super) fn not_made(error: Error, name: &RefName) -> Error {
    if let Some(Remedy::MaterializeLess) = error.remedy() {
        let name = names::quoted(name);
        return error.hint(format!(
            "the command was not started: take that directory out with `store rm {name}:PATH`, after `store get {name}:PATH DIR` \
             if somebody needs it"
        ));
    }
    let advice = error.remedy().map(remedy::words).unwrap_or_default();
    match advice.contains("--force") || advice.contains("--exact") {
        true => not_started(error),
        false => error,
    }
}
