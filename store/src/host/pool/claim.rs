//! Claims: one process builds a missing file, and the others wait, or take over when it dies.
//!
//! A claim is a hard link to the owner's file under the name of the key. Safety never depends on it: two builders of
//! one key end with the same bytes under the same name.

use std::sync::Arc;

use rustix::fs::{self, AtFlags};
use rustix::io::Errno;

use super::owner::{Owner, Watch};
use super::{Pool, disk};
use crate::error::Result;

/// A claim that is held until it is dropped.
#[derive(Debug)]
pub(crate) struct Claim<'p> {
    pool: &'p Pool,
    name: String,
    owner: Arc<Owner>,
}

impl Claim<'_> {
    /// Whether this process still holds the claim. After a long suspension, another process may have taken over.
    pub(crate) fn is_held(&self) -> bool {
        fs::statat(&self.pool.claims, &self.name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| stat.st_ino == self.owner.inode)
    }
}

/// The result of an attempt to claim.
#[derive(Debug)]
pub(crate) enum Claimed<'p> {
    /// This process may work. There is no claim if the file system has no hard links; then work may be done twice.
    Mine(Option<Claim<'p>>),
    /// Somebody else holds the claim.
    Taken,
}

impl Pool {
    /// Claims `name`, a pool file or a tree.
    pub(crate) fn claim(&self, name: &str) -> Result<Claimed<'_>> {
        let mut owner = self.owner()?;
        let mut linked = self.link_claim(&owner, name);
        if linked == Err(Errno::NOENT) {
            // Others took this process for dead while it was suspended, so it continues as a new owner.
            owner = self.owner_after(&owner)?;
            linked = self.link_claim(&owner, name);
        }
        match linked {
            Ok(()) => Ok(Claimed::Mine(Some(Claim {
                pool: self,
                name: name.to_owned(),
                owner,
            }))),
            Err(Errno::EXIST) => Ok(Claimed::Taken),
            Err(Errno::MLINK | Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::XDEV) => {
                Ok(Claimed::Mine(None))
            }
            Err(errno) => Err(disk::failed("claim in pool", &self.path, errno)),
        }
    }

    fn link_claim(&self, owner: &Owner, name: &str) -> rustix::io::Result<()> {
        fs::linkat(&self.fd, owner.file(), &self.claims, name, AtFlags::empty())
    }

    /// Removes the claim `name` if its owner has died. Returns whether the name is free now.
    pub(crate) fn break_claim(&self, name: &str, watch: &mut Watch) -> Result<bool> {
        if !watch.is_dead(&self.claims, name) {
            return Ok(false);
        }
        let owner = self.owner()?;
        let taken = format!("claim-{}", disk::random_name()?);
        match fs::renameat(&self.claims, name, &owner.temporaries, &taken) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(true),
            Err(errno) => return Err(disk::failed("break a claim in pool", &self.path, errno)),
        }
        if !watch.is_dead(&owner.temporaries, &taken) {
            // Another process was faster and has claimed it again: restore its claim, unless there is yet another one.
            disk::forgive(fs::linkat(
                &owner.temporaries,
                &taken,
                &self.claims,
                name,
                AtFlags::empty(),
            ));
        }
        disk::forgive(fs::unlinkat(&owner.temporaries, &taken, AtFlags::empty()));
        Ok(true)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        // If another process took over, the claim is left to it. A claim that stays is removed when this process has
        // ended.
        if self.is_held() {
            disk::forgive(fs::unlinkat(
                &self.pool.claims,
                &self.name,
                AtFlags::empty(),
            ));
        }
    }
}
