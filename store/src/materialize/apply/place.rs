//! Postponed steps: fills the pool with their files and takes them, again if files were evicted in between.

use super::*;
use crate::error::Error;
use crate::materialize::fill::{Wanted, fill};

/// How often the pool may lose a file between filling and linking.
const ATTEMPTS_MAX: u32 = 8;

impl Apply<'_> {
    /// Takes all postponed steps.
    pub(super) fn place_waiting(&mut self) -> Result<()> {
        self.waiting_bytes = 0;
        self.waiting_paths = 0;
        let mut waiting = std::mem::take(&mut self.waiting);
        for _ in 0..ATTEMPTS_MAX {
            if waiting.is_empty() {
                return Ok(());
            }
            self.fill(&waiting)?;
            waiting = match waiting.iter().all(Waiting::is_fresh_file) {
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

    /// Takes the steps one after another. Returns those whose files the pool lacks.
    pub(super) fn place_in_order(&mut self, waiting: Vec<Waiting>) -> Result<Vec<Waiting>> {
        let mut missing = Vec::new();
        for item in waiting {
            let is_done = match &item.op {
                Op::Make(..) | Op::Replace(..) => {
                    self.place_one(&item.dir, &item.name, &item.op)?
                }
                op => self.step(&item.dir, &item.name, op).map(|()| true)?,
            };
            if !is_done {
                missing.push(item);
            }
        }
        Ok(missing)
    }

    fn fill(&mut self, waiting: &[Waiting]) -> Result<()> {
        let wanted = waiting.iter().filter_map(|item| {
            let (Op::Make(thing, ..) | Op::Replace(thing, _)) = &item.op else {
                return None;
            };
            let placing = placing(thing).filter(|placing| placing.key.content.size > 0)?;
            Some(Wanted {
                key: placing.key,
                is_copied: placing.is_private,
            })
        });
        let filled = fill(self.reader, self.pool, wanted, self.progress)?;
        self.report.fetched += filled.files;
        self.report.fetched_bytes += filled.fetched_bytes;
        self.report.damaged.extend(filled.damaged);
        Ok(())
    }
}
