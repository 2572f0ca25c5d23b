//! Records of what was made in trees, as files of the pool: one for each settled tree, and one more for every update
//! that is under way or was interrupted.
//!
//! A tree is not settled if it has records besides the one that its mark names. Only a process that repairs the tree
//! removes records, after it has read them.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{self, FileType, Mode};
use rustix::io::Errno;

use super::trees::{Mark, mark_name};
use super::{Pool, disk};
use crate::error::{Error, Result};
use crate::format::Time;
use crate::host::pool::list::{ListReader, Thing, checksum};

/// The directory of records; made when the first one is written.
const MADE: &str = "made";
/// A symlink whose text is the time at which a tree was settled, and the name of the record that says as what.
const AT: &str = "at";

fn is_of(stat: &fs::Stat, kind: FileType) -> bool {
    FileType::from_raw_mode(stat.st_mode) == kind
}

impl Pool {
    /// The names of the records of the tree at `path`.
    pub(crate) fn records(&self, path: &Path) -> Result<Vec<String>> {
        let dir = format!("{MADE}/{}", mark_name(path));
        let dir = match disk::open_dir(self.fd(), dir.as_bytes()) {
            Ok(dir) => dir,
            Err(Errno::NOENT) => return Ok(Vec::new()),
            Err(errno) => return Err(self.misplaced(&dir, errno)),
        };
        let names = disk::names(&dir, self.path())?.into_iter();
        let mut names: Vec<String> = names
            .filter_map(|name| String::from_utf8(name).ok())
            .filter(|name| name != AT)
            .collect();
        names.sort_unstable();
        Ok(names)
    }

    /// The error about something in the place of the directories of records.
    fn misplaced(&self, dir: &str, errno: Errno) -> Error {
        let path = [MADE, dir].map(|name| self.path().join(name));
        let is_wrong =
            |path: &&PathBuf| fs::lstat(*path).is_ok_and(|stat| !is_of(&stat, FileType::Directory));
        match path.iter().find(is_wrong) {
            Some(wrong) => Error::corrupt(format!(
                "{}: expected a directory of the pool, found something else",
                wrong.display()
            ))
            .hint("remove it, and run it again: what it said of trees is computed again"),
            None => disk::failed("open", &self.path().join(dir), errno),
        }
    }

    /// The path of a record.
    pub(crate) fn record_path(&self, path: &Path, name: &str) -> PathBuf {
        self.path().join(MADE).join(mark_name(path)).join(name)
    }

    /// Opens a record; none, if it is missing or no regular file.
    pub(crate) fn record(&self, path: &Path, name: &str) -> Result<Option<File>> {
        let record = format!("{MADE}/{}/{name}", mark_name(path));
        let failed = |errno| disk::failed("open", &self.record_path(path, name), errno);
        match disk::open_file(self.fd(), record.as_bytes()) {
            Ok(file) => {
                let stat = fs::fstat(&file).map_err(failed)?;
                Ok(is_of(&stat, FileType::RegularFile).then_some(file))
            }
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => Ok(None),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// The list of what was made in a tree; none, if there is no intact record.
    pub(crate) fn list_of(&self, mark: &Mark) -> Result<Option<ListReader<Thing>>> {
        let Some(name) = &mark.record else {
            return Ok(None);
        };
        let Some(file) = self.record(&mark.path(), name)? else {
            return Ok(None);
        };
        match checksum(&file) {
            Ok(Some(_)) => ListReader::new(file).map(Some),
            _ => Ok(None),
        }
    }

    /// Creates a file of this process without a name.
    pub(crate) fn scratch(&self) -> Result<File> {
        let owner = self.owner()?;
        let name = disk::random_name()?;
        disk::scratch(&owner.temporaries, &name)
            .map_err(|errno| self.failed("create a file in", errno))
    }

    /// Makes the bytes of `record` a record of the tree at `path`, durably, and returns its name.
    pub(crate) fn write_record(&self, path: &Path, mut record: &File) -> Result<String> {
        let owner = self.owner()?;
        let (name, tree) = (disk::random_name()?, format!("{MADE}/{}", mark_name(path)));
        let made = |name: &str| match fs::mkdirat(self.fd(), name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(errno),
        };
        let mut written = || -> std::io::Result<()> {
            made(MADE)?;
            made(&tree)?;
            let mut file = disk::create(&owner.temporaries, name.as_bytes(), 0o600)?;
            record.rewind()?;
            std::io::copy(&mut record, &mut file)?;
            file.flush()?;
            fs::fdatasync(&file)?;
            fs::renameat(
                &owner.temporaries,
                &name,
                self.fd(),
                format!("{tree}/{name}"),
            )?;
            fs::fsync(disk::open_dir(self.fd(), tree.as_bytes())?)?;
            Ok(())
        };
        written().map_err(|source| {
            let errno = Errno::from_io_error(&source);
            errno.map_or_else(
                || Error::io("write down in pool", self.path(), source),
                |errno| self.failed("write down in", errno),
            )
        })?;
        Ok(name)
    }

    /// Removes records of the tree at `path`.
    pub(crate) fn forget_records(&self, path: &Path, names: &[String]) {
        for name in names {
            // A record that stays costs the next pass a look. Anything else in its place is removed, too.
            let record = format!("{MADE}/{}/{name}", mark_name(path));
            disk::forgive(disk::remove_tree(self.fd(), record.as_bytes()));
        }
    }

    /// Removes all records of the tree whose mark has this name.
    pub(super) fn forget_all_records(&self, mark: &str) {
        disk::forgive(disk::remove_tree(
            self.fd(),
            format!("{MADE}/{mark}").as_bytes(),
        ));
    }

    /// When the tree at `path` was last settled as `record` says, by the clock of its file system. After a power cut, the
    /// time of an earlier record may be there instead.
    pub(crate) fn settled_at(&self, path: &Path, record: &str) -> Option<Time> {
        let link = format!("{MADE}/{}/{AT}", mark_name(path));
        let text = fs::readlinkat(self.fd(), link, Vec::new()).ok()?;
        let (time, of) = text.to_str().ok()?.rsplit_once('.')?;
        let (secs, nanos) = time.split_once('.').filter(|_| of == record)?;
        Some(Time {
            secs: secs.parse().ok()?,
            nanos: nanos.parse().ok()?,
        })
    }

    /// Records that time in a symlink, which has its text as soon as it has its name. Losing it costs reading files.
    pub(crate) fn settle_at(&self, path: &Path, record: &str, at: Time) {
        let tree = format!("{MADE}/{}", mark_name(path));
        let Ok(name) = disk::random_name() else {
            return;
        };
        let Ok(owner) = self.owner() else {
            return;
        };
        let text = format!("{}.{}.{record}", at.secs, at.nanos);
        let written = fs::symlinkat(text, &owner.temporaries, &name).and_then(|()| {
            fs::renameat(&owner.temporaries, &name, self.fd(), format!("{tree}/{AT}"))
        });
        disk::forgive(written);
    }

    /// The inodes of files that were set aside.
    pub(crate) fn set_aside_inodes(&self) -> Result<std::collections::HashSet<(u64, u64)>> {
        let mut inodes = std::collections::HashSet::new();
        self.each_beside("damaged", &mut |_, stat| {
            inodes.insert((stat.dev, stat.ino));
        })?;
        Ok(inodes)
    }
}
