//! What a materialization refuses before it fetches anything, and what it would destroy.

use std::path::Path;
use std::sync::Arc;

use super::{MaterializeRequest, Task, There as Lies};
use crate::error::{Error, Result};
use crate::format::{FORMAT_KEY, Node};
use crate::host::destination::{Guard, Precious, Replaced, Site, There};
use crate::host::pool::Pool;
use crate::progress::Progress;
use crate::read::{Found, Reader};
use crate::remedy::Remedy;
use crate::store::Store;
use crate::wanted::Wanted;

/// Refuses a precious destination, before any pool is opened. `pools` is called only if it matters whether a pool made
/// the destination.
///
/// # Errors
/// Conflict, when the destination is, holds or lies in something precious.
pub fn check_destination(
    store: &Store,
    precious: &Precious,
    destination: &Path,
    pools: impl FnOnce() -> Vec<Arc<Pool>>,
) -> Result<()> {
    let site = Site::of(destination)?;
    let check = |is_made| {
        known(store, precious)
            .with_working_directory(is_made)
            .check(&site)
    };
    let Err(refused) = check(false) else {
        return check_no_mount(&site);
    };
    let mut pools = pools().into_iter();
    match pools.any(|pool| pool.mark_of(&site.path).is_some()) {
        true => check(true).and_then(|()| check_no_mount(&site)),
        false => Err(refused),
    }
}

fn check_no_mount(site: &Site) -> Result<()> {
    if !site.is_mount {
        return Ok(());
    }
    Err(Error::conflict(format!(
        "{}: something is mounted there; the pool would have to be on that mount, and so in the tree",
        site.given.display()
    ))
    .hint(Remedy::InsideMount {
        inside: site.given.join("NAME").display().to_string(),
    }))
}

fn known(store: &Store, precious: &Precious) -> Guard {
    let format = store.remote().local_path(FORMAT_KEY);
    Guard::new(precious).store(format.as_deref().and_then(Path::parent))
}

/// Refuses a destination that is precious or cannot be replaced, and globs that leave nothing. Returns what a forced
/// materialization will replace, after reporting that to `progress`.
pub(super) fn guard(
    reader: &Reader<'_>,
    pool: &Pool,
    request: &MaterializeRequest,
    found: &Found,
    progress: &dyn Progress,
) -> Result<Option<Replaced>> {
    let wanted = Wanted::new(&request.include, &request.exclude)?;
    wanted.check_leaves_something(reader, &found.node, &request.spec)?;
    let Some(destination) = &request.destination else {
        return Ok(None);
    };
    let site = Site::of(destination)?;
    let store = reader.store();
    let is_made = pool.mark_of(&site.path).is_some();
    known(store, &request.precious)
        .pool(pool.path())
        .with_working_directory(is_made)
        .check(&site)?;
    site.check_kind(matches!(found.node, Node::Tree { .. }))?;
    check_no_mount(&site)?;
    let is_taken = matches!(site.there, There::Directory | There::Other);
    if !is_taken || !(request.force || (is_made && request.exact)) {
        return Ok(None);
    }
    let replaced = Replaced::count(&site, request.is_begun, &|| store.host().check_stop())?;
    if is_made {
        return Ok(None);
    }
    let goes_whole = request.exact || site.there == There::Other;
    progress.replaces(destination, replaced.files, replaced.bytes, goes_whole);
    Ok(Some(replaced))
}

/// Refuses an ephemeral tree on a destination with other files: it is removed whole when this process ends.
pub(super) fn check_may_end(
    request: &MaterializeRequest,
    destination: &Path,
    there: &Lies,
) -> Result<()> {
    let what = match there {
        Lies::Made(mark) if mark.held_by.is_none() => "was made to stay",
        Lies::Foreign { .. } => "was not made here",
        _ => return Ok(()),
    };
    if !request.ephemeral {
        return Ok(());
    }
    Err(Error::conflict(format!(
        "{}: {what}, and would go with this process, all that is in it included",
        destination.display()
    ))
    .hint(Remedy::OtherDestinationOrRemove))
}

impl Task<'_> {
    /// What to do about a destination that only force replaces, and what it destroys there.
    pub(super) fn other_destination(&self, is_directory: bool) -> Remedy {
        let is_tree = matches!(self.found.node, Node::Tree { .. });
        match (self.request.ephemeral, is_directory && is_tree) {
            // Force does not let a tree that goes with its process take the place of others.
            (true, _) => Remedy::OtherDestinationOrRemove,
            (false, false) => Remedy::OtherDestinationOrReplace,
            (false, true) if self.request.exact => Remedy::OtherDestinationOrOverrule,
            (false, true) => Remedy::OtherDestinationOrTakeOver,
        }
    }
}
