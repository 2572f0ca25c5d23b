//! Keys as backends accept them: plain paths that do not look like an upload in progress.

use object_store::path::Path as ObjectPath;

use crate::error::{Error, Result};

/// Returns the key as a path of object_store, verbatim.
pub(super) fn object_path(key: &str) -> Result<ObjectPath> {
    let bad = |why: &str| Error::invalid(format!("key {key:?}: {why}"));
    let path = ObjectPath::parse(key).map_err(|error| bad("is no path").because(error))?;
    if path.as_ref() != key || key.is_empty() {
        return Err(bad("must not be empty, nor begin or end with a slash"));
    }
    if is_staged(key) {
        return Err(bad("must not end in # and digits"));
    }
    Ok(path)
}

pub(super) fn check_key(key: &str) -> Result<()> {
    object_path(key).map(drop)
}

pub(super) fn check_prefix(prefix: &str) -> Result<&str> {
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    if !prefix.is_empty() {
        check_key(prefix)?;
    }
    Ok(prefix)
}

/// Returns the key of the object that an upload in progress is for: `name` for `name#1`.
pub(super) fn staged_for(key: &str) -> Option<&str> {
    let name = key.rsplit('/').next()?;
    let (_, digits) = name.split_once('#')?;
    let staged = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    staged
        .then(|| key.strip_suffix(digits)?.strip_suffix('#'))
        .flatten()
}

pub(super) fn is_staged(key: &str) -> bool {
    staged_for(key).is_some()
}
