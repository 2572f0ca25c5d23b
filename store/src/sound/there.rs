//! there: which objects a store no longer has in their whole length, found with as few requests as possible.

use std::collections::HashMap;

use crate::error::{ErrorKind, Result};
use crate::remote::{Read, of_each};

/// Most objects in one response to a listing of a bucket.
pub(super) const LISTED_AT_ONCE: usize = 1000;

/// An object that somebody relies on.
#[derive(Debug)]
pub(super) struct Needed<I> {
    pub(super) id: I,
    pub(super) key: String,
    pub(super) bytes: u64,
}

/// Those of `needed` that are missing or have another length; `all` is the number of objects below `prefix`.
pub(super) fn broken<I: Copy + Send + Sync>(
    remote: &dyn Read,
    prefix: &str,
    needed: &[Needed<I>],
    all: usize,
) -> Result<Vec<I>> {
    let is_near = remote.local_path(prefix).is_some();
    let asks_each = is_near || needed.len() <= all.div_ceil(LISTED_AT_ONCE);
    let listed: HashMap<String, u64> = match asks_each {
        true => HashMap::new(),
        false => (remote.list(prefix)?.into_iter())
            .map(|info| (info.key, info.size))
            .collect(),
    };
    // A listing may be outdated, so objects that it lacks are requested one by one.
    let is_listed = |object: &&Needed<I>| listed.get(&object.key) == Some(&object.bytes);
    let asked: Vec<_> = needed.iter().filter(|object| !is_listed(object)).collect();
    let found = of_each(remote, &asked, |object| match remote.size(&object.key) {
        Ok(size) => Ok((size != object.bytes).then_some(object.id)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corrupt) => {
            Ok(Some(object.id))
        }
        Err(error) => Err(error),
    })?;
    Ok(found.into_iter().flatten().collect())
}
