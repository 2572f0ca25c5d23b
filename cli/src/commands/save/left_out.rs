//! The notes about what a run never saves: credentials, locks and unfinished files of clients.
//!
//! The words are those of the profile of Hugging Face caches, which leaves out the same where a layout says nothing.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use store::Globs;

use crate::config::layouts::pushed_apart;
use crate::host::apart;
use crate::ui::names;

/// Most names in a note, of each kind.
const NAMES_MAX: usize = 5;

/// The notes about paths that globs left out. Compile caches are not among them, since they are refs of their own.
pub(super) fn notes(left_out: &[PathBuf]) -> Vec<String> {
    let pushed = Globs::new(&pushed_apart().collect::<Vec<_>>()).unwrap_or_default();
    // Those are directories.
    let is_pushed = |path: &Path| apart::is_in(&pushed, &path.join("file"));
    let mut left_out: Vec<_> = left_out.iter().filter(|path| !is_pushed(path)).collect();
    left_out.sort();
    let of = |kind: Kind| {
        let of = left_out.iter().filter(|path| kind_of(path) == kind);
        of.map(|path| names::shown(path.as_os_str().as_bytes()))
            .collect::<Vec<_>>()
    };
    let secrets = of(Kind::Secret);
    let secrets = (!secrets.is_empty())
        .then(|| format!("left out, as they hold credentials: {}", named(&secrets)));
    let plain: Vec<_> = [
        (Kind::Lock, "of locks"),
        (Kind::Unfinished, "unfinished"),
        (Kind::MachineState, "of this machine's state"),
        (Kind::Other, "excluded"),
    ]
    .into_iter()
    .map(|(kind, what)| (of(kind), what))
    .filter(|(of, _)| !of.is_empty())
    .map(|(of, what)| format!("{} {what} ({})", of.len(), named(&of)))
    .collect();
    let plain = (!plain.is_empty()).then(|| format!("left out: {}", plain.join(", ")));
    secrets.into_iter().chain(plain).collect()
}

/// What a path is, by its name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Secret,
    Lock,
    Unfinished,
    MachineState,
    Other,
}

fn kind_of(path: &Path) -> Kind {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match &*name {
        "token" | "stored_tokens" => Kind::Secret,
        ".locks" => Kind::Lock,
        name if name.ends_with(".lock") || name.ends_with(".lock.soft") => Kind::Lock,
        name if name.ends_with(".incomplete") => Kind::Unfinished,
        name if name.starts_with(".check_for_") && name.ends_with("_done") => Kind::MachineState,
        _ => Kind::Other,
    }
}

/// The first names, and the number of further ones.
fn named(all: &[String]) -> String {
    let first = all.iter().take(NAMES_MAX).cloned().collect::<Vec<_>>();
    match all.len().saturating_sub(NAMES_MAX) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}
