//! carried: whether a new version has what it took over from the one before.
//!
//! A version that changes a few paths takes over the trees and files of all others without looking at them. The version
//! before may have lost some of them, and nobody who only adds or removes a path would be told.

use super::mend::mend;
use super::vouched::Vouchers;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Change, RefName, Root};
use crate::read::Reader;
use crate::remedy::Remedy;
use crate::session::{Relied, all_offered};
use crate::store::{Store, View};

/// Bytes of a version up to which its chunks are looked up after each commit that takes over a part of it: a second or
/// two. A save, and a commit of a client, must cost what they change.
pub(crate) const LOOKED_UP_BYTES: u64 = 64 << 30;

/// Warns that the result is incomplete if version `made` of `name`, whose root is `root`, took over from version
/// `before` what the store has lost. No later pass counts on such a version as a whole. Nothing is looked up if the
/// version before vouches for what it has, or if the new one has more than `bytes_max` bytes.
///
/// The version is published by now, so what goes wrong here is only a warning.
pub(crate) fn check_carried(
    store: &Store,
    name: &RefName,
    (before, made): (u64, u64),
    root: &Root,
    bytes_max: u64,
) {
    if root.bytes() > bytes_max {
        return;
    }
    match check(store, (name, before), root) {
        Ok(true) => {}
        Ok(false) => store.warn_of_part(
            Error::new(
                ErrorKind::Corrupt,
                format!("{name}@{made}: what it took over from @{before} is lost in part"),
            )
            .hint(Remedy::VerifyThenPutOrDrop),
        ),
        Err(error) => {
            let what = format!(
                "{name}@{made}: whether all that it took over from @{before} is there is not known"
            );
            store.warn(error.within(what));
        }
    }
}

/// Whether everything below `root` is there.
fn check(store: &Store, (name, before): (&RefName, u64), root: &Root) -> Result<bool> {
    let mut view = store.view()?;
    // Packs that nobody has missed so far are asked for only where that costs nothing.
    if !store.is_far() && is_mended(store, &view, root)? {
        view = store.view()?;
    }
    if Vouchers::new(store, &view).vouch_for(name, before) {
        return Ok(true);
    }
    let reader = Reader::at(store, view.clone());
    let is_there = match all_offered(&reader, &view.index, root) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corrupt) => false,
        offered => offered?,
    };
    if !is_there {
        disavow(store, view)?;
    }
    Ok(is_there)
}

/// Condemns missing packs that something below `root` needs. Returns whether there were any.
fn is_mended(store: &Store, view: &View, root: &Root) -> Result<bool> {
    let relied = Relied::new(view.index.clone());
    relied.count_on(*root);
    Ok(mend(store, &view.state, &relied)?.is_some())
}

/// Adds an entry after which no version that was added before vouches for its chunks.
fn disavow(store: &Store, view: View) -> Result<()> {
    let mut state = view.state;
    let moved = Change::CondemnPacks { packs: Vec::new() };
    store
        .commit(&mut state, &mut |_, _| Ok(vec![moved.clone()]))
        .map(drop)
}
