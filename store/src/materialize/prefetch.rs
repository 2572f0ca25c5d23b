//! Fills the pool with the files of a tree, without making the tree.

use super::diff::Wants;
use super::fill::{self, fill};
use super::list::Thing;
use super::wanted::Wanted;
use super::{MaterializeReport, Task};
use crate::error::Result;
use crate::format::Node;

/// Most files, and bytes of files, that are fetched together.
const BATCH_FILES: usize = 16 << 10;
const BATCH_BYTES: u64 = 1 << 30;

impl Task<'_> {
    /// Fills the pool with every file of the tree.
    pub(super) fn prefetch(&self) -> Result<MaterializeReport> {
        let mut wanted = Wanted::new(self)?;
        let mut batch = Batch {
            task: self,
            report: self.report(),
            files: Vec::new(),
            bytes: 0,
        };
        let Node::Tree { content, .. } = &self.found.node else {
            let thing = wanted.alone(&self.found.node)?;
            batch.add(&thing)?;
            return batch.finish();
        };
        wanted.begin(content)?;
        batch.report.directories += 1;
        let mut depth = 1_u64;
        while depth > 0 {
            match wanted.next()? {
                None => depth -= 1,
                Some((_, thing @ Thing::Dir { .. })) => {
                    batch.add(&thing)?;
                    wanted.enter()?;
                    depth += 1;
                }
                Some((_, thing)) => batch.add(&thing)?,
            }
        }
        batch.finish()
    }
}

struct Batch<'t, 'm> {
    task: &'t Task<'m>,
    report: MaterializeReport,
    files: Vec<fill::Wanted>,
    bytes: u64,
}

impl Batch<'_, '_> {
    fn add(&mut self, thing: &Thing) -> Result<()> {
        let (key, is_copied) = match thing {
            Thing::Dir { .. } => {
                self.report.directories += 1;
                return Ok(());
            }
            Thing::Symlink { .. } | Thing::Left => {
                self.report.symlinks += 1;
                return Ok(());
            }
            Thing::File {
                key, is_private, ..
            } => (*key, *is_private),
        };
        self.report.files += 1;
        self.report.bytes += key.content.size;
        if key.content.size == 0 || self.task.pool.has(&key, is_copied)? {
            self.report.unchanged += 1;
            self.task.progress.advance(1, key.content.size);
            return Ok(());
        }
        self.files.push(fill::Wanted { key, is_copied });
        self.bytes += key.content.size;
        if self.files.len() >= BATCH_FILES || self.bytes >= BATCH_BYTES {
            return self.fill();
        }
        Ok(())
    }

    fn fill(&mut self) -> Result<()> {
        let files = std::mem::take(&mut self.files);
        self.bytes = 0;
        let filled = fill(
            self.task.reader,
            self.task.pool,
            files.into_iter(),
            self.task.progress,
        )?;
        self.report.fetched += filled.files;
        self.report.fetched_bytes += filled.fetched_bytes;
        self.report.damaged.extend(filled.damaged);
        Ok(())
    }

    fn finish(mut self) -> Result<MaterializeReport> {
        self.fill()?;
        Ok(self.report)
    }
}
