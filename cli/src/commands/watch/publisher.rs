//! One checkpoint after the other becomes a version, and old ones go. What was published is known from the store alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use store::{
    Error, Id, Kind, PutReport, PutRequest, RefName, Result, SourceCheck, Step, StepRule, Steps,
    StepsSeen, Store, Unwatched, refs,
};

use super::floor;
use crate::context::{Context, pools};
use crate::ui::{failure, human, names};

/// What a machine reads.
#[derive(Serialize)]
struct Report {
    #[serde(rename = "ref")]
    target: RefName,
    version: u64,
    id: Option<Id>,
    checkpoint: String,
    /// The newest version was the same already.
    unchanged: bool,
    bytes: u64,
    new_bytes: u64,
    stored_bytes: u64,
    /// Versions of earlier checkpoints that were dropped.
    dropped: Vec<u64>,
    secs: f64,
}

pub(super) struct Publisher<'p> {
    context: &'p Context,
    store: &'p Store,
    dir: PathBuf,
    rule: StepRule,
    target: &'p RefName,
    keep: Option<u64>,
    free: u64,
    /// Titles of what was published, or is older than what was.
    known: BTreeSet<String>,
    /// Titles of what cannot be published as it is, and why.
    refused: BTreeMap<String, String>,
    /// Names of what changed while it was read, and was not published since.
    changed: BTreeSet<String>,
    /// What failed last, if nothing went well since.
    failed: Option<Error>,
    /// What was told, so that it is not told again and again.
    told: BTreeSet<String>,
}

impl<'p> Publisher<'p> {
    pub(super) fn new(
        context: &'p Context,
        store: &'p Store,
        (dir, rule): (&Path, StepRule),
        target: &'p RefName,
        (keep, free): (Option<u64>, u64),
    ) -> Result<Self> {
        let (published, has_dropped) = titles(store, target)?;
        let there = Steps::all(dir)?;
        // What was finished before the last one that was published may have been published, and dropped since.
        let last = there
            .iter()
            .filter(|step| has_dropped && published.contains(&step.title))
            .map(|step| step.newest)
            .max();
        let older = there.into_iter().filter(|step| Some(step.newest) < last);
        let mut known: BTreeSet<String> = older.map(|step| step.title).collect();
        known.extend(published);
        Ok(Self {
            context,
            store,
            dir: dir.to_path_buf(),
            rule,
            target,
            keep,
            free,
            known,
            refused: BTreeMap::new(),
            changed: BTreeSet::new(),
            failed: None,
            told: BTreeSet::new(),
        })
    }

    /// Publishes what is finished and new, in the order in which it was finished.
    pub(super) fn publish(&mut self, seen: &StepsSeen) {
        for name in &seen.unknown {
            self.note_once(format!(
                "{name}: nothing tells when it is finished: say --done or --settled"
            ));
        }
        for step in &seen.finished {
            if self.known.contains(&step.title) || self.refused.contains_key(&step.title) {
                continue;
            }
            match self.publish_one(step) {
                Ok(()) => {
                    self.failed = None;
                    self.changed.remove(&name_of(step));
                }
                // It will be looked at again.
                Err(_) if Steps::check(&self.dir, &self.rule, step).is_err() => {
                    self.changed.insert(name_of(step));
                }
                Err(error) if is_of_the_step(&error) => {
                    self.warn(&error);
                    let why = failure::one_line(&error);
                    self.refused.insert(step.title.clone(), why);
                }
                Err(error) => {
                    // Those behind it would come before it.
                    self.warn(&error);
                    self.failed = Some(error);
                    return;
                }
            }
        }
    }

    fn publish_one(&mut self, step: &Step) -> Result<()> {
        floor::check(self.store, self.free)?;
        let began = Instant::now();
        let mut request = PutRequest::new(&step.path, self.target.clone());
        request.message.clone_from(&step.title);
        request.pools = pools::of_source(&step.path, &self.context.config().pool);
        let (dir, rule, seen) = (self.dir.clone(), self.rule.clone(), step.clone());
        let check = move || Steps::check(&dir, &rule, &seen);
        request.source_check = Some(SourceCheck::new(Arc::new(check)));
        let done = store::put(self.store, &request, &Unwatched)?;
        self.known.insert(step.title.clone());
        let dropped = self.retain().unwrap_or_else(|error| {
            self.warn(&error);
            Vec::new()
        });
        let report = self.report(step, &done, dropped, began.elapsed());
        for skipped in failure::skipped(done.skipped) {
            self.context
                .out
                .warning(format_args!("skipped: {}", skipped.error));
        }
        self.context.out.report(&report)?;
        self.context.out.finish()
    }

    fn report(&self, step: &Step, done: &PutReport, dropped: Vec<u64>, took: Duration) -> Report {
        Report {
            target: self.target.clone(),
            version: done.version.unwrap_or_default(),
            id: done.id.clone(),
            checkpoint: name_of(step),
            unchanged: done.unchanged,
            bytes: done.bytes,
            new_bytes: done.new_bytes,
            stored_bytes: done.stored_bytes,
            dropped,
            secs: took.as_secs_f64(),
        }
    }

    /// Drops what is more than is to be kept. The newest ones stay, so that there is always a whole one.
    fn retain(&self) -> Result<Vec<u64>> {
        let Some(keep) = self.keep else {
            return Ok(Vec::new());
        };
        let versions = self.store.state()?.versions(self.target)?;
        let ours = versions
            .into_iter()
            .filter(|(_, version)| !version.pinned && is_title(&version.message));
        let ours: Vec<u64> = ours.map(|(number, _)| number).collect();
        let keep = usize::try_from(keep).unwrap_or(usize::MAX).max(1);
        let doomed = ours.len().saturating_sub(keep);
        let doomed: Vec<u64> = ours.into_iter().take(doomed).collect();
        for number in &doomed {
            refs::drop_versions(self.store, self.target, Some(*number))?;
        }
        Ok(doomed)
    }

    /// Whether all that is there is published, when the watch ends.
    pub(super) fn outcome(&mut self, seen: &StepsSeen) -> Result<()> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let unfinished = seen.unfinished.iter().chain(&seen.unknown);
        let mut missing: Vec<String> = unfinished
            .map(|name| format!("{name}: not finished"))
            .collect();
        let changed = self
            .changed
            .iter()
            .filter(|name| !seen.unfinished.contains(name));
        missing.extend(changed.map(|name| format!("{name}: changed while it was read")));
        missing.extend(self.refused.values().cloned());
        match missing.is_empty() {
            true => Ok(()),
            false => Err(Error::partial(format!(
                "{}: {} not published",
                self.target,
                human::counted(missing.len() as u64, "checkpoint")
            ))
            .list(missing)),
        }
    }

    pub(super) fn warn(&mut self, error: &Error) {
        let text = failure::one_line(error);
        if self.told.insert(text.clone()) {
            self.context
                .out
                .warning(format_args!("warning: {text}; tried again"));
        }
    }

    fn note_once(&mut self, text: String) {
        if self.told.insert(text.clone()) {
            self.context.out.warning(format_args!("warning: {text}"));
        }
    }
}

/// Whether it is the checkpoint that cannot be put, whatever the store does.
fn is_of_the_step(error: &Error) -> bool {
    matches!(
        error.kind(),
        Kind::InvalidInput | Kind::Corrupt | Kind::NotFound
    )
}

/// Messages of the versions that were made from checkpoints, and whether a version of the ref was dropped.
fn titles(store: &Store, target: &RefName) -> Result<(BTreeSet<String>, bool)> {
    let versions = match store.state()?.versions(target) {
        Err(error) if error.kind() == Kind::NotFound => return Ok((BTreeSet::new(), false)),
        versions => versions?,
    };
    let last = versions.keys().next_back().copied().unwrap_or_default();
    let has_dropped = last > versions.len() as u64;
    let messages = versions.into_values().map(|version| version.message);
    let titles = messages.filter(|message| is_title(message));
    Ok((titles.collect(), has_dropped))
}

/// A name, a space, and 16 hex digits.
fn is_title(message: &str) -> bool {
    let is_hex = |sum: &str| sum.len() == 16 && sum.bytes().all(|byte| byte.is_ascii_hexdigit());
    message
        .rsplit_once(' ')
        .is_some_and(|(name, sum)| !name.is_empty() && is_hex(sum))
}

fn name_of(step: &Step) -> String {
    let name = step.path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let same = if self.unchanged { " (unchanged)" } else { "" };
        write!(
            out,
            "{}@{}{}{same}: {}, {}, new {} in {}",
            self.target,
            self.version,
            names::id(self.id.as_ref()),
            self.checkpoint,
            human::bytes(self.bytes),
            human::bytes(self.new_bytes),
            human::duration(Duration::from_secs_f64(self.secs))
        )?;
        match self.dropped.len() as u64 {
            0 => Ok(()),
            count => write!(out, "; dropped {}", human::counted(count, "older version")),
        }
    }
}
