//! Hints in the words of `store run`: others name options that it does not have.

use std::fmt::Display;
use std::path::Path;

use store::{Error, RefName, Remedy};

use crate::ui::{names, remedy};

/// The command was not started, since its directories cannot be used.
pub(super) fn not_started(error: Error) -> Error {
    error.hint(other_base(""))
}

/// The hint for the same error, with what else helps.
pub(super) fn other_base(more: impl Display) -> String {
    format!("the command was not started: name another directory with --base{more}")
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

/// The newest version could not be materialized in `dir`.
pub(super) fn not_made(error: Error, dir: &Path, name: &RefName) -> Error {
    let spelled = names::quoted(name);
    match error.remedy() {
        Some(Remedy::MaterializeLess) => error.hint(format!(
            "the command was not started: take that directory out with `store rm {spelled}:PATH`, after \
             `store get {spelled}:PATH DIR` if somebody needs it"
        )),
        Some(Remedy::OtherDestinationOrTakeOver) => error.hint(other_base(format_args!(
            ", or the pool that made this one with --pool; or save what is there: {}; then let this pool take it over: \
             `store materialize --force {spelled} {}`",
            names::save_by_hand(dir, name.as_str(), None),
            names::quoted_path(dir)
        ))),
        remedy => {
            let advice = remedy.map(remedy::words).unwrap_or_default();
            // A run has no such options.
            match advice.contains("--force") || advice.contains("--exact") {
                true => not_started(error),
                false => error,
            }
        }
    }
}
