//! What an earlier run that was killed left: packs that had arrived and are in no segment yet.
//!
//! The caller remembers them, if it likes to; nothing here trusts that memory. Losing it costs time only.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::uploader::{Unsettled, read_frames};
use crate::error::{Kind, Result};
use crate::format::pack_key;
use crate::id::{ChunkId, PackId};
use crate::pack::reader::OpenPack;
use crate::read::Reader;
use crate::session::Session;
use crate::store::{Store, View};

/// Remembers, for one pair of stores, which packs have arrived and are not committed yet.
///
/// Disposable: an empty one is a normal start, and one that is wrong costs a look at each pack it names.
pub trait Resume: Send + Sync {
    /// Packs that earlier runs sealed and did not commit; not all of them need be there.
    fn packs(&self) -> Vec<PackId>;

    /// Called when all of a pack has arrived at the destination, right before it becomes an object there. The next run
    /// sends again what this cannot write down.
    fn pack_sealed(&self, pack: PackId);

    /// Called when packs need not be remembered any more: they were committed, or turned out to be useless.
    fn packs_committed(&self, packs: &[PackId]);
}

/// Remembers nothing: a run that was killed resumes from what it had committed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Forgetful;

impl Resume for Forgetful {
    fn packs(&self) -> Vec<PackId> {
        Vec::new()
    }

    fn pack_sealed(&self, _pack: PackId) {}

    fn packs_committed(&self, _packs: &[PackId]) {}
}

/// Remembers as long as it lives, for several runs of one process.
#[derive(Debug, Default)]
pub struct Memory(Mutex<Vec<PackId>>);

impl Memory {
    fn known(&self) -> MutexGuard<'_, Vec<PackId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Resume for Memory {
    fn packs(&self) -> Vec<PackId> {
        self.known().clone()
    }

    fn pack_sealed(&self, pack: PackId) {
        self.known().push(pack);
    }

    fn packs_committed(&self, packs: &[PackId]) {
        self.known().retain(|pack| !packs.contains(pack));
    }
}

/// Commits those unsettled packs that are whole, not condemned and in no live segment of `view`; their bytes.
/// With `verify` each is read down to the last byte before. What is wrong with one is no error: its chunks are
/// sent again.
pub(super) fn adopt(
    to: &Store,
    view: &View,
    session: &Session<'_>,
    unsettled: &Unsettled<'_>,
    verify: bool,
) -> Result<u64> {
    let mut bytes = 0;
    let useless = for_each_left(to, view, unsettled, verify, &mut |pack| {
        bytes += u64::from(pack.len);
        unsettled.settle(&session.adopt(pack.header, pack.len, &pack.table)?);
        Ok(())
    })?;
    unsettled.settle(&session.commit_packs()?);
    unsettled.settle(&useless);
    Ok(bytes)
}

/// What [`adopt`] would take up: bytes of packs, and the chunks in them. Nothing is written, and nothing read back.
pub(super) fn adoptable(
    to: &Store,
    view: &View,
    unsettled: &Unsettled<'_>,
) -> Result<(u64, HashSet<ChunkId>)> {
    let (mut bytes, mut chunks) = (0, HashSet::new());
    for_each_left(to, view, unsettled, false, &mut |pack| {
        bytes += u64::from(pack.len);
        // What is a delta is there only if its bases are.
        let rows = pack.rows().into_iter();
        let plain = rows.filter(|frame| frame.bases.is_empty());
        chunks.extend(plain.flat_map(|frame| frame.chunks).map(|(id, _, _)| id));
        Ok(())
    })?;
    Ok((bytes, chunks))
}

/// Hands the unsettled packs that are of use to `each`; those that are of none.
fn for_each_left(
    to: &Store,
    view: &View,
    unsettled: &Unsettled<'_>,
    verify: bool,
    each: &mut dyn FnMut(OpenPack) -> Result<()>,
) -> Result<Vec<PackId>> {
    let packs = unsettled.packs();
    let known: HashSet<PackId> = match packs.is_empty() {
        true => HashSet::new(),
        false => view.index.packs().map(|pack| pack.id).collect(),
    };
    let mut useless = Vec::new();
    for id in packs {
        let is_taken = known.contains(&id) || view.state.condemned.contains_key(&id);
        let pack = (!is_taken)
            .then(|| open(view, to, id, verify))
            .transpose()?;
        match pack.flatten() {
            Some(pack) => each(pack)?,
            None => useless.push(id),
        }
    }
    Ok(useless)
}

/// What a pack says about itself, if it is there and can say so; with `verify`, if all of it is right.
fn open(view: &View, to: &Store, id: PackId, verify: bool) -> Result<Option<OpenPack>> {
    let remote = to.remote().as_ref();
    let opened = remote.size(&pack_key(id)).and_then(|len| {
        let pack = OpenPack::read(remote, to.format().id, id, len)?;
        if verify {
            read_frames(&Reader::at(to, view.clone()), &pack)?;
        }
        Ok(pack)
    });
    match opened {
        Ok(pack) => Ok(Some(pack)),
        Err(error) => match error.kind() {
            Kind::NotFound | Kind::Corrupt | Kind::Unsupported => Ok(None),
            _ => Err(error),
        },
    }
}
