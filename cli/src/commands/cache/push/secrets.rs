//! Entries with files that seem to hold credentials. Who may read a ref reads all of it, so they are kept out whole.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::Serialize;
use store::{Globs, Result};

use crate::commands::cache::Named;
use crate::commands::cache::entries::{Entries, Entry};
use crate::commands::cache::profile::Profile;
use crate::host::apart;

/// A file that seems to hold credentials.
#[derive(Serialize)]
pub(super) struct Secret {
    /// Its path in the cache.
    #[serde(flatten)]
    pub(super) file: Named,
    pub(super) kind: &'static str,
}

/// Takes the entries with such files out of `new`, and returns the first file of each.
///
/// # Errors
/// Invalid input, naming an invalid glob.
pub(super) fn keep_out(
    new: &mut Entries,
    root: &Path,
    profile: &Profile,
    allow: &[String],
) -> Result<Vec<Secret>> {
    let allow = Globs::new(allow)?;
    let mut found = Vec::new();
    new.retain(|path, entry| {
        let secret = of_entry(root, (path, entry), profile, &allow);
        let is_free = secret.is_none();
        found.extend(secret);
        is_free
    });
    Ok(found)
}

fn of_entry(
    root: &Path,
    (path, entry): (&[u8], &Entry),
    profile: &Profile,
    allow: &Globs,
) -> Option<Secret> {
    let shape = profile.entry.get(entry.shape)?;
    let mut files = entry
        .parts
        .iter()
        .filter(|(part, thing)| !thing.is_dir() && !shape.is_volatile(part));
    files.find_map(|(part, _)| {
        let file = match part.is_empty() {
            true => path.to_vec(),
            false => [path, b"/", part].concat(),
        };
        let place = Path::new(OsStr::from_bytes(&file));
        if apart::is_in(allow, place) {
            return None;
        }
        // What cannot be read is named when it is staged.
        let kind = store::credentials_at(&root.join(place)).ok()??;
        let file = Named::new(&file);
        Some(Secret { file, kind })
    })
}
