//! Publishes one checkpoint after another, and drops old ones. The store alone says what was published.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use store::{
    Error, ErrorKind, NotYet, Onto, PutReport, PutRequest, RefName, Remedy, Result, SourceCheck,
    Step, StepAge, StepRule, Steps, StepsSeen, Store, Unwatched, refs,
};

use super::before::{Before, Last};
use super::floor::{Floor, MAKE_ROOM, Waiting};
use super::gone::{Gone, doomed};
use super::report::{Report, Teller, Trimmed, advised, named};
use super::title::name;
use crate::commands::save;
use crate::context::{Context, pools};
use crate::ui::{failure, human, remedy};

/// How long to wait after a failure of the store: the first pause and the longest.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The message about a checkpoint that was skipped.
const PASSED: &str = "not published: a later one was finished before this one was seen, and nothing says whether it is whole; \
                      `store put` publishes it";

/// The message about a checkpoint that lost files.
const LESS: &str = "not published again: it has fewer files or older ones than when it was published, and nothing in it is newer";

/// The outcome for a checkpoint.
enum Done {
    Published,
    /// A version has it, or had it.
    Known,
    /// Why it would leave too little space.
    NoRoom(String),
}

/// The options of a publisher.
pub(super) struct How {
    /// The directory of the checkpoints, and the rule that says when one is finished.
    pub(super) dir: PathBuf,
    pub(super) rule: StepRule,
    /// How many versions to keep.
    pub(super) keep: Option<usize>,
    /// How many bytes to keep free on the store's disk.
    pub(super) floor: Option<Floor>,
    /// Files that may look like credentials.
    pub(super) allow_secret: Vec<String>,
}

pub(super) struct Publisher<'p> {
    context: &'p Context,
    store: &'p Store,
    how: How,
    target: &'p RefName,
    /// Names of all published checkpoints.
    names: BTreeSet<String>,
    /// The age of each published checkpoint, by name.
    ages: BTreeMap<String, StepAge>,
    /// The newest published checkpoint.
    last: Option<Last>,
    /// Checkpoints that were published and dropped since.
    gone: Gone,
    /// Names of checkpoints that were probably published and dropped.
    supposed: BTreeSet<String>,
    /// Titles of checkpoints that were published, or are older than a published one.
    known: BTreeSet<String>,
    /// Titles of checkpoints that cannot be published as they are, and why.
    refused: BTreeMap<String, String>,
    /// Titles of checkpoints that lost files since they were published.
    less: BTreeSet<String>,
    /// Names of checkpoints that changed while they were read and are not published since.
    changed: BTreeSet<String>,
    /// The checkpoint that waits for space, if nothing succeeded since.
    no_room: Option<Waiting>,
    /// The last failure, if nothing succeeded since.
    failed: Option<Error>,
    /// The number of failures in a row, and the time of the next attempt.
    failures: u32,
    again: Option<Instant>,
    tell: Teller<'p>,
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
        let mut ages = before.gone.ages(&there);
        ages.extend(before.ages);
        let known: BTreeSet<String> = before.titles.into_keys().collect();
        let mut publisher = Self {
            context,
            store,
            how,
            target,
            ages,
            names: before.names,
            last,
            gone: before.gone,
            supposed: BTreeSet::new(),
            known,
            refused: BTreeMap::new(),
            less: BTreeSet::new(),
            changed: BTreeSet::new(),
            no_room: None,
            failed: None,
            failures: 0,
            again: None,
            tell: Teller::new(&context.out, target),
        };
        if before.has_dropped {
            publisher.suppose(&there);
        }
        publisher.trim();
        Ok(publisher)
    }

    /// Finds the checkpoints that were probably published and dropped, because a newer one is published.
    fn suppose(&mut self, there: &[Step]) {
        let last = self.last.clone();
        for step in there {
            if self.known.contains(&step.title) {
                continue;
            }
            let name = &step.name;
            let last = last.as_ref().filter(|last| last.may_follow(step));
            let told = match last.map(|last| &last.name) {
                _ if self.gone.title(name) == Some(&*step.title) => {
                    "was published, and dropped since; not published again".to_owned()
                }
                None => continue,
                Some(last) if self.names.contains(name) => {
                    format!("is older than {last}, and is not published again")
                }
                Some(last) => {
                    self.supposed.insert(name.clone());
                    format!("older than {last}, which is published; taken for dropped")
                }
            };
            self.known.insert(step.title.clone());
            let out = &self.context.out;
            out.note(format_args!("note: {}", named(name, &told)));
            self.tell.left_out_aside(name, &told);
        }
    }

    /// Drops surplus versions before anything is published.
    fn trim(&mut self) {
        let target = self.target.clone();
        match self.retain() {
            Ok(dropped) if dropped.is_empty() => {}
            Ok(dropped) => self.tell.report(&Trimmed { target, dropped }),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => self.tell.failure(&error),
        }
    }

    /// The ages of published checkpoints, by name.
    pub(super) fn ages(&self) -> &BTreeMap<String, StepAge> {
        &self.ages
    }

    /// Publishes new finished checkpoints in the order in which they were finished. After a failure of the store, waits
    /// before the next attempt unless this is the last one.
    pub(super) fn publish(&mut self, seen: &StepsSeen, is_last: bool) {
        for name in &seen.unknown {
            let why = "nothing says when it is finished: give --done or --settled";
            self.tell.warning(name, why);
        }
        for name in &seen.passed {
            if !self.is_known(name) {
                self.tell.left_out(name, PASSED);
            }
        }
        for unfinished in &seen.unfinished {
            if !unfinished.why.is_usual() {
                let why = unfinished.why.to_string();
                self.tell.warning(&unfinished.name, &why);
            }
        }
        if self
            .again
            .is_some_and(|again| Instant::now() < again && !is_last)
        {
            return;
        }
        let waited = self.no_room.take();
        let mut finished: Vec<&Step> = seen.finished.iter().collect();
        // If a clock was set back, checkpoints dated after the last published one were written before that, so they
        // come first.
        let last = self.last.clone();
        let is_behind = |step: &Step| last.as_ref().is_some_and(|last| last.is_dated_after(step));
        finished.sort_by_key(|step| is_behind(step));
        for step in finished {
            let is_refused = self.refused.contains_key(&step.title);
            if is_refused || self.known.contains(&step.title) {
                continue;
            }
            if self.is_passed(step) || self.is_less(step) {
                continue;
            }
            match self.publish_one(step) {
                // Later checkpoints must not be published before it.
                Ok(Done::NoRoom(why)) => return self.wait_for_room(step, why, waited.as_ref()),
                Ok(done) => {
                    (self.failed, self.failures, self.again) = (None, 0, None);
                    self.changed.remove(&step.name);
                    self.names.insert(step.name.clone());
                    self.ages.insert(step.name.clone(), StepAge::of(step));
                    if matches!(done, Done::Published) {
                        self.last = Some(Last::of(step));
                    }
                }
                // The checkpoint changed and will be looked at again.
                Err(_) if Steps::check(&self.how.dir, &self.how.rule, step).is_err() => {
                    self.changed.insert(step.name.clone());
                }
                Err(error) if self.is_of_the_step(&error) => {
                    self.refuse(step, advised(&error));
                }
                // Later checkpoints must not be published before this one.
                Err(error) => return self.fail(error),
            }
        }
    }

    /// Whether a checkpoint of this name was published, as far as known.
    fn is_known(&self, name: &str) -> bool {
        self.names.contains(name) || self.gone.has(name) || self.supposed.contains(name)
    }

    /// Whether a newer checkpoint is already published.
    fn is_passed(&mut self, step: &Step) -> bool {
        let Some(last) = self.last.as_ref().filter(|last| last.is_after(step)) else {
            return false;
        };
        let (name, last) = (&step.name, &last.name);
        match self.names.contains(name) {
            true => {
                let why = format!("is older than {last}, and is not published again");
                self.tell.left_out(name, &why);
            }
            false => self.refuse(step, format!(
                "not published: {last} is newer, and would not be the latest any more; `store put` publishes it"
            )),
        }
        true
    }

    /// Whether the checkpoint was published and has only lost files since: somebody began to delete or rewrite it.
    fn is_less(&mut self, step: &Step) -> bool {
        let age = StepAge::of(step);
        let was = self.ages.get(&step.name);
        let has_all = |was: &StepAge| was.is_within(step) || was.is_before(step);
        let is_less = was.is_some_and(|was| !has_all(was) && age.says_no_more_than(was));
        if is_less {
            self.tell.left_out(&step.name, LESS);
            self.less.insert(step.title.clone());
        }
        is_less
    }

    fn refuse(&mut self, step: &Step, why: String) {
        self.tell.left_out(&step.name, &why);
        self.refused.insert(step.title.clone(), why);
    }

    /// Whether the checkpoint causes the error, not the store.
    fn is_of_the_step(&self, error: &Error) -> bool {
        let may_be = match error.kind() {
            ErrorKind::InvalidInput | ErrorKind::Corrupt | ErrorKind::NotFound => true,
            ErrorKind::Denied => matches!(
                error.remedy(),
                Some(Remedy::AllowSecret { .. } | Remedy::AllowSecrets)
            ),
            _ => false,
        };
        let id = self.store.format().id;
        // If the store is missing, the error may be about the store.
        may_be
            && self
                .context
                .open()
                .is_ok_and(|store| store.format().id == id)
    }

    /// Publishes one checkpoint.
    fn publish_one(&mut self, step: &Step) -> Result<Done> {
        let began = Instant::now();
        let mut request = self.request(step);
        let state = self.store.state()?;
        let versions = match state.versions(self.target) {
            Err(error) if error.kind() == ErrorKind::NotFound => BTreeMap::new(),
            versions => versions?,
        };
        self.gone.see(&versions);
        if self.is_touched(step, &request)? {
            self.known.insert(step.title.clone());
            let why = "was published, and dropped since; not published again, since nothing in it changed";
            self.tell.left_out(&step.name, why);
            return Ok(Done::Known);
        }
        let going = self
            .kept()
            .map(|keep| doomed(&state, self.target, &versions, keep - 1));
        let gone = self.gone.extra(&going.unwrap_or_default(), &self.how.dir);
        request.extra.extend(gone);
        let floor = self.how.floor.as_mut();
        let lacks = floor.map(|floor| floor.lacks(self.store, step, state.number, &request));
        if let Some(why) = lacks.transpose()?.flatten() {
            return Ok(Done::NoRoom(why));
        }
        let done = store::put(self.store, &request, &Unwatched)?;
        self.known.insert(step.title.clone());
        let dropped = self.retain().unwrap_or_else(|error| {
            self.tell.failure(&error);
            Vec::new()
        });
        let report = self.report(step, &done, dropped, began.elapsed());
        for skipped in failure::skipped(done.skipped) {
            self.context
                .out
                .warning(format_args!("skipped: {}", skipped.error));
        }
        for note in &done.notes {
            self.tell.warning(&step.name, &remedy::note(note));
        }
        self.tell.report(&report);
        Ok(match report.unchanged {
            true => Done::Known,
            false => Done::Published,
        })
    }

    /// Whether the checkpoint has the content that was published and dropped, even if its times changed.
    fn is_touched(&self, step: &Step, request: &PutRequest) -> Result<bool> {
        match self.gone.title(&step.name) {
            None => return Ok(false),
            Some(title) if title == step.title => return Ok(true),
            Some(_) => {}
        }
        let found = save::tried(self.store, request, &Unwatched)?;
        let id = found.would_be.as_ref();
        Ok(id.is_some_and(|id| self.gone.was(&step.name, id)))
    }

    fn request(&self, step: &Step) -> PutRequest {
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
        request
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

    /// Drops surplus versions. The newest ones stay, so there is always a complete checkpoint.
    fn retain(&mut self) -> Result<Vec<u64>> {
        let Some(keep) = self.kept() else {
            return Ok(Vec::new());
        };
        let state = self.store.state()?;
        let versions = state.versions(self.target)?;
        self.gone.see(&versions);
        let doomed = doomed(&state, self.target, &versions, keep);
        refs::drop_surplus(self.store, self.target, &doomed)?;
        Ok(doomed)
    }

    /// How many versions to keep, at least one.
    fn kept(&self) -> Option<usize> {
        Some(self.how.keep?.max(1))
    }

    /// Checks at the end of the watch that all checkpoints are published.
    pub(super) fn outcome(&mut self, seen: &StepsSeen) -> Result<()> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        // After a trainer went back, the marker no longer names later checkpoints, although they are published and
        // unchanged.
        let there = Steps::all(&self.how.dir, &self.how.rule).unwrap_or_default();
        let is_as_published =
            |step: &&Step| self.ages.get(&step.name).is_some_and(|age| age.is_of(step));
        let done = there.iter().filter(is_as_published).map(|step| &step.name);
        let done: BTreeSet<&String> = done.collect();
        let unfinished = seen.unfinished.iter();
        let unfinished = unfinished.filter(|one| !done.contains(&one.name));
        let unfinished = unfinished.map(|one| (one.name.clone(), one.why.to_string()));
        let unknown = seen.unknown.iter().filter(|name| !done.contains(name));
        let unknown = unknown.map(|name| (name.clone(), NotYet::Written.to_string()));
        let mut missing: Vec<(String, String)> = unfinished.chain(unknown).collect();
        let passed = seen.passed.iter().filter(|name| !self.is_known(name));
        missing.extend(passed.map(|name| (name.clone(), PASSED.to_owned())));
        let is_named = |name: &String| seen.unfinished.iter().any(|one| one.name == *name);
        let changed = self.changed.iter().filter(|name| !is_named(name));
        missing.extend(changed.map(|name| (name.clone(), "changed while it was read".to_owned())));
        let refused = self.refused.iter();
        missing.extend(refused.map(|(title, why)| (name(title).to_owned(), why.clone())));
        let less = seen.finished.iter();
        let less = less.filter(|step| self.less.contains(&step.title));
        missing.extend(less.map(|step| (step.name.clone(), LESS.to_owned())));
        missing.extend(self.without_room(seen));
        for (name, why) in &missing {
            self.tell.left_out_aside(name, why);
        }
        let told = self.context.out.finish();
        let missing: Vec<String> = missing.iter().map(|(name, why)| named(name, why)).collect();
        match missing.is_empty() {
            true => told,
            false => {
                let error = Error::partial(format!(
                    "{}: {} not published",
                    self.target,
                    human::counted(missing.len() as u64, "checkpoint")
                ))
                .list(missing);
                Err(match self.no_room {
                    Some(_) => error.hint(MAKE_ROOM),
                    None => error,
                })
            }
        }
    }

    /// The checkpoint that waits for space, and those after it.
    fn without_room(&self, seen: &StepsSeen) -> Vec<(String, String)> {
        let is_open = |step: &&Step| {
            let title = &step.title;
            let is_done = self.known.contains(title) || self.less.contains(title);
            !is_done && !self.refused.contains_key(title)
        };
        let waiting = self.no_room.iter();
        let open = |waiting: &Waiting| waiting.told(seen.finished.iter().filter(is_open));
        waiting.flat_map(open).collect()
    }

    /// Keeps what waits for space; each checkpoint is reported once.
    fn wait_for_room(&mut self, step: &Step, why: String, waited: Option<&Waiting>) {
        let waiting = Waiting::new(step, why);
        if !waited.is_some_and(|waited| waited.is_as(&waiting)) {
            self.tell.warning(&step.name, &waiting.news());
        }
        (self.no_room, self.failed) = (Some(waiting), None);
        self.pause();
    }

    fn fail(&mut self, error: Error) {
        let before = self.failed.as_ref().map(Error::kind);
        if before != Some(error.kind()) {
            self.tell.failure(&error);
        }
        self.failed = Some(error);
        self.pause();
    }

    fn pause(&mut self) {
        let pause = PAUSE_MIN.saturating_mul(1 << self.failures.min(16));
        self.failures += 1;
        self.again = Instant::now().checked_add(pause.min(PAUSE_MAX));
    }

    pub(super) fn warn(&mut self, error: &Error) {
        self.tell.failure(error);
    }
}
