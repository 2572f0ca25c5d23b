//! replicate: copies versions of refs from one store to another; only missing chunks are sent.
//!
//! ```text
//! select versions -> walk their metadata -> what the destination lacks -> read, check, send
//!     -> packs -> segment, versions of refs -> log entry             (batch after batch)
//! ```
//!
//! Order of writes: packs, segments, log entry; a version appears at the destination after everything it needs is
//! durable there. Neither store is ever locked, and collectors may run on both. A killed run loses the pack that was
//! being written; without a [`Resume`], it loses everything that was not committed, at most 4 GiB. A run that is asked
//! to stop finishes that pack and publishes what is complete.

mod absent;
#[cfg(test)]
mod bases;
#[cfg(test)]
mod beside;
mod changes;
mod complete;
mod copy;
mod job;
mod kept;
mod missing;
mod remains;
mod resume;
mod room;
mod runs;
mod same;
mod select;
mod surplus;
#[cfg(test)]
mod tests;
mod undo;
mod uploader;

pub use resume::{Forgetful, Memory, Resume};
pub use undo::{Restored, UndoReport, undo};

use serde::{Serialize, Serializer};

use crate::error::{Error, ErrorKind, Result};
use crate::format::{At, Id, Namespace, RefName, State};
use crate::id::StoreId;
use crate::progress::Progress;
use crate::remedy::Note;
use crate::store::Store;

use copy::{at_destination, at_source};
use job::Job;
use kept::incomplete;
use select::{Ends, select};
use surplus::{check, surplus};

/// A request to copy versions from one store to another.
#[derive(Clone, Debug)]
pub struct ReplicateRequest {
    /// Refs of the source.
    pub what: Vec<Selection>,
    /// Which versions of these refs.
    pub versions: Versions,
    /// Which versions that only the destination has are dropped: those of selected refs, and in selected namespaces
    /// also those of refs that the source no longer has. Pinned versions, and those that were first put at the
    /// destination, stay and are reported. Nothing is dropped from a ref that failed, or that was selected by a
    /// version.
    pub delete: Delete,
    /// Whether a version that is older than one at the destination, and is left out for that, counts as failed. It is no
    /// failure where the destination may have dropped it.
    pub older_fails: bool,
    /// Read back every byte of every pack at the destination before anything that needs it is published. That includes
    /// the packs of versions that are already there.
    pub verify: bool,
    /// The most bytes of frames to send per second; 0 is no limit.
    pub bytes_per_second: Option<u64>,
    /// Do everything except write.
    pub dry_run: bool,
}

/// Refs of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All refs of a namespace.
    Namespace(Namespace),
    /// One ref.
    Ref(RefName),
    /// One version of a ref, whatever [`ReplicateRequest::versions`] says.
    Version(RefName, At),
}

/// What is dropped at the destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delete {
    /// Nothing.
    #[default]
    Nothing,
    /// What was copied to the destination and is no longer at the source. Refused if these versions came from another
    /// source, or if more than half of what the destination has of a namespace, or of a ref that is selected by name,
    /// would be dropped.
    Surplus {
        /// The source of the last run, if known: another one is refused.
        last_source: Option<StoreId>,
    },
    /// Everything that only the destination has.
    All,
}

/// Which versions of a selected ref are copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Versions {
    /// The newest.
    #[default]
    Latest,
    /// All live ones, the oldest first.
    All,
}

/// The report of a run: what was copied, and what was not.
#[derive(Debug, Default, Serialize)]
pub struct ReplicateReport {
    /// One outcome for each version that had to be copied, and one for each ref without such versions; the caller
    /// formats errors and notes, here and below.
    #[serde(skip)]
    pub refs: Vec<RefOutcome>,
    /// Versions that were dropped at the destination, or would be after a dry run.
    #[serde(serialize_with = "as_specs")]
    pub dropped: Vec<(RefName, u64)>,
    /// Versions that only the destination has and that stay because they are pinned.
    #[serde(rename = "kept_pinned", serialize_with = "as_specs")]
    pub kept: Vec<(RefName, u64)>,
    /// Versions that only the destination has and that stay because they were first put there.
    #[serde(rename = "kept_own", serialize_with = "as_specs")]
    pub own: Vec<(RefName, u64)>,
    /// Chunks that the destination did not have.
    pub chunks: u64,
    /// Bytes of these chunks, as in files.
    pub raw_bytes: u64,
    /// Bytes of the frames that were sent, as encoded.
    pub sent_bytes: u64,
    /// Namespaces that were selected and have no ref at the source.
    #[serde(skip)]
    pub missing: Vec<(Namespace, Error)>,
    /// Bytes of adopted packs, which an earlier run had sent; after a dry run, of packs that would be adopted.
    pub resumed_bytes: u64,
    /// What ended the run early: `refs` lacks the refs after that point. What was published stays.
    #[serde(skip)]
    pub stopped: Option<Error>,
    /// Notes that are worth knowing and that did not stop the run.
    #[serde(skip)]
    pub notes: Vec<Note>,
}

/// Serializes each as `REF@N`.
fn as_specs<S: Serializer>(
    list: &[(RefName, u64)],
    out: S,
) -> std::result::Result<S::Ok, S::Error> {
    out.collect_seq(
        list.iter()
            .map(|(name, version)| format!("{name}@{version}")),
    )
}

/// The outcome for one version of a ref.
#[derive(Debug, Serialize)]
pub struct RefOutcome {
    /// The ref, which has the same name on both sides.
    #[serde(rename = "ref")]
    pub name: RefName,
    /// The number of the version at the source; none, when the source has no such ref.
    #[serde(rename = "from_version", skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// The id of its content, which is the same in every store; none, when the source has no such version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Id>,
    /// Its number at the destination; none when it is not there, and for what a dry run would publish.
    #[serde(rename = "version", skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
    /// The outcome.
    pub status: RefStatus,
}

/// The outcome for one version of a ref.
#[derive(Debug)]
pub enum RefStatus {
    /// It is a new version at the destination, or would be after a dry run.
    Published,
    /// The destination had it already.
    Unchanged,
    /// The destination had it, but lacked some of its chunks, which were sent again, or would be after a dry run.
    Healed,
    /// It was not copied, and why.
    Failed(Error),
}

/// Checks that `source` has anything that `request` asks for.
///
/// # Errors
/// Not found, when nothing of it exists; otherwise those of reading its state.
pub fn check_selected(source: &Store, request: &ReplicateRequest) -> Result<()> {
    let id = source.format().id;
    let ends = Ends { from: id, to: id };
    let selected = select(request, ends, &source.readable_state()?, &State::default())?;
    let mut settled = selected.settled.into_iter();
    let failed = settled.find_map(|outcome| match outcome.status {
        RefStatus::Failed(error) => Some(error),
        _ => None,
    });
    match failed {
        Some(error) if selected.bring.is_empty() => Err(error),
        _ => Ok(()),
    }
}

/// The first of the versions of `source` that `request` asks for and only their owner may read, as `NAME@N`.
///
/// # Errors
/// Those of reading its state.
pub fn private_of(source: &Store, request: &ReplicateRequest) -> Result<Option<String>> {
    let id = source.format().id;
    let ends = Ends { from: id, to: id };
    let selected = select(request, ends, &source.readable_state()?, &State::default())?;
    let found = selected.bring.iter().find(|bring| bring.version.private);
    Ok(found.map(|bring| format!("{}@{}", bring.name, bring.from)))
}

impl RefOutcome {
    /// That nothing of a ref is to be had, or not this version of it.
    fn failed(name: &RefName, from: Option<u64>, error: Error) -> Self {
        Self {
            name: name.clone(),
            from,
            id: None,
            to: None,
            status: RefStatus::Failed(error),
        }
    }
}

impl RefStatus {
    /// The status in one word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Unchanged => "unchanged",
            Self::Healed => "healed",
            Self::Failed(_) => "failed",
        }
    }
}

impl Serialize for RefStatus {
    fn serialize<S: Serializer>(&self, out: S) -> std::result::Result<S::Ok, S::Error> {
        out.serialize_str(self.word())
    }
}

impl ReplicateRequest {
    /// Creates a request to copy the newest versions of `what`, with the default settings.
    pub fn new(what: Vec<Selection>) -> Self {
        Self {
            what,
            versions: Versions::default(),
            delete: Delete::Nothing,
            older_fails: false,
            verify: false,
            bytes_per_second: None,
            dry_run: false,
        }
    }
}

/// Copies what `request` selects from one store to another.
///
/// A version is the same on both sides when its tree and times are. At the destination it gets the next number there.
/// Message, expiry and origin are carried over, pins are not. Afterwards the newest version of each selected ref is the
/// source's newest, unless that version had been copied before and something newer is there now: a version is never
/// published twice. Versions that only the destination has stay, unless [`ReplicateRequest::delete`] says otherwise.
///
/// # Errors
/// When a store cannot be read at all, or nothing that is selected exists. Later failures are in the report: for a
/// single ref, or as what stopped the run.
#[doc = "\n# Example\n```"]
#[doc = include_str!("../../examples/replicate.rs")]
#[doc = "```"]
pub fn replicate(
    from: &Store,
    to: &Store,
    request: &ReplicateRequest,
    resume: &dyn Resume,
    progress: &dyn Progress,
) -> Result<ReplicateReport> {
    let source = from.source_state().map_err(at_source)?;
    replicate_state(from, source, to, request, resume, progress)
}

/// Does [`replicate`] with `source` as the state of the store `from`.
fn replicate_state(
    from: &Store,
    source: State,
    to: &Store,
    request: &ReplicateRequest,
    resume: &dyn Resume,
    progress: &dyn Progress,
) -> Result<ReplicateReport> {
    let ends = Ends {
        from: from.format().id,
        to: to.format().id,
    };
    let there = to.state().map_err(at_destination)?;
    if !request.dry_run {
        let checked = (to.check_writable(&there)).and_then(|()| to.check_packs_there(&there));
        checked.map_err(at_destination)?;
    }
    let mut selected = select(request, ends, &source, &there)?;
    if request.delete.drops() {
        // Refused before anything is sent: the versions of such a source are not wanted at the destination either.
        let delete = request.delete;
        let planned = surplus(delete, &selected, &selected.failed(), &source, &there)?.dropped;
        let brought = selected.bring.iter().map(|bring| &bring.name);
        let states = (&source, &there);
        check(delete, ends, &planned, states, &selected, brought)?;
    }
    let mut job = Job::new(from, to, request, resume, progress);
    let (incomplete, without) = incomplete(
        from,
        to,
        request,
        &selected.kept,
        (&source, &there),
        progress,
    )?;
    let bring = selected.healing(&incomplete);
    let there = match (incomplete.is_empty(), without) {
        (true, _) => there,
        (false, Some(without)) => without,
        (false, None) => to.state().map_err(at_destination)?,
    };
    job.report.refs.append(&mut selected.settled);
    job.report.notes.append(&mut selected.notes);
    job.report.missing.append(&mut selected.missing);
    let outcome = job
        .bring(&bring, source.clone(), there.clone())
        .and_then(|()| match request.delete.drops() {
            true => job.drop_surplus(&selected, ends, &source, there),
            false => Ok(()),
        });
    job.report.stopped = outcome.err().map(|error| match error.kind() {
        ErrorKind::Interrupted => Error::interrupted(
            "stopped on request; what was complete is published, and the next run does the rest",
        ),
        _ => error,
    });
    Ok(job.report)
}
