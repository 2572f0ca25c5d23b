//! Builds a destination that is empty, or that is replaced as a whole, beside it and renames it into place.

use super::*;

/// A destination that is replaced as a whole.
pub(super) struct Goes {
    /// Files that differ from what was made here.
    pub(super) lost: Overruled,
    pub(super) is_made: bool,
}

impl Task<'_> {
    /// Builds the destination. Reports first what is lost of what it replaces.
    pub(super) fn build_for(
        &self,
        destination: &Path,
        goes: Option<Goes>,
        fence: Fence<'_>,
    ) -> Result<MaterializeReport> {
        let Some(goes) = goes else {
            return self.build(destination, false, fence);
        };
        if goes.is_made {
            // The count of foreign files was reported before.
            self.announce_overruled(destination, &goes.lost, true);
        }
        let report = self.build(destination, true, fence)?;
        Ok(MaterializeReport {
            overruled: goes.lost,
            ..report
        })
    }

    /// Reports which files of jobs, or of a destination that was not made here, are about to be replaced or removed.
    pub(super) fn announce_overruled(
        &self,
        destination: &Path,
        overruled: &Overruled,
        is_made: bool,
    ) {
        if overruled.is_nothing() {
            return;
        }
        let first: Vec<&Path> = overruled.first.iter().map(|gone| &*gone.path).collect();
        let Overruled { files, bytes, .. } = *overruled;
        (self.progress).overrules(destination, files, bytes, &first, is_made);
    }

    /// Builds the destination in a room beside it and renames it into place.
    fn build(
        &self,
        destination: &Path,
        replaces: bool,
        fence: Fence<'_>,
    ) -> Result<MaterializeReport> {
        let room = self.pool.room(parent(destination))?;
        let made = self.diff_fresh()?;
        let before = self.pool.records(destination)?;
        let record = self.pool.write_record(destination, &made.record)?;
        let built = self.build_in(&room, destination, &made, &record);
        let built = built.and_then(|report| {
            fence()?;
            move_in(&room, destination, replaces)?;
            Ok(report)
        });
        // If the build failed, its record means nothing. Otherwise, all other records mean nothing.
        self.pool.forget_records(
            destination,
            match &built {
                Ok(_) => &before,
                Err(_) => std::slice::from_ref(&record),
            },
        );
        if built.is_ok() {
            self.settle_now(destination, &record, &room);
        }
        built
    }

    fn build_in(
        &self,
        room: &Room<'_>,
        destination: &Path,
        made: &Made,
        record: &str,
    ) -> Result<MaterializeReport> {
        let inside = room.dir();
        // The mark is for the inode, which survives the rename, so the tree never exists without its mark. The root of
        // a new tree is marked first, while there is nothing else to be synced.
        let is_tree = tree_of(&self.found.node).is_some();
        let root = match is_tree {
            true => {
                fs::mkdirat(inside, TREE, fs::Mode::from_raw_mode(self.access()))
                    .map_err(|errno| disk::failed("create directory in", room.path(), errno))?;
                self.write_mark(destination, inside, record)?;
                disk::open_dir(inside, TREE.as_bytes())
            }
            false => disk::open_dir(inside, b"."),
        };
        let root = root.map_err(|errno| disk::failed("open", room.path(), errno))?;
        let (report, _) = self.apply(made, (room, root, true), &|| Ok(()), &Cell::default())?;
        if !is_tree {
            self.write_mark(destination, inside, record)?;
        }
        Ok(report)
    }

    /// Plans a tree of which nothing exists yet.
    pub(super) fn diff_fresh(&self) -> Result<Made> {
        let mut wanted = Wanted::new(self)?;
        let files = (self.pool.scratch()?, self.pool.scratch()?);
        let Node::Tree { content, .. } = &self.found.node else {
            let thing = wanted.alone(&self.found.node)?;
            return diff::alone(TREE.as_bytes(), thing, files);
        };
        let time = wanted.begin(content)?;
        let mut nothing = diff::Nothing;
        let all = (
            &mut wanted as &mut dyn diff::Wants,
            Records::default(),
            &mut nothing as &mut dyn diff::Lies,
        );
        Diff::new(all, self.options(), self.progress, files)?.run(time, true)
    }

    /// Records that everything in the tree was checked at this moment.
    pub(super) fn settle_now(&self, destination: &Path, record: &str, room: &Room<'_>) {
        let probe = || -> Result<Time> {
            let failed = |errno| disk::failed("create in", Path::new("room"), errno);
            let file = disk::create(room.dir(), b"probe", 0o600).map_err(failed)?;
            Ok(Stat::of_file(&file, Path::new("probe"))?.ctime)
        };
        // Without this record, private copies are read once more.
        if let Ok(now) = probe() {
            self.pool.settle_at(destination, record, now);
        }
    }

    /// Writes the mark of what is built in a room.
    fn write_mark(
        &self,
        destination: &Path,
        room: std::os::fd::BorrowedFd<'_>,
        record: &str,
    ) -> Result<()> {
        let mut mark = self.mark(destination, (room, TREE.as_bytes()))?;
        mark.tree = tree_of(&self.found.node);
        mark.record = Some(record.to_owned());
        if mark.tree.is_some() {
            let tree = disk::open_dir(room, TREE.as_bytes())
                .map_err(|errno| disk::failed("open", destination, errno))?;
            mark.stamp(tree);
        }
        self.pool.write_mark(&mark)
    }
}

/// Renames what was built into the directory that the room was made in, wherever the path leads by now.
fn move_in(room: &Room<'_>, destination: &Path, replaces: bool) -> Result<()> {
    let name = destination.file_name().unwrap_or_default();
    let failed = |errno| disk::failed("rename into place", destination, errno);
    let (from, to) = (room.dir(), room.above());
    let rename = |flags| fs::renameat_with(from, TREE, to, name, flags);
    if replaces {
        // What was there is removed with the room.
        return rename(RenameFlags::EXCHANGE).map_err(failed);
    }
    match rename(RenameFlags::NOREPLACE) {
        // An empty directory is replaced. If it got an entry meanwhile, the rename fails.
        Err(Errno::EXIST) if is_dir(from, TREE.as_bytes()) => {
            fs::renameat(from, TREE, to, name).map_err(failed)
        }
        Err(Errno::EXIST) if is_dir(to, name.as_bytes()) => {
            fs::unlinkat(to, name, fs::AtFlags::REMOVEDIR)
                .and_then(|()| rename(RenameFlags::NOREPLACE))
                .map_err(failed)
        }
        renamed => renamed.map_err(failed),
    }
}

fn is_dir(dir: std::os::fd::BorrowedFd<'_>, name: &[u8]) -> bool {
    fs::statat(dir, name, fs::AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| fs::FileType::from_raw_mode(stat.st_mode) == fs::FileType::Directory)
}

/// The content of a tree; none for other nodes.
pub(super) fn tree_of(node: &Node) -> Option<Content> {
    match node {
        Node::Tree { content, .. } => Some(*content),
        _ => None,
    }
}

/// Counts a single file that is replaced.
pub(super) fn one_file(destination: &Path) -> Overruled {
    let mut overruled = Overruled::default();
    let bytes = std::fs::symlink_metadata(destination).map_or(0, |found| found.len());
    overruled.add(Vec::new(), bytes);
    overruled
}
