//! What an earlier, killed run left: packs that had arrived and are in no segment yet.
//!
//! The caller may remember them; nothing here trusts that memory. Losing it only costs time.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::uploader::{Unsettled, read_frames};
use crate::error::{ErrorKind, Result};
use crate::format::pack_key;
use crate::id::{ChunkId, PackId};
use crate::pack::reader::OpenPack;
use crate::read::Reader;
use crate::session::Session;
use crate::store::{Store, View};

/// Remembers, for one pair of stores, which packs have arrived and are not committed yet.
///
/// The memory is disposable: if it is empty, a run starts normally; each wrong name costs a look.
pub trait Resume: Send + Sync {
    /// Packs that earlier runs sealed and did not commit. Not all of them need exist.
    fn packs(&self) -> Vec<PackId>;

    /// Called when all bytes of a pack have arrived at the destination, right before it becomes an object there. If
    /// this cannot be recorded, the next run sends the pack again.
    fn pack_sealed(&self, pack: PackId);

    /// Called when packs can be forgotten, because they were committed or turned out to be useless.
    fn packs_committed(&self, packs: &[PackId]);
}

/// Remembers nothing: after a kill, a run resumes from what was committed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Forgetful;

impl Resume for Forgetful {
    fn packs(&self) -> Vec<PackId> {
        Vec::new()
    }

    fn pack_sealed(&self, _pack: PackId) {}

    fn packs_committed(&self, _packs: &[PackId]) {}
}

/// Remembers packs in memory, for several runs of one process.
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

/// Commits the unsettled packs that are whole, not condemned and in no live segment of `view`, and returns their bytes.
/// With `verify`, each is first read to the last byte. A defect is no error: the chunks of that pack are sent again.
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

/// What [`adopt`] would take up: bytes of packs, and the chunks in them. Writes nothing and reads no pack back.
pub(super) fn adoptable(
    to: &Store,
    view: &View,
    unsettled: &Unsettled<'_>,
) -> Result<(u64, HashSet<ChunkId>)> {
    let (mut bytes, mut chunks) = (0, HashSet::new());
    for_each_left(to, view, unsettled, false, &mut |pack| {
        bytes += u64::from(pack.len);
        // Deltas are left out, since they count only if their bases exist.
        let rows = pack.rows().into_iter();
        let plain = rows.filter(|frame| frame.bases.is_empty());
        chunks.extend(plain.flat_map(|frame| frame.chunks).map(|(id, _, _)| id));
        Ok(())
    })?;
    Ok((bytes, chunks))
}

/// Passes the useful unsettled packs to `each`, and returns the useless ones.
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

/// Reads the table of a pack; none, if the pack is missing or damaged. With `verify`, all of its bytes are checked.
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
            ErrorKind::NotFound | ErrorKind::Corrupt | ErrorKind::Unsupported => Ok(None),
            _ => Err(error),
        },
    }
}
