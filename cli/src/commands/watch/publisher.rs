//! One checkpoint after the other becomes a version, and old ones go. What was published is known from the store alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use store::{
    Error, Id, Kind, NotYet, Onto, PutReport, PutRequest, RefName, Remedy, Result, SourceCheck,
    Step, StepAge, StepRule, Steps, StepsSeen, Store, Unwatched, refs,
};

use super::before::{Before, Last, is_title};
use super::floor;
use crate::context::{Context, pools};
use crate::ui::{failure, human, names};

/// How long a store that failed is left alone, at first and in the end.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// What a machine reads.
#[derive(Serialize)]
struct Report {
    #[serde(rename = "ref")]
    target: RefName,
    version: u64,
    id: Option<Id>,
    checkpoint: String,
    /// The version was the same already.
    unchanged: bool,
    bytes: u64,
    new_bytes: u64,
    stored_bytes: u64,
    /// Versions of earlier checkpoints that were dropped.
    dropped: Vec<u64>,
    secs: f64,
}

/// What is published, and how.
pub(super) struct How {
    /// Where the checkpoints are, and what finishes them.
    pub(super) dir: PathBuf,
    pub(super) rule: StepRule,
    /// So many versions stay.
    pub(super) keep: Option<u64>,
    /// So many bytes stay free where the store is.
    pub(super) free: u64,
    /// What may look like credentials.
    pub(super) allow_secret: Vec<String>,
}

pub(super) struct Publisher<'p> {
    context: &'p Context,
    store: &'p Store,
    how: How,
    target: &'p RefName,
    /// Names of what was published, also as it was before.
    names: BTreeSet<String>,
    /// How old each of them was, by its name.
    ages: BTreeMap<String, StepAge>,
    /// The newest of those that are published.
    last: Option<Last>,
    /// Titles of what was published, or is older than what was.
    known: BTreeSet<String>,
    /// Titles of what cannot be published as it is, and why.
    refused: BTreeMap<String, String>,
    /// Titles of what is less than what was published, and what is told of it.
    less: BTreeMap<String, String>,
    /// Names of what changed while it was read, and was not published since.
    changed: BTreeSet<String>,
    /// What failed last, if nothing went well since.
    failed: Option<Error>,
    /// How often in a row, and when it is tried again.
    failures: u32,
    again: Option<Instant>,
    /// What was told, so that it is not told again and again.
    told: BTreeSet<String>,
}

impl<'p> Publisher<'p> {
    pub(super) fn new(
        context: &'p Context,
        store: &'p Store,
        target: &'p RefName,
        how: How,
    ) -> Result<Self> {
        let before = Before::of(store, target)?;
        let there = Steps::all(&how.dir, &how.rule)?;
        let last = before.last(&there);
        let mut known: BTreeSet<String> = before.titles.into_keys().collect();
        if let Some(last) = last.as_ref().filter(|_| before.has_dropped) {
            // What was finished before may have been published, and dropped since.
            let older = there.iter().filter(|step| last.may_follow(step));
            for step in older {
                if !known.insert(step.title.clone()) {
                    continue;
                }
                let (name, last) = (&step.name, &last.name);
                let told = match before.names.contains(name) {
                    true => format!("is older than {last}, and is not published again"),
                    false => format!("older than {last}, which is published; taken for dropped"),
                };
                context.out.note(format_args!("note: {name}: {told}"));
            }
        }
        Ok(Self {
            context,
            store,
            how,
            target,
            ages: before.ages,
            names: before.names,
            last,
            known,
            refused: BTreeMap::new(),
            less: BTreeMap::new(),
            changed: BTreeSet::new(),
            failed: None,
            failures: 0,
            again: None,
            told: BTreeSet::new(),
        })
    }

    /// Publishes what is finished and new, in the order in which it was finished; where the store failed, after a while,
    /// or when it is the last time.
    pub(super) fn publish(&mut self, seen: &StepsSeen, is_last: bool) {
        for name in &seen.unknown {
            self.note_once(format!(
                "{name}: nothing tells when it is finished: say --done or --settled"
            ));
        }
        for name in &seen.passed {
            if !self.names.contains(name) {
                self.note_once(format!(
                    "{name}: not published: a later one was finished before this one was seen"
                ));
            }
        }
        for unfinished in &seen.unfinished {
            if unfinished.why != NotYet::Written {
                self.note_once(unfinished.to_string());
            }
        }
        if self
            .again
            .is_some_and(|again| Instant::now() < again && !is_last)
        {
            return;
        }
        for step in &seen.finished {
            let is_refused = self.refused.contains_key(&step.title);
            if is_refused || self.known.contains(&step.title) {
                continue;
            }
            if self.is_passed(step) || self.is_less(step) {
                continue;
            }
            match self.publish_one(step) {
                Ok(is_new) => {
                    (self.failed, self.failures, self.again) = (None, 0, None);
                    self.changed.remove(&step.name);
                    self.names.insert(step.name.clone());
                    self.ages.insert(step.name.clone(), StepAge::of(step));
                    if is_new {
                        self.last = Some(Last::of(step));
                    }
                }
                // It will be looked at again.
                Err(_) if Steps::check(&self.how.dir, &self.how.rule, step).is_err() => {
                    self.changed.insert(step.name.clone());
                }
                Err(error) if self.is_of_the_step(&error) => {
                    self.refuse(step, format!("{}: {}", step.name, advised(&error)));
                }
                // Those behind it would come before it.
                Err(error) => return self.fail(error),
            }
        }
    }

    /// Whether a newer one is published, before which this one should have come.
    fn is_passed(&mut self, step: &Step) -> bool {
        let Some(last) = self.last.as_ref().filter(|last| last.is_after(step)) else {
            return false;
        };
        let (name, last) = (&step.name, &last.name);
        match self.names.contains(name) {
            true => self.note_once(format!("{name}: is older than {last}, and is not published again")),
            false => self.refuse(step, format!(
                "{name}: not published: {last} is newer, and would not be the latest any more; `store put` publishes it"
            )),
        }
        true
    }

    /// Whether it is what was published, but for files that went since: a deletion, or a rewriting, that was broken off.
    fn is_less(&mut self, step: &Step) -> bool {
        let age = StepAge::of(step);
        let was = self.ages.get(&step.name);
        let is_less = was.is_some_and(|was| age.says_no_more_than(was));
        if is_less {
            let name = &step.name;
            let why = format!(
                "{name}: lost files since it was published, and nothing in it is newer: not published again"
            );
            self.note_once(why.clone());
            self.less.insert(step.title.clone(), why);
        }
        is_less
    }

    fn refuse(&mut self, step: &Step, why: String) {
        self.note_once(why.clone());
        self.refused.insert(step.title.clone(), why);
    }

    /// Whether it is the checkpoint that cannot be put, whatever the store does.
    fn is_of_the_step(&self, error: &Error) -> bool {
        let may_be = match error.kind() {
            Kind::InvalidInput | Kind::Corrupt | Kind::NotFound => true,
            Kind::Denied => matches!(
                error.remedy(),
                Some(Remedy::AllowSecret { .. } | Remedy::AllowSecrets)
            ),
            _ => false,
        };
        let id = self.store.format().id;
        // A store that is away is not there either.
        may_be
            && self
                .context
                .open()
                .is_ok_and(|store| store.format().id == id)
    }

    /// Whether no version had it.
    fn publish_one(&mut self, step: &Step) -> Result<bool> {
        floor::check(self.store, self.how.free)?;
        let began = Instant::now();
        let mut request = PutRequest::new(&step.path, self.target.clone());
        request.message.clone_from(&step.title);
        request.extra = StepAge::of(step).into_extra();
        request.pools = pools::of_source(&step.path, &self.context.config().pool);
        request.onto = Onto::New;
        request
            .profile
            .allow_secret
            .clone_from(&self.how.allow_secret);
        let (dir, rule) = (self.how.dir.clone(), self.how.rule.clone());
        let seen = step.clone();
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
        self.context.out.finish()?;
        Ok(!report.unchanged)
    }

    fn report(&self, step: &Step, done: &PutReport, dropped: Vec<u64>, took: Duration) -> Report {
        Report {
            target: self.target.clone(),
            version: done.version.unwrap_or_default(),
            id: done.id.clone(),
            checkpoint: step.name.clone(),
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
        let Some(keep) = self.how.keep else {
            return Ok(Vec::new());
        };
        let state = self.store.state()?;
        let mut ours = state.versions(self.target)?;
        ours.retain(|_, version| !version.pinned && is_title(&version.message));
        // One that came back is as old as it was; of several copies of one all stay, or none.
        let ours = state.by_rank(self.target, &ours);
        let ranks: BTreeSet<u64> = ours.iter().map(|version| version.rank).collect();
        let keep = usize::try_from(keep).unwrap_or(usize::MAX).max(1);
        let first_kept = ranks.into_iter().rev().take(keep).next_back();
        let doomed = ours
            .iter()
            .filter(|version| Some(version.rank) < first_kept);
        let doomed: Vec<u64> = doomed.map(|version| version.number).collect();
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
        let unfinished = seen.unfinished.iter().map(ToString::to_string);
        let unknown = seen.unknown.iter();
        let unknown = unknown.map(|name| format!("{name}: not finished"));
        let mut missing: Vec<String> = unfinished.chain(unknown).collect();
        let is_named = |name: &String| seen.unfinished.iter().any(|one| one.name == *name);
        let changed = self.changed.iter().filter(|name| !is_named(name));
        missing.extend(changed.map(|name| format!("{name}: changed while it was read")));
        missing.extend(self.refused.values().cloned());
        let less = seen.finished.iter();
        let less = less.filter_map(|step| self.less.get(&step.title));
        missing.extend(less.cloned());
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

    fn fail(&mut self, error: Error) {
        let before = self.failed.as_ref().map(Error::kind);
        if before != Some(error.kind()) {
            self.warn(&error);
        }
        self.failed = Some(error);
        let pause = PAUSE_MIN.saturating_mul(1 << self.failures.min(16));
        self.failures += 1;
        self.again = Instant::now().checked_add(pause.min(PAUSE_MAX));
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

/// Why a checkpoint is not put, and what to do about it here.
fn advised(error: &Error) -> String {
    let told = failure::one_line(error);
    let glob = match error.remedy() {
        Some(Remedy::AllowSecret { glob }) => names::quoted(glob),
        Some(Remedy::AllowSecrets) => "GLOB".into(),
        _ => return told,
    };
    format!("{told}; if it holds none, --allow-secret {glob} takes it")
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
