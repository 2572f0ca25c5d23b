//! What belongs to an entry of a copy beside its bytes: its time, and its mode, owner and extended attributes where they
//! were kept and are asked for.
//!
//! Bits that give somebody's rights to whoever runs a file are set only with their owner.

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
/// What a mode grants to the group; where there is an access control list, the most that this grants to anybody named in it.
const GROUP: u32 = 0o070;

/// The lists of a version, entry by entry.
pub(super) struct Beside<'g> {
    times: TimesReader<'g>,
    kept: Vec<KeptReader<'g>>,
    /// Extended attributes that were kept and are not asked for, while modes are: a mode says what the list that it comes with
    /// says, and not all of it.
    lists: Option<KeptReader<'g>>,
}

/// What belongs to one entry.
#[derive(Clone)]
pub(super) struct Own {
    pub(super) time: Time,
    pub(super) mode: Option<u32>,
    owner: Option<(u32, u32)>,
    xattrs: Xattrs,
    /// It had an access control list, which was not asked for.
    lacks_list: bool,
}

/// What could not be given.
#[derive(Debug, Default)]
pub(super) struct Disowned {
    /// Entries whose owner could not.
    owners: AtomicU64,
    /// Extended attributes.
    xattrs: AtomicU64,
    /// Entries that have a mode without the access control list that it came with.
    lists: AtomicU64,
}

impl<'g> Beside<'g> {
    /// The lists of `found`, from its first entry on.
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
        // With the list it is no less: who sets it sets these bits, too. Where it cannot be set they stay.
        let group = unasked.or_else(|| attributes::rights_of_group(&own.xattrs));
        if let (Some(mode), Some(group)) = (&mut own.mode, group) {
            *mode &= !GROUP | group << 3;
        }
        Ok(own)
    }
}

impl Own {
    /// Whether there is anything but a time.
    pub(super) fn is_kept(&self) -> bool {
        self.mode.is_some() || self.owner.is_some() || !self.xattrs.is_empty()
    }

    /// Gives an open file its owner and mode.
    pub(super) fn dress(&self, file: impl AsFd, disowned: &Disowned) -> rustix::io::Result<()> {
        let file = file.as_fd();
        let is_owned = self.give(disowned, |user, group| fs::fchown(file, user, group))?;
        if let Some(mode) = self.mode {
            let mode = if is_owned { mode } else { mode & !LENDING };
            fs::fchmod(file, Mode::from_raw_mode(mode))?;
        }
        self.give_xattrs(file, disowned)
    }

    /// Behind the mode: an access control list says more than that.
    fn give_xattrs(&self, to: BorrowedFd<'_>, disowned: &Disowned) -> rustix::io::Result<()> {
        let lists = u64::from(self.lacks_list);
        disowned.lists.fetch_add(lists, Ordering::Relaxed);
        let refused = attributes::give(to, &self.xattrs)?;
        disowned.xattrs.fetch_add(refused, Ordering::Relaxed);
        Ok(())
    }

    /// The same for an open directory, where setgid only says whose group new entries have.
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

    /// The same for a symlink, which has no mode of its own.
    pub(super) fn dress_symlink(
        &self,
        (dir, path): (BorrowedFd<'_>, &[u8]),
        disowned: &Disowned,
    ) -> rustix::io::Result<()> {
        let chown = |user, group| fs::chownat(dir, path, user, group, AtFlags::SYMLINK_NOFOLLOW);
        self.give(disowned, chown).map(drop)
    }

    /// Changes user and group, or the group alone where the user may not be changed; whether both are as they were kept.
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
            // Without root, nothing can be given away; in a user namespace not every number has a meaning.
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
    /// What should be known of it.
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
