//! Frames become packs: one pack of each kind open at a time, the full one finished behind it.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::framer::KindFrame;
use super::publish::PutPublication;
use crate::error::{Error, Result};
use crate::format::PackKind;
use crate::pack::{EncodedFrame, PackWriter};
use crate::remote::Write;
use crate::store::Store;

/// Writes packs until the frames end.
pub(super) struct Packer<'p> {
    remote: &'p Arc<dyn Write>,
    is_dry: bool,
    publication: &'p PutPublication<'p>,
    data: Option<PackWriter>,
    meta: Option<PackWriter>,
}

impl<'p> Packer<'p> {
    pub(super) fn new(store: &'p Store, is_dry: bool, publication: &'p PutPublication<'p>) -> Self {
        Self {
            remote: store.remote(),
            is_dry,
            publication,
            data: None,
            meta: None,
        }
    }

    /// Takes frames until there are none left, then finishes the last packs.
    pub(super) fn run(mut self, frames: &Receiver<KindFrame>) -> Result<()> {
        let publication = self.publication;
        std::thread::scope(|scope| {
            let (full, to_finish) = bounded::<PackWriter>(0);
            let finishing = scope.spawn(move || {
                to_finish
                    .iter()
                    .try_for_each(|pack| publication.add(&pack.finish()?))
            });
            let taken = frames
                .iter()
                .try_for_each(|(kind, frame)| self.push(kind, frame, &full));
            let last = taken.and_then(|()| {
                self.data
                    .take()
                    .into_iter()
                    .chain(self.meta.take())
                    .try_for_each(|pack| hand_over(&full, pack))
            });
            drop(full);
            // A pack that could not be finished is why it could not be handed over.
            finishing
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            last
        })
    }

    fn push(
        &mut self,
        kind: PackKind,
        frame: EncodedFrame,
        full: &Sender<PackWriter>,
    ) -> Result<()> {
        self.publication
            .count(kind, frame.raw_len, frame.stored.len());
        if self.is_dry {
            return Ok(());
        }
        let slot = match kind {
            PackKind::Data => &mut self.data,
            PackKind::Meta => &mut self.meta,
        };
        let mut pack = match slot.take() {
            Some(pack) => pack,
            None => PackWriter::begin(self.remote, kind)?,
        };
        pack.push(frame)?;
        if pack.is_full() {
            return hand_over(full, pack);
        }
        *slot = Some(pack);
        Ok(())
    }
}

fn hand_over(full: &Sender<PackWriter>, pack: PackWriter) -> Result<()> {
    full.send(pack)
        .map_err(|_| Error::interrupted("finishing of packs stopped"))
}
