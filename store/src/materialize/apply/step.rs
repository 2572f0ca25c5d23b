//! One step of a plan: a few system calls, after a check of the claim and of what is about to be replaced.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{self, AtFlags, FileType, RenameFlags};
use rustix::io::Errno;

use super::*;
use crate::error::{Error, Result};
use crate::format::Time;
use crate::fs::stamps;
use crate::host::walk::Stat;
use crate::materialize::diff::{Seen, Why};
use crate::materialize::shown;

/// The name in the room of a thing that is made.
const NEXT: &str = "next";

impl Apply<'_> {
    /// Makes or replaces a file or symlink. Returns false when the pool lacks the file.
    pub(super) fn place_one(&mut self, dir: &[Vec<u8>], name: &[u8], op: &Op) -> Result<bool> {
        match op {
            Op::Make(thing, _, true) => {
                (self.fence)()?;
                self.is_begun = true;
                let at = self.trail.go(dir)?;
                if let Thing::Symlink { target, time } = thing {
                    return make_symlink(at, name, target, *time).map(|()| true);
                }
                let Some(placing) = placing(thing) else {
                    return Ok(true);
                };
                if self.is_unseen {
                    return self.placer.place(&placing, at, name, &mut self.report);
                }
                match self.placer.link(&placing, at, name, &mut self.report)? {
                    Some(is_there) => Ok(is_there),
                    None => self.by_rename(dir, name, thing, None),
                }
            }
            Op::Make(thing, ..) => self.by_rename(dir, name, thing, None),
            Op::Replace(thing, seen) => self.by_rename(dir, name, thing, Some(seen)),
            _ => Ok(true),
        }
    }

    /// Makes a thing in the room and renames it into place, so that nobody sees it half done.
    fn by_rename(
        &mut self,
        dir: &[Vec<u8>],
        name: &[u8],
        thing: &Thing,
        seen: Option<&Seen>,
    ) -> Result<bool> {
        let room = self.room.as_fd();
        disk::forgive(fs::unlinkat(room, NEXT, AtFlags::empty()));
        match thing {
            Thing::Symlink { target, time } => make_symlink(room, NEXT.as_bytes(), target, *time)?,
            thing => {
                let Some(placing) = placing(thing) else {
                    return Ok(true);
                };
                let placed =
                    self.placer
                        .place(&placing, room, NEXT.as_bytes(), &mut self.report)?;
                if !placed {
                    return Ok(false);
                }
            }
        }
        (self.fence)()?;
        self.is_begun = true;
        let at = self.trail.go(dir)?;
        let failed = |errno| failed("rename into place", dir, name, errno);
        if let Some(seen) = seen {
            if self::seen(at, name).map_err(failed)?.as_ref() != Some(seen) {
                return self.kept(dir, name).map(|()| true);
            }
            fs::renameat(room, NEXT, at, name).map_err(failed)?;
            self.report.updated += 1;
            return Ok(true);
        }
        match fs::renameat_with(room, NEXT, at, name, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => self.kept(dir, name).map(|()| true),
            // Not every file system can rename without replacing.
            Err(Errno::INVAL) if self::seen(at, name).map_err(failed)?.is_none() => {
                fs::renameat(room, NEXT, at, name).map_err(failed)?;
                Ok(true)
            }
            Err(Errno::INVAL) => self.kept(dir, name).map(|()| true),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Takes a step of any other kind.
    pub(super) fn step(&mut self, dir: &[Vec<u8>], name: &[u8], op: &Op) -> Result<()> {
        (self.fence)()?;
        self.is_begun = true;
        let at = self.trail.go(dir)?;
        match op {
            Op::MakeDir => match fs::mkdirat(at, name, self.placer.dir_mode()) {
                Ok(()) | Err(Errno::EXIST) => Ok(()),
                Err(errno) => Err(failed("create directory", dir, name, errno)),
            },
            Op::Touch(time, seen) => {
                if self::seen(at, name).ok().flatten().as_ref() == Some(seen) {
                    set_time(at, name, *time)?;
                }
                Ok(())
            }
            Op::Remove(seen, _) => self.remove(dir, name, seen),
            Op::RemoveDir(_) => self.remove_dir(dir, name),
            Op::RemoveAll(_) => {
                disk::remove_tree(at, name).map_err(|errno| failed("remove", dir, name, errno))?;
                self.report.removed += 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn remove(&mut self, dir: &[Vec<u8>], name: &[u8], seen: &Seen) -> Result<()> {
        let at = self.trail.go(dir)?;
        let failed = |errno| failed("remove", dir, name, errno);
        match self::seen(at, name).map_err(failed)? {
            None => return Ok(()),
            Some(found) if found != *seen => return self.kept(dir, name),
            Some(_) => {}
        }
        match fs::unlinkat(at, name, AtFlags::empty()) {
            Ok(()) => self.report.removed += 1,
            Err(Errno::NOENT) => {}
            // A job has put a directory there, which stays.
            Err(Errno::ISDIR | Errno::PERM) => return self.kept(dir, name),
            Err(errno) => return Err(failed(errno)),
        }
        Ok(())
    }

    fn remove_dir(&mut self, dir: &[Vec<u8>], name: &[u8]) -> Result<()> {
        let at = self.trail.go(dir)?;
        match fs::unlinkat(at, name, AtFlags::REMOVEDIR) {
            Ok(()) => self.report.removed += 1,
            Err(Errno::NOENT) => {}
            // A job has put something into it meanwhile.
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => return self.kept(dir, name),
            Err(errno) => return Err(failed("remove", dir, name, errno)),
        }
        Ok(())
    }

    /// Sets the time of a directory, unless it is right. That of another user's directory only they can set.
    pub(super) fn settle(&mut self, way: &[Vec<u8>], time: Time) -> Result<()> {
        (self.fence)()?;
        let at = self.trail.go(way)?;
        let failed = |errno| failed("set the time of", way, b"", errno);
        let stat = fs::fstat(at).map_err(failed)?;
        let is_own = stat.st_uid == crate::host::trust::user();
        if Stat::from(stat).mtime == time {
            return Ok(());
        }
        match fs::futimens(at, &stamps(time)) {
            Err(Errno::PERM) if !is_own => Ok(()),
            set => set.map_err(failed),
        }
    }

    /// Reports a path that stays because a job changed it first.
    fn kept(&mut self, dir: &[Vec<u8>], name: &[u8]) -> Result<()> {
        let way: Vec<&[u8]> = dir.iter().map(Vec::as_slice).chain([name]).collect();
        self.is_overtaken = true;
        self.report.keep(way.join(&b'/'), Why::Changed);
        Ok(())
    }
}

/// What a file or symlink looks like; none, if there is nothing. A directory never matches what was planned.
fn seen(dir: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<Option<Seen>> {
    match fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
            Ok(Some(Seen::default()))
        }
        Ok(stat) => Ok(Some(Seen::of(&stat.into()))),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn make_symlink(dir: BorrowedFd<'_>, name: &[u8], target: &[u8], time: Time) -> Result<()> {
    fs::symlinkat(target, dir, name).map_err(|errno| {
        disk::failed("create symlink", Path::new(&shown(name).to_string()), errno)
    })?;
    set_time(dir, name, time)
}

fn set_time(dir: BorrowedFd<'_>, name: &[u8], time: Time) -> Result<()> {
    fs::utimensat(dir, name, &stamps(time), AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|source| Error::io("set the time of", shown(name).to_string(), source.into()))
}

/// The error of a step. With an empty name, of the directory itself.
fn failed(doing: &str, dir: &[Vec<u8>], name: &[u8], errno: Errno) -> Error {
    let names = dir.iter().map(Vec::as_slice).chain([name]);
    let way: Vec<&[u8]> = names.filter(|name| !name.is_empty()).collect();
    let way = match way.join(&b'/') {
        root if root.is_empty() => b".".to_vec(),
        way => way,
    };
    disk::failed(doing, Path::new(&shown(&way).to_string()), errno)
}
