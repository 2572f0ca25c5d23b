//! Whether a store still has what a directory on a host is known to be of.

use std::path::Path;

use crate::error::{Error, Result};
use crate::format::{RefName, State};
use crate::host::pool::Known;
use crate::remedy::{Note, Remedy};

impl State {
    /// Checks that this store has had the version that a directory is known to be of. A store that was restored from an
    /// older copy has not, and the directory may hold the last copy of the bytes. A dropped version counts as had.
    ///
    /// # Errors
    /// Conflict, when the store has not had the version.
    pub(crate) fn check_had(&self, name: &RefName, known: Known, dir: &Path) -> Result<()> {
        let Known { version, tree } = known;
        let last = self.refs.last(name)?;
        let what = if version > last && last > 0 {
            format!(
                "this store never had a version above @{last}: it was restored from an older copy"
            )
        } else {
            // Without a live version of that number, there is no older tree to mistake for it.
            let there = self.version(name, Some(version)).ok();
            let is_other = |tree| there.is_some_and(|(_, there)| *there.root.content() != tree);
            if !tree.is_some_and(is_other) {
                return Ok(());
            }
            format!(
                "@{version} is another one in this store: it was restored from an older copy, and written to since"
            )
        };
        let dir = dir.display();
        let message = format!("{dir}: is of {name}@{version}, and {what}");
        Err(Error::conflict(message).hint(Remedy::StoreSetBack))
    }

    /// The warning that the version that a directory is known to be of was dropped while it was the newest. What only
    /// that version had counts as removed since, and the directory may hold the last copy of it.
    pub(crate) fn gone_back(&self, name: &RefName, known: Known, dir: &Path) -> Option<Note> {
        let (newest, version) = self.version(name, None).ok()?;
        let was = known.version;
        if newest >= was || known.tree.as_ref() == Some(version.root.content()) {
            return None;
        }
        let text = format!(
            "{}: was of {name}@{was}, which was dropped since, and @{newest} is the newest again: what only @{was} had is \
             removed or not saved",
            dir.display()
        );
        Some(Note::with(text, Remedy::undo(format!("{name}@{was}"))).warning())
    }
}
