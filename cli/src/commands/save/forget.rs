//! `store save --forget`: takes directories off the list of pending saves. The directories stay as they are.

use std::path::Path;

use store::{Error, ErrorKind, Result};

use crate::config;
use crate::context::Context;
use crate::host::pending::Pending;
use crate::ui::names;

/// The message about a directory of the list that is not there.
pub(super) fn missing(dir: &Path) -> String {
    let quoted = names::quoted_path(dir);
    let dir = dir.display();
    format!(
        "{dir}: is not there, and stays on the list: its volume may not be mounted; if it was deleted for good, \
         `store save --forget {quoted}` takes it off the list"
    )
}

/// Takes `dir` and all directories below it off the list for the store. Where the list has several of one path, those that
/// are not there go first.
///
/// # Errors
/// Not found, if none of them is on it.
pub(super) fn forget(dir: &Path, is_dry: bool, context: &Context) -> Result<()> {
    let url = context.store_url()?;
    let given = std::path::absolute(dir).map_err(|source| Error::io("find", dir, source))?;
    // The list has real paths.
    let real = dir.canonicalize().unwrap_or_else(|_| given.clone());
    let mut all = Pending::all(config::state_dir())?;
    all.retain(|noted| {
        let listed = noted.directory();
        noted.store() == url && (listed.starts_with(&given) || listed.starts_with(&real))
    });
    if all.is_empty() {
        let error = Error::new(
            ErrorKind::NotFound,
            format!(
                "{}: is not on the list of what is to be saved to {url}",
                given.display()
            ),
        );
        return Err(error.hint("`store save --pending --dry-run` shows the list"));
    }
    let gone: Vec<_> = all.iter().filter(|noted| !noted.is_in_place()).collect();
    let of_gone = |noted: &Pending| gone.iter().any(|one| one.is_beside(noted));
    let stays = |noted: &&Pending| noted.is_in_place() && of_gone(noted);
    for noted in all.iter().filter(|noted| !stays(noted)) {
        let dir = noted.directory().display();
        let target = noted.target().map(|name| format!(" to {name}"));
        let target = target.unwrap_or_default();
        let how = match is_dry {
            true => "would be forgotten",
            false => "is forgotten",
        };
        if !is_dry {
            noted.remove();
        }
        let out = &context.out;
        out.note(format_args!("{dir}: its save{target} {how}"));
    }
    Ok(())
}
