//! Stores in one file.

use std::path::Path;
use std::sync::Arc;

use store::remote::{self, Prune};
use store::{Error, Result, Store};

use super::{Context, not_utf8};

impl Context {
    /// Opens the store in the file at `path`.
    pub(crate) fn open_bundle(&self, path: &Path) -> Result<Store> {
        let store = Store::open(bundle(path, false)?, self.host())?;
        Ok(self.watched(store))
    }

    /// Opens the store in the file at `path`. Creates an empty one if there is no file.
    pub(crate) fn open_or_make_bundle(&self, path: &Path) -> Result<Store> {
        let store = Store::open_or_init(bundle(path, true)?, self.host())?;
        Ok(self.watched(store))
    }
}

fn bundle(path: &Path, create: bool) -> Result<Arc<dyn Prune>> {
    if path.is_dir() {
        let message = format!("{}: a directory, expected a file", path.display());
        return Err(Error::invalid(message)
            .hint("name the file itself; a store in a directory is a cluster, for `store push` and `store pull`"));
    }
    let url = path.to_str().map(|path| format!("bundle:{path}"));
    let url = url.ok_or_else(|| not_utf8(path.as_os_str()))?;
    let options = remote::Options {
        create,
        ..remote::Options::default()
    };
    remote::open(&url, &options)
}
