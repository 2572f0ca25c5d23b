//! What was materialized where: marks of finished trees.
//!
//! A mark is in the pool, never in the tree, and holds for one directory inode only: a directory that somebody made
//! later under the same path is not taken for ours. If a mark is lost, the tree can only be taken over by force.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{self, AtFlags, Dir, FileType};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::birth::Inode;
use super::owner::{self, Holder};
use super::room::is_gone;
use super::{Pool, disk, proof, trust};
use crate::error::{Error, Result};
use crate::format::{Content, RefName, RefSpec};
use crate::host::walk::Stat;
use crate::id::StoreId;

/// How long the mark of a missing or unfinished tree is kept.
const GONE_KEPT: Duration = Duration::from_secs(24 * 3600);

/// Most bytes of a mark that are read.
const MARK_BYTES_MAX: u64 = 64 << 20;

/// What is known of a materialized tree.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Mark {
    path: Spelled,
    /// The inode for which the mark holds.
    pub(crate) inode: Inode,
    pub(crate) store: StoreId,
    /// The ref, for people.
    pub(crate) source: String,
    pub(crate) version: u64,
    /// The tree of the version; none for a file.
    pub(crate) tree: Option<Content>,
    /// The name of the settled record of the tree. Marks of earlier versions have none.
    #[serde(default)]
    pub(crate) record: Option<String>,
    /// The name of the record that the directory itself holds. Another pool may take the same directory over, or
    /// somebody may put another tree in its place. None, if the file system has no attributes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stamp: Option<String>,
    /// Whether there is no other record, of an update that is under way or was interrupted.
    #[serde(skip)]
    pub(crate) is_settled: bool,
    pub(crate) include: Vec<String>,
    pub(crate) exclude: Vec<String>,
    pub(crate) flatten: bool,
    /// Whether the tree is for one user alone. Marks of earlier versions do not say.
    #[serde(default)]
    pub(crate) private: Option<bool>,
    /// Whether some paths stayed as a job had them; then the record says what was made there before. Marks of earlier
    /// versions do not say.
    #[serde(default)]
    pub(crate) kept: Option<bool>,
    /// The process that the tree ends with.
    pub(crate) held_by: Option<Holder>,
    /// The boot in which it was written. Copies made before a power cut may have lost their bytes.
    #[serde(default)]
    boot: String,
}

/// A materialized tree, as the pool knows it.
#[derive(Clone, Debug)]
pub struct MadeTree {
    /// Where it is.
    pub path: PathBuf,
    /// The ref.
    pub source: String,
    /// The version.
    pub version: u64,
    /// The store that it was made from.
    pub store: StoreId,
    /// The inode number of its directory, whatever comes to its path.
    pub inode: u64,
    /// Whether no update of it is under way or was interrupted, so that everything is of that version or a job's.
    pub is_settled: bool,
}

/// A path in JSON, even if it is not UTF-8.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Spelled {
    Text(String),
    Bytes(Vec<u8>),
}

impl Mark {
    /// A mark for the tree at `path`, which is at `built` now, in the place of `before`.
    pub(crate) fn new(
        path: &Path,
        store: StoreId,
        built: (BorrowedFd<'_>, &[u8]),
        before: impl FnOnce() -> Option<Self>,
    ) -> Result<Self> {
        let inode = Inode::of_marked(built, || before().map(|before| before.inode))
            .map_err(|errno| disk::failed("look at", path, errno))?;
        Ok(Self {
            path: path.into(),
            inode,
            store,
            source: String::new(),
            version: 0,
            tree: None,
            record: None,
            stamp: None,
            is_settled: false,
            include: Vec::new(),
            exclude: Vec::new(),
            flatten: false,
            private: None,
            kept: None,
            held_by: None,
            boot: owner::boot(),
        })
    }

    /// Whether the tree was made from this ref of this store.
    pub(crate) fn is_from(&self, store: StoreId, name: &RefName) -> bool {
        let spec = self.source.parse::<RefSpec>();
        self.store == store && spec.is_ok_and(|spec| spec.name == *name)
    }

    /// Whether the system has not been restarted since it was written.
    pub(crate) fn is_of_this_boot(&self) -> bool {
        self.boot == owner::boot()
    }

    pub(crate) fn path(&self) -> PathBuf {
        match &self.path {
            Spelled::Text(text) => text.into(),
            Spelled::Bytes(bytes) => OsStr::from_bytes(bytes).into(),
        }
    }

    /// Whether the tree may hold what only its user may read. If the mark does not say, or an update to another version
    /// was interrupted, the current mode of the tree decides.
    pub(crate) fn is_private(&self) -> bool {
        let path = self.path();
        let is_closed = || fs::stat(&path).is_ok_and(|stat| stat.st_mode & 0o077 == 0);
        match self.private {
            Some(true) => true,
            Some(false) if self.is_settled => false,
            _ => is_closed(),
        }
    }

    /// Whether both marks say the same of the same directory.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let parts = |mark: &Self| {
            (
                (mark.store, mark.tree),
                (mark.record.clone(), mark.stamp.clone()),
                (
                    mark.source.clone(),
                    mark.version,
                    mark.flatten,
                    mark.held_by.clone(),
                ),
                (
                    mark.include.clone(),
                    mark.exclude.clone(),
                    mark.private,
                    mark.kept,
                    mark.boot.clone(),
                ),
            )
        };
        self.inode.has_identity_of(&other.inode) && parts(self) == parts(other)
    }

    /// Stores the name of the record in the open directory that the mark is for.
    pub(crate) fn stamp(&mut self, dir: impl AsFd) {
        let record = self.record.as_ref();
        self.stamp = record.filter(|record| proof::stamp(dir, record)).cloned();
    }

    /// Whether the open directory is what the mark is for, whatever path led there.
    pub(crate) fn is_of(&self, dir: impl AsFd) -> bool {
        self.inode.is_at(dir, b".")
    }

    /// Whether the inode at its path is the one that the mark is for.
    pub(crate) fn holds(&self) -> bool {
        let path = self.path();
        self.inode.is_at(fs::CWD, path.as_os_str().as_bytes())
    }

    /// Whether that inode is certainly no longer there.
    pub(super) fn is_gone(&self) -> bool {
        match Inode::of(fs::CWD, self.path().as_os_str().as_bytes()) {
            Ok(found) => !self.inode.has_identity_of(&found),
            Err(errno) => is_gone(errno),
        }
    }

    /// Whether `name` in `dir` is the tree of this mark, and holds its nonce.
    pub(super) fn is_proven(&self, dir: BorrowedFd<'_>, name: &[u8]) -> bool {
        let nonce = self.held_by.as_ref().map(|held| held.nonce.as_str());
        self.inode.is_at(dir, name) && nonce.is_some_and(|nonce| proof::holds(dir, name, nonce))
    }
}

/// Whether a mark is too old to belong to a tree that is being built.
fn is_old(stat: &fs::Stat) -> bool {
    let written = UNIX_EPOCH + Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or(0));
    let age = SystemTime::now().duration_since(written);
    age.is_ok_and(|age| age > GONE_KEPT)
}

impl From<&Path> for Spelled {
    fn from(path: &Path) -> Self {
        match path.to_str() {
            Some(text) => Self::Text(text.to_owned()),
            None => Self::Bytes(path.as_os_str().as_bytes().to_vec()),
        }
    }
}

impl Pool {
    /// The mark of what is at `path` now, if this pool's user made it.
    pub(crate) fn mark_of(&self, path: &Path) -> Option<Mark> {
        let mut mark = self.read_mark(&mark_name(path))?;
        mark.is_settled = self.is_settled(path);
        let is_it = mark.path() == path && mark.holds() && self.is_stamped(&mark);
        (is_it && !mark.inode.may_be_new(path)).then_some(mark)
    }

    /// Whether the directory names a record of this mark, or none.
    fn is_stamped(&self, mark: &Mark) -> bool {
        self.is_stamp_of(mark, proof::stamped(&mark.path()).as_deref())
    }

    /// Whether `found`, the record that a directory names, belongs to this mark, or is none.
    pub(crate) fn is_stamp_of(&self, mark: &Mark, found: Option<&[u8]>) -> bool {
        let (Some(stamp), Some(found)) = (&mark.stamp, found) else {
            return true;
        };
        let is_found = |record: &String| record.as_bytes() == found;
        // An update stamps the directory before it writes the mark.
        is_found(stamp)
            || (self.records(&mark.path())).is_ok_and(|records| records.iter().any(is_found))
    }

    /// Whether there is no record of an update that is under way or was interrupted.
    fn is_settled(&self, path: &Path) -> bool {
        self.records(path).is_ok_and(|records| records.len() < 2)
    }

    /// Writes a mark, and replaces an earlier one of the same path.
    pub(crate) fn write_mark(&self, mark: &Mark) -> Result<()> {
        let name = mark_name(&mark.path());
        let owner = self.owner()?;
        let text = serde_json::to_vec(mark)
            .map_err(|source| Error::invalid("mark of a tree").because(source))?;
        let temporary = disk::random_name()?;
        let held = format!("trees/{name}.held");
        let written = || -> rustix::io::Result<()> {
            if mark.held_by.is_some() {
                disk::forgive(disk::create(&self.fd, held.as_bytes(), 0o600));
            }
            disk::write_new(&owner.temporaries, temporary.as_bytes(), &text)?;
            // Synced, since a tree whose mark is empty after a power cut could only be taken over by force.
            fs::fdatasync(disk::open_file(&owner.temporaries, temporary.as_bytes())?)?;
            fs::renameat(
                &owner.temporaries,
                &temporary,
                &self.fd,
                format!("trees/{name}"),
            )?;
            if mark.held_by.is_none() {
                disk::forgive(fs::unlinkat(&self.fd, &held, AtFlags::empty()));
            }
            Ok(())
        };
        written().map_err(|errno| self.failed("write down in", errno))
    }

    /// Forgets the tree at `path`.
    pub(crate) fn forget(&self, path: &Path) {
        let name = mark_name(path);
        // A mark without its tree means nothing.
        disk::forgive(fs::unlinkat(
            &self.fd,
            format!("trees/{name}"),
            AtFlags::empty(),
        ));
        disk::forgive(fs::unlinkat(
            &self.fd,
            format!("trees/{name}.held"),
            AtFlags::empty(),
        ));
        self.forget_saved(&name);
        self.forget_all_records(&name);
    }

    /// The trees that still exist where they were made.
    ///
    /// # Errors
    /// When the pool cannot be listed.
    pub fn trees(&self) -> Result<Vec<MadeTree>> {
        let mut trees: Vec<MadeTree> = self
            .marks()?
            .into_iter()
            .map(|mark| MadeTree {
                path: mark.path(),
                store: mark.store,
                is_settled: self.is_settled(&mark.path()),
                source: mark.source,
                version: mark.version,
                inode: mark.inode.number(),
            })
            .collect();
        trees.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(trees)
    }

    /// The paths of files in marked trees that have one of these inodes, by device and inode number.
    pub(crate) fn sharers(
        &self,
        inodes: &HashSet<(u64, u64)>,
    ) -> Result<HashMap<(u64, u64), Vec<PathBuf>>> {
        let mut found = HashMap::new();
        if inodes.is_empty() {
            return Ok(found);
        }
        for mark in self.marks()? {
            let path = mark.path();
            // Files that others change or hide meanwhile cannot be named.
            disk::forgive(find(
                fs::CWD,
                path.as_os_str().as_bytes(),
                &path,
                inodes,
                &mut found,
                0,
            ));
        }
        Ok(found)
    }

    /// Forgets missing trees, and returns their number. A young mark may belong to a tree that is being built; a tree
    /// that ends with a process is left to [`Self::sweep`].
    pub(super) fn forget_gone(&self) -> Result<u64> {
        let mut forgotten = 0;
        for name in self.mark_names()? {
            let mark = self.read_mark(&name);
            if mark.is_some_and(|mark| mark.held_by.is_none() && mark.is_gone())
                && self.forget_old(&name)?
            {
                self.forget_saved(&name);
                self.forget_all_records(&name);
                forgotten += 1;
            }
        }
        Ok(forgotten)
    }

    /// Removes a mark unless it is young, which includes marks that were rewritten since they were read.
    fn forget_old(&self, name: &str) -> Result<bool> {
        let owner = self.owner()?;
        let (name, away) = (format!("trees/{name}"), disk::random_name()?);
        let moved = || -> rustix::io::Result<bool> {
            if !is_old(&fs::statat(&self.fd, &name, AtFlags::SYMLINK_NOFOLLOW)?) {
                return Ok(false);
            }
            fs::renameat(&self.fd, &name, &owner.temporaries, &away)?;
            let stat = fs::statat(&owner.temporaries, &away, AtFlags::SYMLINK_NOFOLLOW)?;
            if !is_old(&stat) {
                let flags = AtFlags::empty();
                disk::forgive(fs::linkat(
                    &owner.temporaries,
                    &away,
                    &self.fd,
                    &name,
                    flags,
                ));
            }
            fs::unlinkat(&owner.temporaries, &away, AtFlags::empty())?;
            Ok(is_old(&stat))
        };
        match moved() {
            Err(Errno::NOENT) => Ok(false),
            moved => moved.map_err(|errno| disk::failed("tidy up in pool", &self.path, errno)),
        }
    }

    fn marks(&self) -> Result<Vec<Mark>> {
        let names = self.mark_names()?;
        let marks = names.iter().filter_map(|name| self.read_mark(name));
        Ok(marks.filter(Mark::holds).collect())
    }

    pub(super) fn mark_names(&self) -> Result<Vec<String>> {
        let trees: OwnedFd = disk::open_dir(&self.fd, b"trees")
            .map_err(|errno| disk::failed("open trees of pool", &self.path, errno))?;
        let names = disk::names(&trees, &self.path)?;
        Ok(names
            .into_iter()
            .filter_map(|name| String::from_utf8(name).ok())
            .collect())
    }

    pub(super) fn read_mark(&self, name: &str) -> Option<Mark> {
        let file = disk::open_file(&self.fd, format!("trees/{name}").as_bytes()).ok()?;
        let stat = Stat::of_file(&file, &self.path).ok()?;
        let is_file = FileType::from_raw_mode(stat.mode) == FileType::RegularFile;
        if stat.uid != trust::user() || !is_file || stat.size > MARK_BYTES_MAX {
            return None;
        }
        serde_json::from_reader(std::io::BufReader::new(file)).ok()
    }
}

/// The directory that `path` is in.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

pub(super) fn mark_name(path: &Path) -> String {
    let mut name = blake3::hash(path.as_os_str().as_bytes())
        .to_hex()
        .to_string();
    name.truncate(32);
    name
}

fn find(
    dir: impl AsFd,
    name: &[u8],
    path: &Path,
    inodes: &HashSet<(u64, u64)>,
    found: &mut HashMap<(u64, u64), Vec<PathBuf>>,
    depth: usize,
) -> rustix::io::Result<()> {
    let stat = fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    let stat = Stat::from(stat);
    let inode = (stat.dev, stat.ino);
    if inodes.contains(&inode) {
        found.entry(inode).or_default().push(path.into());
    }
    if !is_dir || depth > disk::DEPTH_MAX {
        return Ok(());
    }
    let below = disk::open_dir(&dir, name)?;
    for entry in Dir::read_from(&below)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            match find(
                below.as_fd(),
                name,
                &path.join(OsStr::from_bytes(name)),
                inodes,
                found,
                depth + 1,
            ) {
                Err(Errno::MFILE | Errno::NFILE) => return Err(Errno::MFILE),
                // The directory is gone by now, or may not be read.
                _ => continue,
            }
        }
    }
    Ok(())
}
