//! What is good in damaged packs, copied to new ones.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::packs::PackTask;
use crate::codec::{Encoder, LEVEL};
use crate::error::{Error, Kind, Result};
use crate::format::{Condemned, PackChunk, PackKind, State, pack_key};
use crate::id::{ChunkId, PackId};
use crate::index::Index;
use crate::pack::frames::for_each_frame;
use crate::pack::reader::rows_in;
use crate::pack::{EncodedFrame, PackWriter, SegmentBuilder};
use crate::store::{Store, View};

/// Copies what is good in damaged packs to new ones.
pub(crate) struct Saver<'s> {
    store: &'s Store,
    /// Without the damaged packs.
    index: Index,
    is_dry: bool,
    encoder: Encoder,
    data: Option<PackWriter>,
    meta: Option<PackWriter>,
    written: SegmentBuilder,
    done: HashSet<ChunkId>,
    pub(crate) saved: u64,
    pub(crate) lost: u64,
}

impl<'s> Saver<'s> {
    /// Copies what no other pack of `view` has than those that are `bad`.
    pub(crate) fn new(
        store: &'s Store,
        view: &View,
        bad: &BTreeSet<PackId>,
        is_dry: bool,
    ) -> Result<Self> {
        let state = condemning(&view.state, bad);
        Ok(Self {
            store,
            index: view.index.clone().at_state(&state)?,
            is_dry,
            encoder: Encoder::new(LEVEL)?,
            data: None,
            meta: None,
            written: SegmentBuilder::default(),
            done: HashSet::new(),
            saved: 0,
            lost: 0,
        })
    }

    /// Copies what is good in one pack.
    pub(crate) fn save(&mut self, task: &PackTask) -> Result<()> {
        let remote = Arc::clone(self.store.remote());
        let size = match remote.size(&pack_key(task.pack.id)) {
            Ok(size) => size,
            Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Corrupt) => 0,
            Err(error) => return Err(error),
        };
        let rows = rows_in(&task.segment, task.position)?;
        let store = self.store;
        let told = move |_| store.host().check_stop();
        for_each_frame(
            remote.as_ref(),
            task.pack.id,
            &rows,
            size,
            &told,
            &mut |frame, decoded| {
                let mut raw = Vec::new();
                let mut chunks = Vec::new();
                for chunk in frame.chunks_of(task.pack.id) {
                    let (id, len) = (chunk.id, chunk.len);
                    if self.index.find(&id)?.is_some() || self.done.contains(&id) {
                        continue;
                    }
                    let decoded = decoded.as_ref().ok();
                    let Some(bytes) = decoded.and_then(|raw| chunk.verified(raw).ok()) else {
                        self.lost += 1;
                        continue;
                    };
                    self.done.insert(id);
                    raw.extend_from_slice(bytes);
                    chunks.push(PackChunk { id, len });
                }
                self.saved += chunks.len() as u64;
                self.store_frame(task.pack.kind, &raw, chunks)
            },
        )
    }

    fn store_frame(&mut self, kind: PackKind, raw: &[u8], chunks: Vec<PackChunk>) -> Result<()> {
        if raw.is_empty() || self.is_dry {
            return Ok(());
        }
        let mut stored = Vec::new();
        self.encoder.encode(raw, &mut stored)?;
        let raw_len = u32::try_from(raw.len())
            .map_err(|_| Error::invalid("a frame would outgrow 32-bit lengths"))?;
        let slot = match kind {
            PackKind::Data => &mut self.data,
            PackKind::Meta => &mut self.meta,
        };
        let mut pack = match slot.take() {
            Some(pack) => pack,
            None => PackWriter::begin(self.store.remote(), kind, self.store.provenance())?,
        };
        pack.push(EncodedFrame {
            stored,
            raw_len,
            chunks,
        })?;
        if pack.is_full(self.store.portions()) {
            return self.written.add(&pack.finish()?);
        }
        *slot = Some(pack);
        Ok(())
    }

    /// The new packs, durable.
    pub(crate) fn finish(mut self) -> Result<SegmentBuilder> {
        for pack in self.data.into_iter().chain(self.meta) {
            self.written.add(&pack.finish()?)?;
        }
        Ok(self.written)
    }
}

/// `state` with these packs condemned.
pub(crate) fn condemning(state: &State, packs: &BTreeSet<PackId>) -> State {
    let mut state = state.clone();
    let now = Condemned {
        entry: state.number,
        time: jiff::Timestamp::UNIX_EPOCH,
    };
    for pack in packs {
        state.condemned.entry(*pack).or_insert(now);
    }
    state
}
