//! What a walk has put off: the pool is filled with it, and it is placed, replaced or removed, in this order.

use super::*;

impl<'m> Walk<'m> {
    /// Makes something in the room and renames it into place, so that nobody sees it half done.
    pub(super) fn by_rename(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        make: impl FnOnce(&mut Self, BorrowedFd<'_>, &[u8]) -> Result<bool>,
    ) -> Result<bool> {
        let Some(room) = self.room else {
            return Err(Error::invalid("destination: has no room beside it"));
        };
        let room = disk::open_path(room.path())?;
        disk::forgive(fs::unlinkat(&room, "next", AtFlags::empty()));
        if !make(self, room.as_fd(), b"next")? {
            return Ok(false);
        }
        fs::renameat(&room, "next", dir, name).map_err(|errno| {
            disk::failed(
                "rename into place",
                Path::new(&shown(name).to_string()),
                errno,
            )
        })?;
        Ok(true)
    }

    /// Places everything that was put off.
    pub(super) fn settle(&mut self) -> Result<()> {
        self.place_waiting()?;
        self.replace()?;
        self.remove()?;
        for (path, time) in std::mem::take(&mut self.unsettled).into_iter().rev() {
            let dir = self.open_below(&path)?;
            settle_dir(dir.as_fd(), &path, time)?;
        }
        Ok(())
    }

    pub(super) fn place_waiting(&mut self) -> Result<()> {
        self.waiting_bytes = 0;
        let waiting = std::mem::take(&mut self.waiting);
        self.place_all(waiting)
    }

    pub(super) fn replace(&mut self) -> Result<()> {
        let mut replacing = std::mem::take(&mut self.replacing);
        while !replacing.is_empty() {
            let rest = replacing.split_off(replacing.len().min(WAITING_MAX));
            self.place_all(replacing)?;
            replacing = rest;
        }
        Ok(())
    }

    /// Fills the pool and places, again where the pool was emptied in between.
    pub(super) fn place_all(&mut self, mut waiting: Vec<Waiting>) -> Result<()> {
        for _ in 0..ATTEMPTS_MAX {
            if waiting.is_empty() {
                return Ok(());
            }
            self.fill(&waiting)?;
            let is_new = self.room.is_some() && waiting.iter().all(Waiting::is_fresh_file);
            waiting = match is_new {
                true => self.place_side_by_side(waiting)?,
                false => self.place_in_order(waiting)?,
            };
        }
        if waiting.is_empty() {
            return Ok(());
        }
        Err(Error::unavailable(format!(
            "pool {}: files are evicted before they can be linked",
            self.pool.path().display()
        ))
        .hint("raise the pool's limits, or give it more room"))
    }

    /// Places one after the other; returns what the pool does not have.
    fn place_in_order(&mut self, waiting: Vec<Waiting>) -> Result<Vec<Waiting>> {
        let mut open: Option<(Arc<[u8]>, OwnedFd)> = None;
        let mut missing = Vec::new();
        for item in waiting {
            let dir = match open.take() {
                Some((path, dir)) if path == item.dir => (path, dir),
                _ => (Arc::clone(&item.dir), self.open_below(&item.dir)?),
            };
            if !self.place_one(dir.1.as_fd(), &item)? {
                missing.push(item);
            }
            open = Some(dir);
        }
        Ok(missing)
    }

    pub(super) fn fill(&mut self, waiting: &[Waiting]) -> Result<()> {
        let wanted = waiting.iter().filter_map(|item| match &item.what {
            What::File(placing) if placing.key.content.size > 0 => Some(Wanted {
                key: placing.key,
                is_copied: placing.is_private,
            }),
            _ => None,
        });
        let filled = fill(self.reader, self.pool, wanted, self.progress)?;
        self.report.fetched += filled.files;
        self.report.fetched_bytes += filled.fetched_bytes;
        self.report.damaged.extend(filled.damaged);
        Ok(())
    }

    pub(super) fn place_one(&mut self, dir: BorrowedFd<'_>, item: &Waiting) -> Result<bool> {
        if let What::File(placing) = &item.what
            && self.room.is_none()
        {
            // A prefetch: being in the pool is all.
            return Ok(
                placing.key.content.size == 0 || self.pool.has(&placing.key, placing.is_private)?
            );
        }
        match &item.what {
            What::File(placing) if item.is_fresh => {
                self.placer
                    .place(placing, dir, &item.name, &mut self.report)
            }
            What::File(placing) => {
                self.clear_for_file(dir, item)?;
                self.by_rename(dir, &item.name, |walk, room, temporary| {
                    walk.placer
                        .place(placing, room, temporary, &mut walk.report)
                })
            }
            What::Symlink(target, time) => {
                self.clear_for_file(dir, item)?;
                self.by_rename(dir, &item.name, |_, room, temporary| {
                    make_symlink(room, temporary, target, *time).map(|()| true)
                })
            }
        }
    }

    /// A directory of the destination.
    pub(super) fn open_below(&self, path: &[u8]) -> Result<OwnedFd> {
        if self.room.is_none() {
            return open_dir(CWD, b".");
        }
        open_below(self.root.as_ref().map_or(CWD, AsFd::as_fd), path)
    }

    pub(super) fn put_off(&mut self, waiting: Waiting, bytes: u64) -> Result<()> {
        self.waiting.push(waiting);
        self.waiting_bytes += bytes;
        if self.waiting.len() >= WAITING_MAX || self.waiting_bytes >= WAITING_BYTES_MAX {
            return self.place_waiting();
        }
        Ok(())
    }
}

/// A directory below `root`, never through a symlink.
pub(super) fn open_below(root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd> {
    let mut dir = open_dir(root, b".")?;
    for name in path
        .split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty())
    {
        dir = open_dir(dir.as_fd(), name)?;
    }
    Ok(dir)
}
