//! Stores in one file.

use std::path::Path;
use std::sync::Arc;

use store::remote::{self, Prune};
use store::{Error, Portions, Remedy, Result, Store};

use super::{Context, not_utf8};

/// Bytes of a pack in a bundle. What is killed goes on behind the last whole one, and a bundle may lie on a slow stick.
const PACK_BYTES: u32 = 16 << 20;

impl Context {
    /// Opens the store in the file at `path`.
    pub(crate) fn open_bundle(&self, path: &Path) -> Result<Store> {
        let store = Store::open(bundle(path, false)?, self.host())?;
        Ok(self.watched(store))
    }

    /// Opens the store in the file at `path`. Creates an empty one if there is no file.
    pub(crate) fn open_or_make_bundle(&self, path: &Path) -> Result<Store> {
        let store = Store::open_or_init(bundle(path, true)?, self.host())?;
        let portions = portions(store.portions());
        Ok(self.watched(store.in_portions(portions)))
    }
}

/// Rewords the hint of an error about a damaged bundle, whose log nothing brings back.
pub(crate) fn damaged(error: Error) -> Error {
    match error.remedy() {
        Some(Remedy::RestoreLog | Remedy::AcceptLoss) => error.hint(
            "the file is damaged: copy it again from where it was made, or export into a new one",
        ),
        _ => error,
    }
}

/// Those of a bundle.
fn portions(usual: Portions) -> Portions {
    Portions {
        pack_bytes: usual.pack_bytes.min(PACK_BYTES),
        ..usual
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_of_a_bundle_are_small_and_no_larger_than_others() {
        let of = |pack_bytes| {
            let usual = Portions {
                pack_bytes,
                ..Portions::default()
            };
            portions(usual).pack_bytes
        };
        assert_eq!([64 << 20, 3 << 20].map(of), [16 << 20, 3 << 20]);
    }
}
