//! The room that stays free where a store is: other things need it, too.

use store::{Error, Result, Store};

use crate::ui::human;

/// That so many bytes are free there, as far as that can be known.
pub(super) fn check(store: &Store, wanted: u64) -> Result<()> {
    let Some(place) = store.remote().local_path("format").filter(|_| wanted > 0) else {
        return Ok(());
    };
    let found = rustix::fs::statvfs(&place)
        .map_err(|errno| Error::io("look at the file system of", &place, errno.into()))?;
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    if free >= wanted {
        return Ok(());
    }
    Err(Error::unavailable(format!(
        "{}: {} are free, expected {} (--free)",
        store.remote().url(),
        human::bytes(free),
        human::bytes(wanted)
    ))
    .hint("drop versions with --keep or `store rm`, and run `store gc`"))
}
