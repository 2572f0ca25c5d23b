//! Places one file from the pool in a directory: linked, reflinked or copied, as the request says and the system
//! allows.

use std::fs::File;
use std::os::fd::BorrowedFd;

use rustix::fs::{self, AtFlags, Mode};
use rustix::io::Errno;

use super::{LinkMode, MaterializeReport, shown};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Content, Time};
use crate::fs::stamps;
use crate::host::disk;
use crate::host::pool::place::{copy_verified, reflink};
use crate::host::pool::{Placed, Pool, PoolKey};
use crate::remedy::{Note, Remedy};

/// A file to place.
#[derive(Clone, Debug)]
pub(super) struct Placing {
    pub(super) key: PoolKey,
    /// Make a private copy, whatever the link mode.
    pub(super) is_private: bool,
    pub(super) time: Time,
}

/// Places files, and learns which links the system allows.
#[derive(Clone)]
pub(super) struct Placer<'m> {
    pool: &'m Pool,
    mode: LinkMode,
    /// The mode that is used, after `auto` was decided.
    effective: LinkMode,
    /// The permission bits that modes may have.
    access: u32,
}

impl<'m> Placer<'m> {
    pub(super) fn new(pool: &'m Pool, mode: LinkMode, access: u32) -> Self {
        let effective = match mode {
            LinkMode::Auto => LinkMode::Hardlink,
            mode => mode,
        };
        Self {
            pool,
            mode,
            effective,
            access,
        }
    }

    /// Takes over what another placer has learned.
    pub(super) fn learn(&mut self, other: &Self) {
        if self.effective == LinkMode::Hardlink || other.effective == LinkMode::Copy {
            self.effective = other.effective;
        }
    }

    /// The mode of new directories.
    pub(super) fn dir_mode(&self) -> Mode {
        Mode::from_raw_mode(0o777 & self.access)
    }

    /// Whether the file will share its inode with the pool.
    fn is_linked(&self, placing: &Placing) -> bool {
        let is_empty = placing.key.content == Content::empty();
        self.effective == LinkMode::Hardlink && !placing.is_private && !is_empty
    }

    /// Places a file under a name that does not exist. Returns false when the pool does not have it intact.
    pub(super) fn place(
        &mut self,
        placing: &Placing,
        dir: BorrowedFd<'_>,
        name: &[u8],
        report: &mut MaterializeReport,
    ) -> Result<bool> {
        if placing.key.content == Content::empty() {
            let file = self.create(dir, name, placing)?;
            set_time(&file, placing.time, name)?;
            report.copied += 1;
            return Ok(true);
        }
        if let Some(is_there) = self.link(placing, dir, name, report)? {
            return Ok(is_there);
        }
        let Some(source) = self.pool.open_file(&placing.key)? else {
            return Ok(false);
        };
        let file = self.create(dir, name, placing)?;
        let filled = self
            .fill(placing, &source, &file, report)
            .and_then(|is_right| set_time(&file, placing.time, name).map(|()| is_right));
        if !matches!(filled, Ok(true)) {
            disk::forgive(fs::unlinkat(dir, name, AtFlags::empty()));
        }
        filled
    }

    /// Links the file to a name that does not exist, in one step. Returns false when the pool does not have it intact,
    /// and none when it must be copied.
    pub(super) fn link(
        &mut self,
        placing: &Placing,
        dir: BorrowedFd<'_>,
        name: &[u8],
        report: &mut MaterializeReport,
    ) -> Result<Option<bool>> {
        if !self.is_linked(placing) {
            return Ok(None);
        }
        match self.pool.link(&placing.key, dir, name)? {
            Placed::Done => {
                report.linked += 1;
                report.shared_bytes += placing.key.content.size;
                Ok(Some(true))
            }
            Placed::Missing => Ok(Some(false)),
            Placed::Refused(errno) => self.step_down(errno, report).map(|()| None),
        }
    }

    fn create(&self, dir: BorrowedFd<'_>, name: &[u8], placing: &Placing) -> Result<File> {
        let mode = if placing.key.executable { 0o777 } else { 0o666 };
        disk::create(dir, name, mode & self.access).map_err(|errno| {
            disk::failed(
                "create",
                std::path::Path::new(&shown(name).to_string()),
                errno,
            )
        })
    }

    /// Copies a pool file. Returns false when its bytes do not match its name; it is set aside then.
    fn fill(
        &mut self,
        placing: &Placing,
        source: &File,
        file: &File,
        report: &mut MaterializeReport,
    ) -> Result<bool> {
        let size = placing.key.content.size;
        if self.effective == LinkMode::Reflink && !placing.is_private {
            match reflink(source, file) {
                Placed::Refused(errno) => self.step_down(errno, report)?,
                Placed::Done | Placed::Missing => {
                    report.reflinked += 1;
                    report.shared_bytes += size;
                    return Ok(true);
                }
            }
        }
        let is_right = copy_verified(source, file, &placing.key).map_err(|source| {
            Error::io("copy pool file", self.pool.path_of(&placing.key), source)
        })?;
        if !is_right {
            report
                .damaged
                .extend(self.pool.set_wrong_aside(&placing.key)?);
            return Ok(false);
        }
        report.copied += 1;
        Ok(true)
    }

    /// Falls back to the next link mode after a refusal, or fails if the request asked for this mode.
    fn step_down(&mut self, errno: Errno, report: &mut MaterializeReport) -> Result<()> {
        let (what, next) = match self.effective {
            LinkMode::Hardlink => ("hard links", LinkMode::Reflink),
            _ => ("reflinks", LinkMode::Copy),
        };
        let message = format!(
            "pool {}: the system makes no {what} from it to the destination",
            self.pool.path().display()
        );
        let remedy = self.remedy(errno);
        if self.mode != LinkMode::Auto {
            return Err(Error::new(ErrorKind::Denied, message)
                .because(std::io::Error::from(errno))
                .hint(remedy));
        }
        if self.effective == LinkMode::Hardlink {
            let text = format!(
                "files are not hard-linked but reflinked or copied: {message} ({})",
                std::io::Error::from(errno)
            );
            report.notes.push(Note::with(text, remedy));
        }
        self.effective = next;
        Ok(())
    }

    fn remedy(&self, errno: Errno) -> Remedy {
        match (self.effective, errno) {
            (LinkMode::Hardlink, Errno::XDEV) => Remedy::PoolBesideDestination,
            (LinkMode::Hardlink, Errno::PERM | Errno::ACCESS) => Remedy::OwnPoolToLink,
            (LinkMode::Hardlink, _) => Remedy::PoolWithHardLinks,
            _ => Remedy::PoolWithReflinks,
        }
    }
}

fn set_time(file: &File, time: Time, name: &[u8]) -> Result<()> {
    fs::futimens(file, &stamps(time))
        .map_err(|source| Error::io("set the time of", shown(name).to_string(), source.into()))
}
