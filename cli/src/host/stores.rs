//! The ids of the stores that this user has used, by place. So a store that was made later is not mistaken for a
//! missing one.
//!
//! Each place has a file in the cache directory. If the files are lost, the check is skipped.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use store::Store;

use super::files::{Use, replace};

/// The directory of these files, below the cache directory.
const DIR: &str = "stores";
/// Most bytes of a file of it.
const ID_BYTES_MAX: u64 = 4096;

/// The file for one place of a store.
pub(crate) struct StorePlace(PathBuf);

impl StorePlace {
    /// The file for `url`; `None` if this host has no cache directory. The key contains the host's name, because hosts
    /// may share a home directory and have different stores under one path.
    pub(crate) fn of(kept: Option<PathBuf>, url: &str) -> Option<Self> {
        let host = rustix::system::uname();
        let key = [host.nodename().to_bytes(), b"\0", url.as_bytes()].concat();
        let name = store::ChunkId::of(&key).to_string();
        Some(Self(kept?.join(DIR).join(name)))
    }

    /// The id of the last known store at this place.
    pub(crate) fn known(&self) -> Option<String> {
        let text = store::read_regular(&self.0, ID_BYTES_MAX).ok()?;
        let text = String::from_utf8(text).ok()?;
        let id = text.trim();
        let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_id.then(|| id.to_owned())
    }

    /// Remembers that `store` is at this place.
    pub(crate) fn remember(&self, store: &Store) {
        let id = store.format().id.to_string();
        if self.known().as_ref() == Some(&id) {
            return;
        }
        // A failure is harmless: the next opening tries again.
        let above = self.0.parent().unwrap_or(&self.0);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(above);
        drop(made.map(|()| replace(&self.0, id.as_bytes(), Use::Report)));
    }
}
