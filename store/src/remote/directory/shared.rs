//! What is made in a store that a group shares: it has the store's mode before it has its name, whatever the umask is.
//! So nobody of the group ever meets what they may not read, even if its writer was killed.
//!
//! A file is written under a name like those that object_store stages files under (`name#1`), which no listing of
//! objects shows; then it is linked or renamed. A directory is made empty under such a name.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{self, AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::way::TO_LIST;

/// Small writes are collected up to this many bytes.
const COLLECTED: usize = 1 << 20;

/// What to do if there is an object of that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::remote) enum Taken {
    Fail,
    Replace,
}

/// A file that does not have its name yet. It is removed unless it gets it.
#[derive(Debug)]
pub(in crate::remote) struct Staged {
    above: OwnedFd,
    name: OsString,
    staged: OsString,
    file: BufWriter<File>,
    is_staged: bool,
}

impl Staged {
    /// Begins the file `name` in an open directory of a store whose root has the mode `root`. Whoever reads the root may
    /// read the file. Objects never change, so nobody else needs write access.
    pub(super) fn new(above: OwnedFd, name: &str, root: u32) -> io::Result<Self> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let name = OsString::from(name);
        let (staged, made) = numbered(&name, |staged| {
            fs::openat(&above, staged, flags, Mode::from_raw_mode(0o666))
        })?;
        let staged = Self {
            above,
            name,
            staged,
            file: BufWriter::with_capacity(COLLECTED, File::from(made)),
            is_staged: true,
        };
        let file = staged.file.get_ref();
        let mode = fs::fstat(file)?.st_mode;
        let wanted = (mode & 0o7770) | 0o040 | (root & 0o004);
        if mode & 0o7777 != wanted {
            fs::fchmod(file, Mode::from_raw_mode(wanted))?;
        }
        Ok(staged)
    }

    pub(in crate::remote) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    /// Gives the file its name, durably.
    pub(in crate::remote) fn publish(mut self, taken: Taken) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().sync_all()?;
        self.name(taken)?;
        let above = fs::openat(&self.above, ".", TO_LIST, Mode::empty())?;
        Ok(fs::fsync(above)?)
    }

    /// Gives an empty file its name, unless there is one. It may be lost in a power cut.
    pub(super) fn show(mut self) -> io::Result<()> {
        self.name(Taken::Fail)
    }

    fn name(&mut self, taken: Taken) -> io::Result<()> {
        let (above, staged, name) = (&self.above, &self.staged, &self.name);
        match taken {
            Taken::Fail => fs::linkat(above, staged, above, name, AtFlags::empty())?,
            Taken::Replace => {
                fs::renameat(above, staged, above, name)?;
                self.is_staged = false;
            }
        }
        Ok(())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if self.is_staged {
            // What is left is found as the files of dead writers are.
            let _left = fs::unlinkat(&self.above, &self.staged, AtFlags::empty());
        }
    }
}

/// Makes the directory `name` in an open directory, with exactly this mode.
pub(super) fn make_directory(at: &OwnedFd, name: &OsStr, mode: u32) -> rustix::io::Result<()> {
    if fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        return Err(Errno::EXIST);
    }
    let usual = Mode::from_raw_mode(0o777);
    let (staged, ()) = numbered(name, |staged| fs::mkdirat(at, staged, usual))?;
    let made = named_directory(at, (&staged, name), mode);
    if made.is_err() {
        // An empty directory of no key does no harm.
        let _left = fs::unlinkat(at, &staged, AtFlags::REMOVEDIR);
    }
    made
}

fn named_directory(
    at: impl AsFd,
    (staged, name): (&OsStr, &OsStr),
    mode: u32,
) -> rustix::io::Result<()> {
    let made = fs::openat(&at, staged, TO_LIST | OFlags::NOFOLLOW, Mode::empty())?;
    fs::fchmod(made, Mode::from_raw_mode(mode))?;
    match fs::renameat_with(&at, staged, &at, name, RenameFlags::NOREPLACE) {
        // Where that is not supported: a rename replaces an empty directory only, and its writer makes it again.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            match fs::renameat(&at, staged, &at, name) {
                Err(Errno::NOTEMPTY | Errno::NOTDIR) => Err(Errno::EXIST),
                renamed => renamed,
            }
        }
        renamed => renamed,
    }
}

/// Makes something under the first of the names `name#1`, `name#2` and so on that is free.
fn numbered<T>(
    name: &OsStr,
    make: impl Fn(&OsStr) -> rustix::io::Result<T>,
) -> rustix::io::Result<(OsString, T)> {
    let mut number = 1_u64;
    loop {
        let mut staged = name.to_owned();
        staged.push(format!("#{number}"));
        match make(&staged) {
            Err(Errno::EXIST) => number = number.saturating_add(1),
            made => return made.map(|made| (staged, made)),
        }
    }
}
