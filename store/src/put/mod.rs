//! put: a directory or a file becomes a new version of a ref.
//!
//! ```text
//! walk -> read, cut, hash -> deduplicate -> frame, encode -> pack -> segment
//!      -> trees and times, in the walk's order -------------^       -> log entry
//! ```
//!
//! All or nothing: the ref appears with the log entry, after everything it needs is durable. Order of writes: packs,
//! segments, log entry. A long put commits segments as it goes, so after a kill the next put finds the chunks.

mod accepted;
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
mod long_paths;
mod messages;
mod meta;
mod near;
mod origin;
mod own;
mod packer;
mod pipeline;
mod private;
mod publish;
mod reading;
mod rebuilt;
mod remember;
mod same;
mod save;
mod scan;
mod stored;
#[cfg(test)]
mod tests;
mod ties;
mod tracks;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use rustix::fs::{self, Mode, OFlags};

use crate::error::{Error, Result};
use crate::format::{Content, Extra, Id, Keep, RefName};
use crate::host::pool::Pool;
use crate::host::walk::Globs;
use crate::log::{Outside, System};
use crate::merge::{Clash, Counts};
use crate::profile::{LinkOptions, ProfileOptions};
use crate::progress::Progress;
use crate::read::Reader;
use crate::remedy::{Note, Remedy};
use crate::retry::{Headway, VAIN_MAX};
use crate::sound::vouched::Vouchers;
use crate::store::{Store, View};

use ancestor::{Base, base, check_whole, listing, made, turn, unknown_paths, was_saved};
use dedup::Dedup;
use near::Finder;
use pipeline::pipeline;
use publish::{Passes, PutSession};
use scan::Scan;

pub use ancestor::{check_saves, saved_to};
pub use edit::{Arriving, Edit, EditReport, EditRequest, edit};
pub use near::DeltaBase;

/// What happens to the newest version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Onto {
    /// The new version replaces it as the newest.
    #[default]
    Replace,
    /// The same, unless some version has the same tree, whatever its times, and the same message up to the last space.
    /// Then the put makes no version: the source was put before, and was at most touched since. Different names still
    /// get versions of their own.
    New,
    /// The new version replaces exactly this one; 0: there must be none.
    Only(u64),
    /// The changes since the ancestor are merged into it.
    Merge(Ancestor),
    /// The entries of [`PutRequest::entries`] are added to it, each whole, and only under names that it does not have.
    Insert,
}

/// The paths of the entries to insert. An existing entry is replaced only if it is exactly this tree or file.
pub type Entries = BTreeMap<Vec<u8>, Option<Content>>;

/// What a directory was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ancestor {
    /// What this host knows of it: its last save, or how it was materialized.
    Known,
    /// The same, or this version of the ref if the host knows nothing; 0: nothing.
    KnownOr(u64),
    /// This version of the ref; 0: nothing.
    Version(u64),
}

/// A request to put a directory or a file.
#[derive(Clone, Debug)]
pub struct PutRequest {
    /// The directory or file.
    pub source: PathBuf,
    /// Device and inode that the source must have: others may rename what is in the directory above it.
    pub identity: Option<(u64, u64)>,
    /// The ref that gets a new version.
    pub target: RefName,
    /// Globs of what to leave out.
    pub exclude: Vec<String>,
    /// Whether `exclude` may leave nothing of a source that is not empty. A save then publishes no deletions.
    pub may_leave_out_all: bool,
    /// Leave out what cannot be read and list it, instead of failing.
    pub skip_unreadable: bool,
    /// Do everything except write.
    pub dry_run: bool,
    /// The message of the new version.
    pub message: String,
    /// When retention may drop this version.
    pub expires: Option<Timestamp>,
    /// Compression level of zstd; [`Self::LEVEL`] by default.
    pub level: i32,
    /// Decode and compare every frame before it is uploaded.
    pub verify_writes: bool,
    /// Read every file, even if it looks unchanged.
    pub read_all: bool,
    /// Make a version even if the newest one is the same already.
    pub always: bool,
    /// The pools to whose files trees on this host link.
    pub pools: Vec<Arc<Pool>>,
    /// If somebody wrote to a file through a link that a pool shares, take the file as it is.
    pub take_written_through: bool,
    /// Which profile to use for the source.
    pub profile: ProfileOptions,
    /// What happens to symlinks.
    pub links: LinkOptions,
    /// Let others read copies of the version, even if only their owner can read the files.
    pub readable: bool,
    /// What happens to the newest version.
    pub onto: Onto,
    /// With [`Onto::Insert`]: the entries to insert.
    pub entries: Entries,
    /// Fail, and make no version, if there is no file left because what there is was left out.
    pub needs_files: bool,
    /// Save a directory even if nothing is left in it.
    pub allow_empty: bool,
    /// What to keep beside the tree.
    pub keep: Vec<Keep>,
    /// Called when everything was read, before anything is published.
    pub source_check: Option<SourceCheck>,
    /// Further fields of the version.
    pub extra: Extra,
    /// Where to look for the bases of deltas.
    pub delta_base: DeltaBase,
}

/// Checks whether the source is still as it was when the put began. If it is not, the check fails, and nothing is
/// published.
#[derive(Clone)]
pub struct SourceCheck(Arc<dyn Fn() -> Result<()> + Send + Sync>);

impl SourceCheck {
    /// Wraps a function that does the check.
    pub fn new(check: Arc<dyn Fn() -> Result<()> + Send + Sync>) -> Self {
        Self(check)
    }
}

impl fmt::Debug for SourceCheck {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("SourceCheck")
    }
}

/// The part of a report that only a save has.
#[derive(Debug, Default, serde::Serialize)]
pub struct SaveReport {
    /// The version that the directory was made from; none, if it was made from nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<u64>,
    /// The newest version, into which the changes were merged; none, if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub onto: Option<u64>,
    /// The changes since the base.
    #[serde(flatten)]
    pub counts: Counts,
    /// Number of paths that others had changed, too.
    #[serde(rename = "conflicts")]
    pub clashed: u64,
    /// The first of these paths.
    #[serde(rename = "conflicting")]
    pub clashes: Vec<Clash>,
}

/// The report of a put.
#[derive(Debug, Default, serde::Serialize)]
pub struct PutReport {
    /// The number of the version; none after a dry run, unless no new one would be made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// The id of its content, which is the same in every store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Id>,
    /// After a dry run: the id that the content would get.
    #[serde(skip)]
    pub would_be: Option<Id>,
    /// Whether only one user may access copies of it, because only their owner can read some of the files.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub private: bool,
    /// Whether the newest version had this content already, so that nothing has changed.
    pub unchanged: bool,
    /// Regular files.
    pub files: u64,
    /// Files that were not read because they have not changed since the last put from here.
    pub unchanged_files: u64,
    /// Directories, the root included.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Bytes of chunks that the store did not have.
    pub new_bytes: u64,
    /// Bytes by which the store grew: encoded frames of data and metadata.
    pub stored_bytes: u64,
    /// Paths that were left out because they could not be read, and why; the caller formats them.
    #[serde(skip)]
    pub skipped: Vec<(PathBuf, Error)>,
    /// Whether something was left out that may be nowhere else: not only locks, unfinished files and the state that
    /// clients make again.
    #[serde(skip)]
    pub has_missed: bool,
    /// The paths that globs of the request left out, without what is in such directories; a limited number of them.
    #[serde(skip)]
    pub excluded: Vec<PathBuf>,
    /// Bytes of files that were read; only for a save.
    #[serde(skip)]
    pub read_bytes: u64,
    /// What it was merged with, if it was a save.
    #[serde(skip)]
    pub saved: Option<SaveReport>,
    /// Notes that are worth knowing and that did not stop the put.
    #[serde(skip)]
    pub notes: Vec<Note>,
}

impl PutRequest {
    /// The compression level of everything that writes to a store: put, save, push, the collector and repair.
    pub const LEVEL: i32 = crate::codec::LEVEL;

    /// Creates a request to put `source` as `target`, with the default settings.
    pub fn new(source: impl Into<PathBuf>, target: RefName) -> Self {
        Self {
            source: source.into(),
            identity: None,
            target,
            exclude: Vec::new(),
            may_leave_out_all: false,
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
            needs_files: false,
            allow_empty: false,
            keep: Vec::new(),
            source_check: None,
            extra: Extra::new(),
            delta_base: DeltaBase::default(),
        }
    }

    /// Creates a request to save `source` to `target`: the changes since it was made are merged into the newest
    /// version.
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
/// When something cannot be read, or changes while it is read; the error names it. When there are credentials; the
/// error names all of them. When a disk is full, or a conflict does not end. Then nothing is published.
pub fn put(store: &Store, request: &PutRequest, progress: &dyn Progress) -> Result<PutReport> {
    put_after(store, request, progress, None)
}

/// Does [`put`] from a view that was loaded before, so that several puts in a row load it once. The commit takes newer
/// entries into account. Chunks that no segment of the view has may be stored again.
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
    if let Some(kind) = crate::profile::credentials_in(&request.message) {
        let message = format!("the message holds what looks like {kind}; nothing was put");
        return Err(Error::denied(message).hint("everybody can read it: say it without"));
    }
    let held = match request.onto {
        Onto::Merge(_) => held(&request.source),
        _ => None,
    };
    let request = &PutRequest {
        identity: request
            .identity
            .or(held.as_ref().map(|(_, identity)| *identity)),
        ..request.clone()
    };
    let _turn = match request.onto {
        Onto::Merge(_) => {
            let turn = turn(store, request)?;
            // Another process may have saved while this one waited for its turn.
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
    // DESIGN, writer 3: after a stale pass, another one stores what is missing by then.
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

/// Holds the directory at `source` open, with its device and inode: what is known of a directory and what is read of it
/// must be of the same one, and no other one gets its inode meanwhile. None, if there is no directory.
fn held(source: &Path) -> Option<(OwnedFd, (u64, u64))> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = fs::open(source, flags, Mode::empty()).ok()?;
    let found = fs::fstat(&dir).ok()?;
    Some((dir, (found.st_dev, found.st_ino)))
}

/// Makes one pass over the source; `None` if a collector took chunks that the pass relied on.
fn attempt(
    store: &Store,
    request: &PutRequest,
    progress: &dyn Progress,
    passes: &Passes,
    view: View,
) -> Result<Option<PutReport>> {
    store.check_writable(&view.state)?;
    store.check_packs_there(&view.state)?;
    let unknown = match request.onto {
        Onto::Merge(Ancestor::Known | Ancestor::KnownOr(_)) => unknown_paths(store, request)?,
        _ => Vec::new(),
    };
    let known = request.without(&unknown)?;
    let report = attempt_known(store, &known, progress, passes, view)?;
    Ok(report.map(|mut report| {
        let skipped = unknown.iter().map(|path| of_unknown(path));
        report.skipped.extend(skipped);
        report
    }))
}

/// Makes one pass over a source of which is known what a job changed.
fn attempt_known(
    store: &Store,
    request: &PutRequest,
    progress: &dyn Progress,
    passes: &Passes,
    view: View,
) -> Result<Option<PutReport>> {
    let reader = Reader::at(store, view.clone());
    let mut vouchers = Vouchers::new(store, &view);
    let base = match request.onto {
        Onto::Merge(ancestor) => Some(base(&reader, request, ancestor, &mut vouchers)?),
        Onto::Insert => Some(Base::default()),
        Onto::Replace | Onto::New | Onto::Only(_) => None,
    };
    let (scan, cache) = Scan::prepare(store, request, &reader, (&view, &mut vouchers))?;
    let dedup = Dedup::new(view.index.clone());
    let bases = Reader::at(store, view.clone());
    let finder = Finder::new(bases, &dedup, &request.delta_base, &request.target)?;
    let session = PutSession::new(store, request, &dedup, view, scan.bases(), passes)?;
    let known = base.as_ref().map(|_| &reader);
    // As after a save, the tree will count as made from this version.
    let is_kept = match request.onto {
        Onto::Merge(_) => true,
        // It is made for one call.
        Onto::Insert => false,
        _ => made(store, request).is_some() || was_saved(store, request),
    };
    let listing = match is_kept {
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

impl PutRequest {
    /// The request without these paths.
    fn without(&self, paths: &[Vec<u8>]) -> Result<Self> {
        let mut request = self.clone();
        for path in paths {
            let text = std::str::from_utf8(path).map_err(|_| of_unknown(path).1)?;
            request.exclude.push(format!("/{}", Globs::escape(text)));
        }
        Ok(request)
    }
}

/// A path that is not saved, since it may be of any version.
fn of_unknown(path: &[u8]) -> (PathBuf, Error) {
    let path = PathBuf::from(OsStr::from_bytes(path));
    let error = Error::conflict(format!(
        "{}: not saved: the record of the tree was lost, so that nobody knows whether a job made it or an earlier version",
        path.display()
    ))
    .hint(Remedy::MaterializeExactly);
    (path, error)
}
