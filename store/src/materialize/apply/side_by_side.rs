//! Takes the postponed steps of a new tree on several threads, directory by directory.
//!
//! This is only possible if nothing can be in the way: each file is made under its own name, and not in a room first.
//! In a tree that somebody sees, only links are made here, each in one step; copies go through the room afterwards.

use std::sync::{Mutex, PoisonError};

use super::*;

/// The work of one thread.
struct Part<'m> {
    fence: Fence<'m>,
    placer: Placer<'m>,
    trail: Trail,
    report: MaterializeReport,
    is_unseen: bool,
    missing: Vec<Waiting>,
    /// Files to be copied in a tree that somebody sees.
    copies: Vec<Waiting>,
}

/// Postponed steps by directory, not taken yet.
type Queue = Mutex<std::vec::IntoIter<Vec<Waiting>>>;

impl<'m> Apply<'m> {
    /// Places files of directories that nobody else knows yet. Returns those that the pool lacks.
    pub(super) fn place_side_by_side(&mut self, waiting: Vec<Waiting>) -> Result<Vec<Waiting>> {
        self.is_begun = true;
        let queue = Mutex::new(by_directory(waiting).into_iter());
        let host = self.reader.store().host();
        let begin = || -> Result<Part<'m>> {
            Ok(Part {
                fence: self.fence,
                placer: self.placer.clone(),
                trail: self.trail.again()?,
                report: self.report.empty(),
                is_unseen: self.is_unseen,
                missing: Vec::new(),
                copies: Vec::new(),
            })
        };
        let parts: Vec<Part<'m>> = (0..host.threads.max(1))
            .map(|_| begin())
            .collect::<Result<_>>()?;
        let parts: Vec<Result<Part<'m>>> = std::thread::scope(|scope| {
            let queue = &queue;
            let work = |mut part: Part<'m>| {
                move || {
                    while let Some(items) = next(queue) {
                        let placed = host.check_stop().and_then(|()| part.directory(items));
                        if let Err(error) = placed {
                            // Empties the queue, so that the other threads stop.
                            while next(queue).is_some() {}
                            return Err(error);
                        }
                    }
                    Ok(part)
                }
            };
            let threads: Vec<_> = parts
                .into_iter()
                .map(|part| scope.spawn(work(part)))
                .collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Part<'m>>>| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect()
        });
        let (mut missing, mut copies) = (Vec::new(), Vec::new());
        for part in parts {
            let part = part?;
            self.placer.learn(&part.placer);
            self.report.add(part.report);
            missing.extend(part.missing);
            copies.extend(part.copies);
        }
        missing.extend(self.place_in_order(copies)?);
        Ok(missing)
    }
}

impl Part<'_> {
    fn directory(&mut self, items: Vec<Waiting>) -> Result<()> {
        let Some(first) = items.first() else {
            return Ok(());
        };
        let dir = self.trail.go(&first.dir)?;
        for item in items {
            let Op::Make(thing, ..) = &item.op else {
                continue;
            };
            let Some(placing) = placing(thing) else {
                continue;
            };
            (self.fence)()?;
            let (name, report) = (&item.name, &mut self.report);
            let placed = match self.is_unseen {
                true => Some(self.placer.place(&placing, dir, name, report)?),
                false => self.placer.link(&placing, dir, name, report)?,
            };
            match placed {
                Some(true) => {}
                Some(false) => self.missing.push(item),
                None => self.copies.push(item),
            }
        }
        Ok(())
    }
}

impl Waiting {
    /// Whether the step makes a file in a directory that nobody else sees yet.
    pub(super) fn is_fresh_file(&self) -> bool {
        matches!(self.op, Op::Make(Thing::File { .. }, _, true))
    }
}

fn next(queue: &Queue) -> Option<Vec<Waiting>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).next()
}

/// Groups consecutive steps in one directory.
fn by_directory(waiting: Vec<Waiting>) -> Vec<Vec<Waiting>> {
    let mut groups: Vec<Vec<Waiting>> = Vec::new();
    for item in waiting {
        match groups.last_mut() {
            Some(group) if group.first().is_some_and(|first| first.dir == item.dir) => {
                group.push(item);
            }
            _ => groups.push(vec![item]),
        }
    }
    groups
}
