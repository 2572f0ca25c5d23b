//! What a directory was made from: the base of its save.
//!
//! The note of its last save or the mark of its tree says that, whichever is newer. The trees of the base are read from
//! the store if a version still has them; otherwise they are rebuilt from the list of paths that this host has kept.

use std::fs::File;
use std::path::Path;

use super::rebuilt::rebuilt;
use super::{Ancestor, PutRequest};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Content, RefName, RefSpec, Root, State};
use crate::host::pool::list::{ListReader, Thing, checksum};
use crate::host::pool::{Known, Mark, Pool, stamped};
use crate::host::saved::{Last, Listing, Made, Note, Notes};
use crate::read::Reader;
use crate::remedy::Remedy;
use crate::sound::vouched::Vouchers;
use crate::store::{Store, View};

/// The base that a save is merged from.
#[derive(Clone, Debug, Default)]
pub(super) struct Base {
    /// The version; none, if the directory was made from nothing.
    pub(super) version: Option<u64>,
    /// The tree of the version; none, if there is no version.
    pub(super) root: Option<Content>,
    /// The current mark of the tree.
    pub(super) made: Option<Made>,
}

/// Returns what the source was made from.
pub(super) fn base(
    reader: &Reader<'_>,
    request: &PutRequest,
    ancestor: Ancestor,
    vouchers: &mut Vouchers<'_>,
) -> Result<Base> {
    let root = &super::scan::resolved(&request.source)?;
    let state = &reader.view().state;
    let mark = marked_of(request, root);
    let made = mark.as_ref().map(|(_, mark)| Made::from(mark));
    let base = match ancestor {
        Ancestor::Version(number) => {
            let mark = mark.as_ref().map(|(_, mark)| mark).filter(|_| number > 0);
            if let Some(mark) = mark.filter(|mark| is_of(mark, reader.store(), request)) {
                check_has_all(mark)?;
            }
            of_version(state, request, number)?
        }
        Ancestor::Known | Ancestor::KnownOr(_) => {
            let pool = mark.as_ref().map(|(pool, _)| *pool);
            let notes = reader.store().notes(pool, root);
            let notes = notes.map(|notes| notes.of_meant(request.identity));
            let last = match &notes {
                Some(notes) => notes.last(state, &request.target)?,
                None => Last::default(),
            };
            if last.is_unclear(made.as_ref()) {
                return Err(unclear(request));
            }
            let marked = mark.as_ref().map(|(_, mark)| mark);
            let is_own = marked.is_some_and(|mark| is_of(mark, reader.store(), request));
            let note = (last.note).filter(|note| note.is_since(marked, is_own));
            if let Some(mark) = marked {
                check_settled(mark)?;
            }
            let own = marked.filter(|_| is_own).map(Mark::known);
            let known = note.as_ref().map(Note::known).or(own);
            if let (Some(known), Some((pool, mark))) = (&known, &mark)
                && is_own
            {
                let what = (&request.target, request.source.as_path());
                pool.check_noted(mark, what, known.version, None)?;
            }
            if let Some(known) = known {
                (reader.store()).check_had(state, &request.target, known, root)?;
            }
            let others = marked.filter(|_| !is_own);
            // Where a note does not hold, the directory may have been saved since the version that has its tree.
            let is_saved = |notes: &Notes<'_>| notes.was_saved_to(&request.target);
            let others = others.filter(|_| note.is_some() || !notes.as_ref().is_some_and(is_saved));
            let copied = others.and_then(|mark| copy_here(state, mark, &request.target));
            match (notes, note, mark, copied) {
                (Some(notes), Some(note), ..) => Base {
                    version: Some(note.version),
                    root: Some(whole(
                        reader,
                        note.root,
                        vouchers,
                        || Ok(notes.list(&note)),
                    )?),
                    made: None,
                },
                (.., Some(version)) => of_version(state, request, version)?,
                (_, _, Some((pool, mark)), _) if is_own => of_mark(reader, pool, &mark, vouchers)?,
                _ if state.version(&request.target, None).is_err() => Base::default(),
                // A directory that holds the name of a record was made by a pool, which is not known here any more, so that
                // it was not made from nothing.
                _ => match ancestor {
                    Ancestor::KnownOr(number) if number > 0 || stamped(root).is_none() => {
                        of_version(state, request, number)?
                    }
                    _ => return Err(unknown(request)),
                },
            }
        }
    };
    Ok(Base { made, ..base })
}

/// Waits until no other process of this host saves the source: the new base is written down only after the commit.
pub(super) fn turn(store: &Store, request: &PutRequest) -> Result<Option<File>> {
    let Ok(root) = super::scan::resolved(&request.source) else {
        return Ok(None);
    };
    let notes = notes(store, request, &root);
    let check_stop = || store.host().check_stop();
    let turn = notes.map(|notes| notes.turn(&check_stop));
    turn.transpose().map(Option::flatten)
}

/// Whether the source was saved as a version that `view` does not know yet.
pub(super) fn is_behind(store: &Store, request: &PutRequest, view: &View) -> Result<bool> {
    let Ok(root) = super::scan::resolved(&request.source) else {
        return Ok(false);
    };
    let notes = notes(store, request, &root);
    notes.map_or(Ok(false), |notes| {
        notes.is_ahead(&view.state, &request.target)
    })
}

/// What this host knows of saves of the source, which is at the canonical path `root`.
pub(super) fn notes<'r>(store: &Store, request: &'r PutRequest, root: &Path) -> Option<Notes<'r>> {
    let pool = marked_of(request, root).map(|(pool, _)| pool);
    let notes = store.notes(pool, root);
    notes.map(|notes| notes.of_meant(request.identity))
}

/// The version that the source is of, and what of it is in the source, if this host knows that it was made from its ref or
/// saved to it.
pub(super) fn known(store: &Store, request: &PutRequest, state: &State) -> Option<Known> {
    let root = super::scan::resolved(&request.source).ok()?;
    let marked = marked_of(request, &root);
    let mark = marked.as_ref().map(|(_, mark)| mark);
    let is_own = mark.is_some_and(|mark| is_of(mark, store, request));
    let notes = store.notes(marked.as_ref().map(|(pool, _)| *pool), &root);
    let notes = notes.map(|notes| notes.of_meant(request.identity));
    let last = notes.and_then(|notes| notes.last(state, &request.target).ok());
    let note = last
        .and_then(|last| last.note)
        .filter(|note| note.is_since(mark, is_own));
    let mark = mark.filter(|_| is_own);
    // What a save merged into its version is not in the source.
    let noted = note.map(|note| Known {
        version: note.version,
        tree: Some(note.root),
    });
    noted.or(mark.map(Mark::known))
}

/// Whether the source was saved to its ref before.
pub(super) fn was_saved(store: &Store, request: &PutRequest) -> bool {
    let root = super::scan::resolved(&request.source);
    let notes = root.ok().and_then(|root| notes(store, request, &root));
    notes.is_some_and(|notes| notes.has(&request.target))
}

/// Checks that no update of the source is under way or was interrupted, as far as a pool knows.
///
/// # Errors
/// Conflict, when the source is a mix of versions.
pub(super) fn check_whole(request: &PutRequest) -> Result<()> {
    let root = super::scan::resolved(&request.source).ok();
    let mark = root.and_then(|root| marked_of(request, &root).map(|(_, mark)| mark));
    mark.map_or(Ok(()), |mark| check_settled(&mark))
}

/// The mark of the source, if the source was made from the ref that it is put to.
pub(super) fn made(store: &Store, request: &PutRequest) -> Option<Made> {
    let root = super::scan::resolved(&request.source).ok()?;
    let (_, mark) = marked_of(request, &root)?;
    is_of(&mark, store, request).then(|| Made::from(&mark))
}

/// Writes down in the source that it was saved to the ref that it was made from. If the note of the save cannot be
/// written or is lost, the next save is refused instead of merged from the version of the mark.
pub(super) fn note_saved(store: &Store, request: &PutRequest, made: Option<&Made>, version: u64) {
    let Ok(root) = super::scan::resolved(&request.source) else {
        return;
    };
    if let Some((pool, mark)) = marked_of(request, &root)
        && is_of(&mark, store, request)
        && made == Some(&Made::from(&mark))
    {
        pool.note_saved(&mark, version);
    }
}

/// The paths of the source of which nobody knows whether a version or a job made them: the record of its tree was lost.
/// They are no changes of a job until that is known.
///
/// # Errors
/// When the record cannot be read.
pub(super) fn unknown_paths(store: &Store, request: &PutRequest) -> Result<Vec<Vec<u8>>> {
    let root = super::scan::resolved(&request.source)?;
    let marked = marked_of(request, &root).filter(|(_, mark)| is_of(mark, store, request));
    let Some((pool, mark)) = marked.filter(|(_, mark)| mark.kept != Some(false)) else {
        return Ok(Vec::new());
    };
    let mut paths = Vec::new();
    let mut path: Vec<Vec<u8>> = Vec::new();
    let Some(record) = record(pool, &mark)? else {
        return Ok(paths);
    };
    let mut list = ListReader::<Thing>::new(record)?;
    while let Some((level, name, thing)) = list.next()? {
        path.truncate(level.saturating_sub(1));
        path.push(name);
        if thing == Thing::Left {
            paths.push(path.join(&b'/'));
        }
    }
    Ok(paths)
}

/// The settled record of a tree, if it is there and right.
fn record(pool: &Pool, mark: &Mark) -> Result<Option<File>> {
    let Some(name) = &mark.record else {
        return Ok(None);
    };
    let file = pool.record(&mark.path(), name)?;
    let is_right = |file: &File| checksum(file).is_ok_and(|sum| sum.is_some());
    Ok(file.filter(is_right))
}

/// Begins a list of what the source is, which is kept together with what it was made from.
pub(super) fn listing(store: &Store, request: &PutRequest) -> Result<Option<Listing>> {
    if request.dry_run {
        return Ok(None);
    }
    let root = super::scan::resolved(&request.source)?;
    let notes = notes(store, request, &root);
    notes.map(|notes| notes.begin()).transpose()
}

/// Returns the ref that a directory was last saved to, or else made from.
///
/// # Errors
/// Not found, when nothing is known of the directory.
pub fn saved_to(store: &Store, pools: &[std::sync::Arc<Pool>], dir: &Path) -> Result<RefName> {
    let root = dir
        .canonicalize()
        .map_err(|source| Error::io("open", dir, source))?;
    let marked = marked(pools, &root);
    let pool = marked.as_ref().map(|(pool, _)| *pool);
    let note = store.notes(pool, &root).and_then(|notes| notes.read());
    let mark = marked.map(|(_, mark)| mark);
    let mark = mark.filter(|mark| mark.store == store.format().id);
    let source = mark.and_then(|mark| mark.source.parse::<RefSpec>().ok());
    let named = source.map(|spec| spec.name);
    note.map(|note| note.name).or(named).ok_or_else(|| {
        Error::not_found(format!(
            "{}: was neither made from a ref of this store here nor saved to one",
            dir.display()
        ))
        .hint(Remedy::NameRefToSave)
    })
}

/// Checks that this host can write down what is saved of `dir`.
///
/// # Errors
/// As from a file system, if it cannot.
pub fn check_saves(store: &Store, pools: &[std::sync::Arc<Pool>], dir: &Path) -> Result<()> {
    let root = dir
        .canonicalize()
        .map_err(|source| Error::io("open", dir, source))?;
    let pool = marked(pools, &root).map(|(pool, _)| pool);
    let notes = store.notes(pool, &root);
    notes.map_or(Ok(()), |notes| notes.check())
}

/// The mark of the source, if it is for the directory that the request means.
fn marked_of<'r>(request: &'r PutRequest, root: &Path) -> Option<(&'r Pool, Mark)> {
    let marked = marked(&request.pools, root);
    marked.filter(|(_, mark)| mark.inode.may_be(request.identity))
}

fn marked<'p>(pools: &'p [std::sync::Arc<Pool>], root: &Path) -> Option<(&'p Pool, Mark)> {
    let mut marks = pools
        .iter()
        .filter_map(|pool| pool.mark_of(root).map(|mark| (pool.as_ref(), mark)));
    marks.next()
}

fn is_of(mark: &Mark, store: &Store, request: &PutRequest) -> bool {
    mark.is_from(store.format().id, &request.target)
}

/// The newest version of a ref here that has the very tree that `mark` was made from in another store, or from another ref:
/// it was copied there.
fn copy_here(state: &State, mark: &Mark, name: &RefName) -> Option<u64> {
    let tree = mark.tree.filter(|_| check_has_all(mark).is_ok())?;
    // Otherwise, some of its files are of earlier versions.
    let versions = state
        .versions(name)
        .ok()
        .filter(|_| mark.kept == Some(false))?;
    let mut newest_first = versions.iter().rev();
    let found = newest_first.find(|(_, version)| *version.root.content() == tree);
    found.map(|(number, _)| *number)
}

fn check_settled(mark: &Mark) -> Result<()> {
    if mark.is_settled {
        return Ok(());
    }
    Err(Error::conflict(format!(
        "{}: an update of it is under way or was interrupted, so that it is of no one version",
        mark.path().display()
    ))
    .hint(Remedy::MaterializeFirst))
}

/// A save was killed, and nobody knows whether it had made a version, which is gone by now.
fn unclear(request: &PutRequest) -> Error {
    Error::conflict(format!(
        "{}: a save of it to {} was killed, and it is not known whether that had made a version",
        request.source.display(),
        request.target
    ))
    .hint(Remedy::NameBase)
}

fn unknown(request: &PutRequest) -> Error {
    Error::conflict(format!(
        "{}: it is not known which version of {} it was made from",
        request.source.display(),
        request.target
    ))
    .hint(Remedy::NameBase)
}

/// The version with this number; nothing, if it is 0.
fn of_version(state: &State, request: &PutRequest, number: u64) -> Result<Base> {
    if number == 0 {
        return Ok(Base::default());
    }
    let (_, version) = state.version(&request.target, Some(number))?;
    match version.root {
        Root::Tree { content, .. } => Ok(Base {
            version: Some(number),
            root: Some(content),
            made: None,
        }),
        Root::File { .. } => Err(Error::conflict(format!(
            "{}@{number}: is a file, and {} is a directory",
            request.target,
            request.source.display()
        ))
        .hint(Remedy::OtherRef)),
    }
}

fn of_mark(
    reader: &Reader<'_>,
    pool: &Pool,
    mark: &Mark,
    vouchers: &mut Vouchers<'_>,
) -> Result<Base> {
    check_is_root(mark)?;
    let record = || record(pool, mark);
    let is_whole = mark.include.is_empty() && mark.exclude.is_empty();
    // A path that a job had changed and that was kept comes from an earlier version; the record knows its original
    // bytes.
    let kept = match mark.kept {
        Some(false) => None,
        _ => record()?,
    };
    let root = match (mark.tree, kept) {
        (_, Some(record)) => rebuilt(reader, record)?,
        (Some(root), None) if is_whole => whole(reader, root, vouchers, record)?,
        (_, None) => rebuilt(reader, record()?.ok_or_else(gone)?)?,
    };
    Ok(Base {
        version: Some(mark.version),
        root: Some(root),
        made: None,
    })
}

/// Checks that a tree has the paths and links of its ref.
fn check_is_root(mark: &Mark) -> Result<()> {
    let path = mark.path();
    let spec: RefSpec = mark.source.parse()?;
    if !spec.path.is_empty() {
        return Err(Error::invalid(format!(
            "{}: was made from a path inside of {}, and only whole trees are saved",
            path.display(),
            spec.name
        ))
        .hint(Remedy::OtherRef));
    }
    if mark.flatten {
        return Err(Error::invalid(format!(
            "{}: was made with files in the place of links, which are not what {} has",
            path.display(),
            spec.name
        ))
        .hint(Remedy::OtherRef));
    }
    Ok(())
}

/// Checks that a tree has all of its version: what it lacks would count as deleted if a whole version were its base.
fn check_has_all(mark: &Mark) -> Result<()> {
    check_is_root(mark)?;
    if mark.include.is_empty() && mark.exclude.is_empty() {
        return Ok(());
    }
    let spec: RefSpec = mark.source.parse()?;
    Err(Error::invalid(format!(
        "{}: has only a part of {}@{}, so that no whole version is its base",
        mark.path().display(),
        spec.name,
        mark.version
    ))
    .hint("name no base: this host knows which part it was made from"))
}

/// Returns the tree `root`, after making sure that its nodes can be read. A live version may have lost some of them, so
/// the list is asked unless the version vouches for them.
fn whole(
    reader: &Reader<'_>,
    root: Content,
    vouchers: &mut Vouchers<'_>,
    list: impl FnOnce() -> Result<Option<File>>,
) -> Result<Content> {
    let view = reader.view();
    let live = view.state.with_root(&root, None)?;
    let is_live = live.is_some();
    if live.is_some_and(|(name, number, _)| vouchers.vouch_for(&name, number)) {
        return Ok(root);
    }
    let made = list().and_then(|list| list.map(|list| rebuilt(reader, list)).transpose());
    match made {
        Ok(Some(made)) => Ok(made),
        // What cannot be read of the version shows when it is compared.
        _ if is_live => Ok(root),
        Err(error) => Err(error),
        // The tree may not have been collected yet.
        Ok(None) => match reader.tree(&root) {
            Ok(_) => Ok(root),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corrupt) => {
                Err(gone())
            }
            Err(error) => Err(error),
        },
    }
}

fn gone() -> Error {
    Error::conflict("the version that it was made from is gone, and so is the record of it")
        .hint(Remedy::NameBase)
}
