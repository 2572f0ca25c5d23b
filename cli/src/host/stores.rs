//! Which stores this user has used, by place: so a missing store is not mistaken for one that was made there later.
//!
//! There is a file for each place, in the cache directory. If they are lost, the check is skipped.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use store::Store;

use super::files::{Use, replace};

/// Where they are, below the cache directory.
const DIR: &str = "stores";

/// The place of a store.
pub(crate) struct StorePlace(PathBuf);

impl StorePlace {
    /// Of the store at `url`; none, where this host keeps nothing in `kept`. Hosts may share a home, and have places of one
    /// name that are their own.
    pub(crate) fn of(kept: Option<PathBuf>, url: &str) -> Option<Self> {
        let host = rustix::system::uname();
        let key = [host.nodename().to_bytes(), b"\0", url.as_bytes()].concat();
        let name = store::ChunkId::of(&key).to_string();
        Some(Self(kept?.join(DIR).join(name)))
    }

    /// The id of the store that was there last.
    pub(crate) fn known(&self) -> Option<String> {
        let text = std::fs::read_to_string(&self.0).ok()?;
        let id = text.trim();
        let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_id.then(|| id.to_owned())
    }

    /// Takes down that `store` is there.
    pub(crate) fn remember(&self, store: &Store) {
        let id = store.format().id.to_string();
        if self.known().as_ref() == Some(&id) {
            return;
        }
        // It is asked for again the next time.
        let above = self.0.parent().unwrap_or(&self.0);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(above);
        drop(made.map(|()| replace(&self.0, id.as_bytes(), Use::Report)));
    }
}
