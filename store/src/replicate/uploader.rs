//! Frames become packs at the destination, one pack at a time: metadata first, then data.
//!
//! A killed run loses only the pack that was being written. When all of a pack has arrived, the caller is asked to
//! remember it, and the pack is finished while the next one is filled. If the request that finishes it never arrives,
//! that pack is lost, too.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crossbeam_channel::Receiver;

use super::Resume;
use crate::error::{Error, Result};
use crate::format::pack_key;
use crate::id::PackId;
use crate::pack::frames::{for_each_frame, for_each_stored};
use crate::pack::reader::OpenPack;
use crate::pack::{Finisher, KindFrame, PackWriter, SealedPack, WrittenPack, finish_behind};
use crate::read::{Reader, VerifiedBases};
use crate::session::Session;
use crate::store::Store;
use crate::throttle::Throttle;

/// What has been sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    pub(super) chunks: u64,
    pub(super) raw_bytes: u64,
    pub(super) stored_bytes: u64,
}

/// Packs that are in no segment yet, finished or about to be, and the memory that outlives this process.
pub(super) struct Unsettled<'r> {
    packs: Mutex<BTreeSet<PackId>>,
    resume: &'r dyn Resume,
}

/// Writes packs until there are no more frames.
pub(super) struct Uploader<'p> {
    pub(super) to: &'p Store,
    pub(super) session: &'p Session<'p>,
    pub(super) unsettled: &'p Unsettled<'p>,
    pub(super) throttle: &'p mut Throttle,
    /// Whether to read back every pack.
    pub(super) verify: bool,
    pub(super) sent: Sent,
}

impl<'r> Unsettled<'r> {
    pub(super) fn new(resume: &'r dyn Resume) -> Self {
        Self {
            packs: Mutex::new(resume.packs().into_iter().collect()),
            resume,
        }
    }

    pub(super) fn packs(&self) -> Vec<PackId> {
        let packs = self.packs.lock().unwrap_or_else(PoisonError::into_inner);
        packs.iter().copied().collect()
    }

    fn sealed(&self, pack: PackId) {
        self.resume.pack_sealed(pack);
        let mut packs = self.packs.lock().unwrap_or_else(PoisonError::into_inner);
        packs.insert(pack);
    }

    /// Forgets packs that are committed or useless.
    pub(super) fn settle(&self, settled: &[PackId]) {
        if settled.is_empty() {
            return;
        }
        let mut packs = self.packs.lock().unwrap_or_else(PoisonError::into_inner);
        packs.retain(|pack| !settled.contains(pack));
        drop(packs);
        self.resume.packs_committed(settled);
    }
}

impl Uploader<'_> {
    /// Packs frames of one kind until there are none left or the run is asked to stop, then finishes the last pack.
    pub(super) fn run(&mut self, frames: &Receiver<KindFrame>) -> Result<()> {
        let (to, session) = (self.to, self.session);
        let (unsettled, verify) = (self.unsettled, self.verify);
        let finish = |pack: SealedPack| {
            let pack = pack.finish()?;
            if verify {
                read_back(to, &pack)?;
            }
            unsettled.settle(&session.add(&pack)?);
            Ok(())
        };
        finish_behind(finish, |sealed| self.fill(frames, sealed))
    }

    fn fill(&mut self, frames: &Receiver<KindFrame>, sealed: &Finisher<SealedPack>) -> Result<()> {
        let mut open = None;
        let mut stopped = Ok(());
        for (kind, frame) in frames {
            let stored_len = u32::try_from(frame.stored.len())
                .map_err(|_| Error::invalid("a frame would outgrow 32-bit lengths"))?;
            stopped = self.throttle.pass(stored_len, self.to.host());
            if stopped.is_err() {
                break;
            }
            self.sent.chunks += frame.chunks.len() as u64;
            self.sent.raw_bytes += u64::from(frame.raw_len);
            self.sent.stored_bytes += u64::from(stored_len);
            let mut pack = match open.take() {
                Some(pack) => pack,
                None => PackWriter::begin(self.to.remote(), kind.into(), self.to.provenance())?,
            };
            pack.push(frame)?;
            match pack.is_full(self.to.portions()) {
                true => self.seal(pack, sealed)?,
                false => open = Some(pack),
            }
        }
        open.map_or(Ok(()), |pack| self.seal(pack, sealed))?;
        stopped
    }

    fn seal(&self, pack: PackWriter, sealed: &Finisher<SealedPack>) -> Result<()> {
        let pack = pack.seal()?;
        self.unsettled.sealed(pack.id());
        sealed.hand_over(pack)
    }
}

/// Reads back a pack that was written, as the destination has it.
fn read_back(to: &Store, pack: &WrittenPack) -> Result<()> {
    let remote = to.remote().as_ref();
    let read = || {
        let open = OpenPack::read(remote, to.format().id, pack.header.id, pack.len.into())?;
        if (open.header, &open.table) != (pack.header, &pack.table) {
            return Err(Error::corrupt(format!(
                "{}: its table is not the one that was written",
                pack_key(pack.header.id)
            )));
        }
        read_stored(to, &open)
    };
    read().map_err(|error: Error| {
        error.within("read back from the destination").hint(
            "nothing that needs it was published; look after the destination's disks and network",
        )
    })
}

/// Reads all of a pack that this process has just written, and compares the stored bytes with their checksums. The
/// chunks in them were decoded and verified before they were sent.
fn read_stored(to: &Store, pack: &OpenPack) -> Result<()> {
    let (remote, id) = (to.remote().as_ref(), pack.header.id);
    let told = |_| to.host().check_stop();
    let (rows, len) = (pack.rows(), pack.len.into());
    for_each_stored(remote, id, &rows, len, &told, &mut |frame, stored| {
        frame.check_stored(id, stored?)
    })
}

/// Reads all of a pack: decodes every frame, and checks every chunk against its id.
pub(super) fn read_frames(reader: &Reader<'_>, pack: &OpenPack) -> Result<()> {
    let to = reader.store();
    let (remote, id) = (to.remote().as_ref(), pack.header.id);
    let told = |_| to.host().check_stop();
    let (rows, len) = (pack.rows(), pack.len.into());
    for_each_frame(
        remote,
        &VerifiedBases(reader),
        id,
        &rows,
        len,
        &told,
        &mut |frame, raw| {
            let raw = raw?;
            let mut chunks = frame.chunks_of(id);
            chunks.try_for_each(|chunk| chunk.verified(raw).map(drop))
        },
    )
}
