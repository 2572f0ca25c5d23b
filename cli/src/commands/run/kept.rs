//! The note about paths that a job changed and an update kept.

use store::{Globs, MaterializeReport};

use crate::host::apart;
use crate::ui::human;

/// Maximum number of paths in a note.
const NAMED_MAX: usize = 5;

/// The end of the sentence about an update. Excluded paths are not named: the version may still have files there that
/// earlier versions of this program saved.
pub(super) fn told(done: &MaterializeReport, exclude: &[String]) -> String {
    let globs = Globs::new(exclude).unwrap_or_default();
    let all = done.conflicting.iter();
    let named = all.filter(|kept| !apart::is_in(&globs, &kept.path));
    let named: Vec<_> = named.map(|kept| kept.path.display().to_string()).collect();
    let silent = done.conflicting.len().saturating_sub(named.len()) as u64;
    let count = done.conflicts.saturating_sub(silent);
    if count == 0 {
        return String::new();
    }
    let first: Vec<_> = named.into_iter().take(NAMED_MAX).collect();
    let more = match count > NAMED_MAX as u64 {
        true => ", ...",
        false => "",
    };
    format!(
        ", {} kept as a job left it: {}{more}",
        human::counted(count, "path"),
        first.join(", ")
    )
}
