//! What a transfer did, for people and for machines.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use store::Error;
use store::replicate::{RefOutcome, RefStatus, ReplicateReport};
use store::{Id, Namespace, RefName};

use super::{Transfer, estimate};
use crate::context::Context;
use crate::journal::{Numbers, RefError};
use crate::ui::{failure, human, names, remedy};

/// What a machine reads.
#[derive(Serialize)]
pub(super) struct Report {
    pub(super) job: String,
    from: String,
    to: String,
    dry_run: bool,
    refs: Vec<Line>,
    /// As `REF@N` at the destination.
    dropped: Vec<String>,
    kept_pinned: Vec<String>,
    kept_own: Vec<String>,
    chunks: u64,
    raw_bytes: u64,
    pub(super) sent_bytes: u64,
    resumed_bytes: u64,
    pub(super) secs: f64,
    /// Of a dry run; null, where nothing is known to tell it by.
    #[serde(skip_serializing_if = "Option::is_none")]
    estimated_secs: Option<Option<f64>>,
    /// What ended the run before its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped: Option<String>,
    pub(super) notes: Vec<String>,
}

/// What became of one version.
#[derive(Serialize)]
struct Line {
    /// Or the namespace, which has none.
    #[serde(rename = "ref")]
    name: String,
    /// Its number at the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    from_version: Option<u64>,
    /// What names its content in every store.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Id>,
    /// Its number at the destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u64>,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// How many refs did not make it, namespaces that have none among them.
pub(super) fn failed(report: &ReplicateReport) -> u64 {
    let failed = |outcome: &&RefOutcome| matches!(outcome.status, RefStatus::Failed(_));
    report.refs.iter().filter(failed).count() as u64 + report.missing.len() as u64
}

impl Report {
    pub(super) fn new(
        transfer: &Transfer,
        job: String,
        done: &ReplicateReport,
        elapsed: Duration,
        context: &Context,
    ) -> Self {
        let versions = |list: &[(RefName, u64)]| {
            let shown = |(name, version): &(RefName, u64)| format!("{name}@{version}");
            list.iter().map(shown).collect()
        };
        Self {
            job,
            from: transfer.from.told(context).unwrap_or_default(),
            to: transfer.to.told(context).unwrap_or_default(),
            dry_run: transfer.request.dry_run,
            refs: lines(done),
            dropped: versions(&done.dropped),
            kept_pinned: versions(&done.kept),
            kept_own: versions(&done.own),
            chunks: done.chunks,
            raw_bytes: done.raw_bytes,
            sent_bytes: done.sent_bytes,
            resumed_bytes: done.resumed_bytes,
            secs: elapsed.as_secs_f64(),
            estimated_secs: None,
            stopped: done.stopped.as_ref().map(failure::one_line),
            notes: done.notes.iter().map(remedy::note).collect(),
        }
    }

    /// Tells how long it would take at `rate` bytes in a second.
    pub(super) fn estimate(&mut self, rate: Option<u64>) {
        let time = rate.map(|rate| estimate::time(self.sent_bytes, rate).as_secs_f64());
        self.estimated_secs = Some(time);
    }

    pub(super) fn numbers(&self) -> Numbers {
        Numbers {
            published: self.counted("published"),
            failed: self.counted("failed"),
            chunks: self.chunks,
            sent_bytes: self.sent_bytes,
            resumed_bytes: self.resumed_bytes,
            secs: self.secs,
        }
    }

    /// The refs that did not make it.
    pub(super) fn errors(&self) -> Vec<RefError> {
        let failed = |line: &Line| {
            Some(RefError {
                name: line.to_string(),
                error: line.error.clone()?,
            })
        };
        self.refs.iter().filter_map(failed).collect()
    }

    fn counted(&self, status: &str) -> u64 {
        let found = self.refs.iter().filter(|line| line.status == status);
        found.count() as u64
    }
}

fn lines(done: &ReplicateReport) -> Vec<Line> {
    let refs = done.refs.iter().map(Line::from);
    refs.chain(done.missing.iter().map(Line::from)).collect()
}

impl From<&(Namespace, Error)> for Line {
    fn from((namespace, error): &(Namespace, Error)) -> Self {
        Self {
            name: namespace.to_string(),
            from_version: None,
            id: None,
            version: None,
            status: "failed",
            error: Some(failure::one_line(error)),
        }
    }
}

impl From<&RefOutcome> for Line {
    fn from(outcome: &RefOutcome) -> Self {
        let (status, error) = match &outcome.status {
            RefStatus::Published => ("published", None),
            RefStatus::Unchanged => ("unchanged", None),
            RefStatus::Healed => ("healed", None),
            RefStatus::Failed(error) => ("failed", Some(failure::one_line(error))),
        };
        Self {
            name: outcome.name.to_string(),
            from_version: outcome.from,
            id: outcome.id.clone(),
            version: outcome.to,
            status,
            error,
        }
    }
}

/// As the source knows it.
impl fmt::Display for Line {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.name)?;
        match self.from_version {
            Some(version) => write!(out, "@{version}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let published = self.refs.iter().filter(|line| line.status == "published");
        for line in published {
            match line.version {
                Some(version) => writeln!(
                    out,
                    "{line}{} is version {version} at {}",
                    names::id(line.id.as_ref()),
                    self.to
                )?,
                None => writeln!(
                    out,
                    "{line}{} would be published at {}",
                    names::id(line.id.as_ref()),
                    self.to
                )?,
            }
        }
        for line in self.refs.iter().filter(|line| line.status == "healed") {
            let version = line.version.unwrap_or_default();
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
        for version in &self.dropped {
            writeln!(out, "{version} {verb} at {}", self.to)?;
        }
        for version in &self.kept_own {
            let to = &self.to;
            writeln!(
                out,
                "{version} stays at {to}, since it was put there; --delete-all drops it"
            )?;
        }
        for version in &self.kept_pinned {
            writeln!(out, "{version} stays at {}, since it is pinned", self.to)?;
        }
        write!(
            out,
            "{} published, {} unchanged, {}{} failed; {}, {} ({} compressed)",
            human::counted(self.counted("published"), "version"),
            human::count(self.counted("unchanged")),
            match self.counted("healed") {
                0 => String::new(),
                healed => format!("{} healed, ", human::count(healed)),
            },
            human::count(self.counted("failed")),
            human::counted(self.chunks, "chunk"),
            human::bytes(self.raw_bytes),
            human::bytes(self.sent_bytes),
        )?;
        if self.resumed_bytes > 0 {
            let bytes = human::bytes(self.resumed_bytes);
            write!(out, ", and {bytes} of an earlier run")?;
        }
        self.time(out)
    }
}

impl Report {
    fn time(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let duration =
            |secs| human::duration(Duration::try_from_secs_f64(secs).unwrap_or_default());
        match self.estimated_secs {
            None => {
                let took = Duration::try_from_secs_f64(self.secs).unwrap_or_default();
                let rate = human::rate(self.sent_bytes, took);
                write!(out, " in {} ({rate})", duration(self.secs))
            }
            Some(None) => write!(out, "; nothing is done, estimated time: unknown"),
            Some(Some(secs)) => {
                write!(out, "; nothing is done, estimated time: {}", duration(secs))
            }
        }
    }
}
