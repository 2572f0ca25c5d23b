//! Frames become packs: one pack of each kind open at a time, the full one finished behind it.

use crossbeam_channel::Receiver;

use super::publish::PutSession;
use crate::error::Result;
use crate::format::PackKind;
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
}

impl<'p> Packer<'p> {
    pub(super) fn new(store: &'p Store, is_dry: bool, session: &'p PutSession<'p>) -> Self {
        Self {
            store,
            is_dry,
            session,
            data: None,
            meta: None,
        }
    }

    /// Takes frames until there are none left, then finishes the last packs.
    pub(super) fn run(mut self, frames: &Receiver<KindFrame>) -> Result<()> {
        let session = self.session;
        let finish = |pack: PackWriter| session.add(&pack.finish()?);
        finish_behind(finish, |full| {
            for (kind, frame) in frames {
                self.push(kind, frame, full)?;
            }
            let mut last = self.data.take().into_iter().chain(self.meta.take());
            last.try_for_each(|pack| full.hand_over(pack))
        })
    }

    fn push(
        &mut self,
        kind: PackKind,
        frame: EncodedFrame,
        full: &Finisher<PackWriter>,
    ) -> Result<()> {
        self.session
            .count(kind, frame.raw_len, frame.stored.len())?;
        if self.is_dry {
            return Ok(());
        }
        let slot = match kind {
            PackKind::Data => &mut self.data,
            PackKind::Meta => &mut self.meta,
        };
        let mut pack = match slot.take() {
            Some(pack) => pack,
            None => PackWriter::begin(self.store.remote(), kind, self.store.provenance())?,
        };
        pack.push(frame)?;
        if pack.is_full(self.store.portions()) {
            return full.hand_over(pack);
        }
        *slot = Some(pack);
        Ok(())
    }
}
