//! Packs frames: one pack of each kind is open at a time, and full ones are finished in the background. A small put
//! makes one pack of both kinds, so that it costs one object.

use crossbeam_channel::Receiver;

use super::publish::PutSession;
use crate::error::Result;
use crate::format::{FrameKind, PackKind};
use crate::pack::KindFrame;
use crate::pack::{EncodedFrame, Finisher, PackWriter, finish_behind};
use crate::store::Store;

/// Writes packs until the frames end.
pub(super) struct Packer<'p> {
    store: &'p Store,
    is_dry: bool,
    session: &'p PutSession<'p>,
    data: Option<PackWriter>,
    meta: Option<PackWriter>,
    /// The frames so far, as long as they may fit into one pack.
    few: Option<Vec<KindFrame>>,
    few_bytes: usize,
}

impl<'p> Packer<'p> {
    pub(super) fn new(store: &'p Store, is_dry: bool, session: &'p PutSession<'p>) -> Self {
        Self {
            store,
            is_dry,
            session,
            data: None,
            meta: None,
            few: Some(Vec::new()),
            few_bytes: 0,
        }
    }

    /// Packs frames until there are none left, then finishes the last packs.
    pub(super) fn run(mut self, frames: &Receiver<KindFrame>) -> Result<()> {
        let session = self.session;
        let finish = |pack: PackWriter| session.add(&pack.finish()?);
        finish_behind(finish, |full| {
            for (kind, frame) in frames {
                self.push(kind, frame, full)?;
            }
            let few = self.few.take().unwrap_or_default();
            if let Some(pack) = self.together(few)? {
                return full.hand_over(pack);
            }
            let mut last = self.data.take().into_iter().chain(self.meta.take());
            last.try_for_each(|pack| full.hand_over(pack))
        })
    }

    fn push(
        &mut self,
        kind: FrameKind,
        frame: EncodedFrame,
        full: &Finisher<PackWriter>,
    ) -> Result<()> {
        let len = frame.stored.len();
        self.session.count(kind, frame.raw_len, len)?;
        if self.is_dry {
            return Ok(());
        }
        let Some(few) = &mut self.few else {
            return self.append(kind, frame, full);
        };
        few.push((kind, frame));
        self.few_bytes += len;
        if self.few_bytes <= self.store.portions().together_bytes {
            return Ok(());
        }
        let many = self.few.take().unwrap_or_default();
        many.into_iter()
            .try_for_each(|(kind, frame)| self.append(kind, frame, full))
    }

    /// Makes one pack of all these frames, data first.
    fn together(&self, mut few: Vec<KindFrame>) -> Result<Option<PackWriter>> {
        few.sort_by_key(|(kind, _)| *kind);
        let (Some((first, _)), Some((last, _))) = (few.first(), few.last()) else {
            return Ok(None);
        };
        let kind = match first == last {
            true => PackKind::from(*first),
            false => PackKind::Both,
        };
        let (remote, made) = (self.store.remote(), self.store.provenance());
        let mut pack = PackWriter::begin_small(remote, kind, made)?;
        for (kind, frame) in few {
            pack.push_as(kind, frame)?;
        }
        Ok(Some(pack))
    }

    fn append(
        &mut self,
        kind: FrameKind,
        frame: EncodedFrame,
        full: &Finisher<PackWriter>,
    ) -> Result<()> {
        let slot = match kind {
            FrameKind::Data => &mut self.data,
            FrameKind::Meta => &mut self.meta,
        };
        let mut pack = match slot.take() {
            Some(pack) => pack,
            None => PackWriter::begin(self.store.remote(), kind.into(), self.store.provenance())?,
        };
        pack.push(frame)?;
        if pack.is_full(self.store.portions()) {
            return full.hand_over(pack);
        }
        *slot = Some(pack);
        Ok(())
    }
}
