//! Whose is the file that is there? It is as wanted, as the store made it, or changed by a job.
//!
//! A linked file is known by its inode, or by its bytes where the pool has another one by now. A private copy that has
//! the size and time with which it was made, and that nothing has touched since the tree was settled, needs no reading;
//! any other is read before it is taken for a job's.

use rustix::fs::FileType;

use super::{Lies, Options};
use crate::error::Result;
use crate::host::pool::{POOL_TIME, PoolKey, is_intact};
use crate::host::walk::Stat;
use crate::materialize::list::Thing;
use crate::materialize::records::Candidates;

/// Whose something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::materialize) enum Whose {
    /// As the version wants it.
    Wanted,
    /// As the store made it for another version, or a pool file that somebody wrote to through a link.
    Made,
    /// A job's.
    Jobs,
}

/// Judges what lies under `name` where `wanted` is to be.
pub(in crate::materialize) fn judge(
    lies: &mut dyn Lies,
    options: &Options,
    (name, found): (&[u8], &Stat),
    wanted: Option<&Thing>,
    candidates: &Candidates,
) -> Result<Whose> {
    if let Some(Thing::File {
        key,
        is_private: false,
        ..
    }) = wanted
        && is_broken_link(lies, key, found)?
    {
        return Ok(Whose::Made);
    }
    if let Some(wanted) = wanted
        && is_wanted(lies, options, (name, found), wanted, candidates)?
    {
        return Ok(Whose::Wanted);
    }
    for (thing, _) in &candidates.things {
        if is_made(lies, (name, found), thing, candidates)? {
            return Ok(Whose::Made);
        }
    }
    let looks_pooled = kind(found) == FileType::RegularFile
        && found.mtime == POOL_TIME
        && matches!(found.mode & 0o7777, 0o444 | 0o555)
        && found.nlink > 1;
    // Nothing is known of the tree, but nobody else makes such files, and no bytes go with this name.
    if options.is_unknown && looks_pooled && wanted.is_some() {
        return Ok(Whose::Made);
    }
    Ok(Whose::Jobs)
}

/// Whether it is a pool file that somebody changed through one of its links, be it no more than its mode: taken for a
/// copy, it would be one that other trees share.
fn is_broken_link(lies: &mut dyn Lies, key: &PoolKey, found: &Stat) -> Result<bool> {
    let may_be = kind(found) == FileType::RegularFile && found.nlink > 1 && !is_intact(key, found);
    Ok(may_be && lies.is_written_through(key, found)?)
}

fn kind(found: &Stat) -> FileType {
    FileType::from_raw_mode(found.mode)
}

fn is_wanted(
    lies: &mut dyn Lies,
    options: &Options,
    (name, found): (&[u8], &Stat),
    wanted: &Thing,
    candidates: &Candidates,
) -> Result<bool> {
    match wanted {
        Thing::Symlink { target, .. } => {
            Ok(kind(found) == FileType::Symlink && lies.target(name)? == *target)
        }
        Thing::File {
            key, is_private, ..
        } if kind(found) == FileType::RegularFile => {
            let is_linked = !is_private && options.links;
            if is_intact(key, found) && (!candidates.is_empty() || lies.is_pooled(key, found)?) {
                return Ok(is_linked && lies.is_pooled(key, found)?);
            }
            let takes_copies = *is_private || options.takes_copies;
            Ok(takes_copies && is_copy(lies, (name, found), key, candidates)?)
        }
        _ => Ok(false),
    }
}

fn is_made(
    lies: &mut dyn Lies,
    (name, found): (&[u8], &Stat),
    thing: &Thing,
    candidates: &Candidates,
) -> Result<bool> {
    match thing {
        Thing::Symlink { target, .. } => {
            Ok(kind(found) == FileType::Symlink && lies.target(name)? == *target)
        }
        Thing::File {
            key,
            is_private,
            time,
        } if kind(found) == FileType::RegularFile => Ok(is_pool_file(lies, (name, found), key)?
            || (!is_private && lies.is_written_through(key, found)?)
            || is_copy(lies, (name, found), key, candidates)?
            // As it was made, but for its bytes, or some of them: a power cut took them. Whoever shortens a file
            // changes its time.
            || (found.mtime == *time && found.size <= key.content.size && lies.may_be_torn())),
        _ => Ok(false),
    }
}

/// Whether it is the pool's file of `key`. What only looks like it may be that of another content, which a job moved or
/// linked here, or a job's own: where the pool has another inode by now, or none, the bytes tell.
fn is_pool_file(lies: &mut dyn Lies, (name, found): (&[u8], &Stat), key: &PoolKey) -> Result<bool> {
    Ok(is_intact(key, found)
        && (lies.is_pooled(key, found)? || lies.has_bytes(name, &key.content)?))
}

/// Whether a file of its own has the bytes of `key`.
fn is_copy(
    lies: &mut dyn Lies,
    (name, found): (&[u8], &Stat),
    key: &PoolKey,
    candidates: &Candidates,
) -> Result<bool> {
    if found.size != key.content.size || found.is_executable() != key.executable {
        return Ok(false);
    }
    let is_as_made = candidates.things.iter().any(|(thing, is_settled)| {
        matches!(thing, Thing::File { key: made, time, .. } if made == key && *time == found.mtime)
            && *is_settled
    });
    if is_as_made && lies.is_untouched(found) {
        return Ok(true);
    }
    lies.has_bytes(name, &key.content)
}
