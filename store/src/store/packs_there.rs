//! Whether the packs of a store are there at all.

use super::Store;
use crate::error::{Error, Result};
use crate::format::{PACKS_PREFIX, State};
use crate::remedy::Remedy;

impl Store {
    /// DESIGN, writer 17: checks that a directory has any packs, if its log names some. If there is none, their file
    /// system is probably not mounted: whoever took them for lost would store everything again, and give up the rest.
    ///
    /// # Errors
    /// Unavailable, when there are none.
    pub(crate) fn check_packs_there(&self, state: &State) -> Result<()> {
        let named: u64 = (state.segments.values())
            .map(|info| u64::from(info.packs))
            .sum();
        let path = self.remote.local_path(PACKS_PREFIX);
        let Some(path) = path.filter(|_| named > state.condemned.len() as u64) else {
            return Ok(());
        };
        let is_bare = match std::fs::read_dir(&path) {
            Ok(mut entries) => entries.next().is_none(),
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        };
        if !is_bare {
            return Ok(());
        }
        let path = path.display().to_string();
        Err(Error::unavailable(format!(
            "{path}: there are no packs, and the store has {named} of them"
        ))
        .hint(Remedy::PacksAway { path }))
    }
}
