//! get: a ref, or a path inside one, becomes a private, ordinary, writable copy.
//!
//! ```text
//! resolve -> trees, depth first -> directories, symlinks -> fetch chunks -> times -> rename
//! ```
//!
//! Built in a directory of its own beside the destination, which nobody else can enter, and
//! renamed into place when all of it is there: whole or not at all.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, RenameFlags, Timespec, Timestamps};

use crate::error::{Error, Result};
use crate::fetch::{Requests, Sink, fetch};
use crate::format::{Content, Node, RefName, RefSpec, Time};
use crate::progress::Progress;
use crate::read::{Reader, TimesReader};
use crate::store::Store;
use crate::uses;

/// What a get brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetReport {
    /// The ref.
    pub name: RefName,
    /// The version that was read.
    pub version: u64,
    /// Regular files.
    pub files: u64,
    /// Directories, the destination itself included.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Bytes of all files.
    pub bytes: u64,
}

/// Writes what `spec` names to `destination`, which must not exist (or be an empty directory).
///
/// # Errors
/// Conflict when the destination exists; not found and corrupt as [`Reader`] has them. Nothing is
/// left at the destination then.
pub fn get(
    store: &Store,
    spec: &RefSpec,
    destination: &Path,
    progress: &dyn Progress,
) -> Result<GetReport> {
    let reader = Reader::new(store)?;
    let found = reader.resolve(spec)?;
    let room = Room::beside(destination)?;
    let mut times = TimesReader::new(&reader, &found.version.times)?;
    times.skip(found.entries_before)?;
    announce(&found.node, progress);

    let top = room.path();
    let mut tree = Copy::new(&reader, times, progress, spec.name.clone(), found.number);
    fetch(&reader, |requests| tree.node(&found.node, &top, requests))?;
    tree.finish_directories()?;
    room.move_in()?;
    uses::leave(store, &spec.name, found.number);

    Ok(tree.report)
}

fn announce(node: &Node, progress: &dyn Progress) {
    match node {
        Node::File { content, .. } => progress.total(1, content.size),
        Node::Symlink { .. } => progress.total(1, 0),
        Node::Tree { totals, .. } => progress.total(totals.entries.saturating_add(1), totals.bytes),
    }
}

/// The walk over the trees of one ref version.
struct Copy<'g> {
    reader: &'g Reader<'g>,
    times: TimesReader<'g>,
    progress: &'g dyn Progress,
    /// Directories and their times, to be set when nothing is written into them any more.
    directories: Vec<(PathBuf, Time)>,
    report: GetReport,
}

impl<'g> Copy<'g> {
    fn new(
        reader: &'g Reader<'g>,
        times: TimesReader<'g>,
        progress: &'g dyn Progress,
        name: RefName,
        version: u64,
    ) -> Self {
        let report = GetReport {
            name,
            version,
            files: 0,
            directories: 0,
            symlinks: 0,
            bytes: 0,
        };
        Self {
            reader,
            times,
            progress,
            directories: Vec::new(),
            report,
        }
    }

    fn node(
        &mut self,
        node: &Node,
        path: &Path,
        requests: &mut Requests<'_, FileSink<'g>>,
    ) -> Result<()> {
        let time = self.times.next()?;
        match node {
            Node::File {
                content,
                executable,
            } => {
                self.report.files += 1;
                self.report.bytes += content.size;
                let sink = FileSink {
                    path: path.into(),
                    executable: *executable,
                    time,
                    progress: self.progress,
                };
                requests.push(sink, content)
            }
            Node::Symlink { target } => {
                self.report.symlinks += 1;
                self.progress.advance(1, 0);
                make_symlink(target, path, time)
            }
            Node::Tree { content, .. } => self.directory(content, path, time, requests),
        }
    }

    fn directory(
        &mut self,
        content: &Content,
        path: &Path,
        time: Time,
        requests: &mut Requests<'_, FileSink<'g>>,
    ) -> Result<()> {
        self.report.directories += 1;
        self.progress.advance(1, 0);
        std::fs::create_dir(path).map_err(|source| Error::io("create directory", path, source))?;
        self.directories.push((path.into(), time));
        for entry in self.reader.tree(content)? {
            self.node(
                &entry.node,
                &path.join(OsStr::from_bytes(&entry.name)),
                requests,
            )?;
        }
        Ok(())
    }

    fn finish_directories(&self) -> Result<()> {
        self.directories
            .iter()
            .rev()
            .try_for_each(|(path, time)| set_time(path, *time))
    }
}

fn make_symlink(target: &[u8], path: &Path, time: Time) -> Result<()> {
    std::os::unix::fs::symlink(OsStr::from_bytes(target), path)
        .map_err(|source| Error::io("create symlink", path, source))?;
    set_time(path, time)
}

fn set_time(path: &Path, time: Time) -> Result<()> {
    rustix::fs::utimensat(CWD, path, &stamps(time), AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|source| Error::io("set the time of", path, source.into()))
}

fn stamps(time: Time) -> Timestamps {
    let time = Timespec {
        tv_sec: time.secs,
        tv_nsec: time.nanos.into(),
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}

/// A regular file of the copy.
struct FileSink<'g> {
    path: PathBuf,
    executable: bool,
    time: Time,
    progress: &'g dyn Progress,
}

impl Sink for FileSink<'_> {
    fn open(&self) -> Result<File> {
        let mode = if self.executable { 0o777 } else { 0o666 };
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&self.path)
            .map_err(|source| Error::io("create", &self.path, source))
    }

    fn written(&self, bytes: u64) {
        self.progress.advance(0, bytes);
    }

    fn finish(&self, file: &File) -> Result<()> {
        self.progress.advance(1, 0);
        rustix::fs::futimens(file, &stamps(self.time))
            .map_err(|source| Error::io("set the time of", &self.path, source.into()))
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }
}

/// The private directory in which the copy is built, and where it goes in the end.
struct Room {
    directory: tempfile::TempDir,
    destination: PathBuf,
}

impl Room {
    fn beside(destination: &Path) -> Result<Self> {
        check_free(destination)?;
        let parent = match destination.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        std::fs::create_dir_all(parent).map_err(|source| Error::io("create", parent, source))?;
        let directory = tempfile::Builder::new()
            .prefix(".store-get-")
            .tempdir_in(parent)
            .map_err(|source| Error::io("create a directory in", parent, source))?;
        Ok(Self {
            directory,
            destination: destination.into(),
        })
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("tree")
    }

    fn move_in(self) -> Result<()> {
        let destination = &self.destination;
        if destination.is_dir() {
            // An empty directory is replaced; one that has got an entry meanwhile makes the rename fail.
            return std::fs::rename(self.path(), destination)
                .map_err(|source| Error::io("rename into place", destination, source));
        }
        rustix::fs::renameat_with(CWD, self.path(), CWD, destination, RenameFlags::NOREPLACE)
            .map_err(|source| Error::io("rename into place", destination, source.into()))
    }
}

fn check_free(destination: &Path) -> Result<()> {
    let taken = match std::fs::symlink_metadata(destination) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(error) => return Err(Error::io("look at", destination, error)),
        Ok(metadata) if metadata.is_dir() => std::fs::read_dir(destination)
            .map_err(|source| Error::io("list", destination, source))?
            .next()
            .is_some(),
        Ok(_) => true,
    };
    if taken {
        return Err(
            Error::conflict(format!("{}: exists already", destination.display()))
                .hint("name a destination that does not exist, or remove it first"),
        );
    }
    Ok(())
}
