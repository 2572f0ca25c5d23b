//! Whether a file is as wanted, as the store made it, or changed by a job.
//!
//! A linked file is recognized by its inode, or by its bytes if the pool has another inode by now; all of them have one
//! time, which proves nothing. A private copy with the size and time with which it was made is not read if nothing has
//! touched it, or moved it with its directory, since the tree was settled. Any other file is read before it counts as a
//! job's.

use rustix::fs::FileType;

use super::{Lies, Options};
use crate::error::Result;
use crate::host::pool::{POOL_TIME, PoolKey, is_intact};
use crate::host::walk::Stat;
use crate::materialize::list::Thing;
use crate::materialize::records::Candidates;

/// The origin of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::materialize) enum Whose {
    /// It is as the version wants it.
    Wanted,
    /// The store made it for another version, or it is a pool file that somebody wrote to through a link.
    Made,
    /// A job made or changed it.
    Jobs,
}

/// Judges the file under `name`, where `wanted` is to be.
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
    for thing in &candidates.things {
        if is_made(lies, (name, found), thing, candidates)? {
            return Ok(Whose::Made);
        }
    }
    let looks_pooled = kind(found) == FileType::RegularFile
        && found.mtime == POOL_TIME
        && matches!(found.mode & 0o7777, 0o444 | 0o555)
        && found.nlink > 1;
    // Nothing is known of the tree, but only pools make such files, and the bytes have other names.
    if options.is_unknown && looks_pooled && wanted.is_some() {
        return Ok(Whose::Made);
    }
    Ok(Whose::Jobs)
}

/// Whether the file is a pool file that somebody changed through one of its links, even if only its mode. It must not
/// pass for a copy, since other trees share it.
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
    (thing, is_settled): &(Thing, bool),
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
        } if kind(found) == FileType::RegularFile => {
            if !is_private && lies.is_written_through(key, found)? {
                return Ok(true);
            }
            // A file that only looks like the pool's file may have another content that a job moved or linked here. So
            // if the pool has another inode by now, or none, the bytes decide.
            if is_intact(key, found) {
                return Ok(lies.is_pooled(key, found)? || lies.has_bytes(name, &key.content)?);
            }
            // As it was made, except that a power cut took some or all of its bytes. Anyone who shortens a file changes
            // its time; who moves one touches it. What trees link is on the disk before.
            let is_torn = found.mtime == *time
                && *time != POOL_TIME
                && found.size <= key.content.size
                && lies.may_be_torn(found, *is_settled);
            Ok(is_torn || is_copy(lies, (name, found), key, candidates)?)
        }
        _ => Ok(false),
    }
}

/// Whether the file has the bytes of `key` in an inode of its own.
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
            && found.mtime != POOL_TIME
            && *is_settled
    });
    if is_as_made && lies.is_untouched(found) {
        return Ok(true);
    }
    lies.has_bytes(name, &key.content)
}
