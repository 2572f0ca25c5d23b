//! What a walk removes: what the old tree had and the new one has not, and what is in the way of something new.

use super::steps::{in_the_way, is_dir_to_file};
use super::*;

impl<'m> Walk<'m> {
    /// What the old version had in a directory.
    pub(super) fn old_dir(&self, old: Old, new: &Content) -> Result<OldDir> {
        let is_same_filter = self.filter.is_like(&self.old_filter);
        OldDir::load(self.reader, old, new, is_same_filter)
    }

    /// Notes what will be removed from `here`; whether anything will be.
    pub(super) fn plan_removals(
        &mut self,
        here: &Here<'_>,
        entries: &[TreeEntry],
        old: &OldDir,
    ) -> Result<bool> {
        let before = self.removing.len();
        if self.request.exact {
            for name in disk::names(here.fd, Path::new(&shown(&here.path).to_string()))? {
                if !self.keeps(here, entries, &name)? {
                    self.removing
                        .push((Arc::clone(&here.path), name, Removal::All));
                }
            }
            return Ok(self.removing.len() > before);
        }
        for (name, node) in old.gone(entries, self.filter.is_like(&self.old_filter)) {
            let path = join(&here.path, &name);
            let was_wanted = is_wanted(self.reader, &self.old_filter, &path, &node)?;
            if was_wanted
                && (is_dir_to_file(entries, &name, &node) || !self.keeps(here, entries, &name)?)
            {
                let below = OldDir::from_old(old.below(&name));
                self.removing.push((
                    Arc::clone(&here.path),
                    name,
                    Removal::Old(below, Some(node)),
                ));
            }
        }
        Ok(self.removing.len() > before)
    }

    /// Whether the new tree has something under this name.
    pub(super) fn keeps(
        &self,
        here: &Here<'_>,
        entries: &[TreeEntry],
        name: &[u8],
    ) -> Result<bool> {
        let found = entries
            .binary_search_by(|entry| entry.name.as_slice().cmp(name))
            .ok();
        match found.and_then(|at| entries.get(at)) {
            None => Ok(false),
            Some(entry) => self.is_wanted(&join(&here.path, name), &entry.node),
        }
    }

    pub(super) fn remove(&mut self) -> Result<()> {
        for (dir, name, removal) in std::mem::take(&mut self.removing) {
            let fd = self.open_below(&dir)?;
            let path = join(&dir, &name);
            match removal {
                Removal::All => {
                    disk::remove_tree(&fd, &name).map_err(|errno| {
                        disk::failed("remove", Path::new(&shown(&path).to_string()), errno)
                    })?;
                    self.report.removed += 1;
                }
                Removal::Old(old, node) => {
                    self.remove_old(fd.as_fd(), &name, &path, &old, node.as_ref())?
                }
            }
        }
        Ok(())
    }

    /// Removes what an old tree had, and nothing else.
    pub(super) fn remove_old(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        path: &[u8],
        old: &OldDir,
        node: Option<&Node>,
    ) -> Result<()> {
        let failed = |errno| disk::failed("remove", Path::new(&shown(path).to_string()), errno);
        if !matches!(node, Some(Node::Tree { .. })) {
            match fs::unlinkat(dir, name, AtFlags::empty()) {
                Ok(()) => self.report.removed += 1,
                // A job has put a directory there: it is the job's.
                Err(Errno::NOENT | Errno::ISDIR | Errno::PERM) => {}
                Err(errno) => return Err(failed(errno)),
            }
            return Ok(());
        }
        let below = match disk::open_dir(dir, name) {
            Ok(below) => below,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            Err(errno) => return Err(failed(errno)),
        };
        let old = old.clone().loaded(self.reader)?;
        for (name, node) in old.entries() {
            let below_old = OldDir::from_old(old.below(&name));
            let path = join(path, &name);
            if is_wanted(self.reader, &self.old_filter, &path, &node)? {
                self.remove_old(below.as_fd(), &name, &path, &below_old, Some(&node))?;
            }
        }
        match fs::unlinkat(dir, name, AtFlags::REMOVEDIR) {
            Ok(()) => self.report.removed += 1,
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOENT) => {}
            Err(errno) => return Err(failed(errno)),
        }
        Ok(())
    }

    /// Makes way for a directory; whether it has to be made.
    pub(super) fn clear_for_directory(
        &mut self,
        here: &Here<'_>,
        name: &[u8],
        path: &[u8],
        old: &OldDir,
    ) -> Result<bool> {
        let Some(found) = stat(here.fd, name)? else {
            return Ok(true);
        };
        if FileType::from_raw_mode(found.mode) == FileType::Directory {
            return Ok(false);
        }
        if !(self.request.force || self.request.exact || old.was_file()) {
            return Err(in_the_way(path, "a file", "a directory"));
        }
        fs::unlinkat(here.fd, name, AtFlags::empty())
            .map_err(|errno| disk::failed("remove", Path::new(&shown(path).to_string()), errno))?;
        self.report.removed += 1;
        Ok(true)
    }

    /// Makes way for a file or symlink: a directory that is in its place goes, if nothing of a job is in it.
    pub(super) fn clear_for_file(&mut self, dir: BorrowedFd<'_>, item: &Waiting) -> Result<()> {
        let is_dir = stat(dir, &item.name)?
            .is_some_and(|found| FileType::from_raw_mode(found.mode) == FileType::Directory);
        if !is_dir {
            return Ok(());
        }
        let path = join(&item.dir, &item.name);
        let failed = |errno| disk::failed("remove", Path::new(&shown(&path).to_string()), errno);
        if self.request.force || self.request.exact {
            return disk::remove_tree(dir, &item.name).map_err(failed);
        }
        // What the old tree had below goes first; then the directory must be empty.
        let at = self
            .removing
            .iter()
            .position(|(dir, name, _)| (dir, name) == (&item.dir, &item.name));
        if let Some(at) = at
            && let (_, name, Removal::Old(old, node)) = self.removing.swap_remove(at)
        {
            self.remove_old(dir, &name, &path, &old, node.as_ref())?;
        }
        match fs::unlinkat(dir, &*item.name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {
                Err(in_the_way(&path, "a directory with files in it", "a file"))
            }
            Err(errno) => Err(failed(errno)),
        }
    }
}
