//! The object `format`, with which a store begins. No other object holds what is in it.

use crate::error::{Error, ErrorKind, Result};
use crate::format::{FORMAT_KEY, Format, LOG_PREFIX, PACKS_PREFIX, SEGMENTS_PREFIX, is_object_key};
use crate::remedy::Remedy;
use crate::remote::{Read, is_far};

/// What to do when the format is lost.
const LOST: &str = "restore `format` from a copy of the store: nothing else in it says what was in there; make no new \
                    store in its place";

/// Reads the format of the store at `remote`.
///
/// # Errors
/// Not found, when there is no store; corrupt, when there is one, and its format is damaged or missing.
pub(super) fn read_format(remote: &dyn Read) -> Result<Format> {
    let url = remote.url();
    let bytes = remote.get(FORMAT_KEY).map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            // In a bucket each look is a request, and making a store would pay for it.
            let lost = (!is_far(remote)).then(|| check_nothing_remains(remote).err());
            lost.flatten().unwrap_or_else(|| {
                let hint = error.remedy().cloned().unwrap_or(Remedy::MakeStore);
                Error::not_found(format!("{url}: there is no store")).hint(hint)
            })
        }
        ErrorKind::Corrupt => error.hint(LOST),
        _ => error,
    })?;
    Format::decode(&bytes).map_err(|error| match error.kind() {
        ErrorKind::Corrupt => error.within(url).hint(LOST),
        _ => error.within(url),
    })
}

/// Refuses a place that has objects of a store but no format.
///
/// # Errors
/// Corrupt, naming one of the objects.
pub(super) fn check_nothing_remains(remote: &dyn Read) -> Result<()> {
    let is_missing =
        || matches!(remote.get(FORMAT_KEY), Err(error) if error.kind() == ErrorKind::NotFound);
    match remains(remote) {
        Some(key) if is_missing() => Err(Error::corrupt(format!(
            "{}: {FORMAT_KEY}: missing, although {key} exists",
            remote.url()
        ))
        .hint(LOST)),
        _ => Ok(()),
    }
}

/// The key of an object of a store other than its format; none also if listing is not allowed.
fn remains(remote: &dyn Read) -> Option<String> {
    let prefixes = [LOG_PREFIX, SEGMENTS_PREFIX, PACKS_PREFIX].into_iter();
    let listed = prefixes.filter_map(|prefix| remote.keys_after(prefix, prefix).ok());
    let mut keys = listed.flatten();
    keys.find(|key| is_object_key(key))
}
