//! Attributes of a copy's entries: the time of each, and its mode, owner and extended attributes if they were kept and
//! requested.
//!
//! Setuid and setgid bits are set only on files that also get their owner.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{self, AtFlags, Gid, Mode, Uid};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::format::{Keep, Kept, RefSpec, Time, Xattrs};
use crate::host::attributes;
use crate::read::{Found, KeptReader, Reader, TimesReader};

/// Setuid and setgid.
const LENDING: u32 = 0o6000;
/// The group bits of a mode. With an access control list, they are the most that the list grants to anybody it names.
const GROUP: u32 = 0o070;

/// The lists of a version, entry by entry.
pub(super) struct Beside<'g> {
    times: TimesReader<'g>,
    kept: Vec<KeptReader<'g>>,
    /// Extended attributes that were kept but not requested, while modes were. The group bits of a mode then stand for
    /// its access control list, and must be reduced.
    lists: Option<KeptReader<'g>>,
}

/// The attributes of one entry.
#[derive(Clone)]
pub(super) struct Own {
    pub(super) time: Time,
    pub(super) mode: Option<u32>,
    owner: Option<(u32, u32)>,
    xattrs: Xattrs,
    /// Whether the entry had an access control list that was not requested.
    lacks_list: bool,
}

/// Counts attributes that could not be set.
#[derive(Debug, Default)]
pub(super) struct Disowned {
    /// Entries whose owner could not be set.
    owners: AtomicU64,
    /// Extended attributes that could not be set.
    xattrs: AtomicU64,
    /// Entries that got a mode without the access control list that came with it.
    lists: AtomicU64,
}

impl<'g> Beside<'g> {
    /// Opens the lists of the version, at the first entry of `found`.
    pub(super) fn new(
        reader: &'g Reader<'g>,
        found: &Found,
        keep: &[Keep],
        spec: &RefSpec,
    ) -> Result<Self> {
        let mut kept = Vec::new();
        for keep in keep {
            let list = KeptReader::of(reader, *keep, &found.version.sides)?;
            kept.push(list.ok_or_else(|| {
                let message = format!("{}@{}: has no {keep} to keep", spec.name, found.number);
                Error::not_found(message).hint("it was put without them: get it without them, too")
            })?);
        }
        let times = TimesReader::of(reader, &found.version)?;
        let is_half = keep.contains(&Keep::Modes) && !keep.contains(&Keep::Xattrs);
        let lists = is_half
            .then(|| KeptReader::of(reader, Keep::Xattrs, &found.version.sides))
            .transpose()?
            .flatten();
        let mut beside = Self { times, kept, lists };
        beside.skip(found.entries_before)?;
        Ok(beside)
    }

    pub(super) fn skip(&mut self, entries: u64) -> Result<()> {
        self.times.skip(entries)?;
        let mut all = self.kept.iter_mut().chain(&mut self.lists);
        all.try_for_each(|kept| kept.skip(entries))
    }

    pub(super) fn next(&mut self) -> Result<Own> {
        let mut own = Own {
            time: self.times.next()?,
            mode: None,
            owner: None,
            xattrs: Xattrs::new(),
            lacks_list: false,
        };
        for kept in &mut self.kept {
            match kept.next()? {
                Kept::Mode(mode) => own.mode = Some(mode),
                Kept::Owner(user, group) => own.owner = Some((user, group)),
                Kept::Xattrs(xattrs) => own.xattrs = xattrs,
            }
        }
        let unasked = match self.lists.as_mut().map(KeptReader::next).transpose()? {
            Some(Kept::Xattrs(xattrs)) => attributes::rights_of_group(&xattrs),
            _ => None,
        };
        own.lacks_list = unasked.is_some();
        // If the list is restored, this loses nothing: setting the list sets these bits, too. If it cannot be set, they
        // stay reduced.
        let group = unasked.or_else(|| attributes::rights_of_group(&own.xattrs));
        if let (Some(mode), Some(group)) = (&mut own.mode, group) {
            *mode &= !GROUP | group << 3;
        }
        Ok(own)
    }
}

impl Own {
    /// Whether there is anything except a time.
    pub(super) fn is_kept(&self) -> bool {
        self.mode.is_some() || self.owner.is_some() || !self.xattrs.is_empty()
    }

    /// Sets the owner, mode and attributes of an open file.
    pub(super) fn dress(&self, file: impl AsFd, disowned: &Disowned) -> rustix::io::Result<()> {
        let file = file.as_fd();
        let is_owned = self.give(disowned, |user, group| fs::fchown(file, user, group))?;
        if let Some(mode) = self.mode {
            let mode = if is_owned { mode } else { mode & !LENDING };
            fs::fchmod(file, Mode::from_raw_mode(mode))?;
        }
        self.give_xattrs(file, disowned)
    }

    /// Sets extended attributes. Must follow the mode, since an access control list says more than the mode.
    fn give_xattrs(&self, to: BorrowedFd<'_>, disowned: &Disowned) -> rustix::io::Result<()> {
        let lists = u64::from(self.lacks_list);
        disowned.lists.fetch_add(lists, Ordering::Relaxed);
        let refused = attributes::give(to, &self.xattrs)?;
        disowned.xattrs.fetch_add(refused, Ordering::Relaxed);
        Ok(())
    }

    /// Does the same for an open directory; its setgid bit only selects the group of new entries, so it is always set.
    pub(super) fn dress_directory(
        &self,
        dir: impl AsFd,
        disowned: &Disowned,
    ) -> rustix::io::Result<()> {
        let dir = dir.as_fd();
        self.give(disowned, |user, group| fs::fchown(dir, user, group))?;
        if let Some(mode) = self.mode {
            fs::fchmod(dir, Mode::from_raw_mode(mode))?;
        }
        self.give_xattrs(dir, disowned)
    }

    /// Does the same for a symlink, which has no mode of its own.
    pub(super) fn dress_symlink(
        &self,
        (dir, path): (BorrowedFd<'_>, &[u8]),
        disowned: &Disowned,
    ) -> rustix::io::Result<()> {
        let chown = |user, group| fs::chownat(dir, path, user, group, AtFlags::SYMLINK_NOFOLLOW);
        self.give(disowned, chown).map(drop)
    }

    /// Sets user and group, or only the group if the user may not be changed. Returns whether both are as kept.
    fn give(
        &self,
        disowned: &Disowned,
        chown: impl Fn(Option<Uid>, Option<Gid>) -> rustix::io::Result<()>,
    ) -> rustix::io::Result<bool> {
        let Some((user, group)) = self.owner else {
            return Ok(false);
        };
        let group = Some(Gid::from_raw(group));
        match chown(Some(Uid::from_raw(user)), group) {
            // Only root can give files away; in a user namespace some ids have no meaning.
            Err(Errno::PERM | Errno::INVAL) => {}
            done => return done.map(|()| true),
        }
        disowned.owners.fetch_add(1, Ordering::Relaxed);
        match chown(None, group) {
            Err(Errno::PERM | Errno::INVAL) => Ok(false),
            done => done.map(|()| false),
        }
    }
}

impl Disowned {
    /// The notes about what could not be set.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let (owners, xattrs, lists) = (&self.owners, &self.xattrs, &self.lists);
        match owners.load(Ordering::Relaxed) {
            0 => {}
            count => notes.push(format!(
                "{count} entries belong to you and not to their owners, whom only root can make them belong to; \
                 their groups are those that were kept where you are a member"
            )),
        }
        match xattrs.load(Ordering::Relaxed) {
            0 => {}
            count => notes.push(format!(
                "{count} extended attributes could not be given: the file system has none of that kind, or no room for them"
            )),
        }
        match lists.load(Ordering::Relaxed) {
            0 => {}
            count => notes.push(format!(
                "{count} entries had access control lists, which were not asked for: their groups may do what these let them, and \
                 who is named in one is let in or kept out by it no more"
            )),
        }
        notes
    }
}
