//! put: a directory or a file becomes a new version of a ref.
//!
//! ```text
//! walk -> read, cut, hash -> deduplicate -> frame, encode -> pack -> segment
//!      -> trees and times, in the walk's order -------------^       -> log entry
//! ```
//!
//! All or nothing: the ref appears with the log entry, after everything it needs is durable. Order of writes: packs,
//! segments, log entry. A long put commits segments as it goes, so after a kill the next put finds the chunks.

mod ancestor;
mod assemble;
mod beside;
mod dedup;
mod edit;
mod expected;
mod graft;
mod ingest;
mod insert;
mod job;
mod large;
mod long_paths;
mod messages;
mod meta;
mod near;
mod origin;
mod packer;
mod pipeline;
mod private;
mod publish;
mod reading;
mod save;
mod scan;
#[cfg(test)]
mod tests;
mod ties;
mod tracks;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;

use crate::error::{Error, Result};
use crate::format::{Content, Extra, Id, Keep, RefName};
use crate::host::pool::Pool;
use crate::log::{Outside, System};
use crate::merge::{Clash, Counts};
use crate::profile::{LinkOptions, ProfileOptions};
use crate::progress::Progress;
use crate::read::Reader;
use crate::remedy::{Note, Remedy};
use crate::retry::{Headway, VAIN_MAX};
use crate::store::{Store, View};

use ancestor::{Base, base, check_whole, listing, made, turn};
use dedup::Dedup;
use near::Finder;
use pipeline::pipeline;
use publish::{Passes, PutSession};
use scan::Scan;

pub use ancestor::saved_to;
pub use edit::{Arriving, Edit, EditReport, EditRequest, edit};
pub use near::DeltaBase;

/// What happens to the version that is the newest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Onto {
    /// The new version takes its place.
    #[default]
    Replace,
    /// The same, unless a version has the same tree, whatever its times, and its message is the same up to the last
    /// space: then what the message names is already there, and was only touched. So what is put twice at once is there
    /// once, what was only touched makes no version, and each name has a version.
    New,
    /// The new version takes its place if it is this one; 0: if there is none.
    Only(u64),
    /// What was changed since the ancestor is merged into it.
    Merge(Ancestor),
    /// The entries of [`PutRequest::entries`] are added to it, each whole, if it has nothing of that name.
    Insert,
}

/// The paths of the entries to insert. If the newest version has exactly this tree at a path, it is replaced.
pub type Entries = BTreeMap<Vec<u8>, Option<Content>>;

/// What a directory was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ancestor {
    /// What this host knows of it: the last save, or how it was materialized.
    Known,
    /// The same, or nothing if the host knows nothing.
    KnownOrNothing,
    /// This version of the ref; 0: nothing.
    Version(u64),
}

/// What to put, and how.
#[derive(Clone, Debug)]
pub struct PutRequest {
    /// The directory or file.
    pub source: PathBuf,
    /// The ref that gets a new version.
    pub target: RefName,
    /// Globs of what stays out.
    pub exclude: Vec<String>,
    /// Leave out what cannot be read and list it, instead of failing.
    pub skip_unreadable: bool,
    /// Do everything but write.
    pub dry_run: bool,
    /// What the person says about this version.
    pub message: String,
    /// When retention may take this version.
    pub expires: Option<Timestamp>,
    /// Compression level of zstd; [`Self::LEVEL`] by default.
    pub level: i32,
    /// Decode and compare every frame before it is uploaded.
    pub verify_writes: bool,
    /// Read every file, even if it looks unchanged.
    pub read_all: bool,
    /// Make a version even if the newest one is the same already.
    pub always: bool,
    /// The pools whose files trees on this host link.
    pub pools: Vec<Arc<Pool>>,
    /// If somebody wrote to a file through a link that a pool shares, take the file as it is.
    pub take_written_through: bool,
    /// What to take the source for.
    pub profile: ProfileOptions,
    /// What becomes of symlinks.
    pub links: LinkOptions,
    /// Let others read what comes out, even if only their owner can read the files.
    pub readable: bool,
    /// What happens to the newest version.
    pub onto: Onto,
    /// With [`Onto::Insert`]: what is inserted.
    pub entries: Entries,
    /// Save a directory even if nothing is left in it.
    pub allow_empty: bool,
    /// What to keep beside the tree.
    pub keep: Vec<Keep>,
    /// Asked when all was read, before anything is published.
    pub source_check: Option<SourceCheck>,
    /// What the version says of itself beside that.
    pub extra: Extra,
    /// Where to look for the bases of deltas.
    pub delta_base: DeltaBase,
}

/// Checks whether the source is still what it was when the put began. If it is not, the check fails and nothing is
/// published.
#[derive(Clone)]
pub struct SourceCheck(Arc<dyn Fn() -> Result<()> + Send + Sync>);

impl SourceCheck {
    /// What `check` says.
    pub fn new(check: Arc<dyn Fn() -> Result<()> + Send + Sync>) -> Self {
        Self(check)
    }
}

impl fmt::Debug for SourceCheck {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("SourceCheck")
    }
}

/// What a save did beside a put.
#[derive(Debug, Default, serde::Serialize)]
pub struct SaveReport {
    /// The version that the directory was made from; none: nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<u64>,
    /// The newest version, which it was merged into; none: there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub onto: Option<u64>,
    /// What was changed since the base.
    #[serde(flatten)]
    pub counts: Counts,
    /// Paths that others had changed too.
    #[serde(rename = "conflicts")]
    pub clashed: u64,
    /// The first of them.
    #[serde(rename = "conflicting")]
    pub clashes: Vec<Clash>,
}

/// What a put found and wrote.
#[derive(Debug, Default, serde::Serialize)]
pub struct PutReport {
    /// The version's number; none after a dry run, unless there would be no new one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// What names its content in every store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Id>,
    /// After a dry run: what would name its content.
    #[serde(skip)]
    pub would_be: Option<Id>,
    /// Whether it comes out for one person alone, because only their owner can read some of its files.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub private: bool,
    /// That version was there already and is the newest: nothing has changed.
    pub unchanged: bool,
    /// Regular files.
    pub files: u64,
    /// Files that were not read, because they are unchanged since they were last put from here.
    pub unchanged_files: u64,
    /// Directories, the root included.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Bytes of chunks that the store did not have.
    pub new_bytes: u64,
    /// Bytes that the store grew by: frames as encoded, data and metadata.
    pub stored_bytes: u64,
    /// Paths that were left out because they could not be read, and why. Whoever shows errors and notes words them.
    #[serde(skip)]
    pub skipped: Vec<(PathBuf, Error)>,
    /// Bytes of files that were read; only for a save.
    #[serde(skip)]
    pub read_bytes: u64,
    /// What it was merged with, if it was.
    #[serde(skip)]
    pub saved: Option<SaveReport>,
    /// What did not stop the put and is worth knowing.
    #[serde(skip)]
    pub notes: Vec<Note>,
}

impl PutRequest {
    /// The compression level of everything that writes to a store: put, save, push, the collector and repair.
    pub const LEVEL: i32 = crate::codec::LEVEL;

    /// A put of `source` as `target`, with the usual settings.
    pub fn new(source: impl Into<PathBuf>, target: RefName) -> Self {
        Self {
            source: source.into(),
            target,
            exclude: Vec::new(),
            skip_unreadable: false,
            dry_run: false,
            message: String::new(),
            expires: None,
            level: Self::LEVEL,
            verify_writes: false,
            read_all: false,
            always: false,
            pools: Vec::new(),
            take_written_through: false,
            profile: ProfileOptions::default(),
            links: LinkOptions::default(),
            readable: false,
            onto: Onto::Replace,
            entries: Entries::new(),
            allow_empty: false,
            keep: Vec::new(),
            source_check: None,
            extra: Extra::new(),
            delta_base: DeltaBase::default(),
        }
    }

    /// A save of `source` into `target`: what was changed since it was made is merged into the newest version.
    pub fn save(source: impl Into<PathBuf>, target: RefName) -> Self {
        let mut save = Self {
            skip_unreadable: true,
            onto: Onto::Merge(Ancestor::Known),
            ..Self::new(source, target)
        };
        save.profile.leave_out_secrets = true;
        save
    }
}

/// Puts `request.source` as a new version of `request.target`.
///
/// # Errors
/// If something cannot be read or changes while it is read, which the error names; if there are credentials, all of
/// which it names; if a disk is full; if a conflict does not end. Then nothing is published.
pub fn put(store: &Store, request: &PutRequest, progress: &dyn Progress) -> Result<PutReport> {
    put_after(store, request, progress, None)
}

/// [`put`] from a view that was looked up before, so that several puts in a row need one look. What was added since is
/// taken into account at the commit; what is in no segment of the view may be stored again.
///
/// # Errors
/// As [`put`].
pub fn put_after(
    store: &Store,
    request: &PutRequest,
    progress: &dyn Progress,
    mut view: Option<View>,
) -> Result<PutReport> {
    store.format().check_writable()?;
    let _turn = match request.onto {
        Onto::Merge(_) => {
            let turn = turn(store, request)?;
            // Whoever had the turn before may have saved since.
            if let Some(view) = &mut view
                && ancestor::is_behind(store, request, view)?
            {
                store.refresh(view)?;
            }
            turn
        }
        _ => {
            check_whole(request)?;
            None
        }
    };
    let passes = Passes::begin()?;
    // DESIGN, writer 3: a stale pass is followed by another one, which stores what is missing by then.
    let mut headway = Headway::new();
    loop {
        let before = passes.stored_bytes();
        let view = view.take().map_or_else(|| store.view(), Ok)?;
        if let Some(report) = attempt(store, request, progress, &passes, view)? {
            return Ok(report);
        }
        match headway.stale(passes.stored_bytes() - before) {
            Some(tries) => System.pause(tries),
            None => break,
        }
    }
    Err(Error::conflict(format!(
        "put {}: collectors took what it had stored, {VAIN_MAX} times in a row without an end in sight",
        request.target
    ))
    .hint(Remedy::LongerMinAgeThanPut))
}

/// One pass over the source; `None` if a collector took chunks that it had deduplicated against.
fn attempt(
    store: &Store,
    request: &PutRequest,
    progress: &dyn Progress,
    passes: &Passes,
    view: View,
) -> Result<Option<PutReport>> {
    store.check_writable(&view.state)?;
    let reader = Reader::at(store, view.clone());
    let base = match request.onto {
        Onto::Merge(ancestor) => Some(base(&reader, request, ancestor)?),
        Onto::Insert => Some(Base::default()),
        Onto::Replace | Onto::New | Onto::Only(_) => None,
    };
    let (scan, cache) = Scan::prepare(store, request, &reader, &view)?;
    let dedup = Dedup::new(view.index.clone());
    let bases = Reader::at(store, view.clone());
    let finder = Finder::new(bases, &dedup, &request.delta_base, &request.target)?;
    let session = PutSession::new(store, request, &dedup, view, scan.bases(), passes)?;
    let known = base.as_ref().map(|_| &reader);
    // What was put is what the tree is made from by then, as what was saved is.
    let listing = match base.is_some() || made(store, request).is_some() {
        true => listing(store, request)?,
        false => None,
    };
    match pipeline(
        store,
        request,
        progress,
        scan,
        (cache, known, listing),
        (&dedup, finder.as_ref()),
        &session,
    ) {
        Err(error) if store.host().check_stop().is_err() => Err(session.interrupted(error)),
        built => session.commit(built?, base.as_ref(), &reader),
    }
}
