//! Compiled files in a project's cache that earlier versions of this program, or people, saved file by file.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use store::{Error, Reader, RefName, RefSpec, Result};

use super::name_of;
use crate::commands::cache::entries::{Entry, State};
use crate::commands::cache::of_dir;
use crate::commands::cache::profile::Profile;
use crate::config::layouts::{Namespaces, Places};
use crate::context::Context;
use crate::host::planted;
use crate::ui::names;

/// The ref and path with which earlier versions of this program saved a directory of the project's cache.
pub(super) fn within(
    dir: &Path,
    places: &Places,
    of: Namespaces<'_>,
) -> Option<(RefName, PathBuf)> {
    let below = dir.strip_prefix(&places.project).ok()?;
    let cache = name_of(&of.filled("{project}/cache")?).ok()?;
    Some((cache, below.to_path_buf()))
}

/// Removes incomplete entries that came with such a cache. A failed entry would keep a compiler from trying again, and a
/// half-written one would be read. Also removes the volatile files of complete entries, which may be older than these.
pub(super) fn mend(
    reader: &Reader<'_>,
    (cache, below): (&RefName, &Path),
    (dir, profile): (&Path, &Profile),
    context: &Context,
) -> Result<()> {
    let is_dir = dir.symlink_metadata().is_ok_and(|found| found.is_dir());
    if !is_dir {
        return Ok(());
    }
    planted::check(dir)?;
    let is_saved = |path: &Path| {
        let spec = RefSpec {
            name: cache.clone(),
            version: None,
            path: below.join(path).as_os_str().as_bytes().to_vec(),
        };
        reader.resolve(&spec).is_ok()
    };
    for (path, entry) in of_dir::read(dir, profile)? {
        let state = entry.state(profile);
        let own = Path::new(OsStr::from_bytes(&path));
        if !is_saved(own) {
            continue;
        }
        if state == State::Complete {
            for part in volatile(&entry, profile) {
                let part = own.join(OsStr::from_bytes(part));
                if is_saved(&part) {
                    let full = dir.join(part);
                    std::fs::remove_file(&full)
                        .map_err(|source| Error::io("remove", &full, source))?;
                }
            }
            continue;
        }
        let full = dir.join(own);
        std::fs::remove_dir_all(&full).map_err(|source| Error::io("remove", &full, source))?;
        let (path, word) = (names::shown(&path), state.word());
        context
            .out
            .note(format_args!("note: {path}: {word} in {cache}, not taken"));
    }
    Ok(())
}

/// The volatile files of an entry.
fn volatile<'e>(entry: &'e Entry, profile: &'e Profile) -> impl Iterator<Item = &'e [u8]> {
    let shape = profile.entry.get(entry.shape);
    let shape = shape.filter(|shape| !shape.file);
    let files = shape.into_iter().flat_map(|shape| {
        let parts = entry.parts.iter();
        parts.filter(|(path, part)| !part.is_dir() && shape.is_volatile(path))
    });
    files.map(|(path, _)| path.as_slice())
}
