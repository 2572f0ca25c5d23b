//! edit: adds and removes single files of a ref while their bytes arrive, instead of putting a directory.
//!
//! Bytes are cut, stored and packed while they arrive. At the end, the newest version's tree is rewritten along the
//! changed paths, and one log entry is added to exactly the version that was looked at. If another commit was faster,
//! only the trees are written again. Bytes arrive only once, so if a collector took chunks of the pass, that is an
//! error, and the caller starts again.

use std::path::PathBuf;

use crossbeam_channel::{Sender, bounded};
use jiff::Timestamp;

use super::PutRequest;
use super::dedup::Dedup;
use super::meta::put_meta;
use super::packer::Packer;
use super::pipeline::reason;
use super::publish::{Passes, PutSession, refused_room};
use super::tracks::{Branch, Tracks};
use crate::chunk::Cutter;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Change, Content, Extra, FrameKind, Id, Node, RefName, Root, State, Version};
use crate::id::ChunkId;
use crate::lists::warn_of_unknown;
use crate::log::{Outside, System};
use crate::pack::{Framer, KindFrame};
use crate::read::Reader;
use crate::remedy::Remedy;
use crate::session::Published;
use crate::sound::carried::{LOOKED_UP_BYTES, check_carried};
use crate::sound::mend::mend;
use crate::store::Store;
use crate::tree::ListBuilder;

/// Frames that may wait for the packer.
const FRAMES_WAITING_MAX: usize = 4;
/// Bytes of a file that are inspected before it is cut: the header of a file of tensors.
const HEAD_BYTES: usize = 1 << 20;
/// How many races an edit may lose.
const TRIES_MAX: u32 = 100;

/// A version with its number.
type Newest = Option<(u64, Version)>;

/// What an edit makes.
#[derive(Clone, Debug)]
pub struct EditRequest {
    /// The ref that gets a new version.
    pub target: RefName,
    /// The version that must be the newest; 0: there must be none. An edit whose result is the newest version already,
    /// made from this one, counts as done.
    pub onto: Option<u64>,
    /// The message of the new version.
    pub message: String,
    /// When retention may drop this version. If the newest version has this content, it is renewed when less than half
    /// of that time is left.
    pub expires: Option<Timestamp>,
    /// The modification time of changed entries.
    pub time: Timestamp,
}

/// The result of an edit.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct EditReport {
    /// The number of the version.
    pub version: u64,
    /// The root of the version.
    pub root: Root,
    /// Whether the newest version had this content already, so that nothing has changed.
    pub unchanged: bool,
    /// Bytes of chunks that the store did not have.
    pub new_bytes: u64,
}

/// An edit in progress.
pub struct Edit<'e> {
    store: &'e Store,
    dedup: &'e Dedup,
    reader: &'e Reader<'e>,
    data: Framer<Sender<KindFrame>>,
    meta: Framer<Sender<KindFrame>>,
    changes: Branch,
    whole: Option<Content>,
}

/// A file whose bytes are arriving.
pub struct Arriving {
    size: Option<u64>,
    cutter: Option<Cutter>,
    rest: Vec<u8>,
    list: ListBuilder,
    bytes: u64,
}

impl std::fmt::Debug for Arriving {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Arriving({} bytes)", self.bytes)
    }
}

/// Lets `work` change files, then makes a version of the result.
///
/// # Errors
/// The errors of `work`; conflict, when the newest version is not the requested one; unavailable, when a collector took
/// chunks meanwhile, so that the bytes must be sent again; a full disk, a quota.
pub fn edit<T>(
    store: &Store,
    request: &EditRequest,
    work: impl FnOnce(&mut Edit<'_>) -> Result<T>,
) -> Result<(EditReport, T)> {
    let view = store.view()?;
    store.check_writable(&view.state)?;
    store.check_packs_there(&view.state)?;
    request.base(&view.state)?;
    let reader = Reader::at(store, view.clone());
    let dedup = Dedup::new(view.index.clone());
    let put = PutRequest::new(PathBuf::new(), request.target.clone());
    let passes = Passes::begin()?;
    let session = PutSession::new(store, &put, &dedup, view, Vec::new(), &passes)?;
    let (worked, changes, whole) = gather(store, &session, (&dedup, &reader, &put), work)?;
    let state = &reader.view().state;
    if mend(store, state, dedup.relied())?.is_some() {
        session.commit_packs()?;
        return Err(come_again(&request.target));
    }
    let (version, root, unchanged) = commit(store, &session, &put, request, (&changes, whole))?;
    let (new_bytes, _) = session.written_bytes();
    Ok((
        EditReport {
            version,
            root,
            unchanged,
            new_bytes,
        },
        worked,
    ))
}

/// Runs `work` concurrently with the packer, until everything that it stored is durable.
fn gather<T>(
    store: &Store,
    session: &PutSession<'_>,
    (dedup, reader, put): (&Dedup, &Reader<'_>, &PutRequest),
    work: impl FnOnce(&mut Edit<'_>) -> Result<T>,
) -> Result<(T, Branch, Option<Content>)> {
    std::thread::scope(|scope| {
        let (frames, to_pack) = bounded(FRAMES_WAITING_MAX);
        let packer = Packer::new(store, false, session);
        let packing = scope.spawn(move || packer.run(&to_pack));
        let framer = |kind| Framer::new(kind, put.level, put.verify_writes, frames.clone());
        let mut edit = Edit {
            store,
            dedup,
            reader,
            data: framer(FrameKind::Data)?,
            meta: framer(FrameKind::Meta)?,
            changes: Branch::default(),
            whole: None,
        };
        drop(frames);
        let worked = work(&mut edit).and_then(|worked| {
            edit.data.flush()?;
            edit.meta.flush()?;
            Ok(worked)
        });
        let Edit {
            data,
            meta,
            changes,
            whole,
            ..
        } = edit;
        // The packer ends when no sender of frames is left.
        drop((data, meta));
        let packed = packing
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match (worked, packed) {
            (Ok(worked), Ok(())) => Ok((worked, changes, whole)),
            (worked, packed) => {
                let errors = [packed.err(), worked.err()];
                Err(reason(store, errors.into_iter().flatten()))
            }
        }
    })
}

impl Edit<'_> {
    /// Begins a file whose bytes will arrive, with its size if that is known. It is stored when it is finished, and is
    /// in no tree until it is added to one.
    pub fn arriving(&self, size: Option<u64>) -> Arriving {
        Arriving {
            size,
            cutter: None,
            rest: Vec::new(),
            list: ListBuilder::default(),
            bytes: 0,
        }
    }

    /// Sets the file at `path` to `content`, which is stored already.
    ///
    /// # Errors
    /// Invalid input, when a tree cannot hold this path; not found, when the store lacks a part of the content.
    pub fn add(&mut self, path: &[u8], content: Content) -> Result<()> {
        self.count_on(&content)?;
        let node = Node::File {
            content,
            executable: false,
        };
        self.changes.set(path, Some(node))
    }

    /// Sets a symlink to `target` at `path`.
    ///
    /// # Errors
    /// Invalid input, when a tree cannot hold this path, or the target is invalid.
    pub fn link(&mut self, path: &[u8], target: &[u8]) -> Result<()> {
        if target.is_empty() || target.contains(&0) {
            let shown = path.escape_ascii();
            return Err(Error::invalid(format!(
                "path \"{shown}\": a link leads somewhere"
            )));
        }
        let target = target.to_vec();
        self.changes.set(path, Some(Node::Symlink { target }))
    }

    /// Removes the file or directory at `path`.
    ///
    /// # Errors
    /// Invalid input, when a tree cannot hold this path.
    pub fn remove(&mut self, path: &[u8]) -> Result<()> {
        self.changes.set(path, None)
    }

    /// Makes the version a single file instead of a tree.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn replace(&mut self, content: Content) -> Result<()> {
        self.count_on(&content)?;
        self.whole = Some(content);
        Ok(())
    }

    /// Marks all chunks of `content`, so that the commit makes sure that they are still offered.
    fn count_on(&self, content: &Content) -> Result<()> {
        let root = content.root;
        if content.size == 0 || self.dedup.is_claimed(&root) {
            // This pass has stored the chunks, or marked them when it skipped them.
            return Ok(());
        }
        let is_there = |id: &ChunkId| -> Result<bool> {
            Ok(self.dedup.relied().is_offered(id)? || self.dedup.is_claimed(id))
        };
        self.reader
            .list(content, &mut |id, _, _| match is_there(&id)? {
                true => Ok(()),
                false => Err(Error::not_found(format!(
                    "content {root}: chunk {id} is not in the store any more"
                ))),
            })
    }

    fn store_chunk(&mut self, bytes: &[u8]) -> Result<ChunkId> {
        let id = ChunkId::of(bytes);
        if self.dedup.claim(&id)? {
            self.data.push(id, bytes)?;
        }
        Ok(id)
    }
}

impl Arriving {
    /// Appends the next bytes.
    ///
    /// # Errors
    /// When they cannot be stored.
    pub fn push(&mut self, edit: &mut Edit<'_>, bytes: &[u8]) -> Result<()> {
        edit.store.host().check_stop()?;
        self.bytes += bytes.len() as u64;
        self.rest.extend_from_slice(bytes);
        match self.rest.len() < HEAD_BYTES && self.cutter.is_none() {
            true => Ok(()),
            false => self.cut(edit, false),
        }
    }

    /// Returns the finished file, which becomes durable with the edit.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn finish(mut self, edit: &mut Edit<'_>) -> Result<Content> {
        self.cut(edit, true)?;
        let (dedup, meta) = (edit.dedup, &mut edit.meta);
        self.list.finish(&mut |bytes| put_meta(dedup, meta, bytes))
    }

    fn cut(&mut self, edit: &mut Edit<'_>, is_end: bool) -> Result<()> {
        let mut cutter = match self.cutter.take() {
            Some(cutter) => cutter,
            None => self.cutter(edit.store, is_end)?,
        };
        let mut done = 0;
        while let Some(rest) = self.rest.get(done..).filter(|rest| !rest.is_empty()) {
            let cut = cutter.cut(rest, is_end);
            let Some(chunk) = cut.and_then(|len| rest.get(..len)) else {
                break;
            };
            let len = u32::try_from(chunk.len())
                .map_err(|_| Error::invalid("a chunk would outgrow 32-bit lengths"))?;
            let id = edit.store_chunk(chunk)?;
            let (dedup, meta) = (edit.dedup, &mut edit.meta);
            self.list
                .push(id, len, &mut |bytes| put_meta(dedup, meta, bytes))?;
            done += chunk.len();
        }
        self.rest.drain(..done);
        self.cutter = Some(cutter);
        Ok(())
    }

    /// Decides where to cut: at tensors, if the head shows that there are any.
    fn cutter(&self, store: &Store, is_end: bool) -> Result<Cutter> {
        let head = self.rest.as_slice();
        let size = match is_end {
            true => Some(self.rest.len() as u64),
            false => self.size,
        };
        let made = match size {
            Some(size) => Cutter::new(store.chunker(), &head, size),
            None => Cutter::new(store.chunker(), &[].as_slice(), 0),
        };
        // The bytes behind the head are not known yet.
        made.or_else(|_| Cutter::new(store.chunker(), &[].as_slice(), 0))
            .map_err(|source| Error::unavailable("the bytes of a file").because(source))
    }
}

/// Commits the version. Returns its number, its root, and whether it existed already.
fn commit(
    store: &Store,
    session: &PutSession<'_>,
    put: &PutRequest,
    request: &EditRequest,
    (changes, whole): (&Branch, Option<Content>),
) -> Result<(u64, Root, bool)> {
    for tries in 0..TRIES_MAX {
        let reader = Reader::new(store)?;
        let newest = newest_of(&reader.view().state, &request.target);
        let base = request.base(&reader.view().state)?;
        let mut tracks = Tracks::new(&reader, session, put, request.time)?;
        let (root, sides) = match whole {
            Some(content) => tracks.file(&request.target, base.as_ref(), content)?,
            None => tracks.tree(&request.target, base.as_ref(), changes)?,
        };
        tracks.finish(session)?;
        let key = |found: &Newest| {
            found
                .as_ref()
                .map(|(number, version)| (*number, version.root))
        };
        // The version may have been added by an earlier request whose answer was lost.
        if let Some((number, there)) = &newest
            && there.root == root
            && request.is_kept_by(there)
        {
            let number = *number;
            session.commit_packs()?;
            store.settle(&reader.view().state)?;
            return Ok((number, root, true));
        }
        if key(&base) != key(&newest) {
            session.commit_packs()?;
            return Err(request.is_late(key(&newest).map_or(0, |(number, _)| number)));
        }
        let mut number = 0;
        let mut is_late = false;
        let committed = session.commit_changes(&mut |state, refused| {
            refused_room(refused)?;
            let now = newest_of(state, &request.target);
            if key(&now) != key(&newest) {
                is_late = true;
                return Err(Error::conflict("another version came first"));
            }
            number = state.refs.last(&request.target)? + 1;
            Ok(vec![Change::SetRef {
                name: request.target.clone(),
                version: number,
                root,
                sides: sides.clone(),
                message: request.message.clone(),
                expires: request.expires,
                origin: None,
                ends: Vec::new(),
                private: newest.as_ref().is_some_and(|(_, newest)| newest.private),
                extra: Extra::new(),
            }])
        });
        match committed {
            Err(_) if is_late => System.pause(tries),
            Err(error) => return Err(error),
            Ok(Published::Stale) => return Err(come_again(&request.target)),
            Ok(Published::Nothing) => return Ok((number, root, false)),
            Ok(Published::Entry(committed)) => {
                if let Some((before, version)) = &base {
                    warn_of_unknown(store, &request.target, *before, version);
                    let versions = (*before, number);
                    check_carried(store, &request.target, versions, &root, LOOKED_UP_BYTES);
                }
                if let Some(error) = committed.checkpoint {
                    let what =
                        "a checkpoint could not be written, so that the store opens more slowly";
                    store.warn(error.within(what));
                }
                return Ok((number, root, false));
            }
        }
        store.host().check_stop()?;
    }
    Err(Error::conflict(format!(
        "{}: other commits were quicker, {TRIES_MAX} times in a row",
        request.target
    )))
}

impl EditRequest {
    /// The version to change: the requested one, even if another one has followed it.
    fn base(&self, state: &State) -> Result<Newest> {
        let newest = newest_of(state, &self.target);
        let found = newest.as_ref().map_or(0, |(number, _)| *number);
        match self.onto {
            None => Ok(newest),
            Some(wanted) if wanted == found => Ok(newest),
            Some(0) => Ok(None),
            Some(wanted) => match state.refs.version(&self.target, wanted)? {
                Some(version) => Ok(Some((wanted, version))),
                None => Err(self.is_late(found)),
            },
        }
    }

    /// Whether a version of the same content stays long enough: at least half of the requested time. So repeated
    /// requests make one version, and a version that is about to expire is renewed.
    fn is_kept_by(&self, there: &Version) -> bool {
        match (self.expires, there.expires) {
            (Some(wanted), Some(end)) if !there.pinned => {
                let secs = |to: Timestamp| to.as_second() - self.time.as_second();
                secs(end) >= secs(wanted) / 2
            }
            _ => true,
        }
    }

    fn is_late(&self, found: u64) -> Error {
        let wanted = self.onto.unwrap_or_default();
        Error::conflict(format!(
            "{}: expected @{wanted} as the newest version, found @{found}",
            self.target
        ))
    }
}

impl EditReport {
    /// The id of the version's content, which is the same in every store.
    pub fn id(&self) -> Id {
        Id::of(&self.root)
    }
}

fn newest_of(state: &State, name: &RefName) -> Newest {
    state.version(name, None).ok()
}

fn come_again(name: &RefName) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!("{name}: a collector took what was stored meanwhile; nothing was published"),
    )
    .hint(Remedy::LongerMinAgeThanPut)
}
