//! Transfers versions of refs from one store to another: the common part of `push`, `pull` and `duplicate`.
//!
//! The engine transfers. This module keeps the journal, reports to people and machines, and chooses the exit code.

mod args;
mod estimate;
mod metrics;
mod report;
mod unseen;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use store::replicate::{
    Delete, Forgetful, RefStatus, ReplicateReport, ReplicateRequest, Resume, replicate,
};
use store::{ChunkId, End, Error, ErrorKind, Progress, Result, Store, StoreId};

pub(crate) use self::args::How;
use self::report::TransferReport;
use crate::config;
use crate::config::clusters::{self, Label};
use crate::context::{Context, bundles, elsewhere};
use crate::host::lock::Running;
use crate::journal::{Facts, Far, JobDir, Journal, Left, Numbers, Outcome};
use crate::ui::progress::Watch;
use crate::ui::{failure, human};

/// Length of the id of a job without a name, in hex digits.
const ID_DIGITS: usize = 16;

/// One end of a transfer.
#[derive(Clone, Debug)]
pub(crate) enum Side {
    /// The selected store.
    Here,
    /// A cluster, a path or a URL.
    There(String),
    /// A store in one file, which is created if it is the destination.
    Bundle(PathBuf),
}

/// A requested transfer.
#[derive(Debug)]
pub(crate) struct Transfer {
    /// The configured job, if this transfer is one.
    pub(crate) job: Option<Label>,
    pub(crate) from: Side,
    pub(crate) to: Side,
    /// The refs as people wrote them.
    pub(crate) refs: Vec<String>,
    pub(crate) request: ReplicateRequest,
    pub(crate) metrics_file: Option<PathBuf>,
    /// The profile for a bucket whose URL is not in the configuration.
    pub(crate) profile: Option<String>,
}

struct Stores {
    from: Store,
    to: Store,
}

impl Transfer {
    /// A transfer of `refs` with the options of the command line.
    pub(crate) fn new(from: Side, to: Side, refs: &[OsString], how: &How) -> Result<Self> {
        let shown = |text: &OsString| text.to_string_lossy().into_owned();
        let request = ReplicateRequest {
            // Nothing is ever dropped from a bundle: what is left out was never there.
            older_fails: matches!(to, Side::Bundle(_)),
            ..how.request(refs)?
        };
        Ok(Self {
            job: None,
            from,
            to,
            refs: refs.iter().map(shown).collect(),
            request,
            metrics_file: None,
            profile: None,
        })
    }

    /// Runs the transfer.
    pub(crate) fn run(&self, context: &Context) -> Result<()> {
        if self.request.dry_run {
            return dry_run(self, context);
        }
        let file = self.metrics_file.as_deref();
        file.map_or(Ok(()), |file| {
            crate::host::metrics::check(file, &config::precious())
        })?;
        // The id of a job without a name contains its stores, so they are opened first.
        let named = match &self.job {
            Some(name) => Ok((name.to_string(), None)),
            None => open(self, context).map(|stores| (self.id(&stores), Some(stores))),
        };
        let begun = named.and_then(|(id, opened)| Ok((begin(self, &id, context)?, id, opened)));
        let (journal, id, opened) = match begun {
            Ok((Ok(journal), id, opened)) => (journal, id, opened),
            Ok((Err(running), ..)) => return busy(self, &running, context),
            Err(error) => return self.never_began(Err(error)),
        };
        let watch = Watch::counting(&context.global, "version");
        let done = opened
            .map_or_else(|| open(self, context), Ok)
            .and_then(|stores| moved(self, &stores, journal.as_ref(), &watch));
        let elapsed = watch.elapsed();
        drop(watch);
        finish(self, id, journal.as_ref(), done, elapsed, context)
    }

    /// Writes metrics for a run that failed early, so that it does not look like a run that was never due.
    fn never_began(&self, done: Result<()>) -> Result<()> {
        let numbers = Numbers {
            failed: self.refs.len() as u64,
            ..Numbers::default()
        };
        let job = self.job.as_ref().map(ToString::to_string);
        let job = job.unwrap_or_else(|| self.id_before());
        self.write_metrics(&job, numbers, None, done)
    }

    /// Writes the metrics, then returns the result of the run.
    fn write_metrics(
        &self,
        job: &str,
        numbers: Numbers,
        success: Option<Timestamp>,
        done: Result<()>,
    ) -> Result<()> {
        let Some(file) = &self.metrics_file else {
            return done;
        };
        let told = metrics::TransferMetrics {
            job,
            numbers,
            exit_code: failure::code_of(&done),
            success,
        };
        let written = metrics::write(file, &told);
        done.and(written)
    }

    /// The request, given the stores of the last run, source first.
    fn request_after(&self, last: Option<(StoreId, StoreId)>) -> ReplicateRequest {
        let mut request = self.request.clone();
        if let Delete::Surplus { last_source } = &mut request.delete {
            *last_source = last.map(|(from, _)| from);
        }
        request
    }

    /// Makes the commands in the hint name the store that the error is about. A missing ref is missing at the source.
    fn at_its_store(&self, error: Error) -> Error {
        let side = match error.end() {
            Some(End::Destination) => &self.to,
            None if error.kind() != ErrorKind::NotFound => return error,
            _ => &self.from,
        };
        match side {
            Side::There(named) => elsewhere::at(error, named),
            Side::Bundle(path) => elsewhere::at(bundles::damaged(error), &path.to_string_lossy()),
            Side::Here => error,
        }
    }

    /// The id of a job without a name whose stores are unknown: the id in the metrics of an earlier run, else a digest
    /// of the request.
    fn id_before(&self) -> String {
        let file = self.metrics_file.as_ref();
        let text = file.and_then(|file| crate::host::files::read(file).ok());
        let before = text.as_deref().and_then(crate::host::metrics::label_before);
        before.map_or_else(
            || self.digits(format_args!("{:?} {:?}", self.from, self.to)),
            str::to_owned,
        )
    }

    /// The id of a job without a name: a digest of the stores and the refs.
    fn id(&self, stores: &Stores) -> String {
        let (from, to) = (stores.from.format().id, stores.to.format().id);
        self.digits(format_args!("{from} {to}"))
    }

    fn digits(&self, ends: std::fmt::Arguments<'_>) -> String {
        let mut refs = self.refs.clone();
        refs.sort();
        let text = format!("{ends} {:?} {refs:?}", self.request.versions);
        let mut id = ChunkId::of(text.as_bytes()).to_string();
        id.truncate(ID_DIGITS);
        id
    }
}

fn moved(
    transfer: &Transfer,
    stores: &Stores,
    journal: Option<&Journal>,
    watch: &Watch,
) -> Result<ReplicateReport> {
    let (from, to) = (stores.from.format().id, stores.to.format().id);
    let last = journal.and_then(Journal::last_stores);
    let request = transfer.request_after(last);
    let is_other =
        matches!(request.delete, Delete::Surplus { last_source: Some(last) } if last != from);
    let resume: &dyn Resume = match journal {
        // A refused run does not change the stores that the journal remembers.
        Some(journal) if !is_other => {
            journal.between(from, to);
            journal
        }
        _ => &Forgetful,
    };
    told(&request, stores, resume, journal, watch)
}

fn told(
    request: &ReplicateRequest,
    stores: &Stores,
    resume: &dyn Resume,
    journal: Option<&Journal>,
    watch: &Watch,
) -> Result<ReplicateReport> {
    let telling = Telling {
        watch,
        journal,
        bytes: AtomicU64::new(0),
        total_bytes: AtomicU64::new(0),
    };
    let Stores { from, to } = stores;
    replicate(from, to, request, resume, &telling)
}

fn dry_run(transfer: &Transfer, context: &Context) -> Result<()> {
    let stores = open(transfer, context)?;
    let id = transfer.job.as_ref().map(ToString::to_string);
    let id = id.unwrap_or_else(|| transfer.id(&stores));
    let watch = Watch::counting(&context.global, "version");
    let (from, to) = (stores.from.format().id, stores.to.format().id);
    let left = Left::of(&id, (from, to));
    let done = told(
        &transfer.request_after(left.last_stores()),
        &stores,
        &left,
        None,
        &watch,
    );
    let elapsed = watch.elapsed();
    drop(watch);
    let done = done.map_err(|error| transfer.at_its_store(error))?;
    let mut report = TransferReport::new(transfer, id, &done, elapsed, context);
    report.estimate(estimate::rate(transfer.request.bytes_per_second, from, to));
    show(&report, context)?;
    ended(done).map_err(|error| transfer.at_its_store(error))
}

/// Opens both stores, which must differ.
fn open(transfer: &Transfer, context: &Context) -> Result<Stores> {
    let profile = transfer.profile.as_deref();
    let from = match &transfer.from {
        Side::Here => context.open()?,
        Side::There(named) => context.open_named(named, profile)?,
        Side::Bundle(path) => context.open_bundle(path)?,
    };
    let to = match &transfer.to {
        Side::There(named) => context.open_named(named, profile)?,
        Side::Bundle(path) if transfer.request.dry_run && !path.exists() => context.nowhere()?,
        Side::Bundle(path) => {
            if !path.exists() {
                let checked = store::check_destination(&from, &config::precious(), path, Vec::new);
                // A file that is there now was made by another export, which checked the place.
                if !path.exists() {
                    checked?;
                }
                // A file means that something was exported, so the request is checked before it is made.
                store::check_selected(&from, &transfer.request)
                    .map_err(|error| transfer.at_its_store(error))?;
            }
            unseen::check(&from, &transfer.request, path)?;
            context.open_or_make_bundle(path)?
        }
        Side::Here if transfer.request.dry_run => context.open_for_dry_run()?,
        Side::Here => context.open_for_put()?,
    };
    if from.format().id == to.format().id {
        return Err(Error::invalid(format!(
            "{} and {} are the same store, {}",
            from.remote().url(),
            to.remote().url(),
            from.format().id
        ))
        .hint("name two stores; a store that was copied as a directory keeps its id"));
    }
    Ok(Stores { from, to })
}

/// Begins the journal of this run, unless another process holds it. It is `None` if this host cannot remember anything.
fn begin(
    transfer: &Transfer,
    id: &str,
    context: &Context,
) -> Result<Result<Option<Journal>, Running>> {
    let jobs = &context.config().job;
    JobDir::sweep(|id| jobs.keys().any(|name| name.as_str() == id));
    let Some(dir) = JobDir::of(id) else {
        return Ok(Ok(None));
    };
    let held = match dir.hold() {
        Ok(Ok(held)) => held,
        Ok(Err(running)) => return Ok(Err(running)),
        Err(error) => {
            let why = failure::one_line(&error);
            context.out.note(format_args!(
                "note: there is no journal, and this run is not remembered: {why}"
            ));
            return Ok(Ok(None));
        }
    };
    let facts = Facts {
        job: id.to_owned(),
        from: transfer.from.told(context)?,
        to: transfer.to.told(context)?,
        refs: transfer.refs.clone(),
        stores: None,
    };
    Ok(Ok(Some(Journal::begin(dir, held, facts))))
}

/// Another process runs the same transfer. For a named job, as in cron, that is a success; for a person or a script it
/// is an error.
fn busy(transfer: &Transfer, running: &Running, context: &Context) -> Result<()> {
    match transfer.job {
        Some(_) => context.out.report(running),
        None => Err(Error::conflict(running.to_string())
            .hint("run it again when that one has ended; what is there is not sent again")),
    }
}

fn finish(
    transfer: &Transfer,
    id: String,
    journal: Option<&Journal>,
    done: Result<ReplicateReport>,
    elapsed: Duration,
    context: &Context,
) -> Result<()> {
    let nothing = ReplicateReport::default();
    let report = done.as_ref().unwrap_or(&nothing);
    let mut told = TransferReport::new(transfer, id, report, elapsed, context);
    let (outcome, error) = outcome(&done);
    let mut numbers = told.numbers();
    if done.is_err() {
        // The refs could not be listed, so all of them count as failed.
        numbers.failed = transfer.refs.len() as u64;
    }
    let (mut success, mut others) = (None, Vec::new());
    if let Some(journal) = journal {
        journal.end(outcome, numbers, error, told.errors());
        others = journal.notes();
        success = journal.last_success();
    }
    let note = |other| context.out.note(format_args!("note: {other}"));
    others.iter().for_each(note);
    told.notes.append(&mut others);
    let shown = match done.is_ok() {
        true => show(&told, context),
        false => Ok(()),
    };
    let job = told.job;
    let ended = done
        .and_then(|done| shown.and_then(|()| ended(done)))
        .map_err(|error| transfer.at_its_store(error));
    transfer.write_metrics(&job, numbers, success, ended)
}

fn outcome(done: &Result<ReplicateReport>) -> (Outcome, Option<String>) {
    let stopped = match done {
        Ok(report) => report.stopped.as_ref(),
        Err(error) => Some(error),
    };
    match (stopped, done) {
        (Some(error), _) if error.kind() == ErrorKind::Interrupted => {
            (Outcome::Interrupted, Some(failure::one_line(error)))
        }
        (Some(error), _) => (Outcome::Failed, Some(failure::one_line(error))),
        (None, Ok(report)) if report::failed(report) > 0 => {
            (Outcome::Partly, Some(partly(report).to_string()))
        }
        (None, _) => (Outcome::Done, None),
    }
}

fn show(report: &TransferReport<'_>, context: &Context) -> Result<()> {
    context.out.notes(&report.done.notes);
    let failed = report.told_errors();
    let told = |failed| context.out.warning(format_args!("failed: {failed}"));
    failed.iter().for_each(told);
    context.out.report(report)
}

/// The error that the report amounts to, if any.
fn ended(mut report: ReplicateReport) -> Result<()> {
    if report.stopped.is_none()
        && let Some(error) = all_failed(&mut report)
    {
        return Err(error);
    }
    if report::failed(&report) > 0 && report.stopped.is_none() {
        return Err(partly(&report));
    }
    report.stopped.map_or(Ok(()), Err)
}

/// If all refs failed with the same kind of error, one of these errors: it says more than a count.
fn all_failed(report: &mut ReplicateReport) -> Option<Error> {
    let failure = |status: &RefStatus| match status {
        RefStatus::Failed(error) => Some(error.kind()),
        _ => None,
    };
    let of_refs = report.refs.iter().map(|outcome| failure(&outcome.status));
    let of_missing = report.missing.iter().map(|(_, error)| Some(error.kind()));
    let mut kinds: Vec<Option<ErrorKind>> = of_refs.chain(of_missing).collect();
    kinds.dedup();
    if !matches!(
        kinds.as_slice(),
        [Some(
            ErrorKind::NotFound | ErrorKind::Conflict | ErrorKind::Corrupt | ErrorKind::Denied
        )]
    ) {
        return None;
    }
    let missing = report.missing.pop().map(|(_, error)| error);
    missing.or_else(|| match report.refs.pop()?.status {
        RefStatus::Failed(error) => Some(error),
        _ => None,
    })
}

fn partly(report: &ReplicateReport) -> Error {
    let all = report.refs.len() + report.missing.len();
    Error::partial(format!(
        "{} of {} did not make it",
        human::count(report::failed(report)),
        human::counted(all as u64, "ref")
    ))
    .hint("the reasons are above; run it again, and what is there is not sent again")
}

impl Side {
    /// The name of this side, for people.
    fn told(&self, context: &Context) -> Result<String> {
        match self {
            Self::Here => context.here(),
            Self::There(named) => Ok(clusters::masked(named)),
            Self::Bundle(path) => Ok(store::shown(path.as_os_str().as_encoded_bytes())),
        }
    }
}

impl Telling<'_> {
    fn tell(&self, bytes: u64) {
        let total_bytes = self.total_bytes.load(Ordering::Relaxed);
        if let Some(journal) = self.journal {
            journal.far(Far { bytes, total_bytes });
        }
    }
}

/// Reports progress to the terminal and the journal.
struct Telling<'a> {
    watch: &'a Watch,
    journal: Option<&'a Journal>,
    bytes: AtomicU64,
    total_bytes: AtomicU64,
}

impl Progress for Telling<'_> {
    fn total(&self, files: u64, bytes: u64) {
        self.total_bytes.store(bytes, Ordering::Relaxed);
        self.watch.total(files, bytes);
        self.tell(self.bytes.load(Ordering::Relaxed));
    }

    fn advance(&self, files: u64, bytes: u64) {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.watch.advance(files, bytes);
        self.tell(before.saturating_add(bytes));
    }

    fn is_watched(&self) -> bool {
        self.watch.is_watched()
    }
}
