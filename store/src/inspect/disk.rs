//! A directory of this host as one side of a diff.
//!
//! A file is compared with a content along the content's chunk list: it has the same bytes if each piece hashes to the
//! id of its chunk. No data is read from the store.

use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rayon::prelude::*;
use rustix::io::Errno;

use super::side::{DiskFile, Side, Step, Thing};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Content, Keep, Kept, MODE_MAX, Xattrs};
use crate::host::attributes;
use crate::host::rooms::{is_proof, is_room};
use crate::host::walk::{FileWalk, Item, Stat, WalkOptions, next_data, walk};
use crate::id::ChunkId;
use crate::profile::links::{Kept as KeptLink, LinkRoot};
use crate::read::Reader;

/// How many bytes of a file are read and hashed together, at most.
const WINDOW_BYTES: u64 = 16 << 20;

/// A tree on this host.
pub(super) struct DiskSide {
    walk: FileWalk,
    is_first: bool,
    links: LinkRoot,
}

/// A piece of a file: the expected chunk id, the offset and the length.
type Piece = (ChunkId, u64, u64);

impl DiskSide {
    pub(super) fn new(root: &Path, options: WalkOptions) -> Result<Self> {
        let walk = walk(root, options).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Error::not_found(format!(
                "{}: there is no such directory or file",
                root.display()
            ))
            .hint("name a directory or file of this host, or a second ref, which begins with project/ or team/"),
            _ => error,
        })?;
        Ok(Self {
            walk,
            is_first: true,
            links: LinkRoot::new(root),
        })
    }
}

impl Side for DiskSide {
    fn next(&mut self) -> Result<Option<Step>> {
        while let Some(item) = self.walk.next() {
            let item = item?;
            // A put leaves both out, too.
            if is_proof(&item) {
                continue;
            }
            if is_room(&item) {
                if matches!(item, Item::Enter { .. }) {
                    self.walk.turn_back()?;
                }
                continue;
            }
            let thing = match item {
                Item::Enter { dir, stat, .. } => Thing::Directory { dir, stat },
                Item::File { dir, name, stat } => Thing::File(DiskFile { dir, name, stat }),
                Item::Symlink { target, stat, .. } => {
                    let kept = self.links.keep(self.walk.path(), &target);
                    let put_as = match kept {
                        KeptLink::Relative(target) => Some(target),
                        KeptLink::AsIs | KeptLink::Outside => None,
                    };
                    Thing::Symlink {
                        target,
                        put_as,
                        stat,
                    }
                }
                Item::Leave => continue,
                Item::Skipped { error, .. } => return Err(error),
            };
            // The path of a root that is a file is its name, but roots are compared whatever their names are.
            let is_root = std::mem::replace(&mut self.is_first, false);
            let path = if is_root {
                Vec::new()
            } else {
                self.walk.path().to_vec()
            };
            return Ok(Some(Step { path, thing }));
        }
        Ok(None)
    }

    fn skip_below(&mut self) {}
}

/// The attribute of an entry that a put would keep; none, if it may not be read.
pub(super) fn kept(thing: &Thing, keep: Keep) -> Result<Option<Kept>> {
    let stat = match thing {
        Thing::Stored(_) => return Ok(None),
        Thing::File(DiskFile { stat, .. })
        | Thing::Symlink { stat, .. }
        | Thing::Directory { stat, .. } => stat,
    };
    let found = match (keep, thing) {
        (Keep::Modes, _) => return Ok(Some(Kept::Mode(stat.mode & MODE_MAX))),
        (Keep::Owners, _) => return Ok(Some(Kept::Owner(stat.uid, stat.gid))),
        (Keep::Xattrs, Thing::Directory { dir, .. }) => attributes::of_directory(dir),
        (Keep::Xattrs, Thing::File(file)) => attributes::of_file(file.dir.as_fd(), &file.name),
        (Keep::Xattrs, _) => Ok(Xattrs::new()),
    };
    match found {
        Ok(xattrs) => Ok(Some(Kept::Xattrs(xattrs))),
        Err(Errno::NOENT | Errno::ACCESS | Errno::PERM) => Ok(None),
        Err(errno) => {
            let path = match thing {
                Thing::File(file) => file.dir.path_of(&file.name),
                Thing::Directory { dir, .. } => dir.path(),
                _ => std::path::PathBuf::new(),
            };
            Err(Error::io(
                "read the extended attributes of",
                path,
                errno.into(),
            ))
        }
    }
}

impl DiskFile {
    /// Whether the file has exactly the bytes of `content`.
    pub(super) fn has(&self, reader: &Reader<'_>, content: &Content) -> Result<bool> {
        if self.stat.size != content.size {
            return Ok(false);
        }
        let file = self.dir.open_file(&self.name)?;
        let path = self.dir.path_of(&self.name);
        let zero = reader.store().chunker().zero_chunk();
        let mut window: Vec<Piece> = Vec::new();
        let mut window_bytes = 0;
        let mut is_same = true;
        reader.visit(content, &mut |id, depth, start, size| {
            if depth > 0 || !is_same {
                return Ok(is_same);
            }
            if (id, size) == (zero.0, u64::from(zero.1)) && is_hole(&file, start, size) {
                return Ok(true);
            }
            window.push((id, start, size));
            window_bytes += size;
            if window_bytes >= WINDOW_BYTES {
                reader.store().host().check_stop()?;
                is_same = all_match(&file, &path, &window)?;
                window.clear();
                window_bytes = 0;
            }
            Ok(true)
        })?;
        is_same = is_same && all_match(&file, &path, &window)?;
        let now = Stat::of_file(&file, &path)?;
        if (now.size, now.mtime, now.ctime, now.ino)
            == (
                self.stat.size,
                self.stat.mtime,
                self.stat.ctime,
                self.stat.ino,
            )
        {
            return Ok(is_same);
        }
        Err(
            Error::conflict(format!("{}: it changed while it was read", path.display()))
                .hint("try again when nothing writes to it"),
        )
    }
}

fn all_match(file: &std::fs::File, path: &Path, pieces: &[Piece]) -> Result<bool> {
    let outcomes = pieces.par_iter().map(|(id, start, size)| {
        let mut bytes = vec![0; usize::try_from(*size).unwrap_or(usize::MAX)];
        match file.read_exact_at(&mut bytes, *start) {
            Ok(()) => Ok(ChunkId::of(&bytes) == *id),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(Error::io("read", path, error)),
        }
    });
    outcomes.try_reduce(|| true, |a, b| Ok(a && b))
}

/// Whether the file has no data in this range; false if the file system cannot tell.
fn is_hole(file: &std::fs::File, start: u64, size: u64) -> bool {
    next_data(file, start, start + size).is_ok_and(|(data, _)| data >= start + size)
}
