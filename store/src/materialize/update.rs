//! Brings an existing destination to the wanted tree.
//!
//! The record of the new tree is on disk before the first step is taken, beside the settled record. When everything is
//! done, the mark names the new record, and the others are removed. So after an interruption the records describe
//! everything that may have been made. A pass that changes nothing writes nothing.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};

use super::build::{Goes, one_file, tree_of};
use super::diff::{Whose, judge};
use super::found::Found;
use super::known::{Known, Saved, empty};
use super::*;
use crate::host::pool::stamped_open;
use crate::host::saved::{Note as SaveNote, Notes};

/// The result of comparing a destination with the wanted tree.
struct Compared {
    known: Known,
    made: Made,
    has_read: bool,
    /// Whether it was made before, and is not taken over now.
    is_made: bool,
    /// The open directory. It is changed even if its path leads elsewhere by now.
    root: OwnedFd,
}

/// The stamp of a directory while it is being updated. A process that uses another pool, or another path to the
/// directory, does not see the claim of this one; it stamps the directory before it looks at the content.
struct Stamp {
    root: OwnedFd,
    text: Mutex<Option<Vec<u8>>>,
}

impl Stamp {
    /// The stamp of a mark's open directory; none, if the directory has another stamp by now.
    fn of(pool: &Pool, mark: &Mark, root: OwnedFd) -> Option<Self> {
        let text = stamped_open(&root);
        let is_its = pool.is_stamp_of(mark, text.as_deref());
        is_its.then(|| Self {
            root,
            text: text.into(),
        })
    }

    /// Whether the directory still has the stamp. On a file system without attributes there never is one.
    fn is_there(&self) -> bool {
        let text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        stamped_open(&self.root) == *text
    }

    /// Whether the directory has the stamp that the mark names.
    fn is_of(&self, mark: &Mark) -> bool {
        let text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        text.as_deref() == mark.stamp.as_deref().map(str::as_bytes)
    }

    /// Records that the directory was stamped with the record of this mark.
    fn renew(&self, mark: &Mark) {
        if let Some(record) = &mark.stamp {
            let mut text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
            *text = Some(record.clone().into_bytes());
        }
    }
}

impl Task<'_> {
    /// Brings a directory to the new tree.
    pub(super) fn update(
        &self,
        destination: &Path,
        old: Option<Mark>,
        fence: Fence<'_>,
    ) -> Result<MaterializeReport> {
        // From here on, the path is not followed again, since somebody may redirect it at any moment.
        let root = disk::open_path(destination)?;
        let is_made = old.is_some();
        let (old, saved) = match old {
            Some(old) if old.is_of(&root) => {
                let saved = self.saved(destination, &old);
                (old, saved)
            }
            Some(_) => return Err(exchanged(destination)),
            None => {
                let saved = self.saved_before(destination);
                (self.take_over(destination, root.as_fd())?, saved)
            }
        };
        let stamp = Stamp::of(self.pool, &old, again(&root, destination)?)
            .ok_or_else(|| taken_elsewhere(destination))?;
        let claim = fence;
        let fence = &|| match stamp.is_there() {
            false => claim().and_then(|()| Err(taken_elsewhere(destination))),
            true => claim(),
        };
        self.check_not_set_back(destination, &old)?;
        let compared = Compared {
            is_made,
            ..self.compare(destination, root, (Some(&old), saved))?
        };
        self.close_to_others(destination, &compared.root)?;
        let Compared { known, made, .. } = &compared;
        let is_same = known.is_settled()
            && made.counts.is_done()
            && known
                .settled
                .as_ref()
                .is_some_and(|record| record.sum == made.record_sum);
        let (record, report, is_whole) = match &known.settled {
            Some(settled) if is_same => (settled.name.clone(), self.unchanged(made)?, true),
            _ => self.bring(destination, &compared, fence)?,
        };
        if !is_whole {
            // The next pass compares all of it again, with all records.
            return Ok(report);
        }
        let mut mark = self.mark(destination, (compared.root.as_fd(), b"."))?;
        mark.tree = tree_of(&self.found.node);
        mark.record = Some(record.clone());
        mark.kept = Some(report.conflicts > 0);
        mark.stamp.clone_from(&old.stamp);
        // A pass that was killed before it wrote its mark has left the stamp of a record that is forgotten below.
        let is_stamped = stamp.is_of(&old);
        if !old.is_like(&mark) || !is_stamped {
            self.fenced(destination, made, fence, || {
                if old.record != mark.record || !is_stamped {
                    mark.stamp(&compared.root);
                    stamp.renew(&mark);
                }
                self.pool.write_mark(&mark)
            })?;
        }
        // A stamp tells that they no longer count.
        if !is_made
            && mark.stamp.is_none()
            && let Some(notes) = self.store.notes(None, destination)
        {
            notes.forget(&self.request.spec.name);
        }
        if !is_same || compared.has_read {
            let room = self.pool.room(parent(destination))?;
            self.settle_now(destination, &record, &room);
        }
        let mut gone = compared.known.names;
        gone.retain(|name| *name != record);
        self.pool.forget_records(destination, &gone);
        Ok(report)
    }

    /// Takes over somebody else's directory, as one in which nothing was made yet.
    fn take_over(&self, destination: &Path, root: BorrowedFd<'_>) -> Result<Mark> {
        if !self.request.force && !disk::is_empty(root) {
            return Err(exchanged(destination));
        }
        self.pool
            .forget_records(destination, &self.pool.records(destination)?);
        let nothing = empty(self.pool.scratch()?)?;
        let mut mark = self.mark(destination, (root, b"."))?;
        mark.tree = tree_of(&self.found.node);
        mark.record = Some(self.pool.write_record(destination, &nothing)?);
        // The mark is first: a directory that names a record nobody knows is saved by no run.
        self.pool.write_mark(&mark)?;
        mark.stamp(root);
        self.pool.write_mark(&mark)?;
        Ok(mark)
    }

    /// Closes a tree that others could read, before anything private is added to it.
    fn close_to_others(&self, destination: &Path, root: impl AsFd) -> Result<()> {
        let failed = |errno| disk::failed("make private", destination, errno);
        let mode = fs::fstat(&root).map_err(failed)?.st_mode;
        match self.is_private() && mode & 0o077 != 0 {
            true => fs::fchmod(&root, fs::Mode::from_raw_mode(mode & 0o7700)).map_err(failed),
            false => Ok(()),
        }
    }

    /// Compares the destination with what is wanted. Without a mark, records of an earlier tree are ignored.
    fn compare(
        &self,
        destination: &Path,
        root: OwnedFd,
        (mark, saved): (Option<&Mark>, Option<Saved>),
    ) -> Result<Compared> {
        let known = match mark {
            Some(mark) => Known::read(self.pool, destination, (mark, saved))?,
            None => Known {
                saved,
                ..Known::default()
            },
        };
        let mut wanted = Wanted::new(self)?;
        let Node::Tree { content, .. } = &self.found.node else {
            return Err(Error::invalid(format!(
                "{}: is a directory, the ref is none",
                destination.display()
            )));
        };
        let time = wanted.begin(content)?;
        let walked = again(&root, destination)?;
        let settled = mark.map(|mark| known.settled_at(self.pool, destination, mark));
        let mut found = Found::new(self.pool, walked, settled.unwrap_or_default())?;
        let options = Options {
            is_unknown: known.is_unknown,
            ..self.options()
        };
        let all = (
            &mut wanted as &mut dyn diff::Wants,
            known.records(self.pool)?,
            &mut found as &mut dyn diff::Lies,
        );
        let files = (self.pool.scratch()?, self.pool.scratch()?);
        let made = Diff::new(all, options, self.progress, files)?.run(time, false)?;
        let has_read = found.has_read;
        Ok(Compared {
            known,
            made,
            has_read,
            is_made: mark.is_some(),
            root,
        })
    }

    /// What was saved to this ref since the tree was last made or updated. The ref has it, so it is no change of a job
    /// any more. None, if the paths of tree and ref differ, or the tree has no links.
    fn saved(&self, destination: &Path, mark: &Mark) -> Option<Saved> {
        let spec = &self.request.spec;
        let made_from: RefSpec = mark.source.parse().ok()?;
        let is_same = mark.store == self.store.format().id
            && made_from.name == spec.name
            && [&made_from.path, &spec.path]
                .iter()
                .all(|path| path.is_empty())
            && !mark.flatten;
        if !is_same {
            return None;
        }
        let (notes, note) = self.note(destination).ok()??;
        let counts = note.made == Some(mark.into());
        let list = notes.list(&note).filter(|_| counts)?;
        let globs = [
            &mark.include,
            &mark.exclude,
            &self.request.include,
            &self.request.exclude,
        ];
        Some(Saved {
            list,
            is_of_part: globs.iter().any(|globs| !globs.is_empty()),
        })
    }

    /// What was saved to this ref of a directory that is not made by a pool: a job filled it. What it saved the ref has;
    /// if somebody removed that from the ref since, it is no file of the job that would have to stay.
    fn saved_before(&self, destination: &Path) -> Option<Saved> {
        let spec = &self.request.spec;
        if !spec.path.is_empty() {
            return None;
        }
        let (notes, note) = self.note(destination).ok()??;
        let list = notes.list(&note).filter(|_| note.made.is_none())?;
        Some(Saved {
            list,
            is_of_part: false,
        })
    }

    /// The note of the last save of the destination to this ref.
    pub(super) fn note(&self, destination: &Path) -> Result<Option<(Notes<'_>, SaveNote)>> {
        let Some(notes) = self.store.notes(Some(self.pool), destination) else {
            return Ok(None);
        };
        let state = &self.reader.view().state;
        let note = notes.read_of(state, &self.request.spec.name)?;
        Ok(note.map(|note| (notes, note)))
    }

    fn unchanged(&self, made: &Made) -> Result<MaterializeReport> {
        let mut report = self.report();
        report.count(&made.counts);
        note_kept(&mut report, made)?;
        Ok(report)
    }

    /// Writes the record of the new tree, and makes the tree. Returns the name of the record.
    fn bring(
        &self,
        destination: &Path,
        compared: &Compared,
        fence: Fence<'_>,
    ) -> Result<(String, MaterializeReport, bool)> {
        let Compared {
            known, made, root, ..
        } = compared;
        let before = known.find(&made.record_sum);
        let record = match before {
            Some(record) => record.name.clone(),
            None => self.pool.write_record(destination, &made.record)?,
        };
        if made.counts.is_done() {
            return Ok((record, self.unchanged(made)?, true));
        }
        self.announce_overruled(destination, &made.overruled, compared.is_made);
        let room = self.pool.room(parent(destination))?;
        let root = again(root, destination)?;
        let is_begun = Cell::new(false);
        let done = self.fenced(destination, made, fence, || {
            self.apply(made, (&room, root, false), fence, &is_begun)
        });
        if done.is_err() && !is_begun.get() && before.is_none() && fence().is_ok() {
            // The tree was not changed.
            self.pool
                .forget_records(destination, std::slice::from_ref(&record));
        }
        let (report, is_whole) = done?;
        Ok((record, report, is_whole))
    }

    /// Does something that only the holder of the claim may do, and checks the claim before and after. If the claim was
    /// lost, the tree may be a mix: writes the record again, which the process that took over may have removed.
    fn fenced<T>(
        &self,
        destination: &Path,
        made: &Made,
        fence: Fence<'_>,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let done = fence().and_then(|()| work());
        let Err(lost) = fence() else {
            return done;
        };
        self.pool.write_record(destination, &made.record)?;
        Err(lost)
    }

    /// Replaces a single file that was made before, unless a job changed it.
    pub(super) fn file_again(
        &self,
        destination: &Path,
        mark: &Mark,
        fence: Fence<'_>,
    ) -> Result<MaterializeReport> {
        let claim = fence;
        let fence = &|| match mark.holds() {
            false => claim().and_then(|()| Err(taken_elsewhere(destination))),
            true => claim(),
        };
        let thing = Wanted::new(self)?.alone(&self.found.node)?;
        let whose = self.whose_file(destination, mark, Some(&thing))?;
        let size = match &thing {
            Thing::File { key, .. } => key.content.size,
            _ => 0,
        };
        match whose {
            Whose::Jobs if !self.options().overrules => {
                let mut report = self.report();
                report.keep(Vec::new(), Why::Changed);
                Ok(report)
            }
            Whose::Wanted => {
                if self.is_private() && matches!(thing, Thing::File { .. }) {
                    let above = disk::open_path(parent(destination))?;
                    let name = destination.file_name().unwrap_or_default();
                    let file = disk::open_file(above, name.as_bytes())
                        .map_err(|errno| disk::failed("open", destination, errno))?;
                    self.close_to_others(destination, &file)?;
                }
                let mut report = self.report();
                (report.files, report.bytes, report.unchanged) = (1, size, 1);
                self.progress.advance(1, size);
                Ok(report)
            }
            whose => {
                let lost = match whose {
                    Whose::Jobs => one_file(destination),
                    _ => Overruled::default(),
                };
                let is_made = true;
                self.build_for(destination, Some(Goes { lost, is_made }), fence)
            }
        }
    }

    /// Counts what is lost if something of another kind replaces what was made before.
    pub(super) fn lost_with(&self, destination: &Path, mark: &Mark) -> Result<Overruled> {
        let is_file = mark.tree.is_none();
        let is_jobs = is_file && self.whose_file(destination, mark, None)? == Whose::Jobs;
        Ok(match is_jobs {
            true => one_file(destination),
            false => Overruled::default(),
        })
    }

    /// Judges a single file that was made before.
    fn whose_file(&self, destination: &Path, mark: &Mark, wanted: Option<&Thing>) -> Result<Whose> {
        let known = Known::read(self.pool, destination, (mark, None))?;
        let name = destination.file_name().unwrap_or_default().as_bytes();
        let settled = known.settled_at(self.pool, destination, mark);
        let root = disk::open_path(parent(destination))?;
        let mut found = Found::new(self.pool, root, settled)?;
        let candidates = known.records(self.pool)?.take(TREE.as_bytes())?;
        let options = Options {
            is_unknown: known.is_unknown,
            ..self.options()
        };
        let stat = diff::Lies::stat(&mut found, name)?;
        match &stat {
            Some(stat) => judge(&mut found, &options, (name, stat), wanted, &candidates),
            None => Ok(Whose::Made),
        }
    }

    pub(super) fn plan_update(&self, destination: &Path, old: Option<&Mark>) -> Result<Plan> {
        let nobodys;
        let mark = match old {
            Some(old) => old,
            None => {
                nobodys = self.mark(destination, (CWD, destination.as_os_str().as_bytes()))?;
                &nobodys
            }
        };
        self.check_not_set_back(destination, mark)?;
        let saved = match old {
            Some(old) => self.saved(destination, old),
            None => self.saved_before(destination),
        };
        let compared = self.compare(destination, disk::open_path(destination)?, (old, saved))?;
        self.as_plan(compared.made)
    }

    pub(super) fn plan_file(&self, destination: &Path, mark: &Mark) -> Result<Plan> {
        let thing = Wanted::new(self)?.alone(&self.found.node)?;
        let whose = self.whose_file(destination, mark, Some(&thing))?;
        let files = (self.pool.scratch()?, self.pool.scratch()?);
        let made = match whose {
            Whose::Wanted => diff::nothing(files)?,
            Whose::Jobs if !self.options().overrules => diff::kept(Why::Changed, files)?,
            Whose::Made => self.diff_fresh()?,
            Whose::Jobs => Made {
                overruled: one_file(destination),
                ..self.diff_fresh()?
            },
        };
        self.as_plan(made)
    }
}

fn exchanged(destination: &Path) -> Error {
    Error::conflict(format!(
        "{}: is another directory than the one that was looked at before",
        destination.display()
    ))
    .hint("somebody replaced it, or a directory above it, meanwhile; check who may write there")
}

fn again(root: &OwnedFd, destination: &Path) -> Result<OwnedFd> {
    root.try_clone()
        .map_err(|source| Error::io("open directory", destination, source))
}
