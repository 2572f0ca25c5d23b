//! A regular file of the copy: how it is opened, and which attributes it gets when it is complete.

use std::fs::File;

use rustix::fs::{self, Mode, OFlags};

use super::beside::{Disowned, Own};
use super::place::{CopyPlace, Ground};
use crate::error::Result;
use crate::fs::stamps;
use crate::progress::Progress;
use crate::read::fetch::Sink;

/// The permission bits that new files and directories may have; the umask reduces them further.
#[derive(Clone, Copy)]
pub(super) struct Access {
    pub(super) bits: u32,
}

/// A regular file of the copy.
pub(super) struct FileSink<'g> {
    pub(super) ground: &'g Ground,
    pub(super) place: CopyPlace,
    pub(super) executable: bool,
    pub(super) access: Access,
    pub(super) own: Own,
    pub(super) disowned: &'g Disowned,
    pub(super) progress: &'g dyn Progress,
}

impl Access {
    pub(super) fn mode(self, mode: u32) -> Mode {
        Mode::from_raw_mode(mode & self.bits)
    }
}

impl FileSink<'_> {
    fn open_with(&self, doing: &str, flags: OFlags) -> Result<File> {
        let usual = if self.executable { 0o777 } else { 0o666 };
        // The mode is never wider than the final one, from the first byte on.
        let mode = self.own.mode.map_or(usual, |mode| mode | 0o600);
        let flags = flags | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        self.ground
            .at(&self.place, |dir, path| {
                fs::openat(dir, path, flags, self.access.mode(mode))
            })
            .map(File::from)
            .map_err(|errno| self.ground.failed(doing, &self.place, errno))
    }
}

impl Sink for FileSink<'_> {
    fn open(&self) -> Result<File> {
        self.open_with("create", OFlags::CREATE | OFlags::EXCL)
    }

    fn can_open_again(&self) -> bool {
        true
    }

    fn open_again(&self) -> Result<File> {
        self.open_with("open", OFlags::empty())
    }

    fn written(&self, bytes: u64) {
        self.progress.advance(0, bytes);
    }

    fn finish(&self, file: &File) -> Result<()> {
        self.progress.advance(1, 0);
        if self.own.is_kept() {
            self.own
                .dress(file, self.disowned)
                .map_err(|errno| self.ground.failed("set the mode of", &self.place, errno))?;
        }
        fs::futimens(file, &stamps(self.own.time))
            .map_err(|errno| self.ground.failed("set the time of", &self.place, errno))
    }

    fn name(&self) -> String {
        self.ground.shown(&self.place).display().to_string()
    }
}
