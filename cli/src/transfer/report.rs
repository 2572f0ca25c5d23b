//! The report of a transfer, for people and for machines.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use serde::Serialize;
use store::Error;
use store::replicate::{RefOutcome, RefStatus, ReplicateReport};
use store::{Id, Namespace, Remedy};

use super::{Transfer, estimate};
use crate::context::Context;
use crate::journal::{Numbers, RefError};
use crate::ui::{failure, human, names, remedy};

/// The status of versions that failed.
const FAILED: &str = "failed";

/// The JSON form of the report.
#[derive(Serialize)]
pub(super) struct TransferReport<'r> {
    pub(super) job: String,
    from: String,
    to: String,
    dry_run: bool,
    refs: Vec<Line<'r>>,
    #[serde(flatten)]
    pub(super) done: &'r ReplicateReport,
    pub(super) secs: f64,
    /// Present in dry runs only; null if there is nothing to estimate from.
    #[serde(skip_serializing_if = "Option::is_none")]
    estimated_secs: Option<Option<f64>>,
    /// Why the run ended early.
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped: Option<String>,
    pub(super) notes: Vec<String>,
}

/// The result for one version.
#[derive(Serialize)]
struct Line<'r> {
    #[serde(flatten)]
    of: Of<'r>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// What to do about it, where that is no look at what there is.
    #[serde(skip)]
    advice: Option<Cow<'static, str>>,
}

/// A version, or a namespace without versions.
#[derive(Serialize)]
#[serde(untagged)]
enum Of<'r> {
    Version(&'r RefOutcome),
    Namespace {
        #[serde(rename = "ref")]
        name: &'r Namespace,
        status: &'static str,
    },
}

/// The number of failed refs, including namespaces without versions.
pub(super) fn failed(report: &ReplicateReport) -> u64 {
    let failed = |outcome: &&RefOutcome| matches!(outcome.status, RefStatus::Failed(_));
    report.refs.iter().filter(failed).count() as u64 + report.missing.len() as u64
}

impl<'r> TransferReport<'r> {
    pub(super) fn new(
        transfer: &Transfer,
        job: String,
        done: &'r ReplicateReport,
        elapsed: Duration,
        context: &Context,
    ) -> Self {
        let mut notes: Vec<String> = done.notes.iter().map(remedy::note).collect();
        context.out.name_in(&mut notes);
        Self {
            job,
            from: transfer.from.told(context).unwrap_or_default(),
            to: transfer.to.told(context).unwrap_or_default(),
            dry_run: transfer.request.dry_run,
            refs: lines(done),
            done,
            secs: elapsed.as_secs_f64(),
            estimated_secs: None,
            stopped: done.stopped.as_ref().map(failure::one_line),
            notes,
        }
    }

    /// Sets the estimated time at `rate` bytes per second.
    pub(super) fn estimate(&mut self, rate: Option<u64>) {
        let time = rate.map(|rate| estimate::time(self.done.sent_bytes, rate).as_secs_f64());
        self.estimated_secs = Some(time);
    }

    pub(super) fn numbers(&self) -> Numbers {
        Numbers {
            published: self.counted("published"),
            failed: self.counted(FAILED),
            chunks: self.done.chunks,
            sent_bytes: self.done.sent_bytes,
            resumed_bytes: self.done.resumed_bytes,
            secs: self.secs,
        }
    }

    /// The refs that failed.
    pub(super) fn errors(&self) -> Vec<RefError> {
        let failed = |line: &Line<'_>| {
            Some(RefError {
                name: line.to_string(),
                error: line.error.clone()?,
            })
        };
        self.refs.iter().filter_map(failed).collect()
    }

    /// What people are told of them. Most errors begin with the name.
    pub(super) fn told_errors(&self) -> Vec<String> {
        let failed = self.refs.iter().filter_map(|line| {
            let (named, error) = (format!("{line}: "), line.error.as_deref()?);
            let error = error.strip_prefix(&*named).unwrap_or(error);
            let advice = line.advice.as_ref().map(|advice| format!("; {advice}"));
            Some(format!("{named}{error}{}", advice.unwrap_or_default()))
        });
        failed.collect()
    }

    fn counted(&self, status: &str) -> u64 {
        let found = self.refs.iter().filter(|line| line.status() == status);
        found.count() as u64
    }
}

fn lines(done: &ReplicateReport) -> Vec<Line<'_>> {
    let refs = done.refs.iter().map(Line::from);
    refs.chain(done.missing.iter().map(Line::from)).collect()
}

impl<'r> From<&'r (Namespace, Error)> for Line<'r> {
    fn from((name, error): &'r (Namespace, Error)) -> Self {
        Self {
            of: Of::Namespace {
                name,
                status: FAILED,
            },
            error: Some(failure::one_line(error)),
            advice: advice(error),
        }
    }
}

fn advice(error: &Error) -> Option<Cow<'static, str>> {
    match error.remedy() {
        Some(known @ Remedy::DeleteAll) => Some(remedy::words(known)),
        _ => None,
    }
}

impl<'r> From<&'r RefOutcome> for Line<'r> {
    fn from(outcome: &'r RefOutcome) -> Self {
        let error = match &outcome.status {
            RefStatus::Failed(error) => Some(error),
            _ => None,
        };
        Self {
            of: Of::Version(outcome),
            error: error.map(failure::one_line),
            advice: error.and_then(advice),
        }
    }
}

impl Line<'_> {
    fn status(&self) -> &'static str {
        match self.of {
            Of::Version(outcome) => outcome.status.word(),
            Of::Namespace { status, .. } => status,
        }
    }

    /// The version's number at the destination, and its id, which is the same in every store.
    fn there(&self) -> (Option<u64>, Option<&Id>) {
        match self.of {
            Of::Version(outcome) => (outcome.to, outcome.id.as_ref()),
            Of::Namespace { .. } => (None, None),
        }
    }
}

/// The version's name at the source.
impl fmt::Display for Line<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.of {
            Of::Namespace { name, .. } => write!(out, "{name}"),
            Of::Version(RefOutcome { name, from, .. }) => match from {
                Some(version) => write!(out, "{name}@{version}"),
                None => write!(out, "{name}"),
            },
        }
    }
}

impl fmt::Display for TransferReport<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let published = self.refs.iter().filter(|line| line.status() == "published");
        for line in published {
            let (version, id) = line.there();
            let (id, to) = (names::id(id), &self.to);
            match version {
                Some(version) => writeln!(out, "{line}{id} is version {version} at {to}")?,
                None => writeln!(out, "{line}{id} would be published at {to}")?,
            }
        }
        for line in self.refs.iter().filter(|line| line.status() == "healed") {
            let version = line.there().0.unwrap_or_default();
            let verb = if self.dry_run { "would be" } else { "was" };
            writeln!(
                out,
                "{line}, version {version} at {}, lacked some of what it needs: that {verb} sent again",
                self.to
            )?;
        }
        let verb = if self.dry_run {
            "would be dropped"
        } else {
            "dropped"
        };
        for (name, version) in &self.done.dropped {
            writeln!(out, "{name}@{version} {verb} at {}", self.to)?;
        }
        for (name, version) in &self.done.own {
            let to = &self.to;
            writeln!(
                out,
                "{name}@{version} stays at {to}, since it was put there; --delete-all drops it"
            )?;
        }
        for (name, version) in &self.done.kept {
            writeln!(
                out,
                "{name}@{version} stays at {}, since it is pinned",
                self.to
            )?;
        }
        write!(
            out,
            "{} {}, {} unchanged, {}{} failed; {}, {} ({} compressed)",
            human::counted(self.counted("published"), "version"),
            match self.dry_run {
                true => "would be published",
                false => "published",
            },
            human::count(self.counted("unchanged")),
            match self.counted("healed") {
                0 => String::new(),
                healed if self.dry_run => {
                    format!("{} would be healed, ", human::count(healed))
                }
                healed => format!("{} healed, ", human::count(healed)),
            },
            human::count(self.counted(FAILED)),
            human::counted(self.done.chunks, "chunk"),
            human::bytes(self.done.raw_bytes),
            human::bytes(self.done.sent_bytes),
        )?;
        if self.done.resumed_bytes > 0 {
            let bytes = human::bytes(self.done.resumed_bytes);
            write!(out, ", and {bytes} of an earlier run")?;
        }
        self.time(out)
    }
}

impl TransferReport<'_> {
    fn time(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let duration =
            |secs| human::duration(Duration::try_from_secs_f64(secs).unwrap_or_default());
        match self.estimated_secs {
            None => {
                let took = Duration::try_from_secs_f64(self.secs).unwrap_or_default();
                let rate = human::rate(self.done.sent_bytes, took);
                write!(out, " in {} ({rate})", duration(self.secs))
            }
            Some(None) => write!(out, "; nothing is done, estimated time: unknown"),
            Some(Some(secs)) => {
                write!(out, "; nothing is done, estimated time: {}", duration(secs))
            }
        }
    }
}
