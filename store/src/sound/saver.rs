//! Copies what is good in damaged packs to new packs.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::packs::PackTask;
use crate::codec::LEVEL;
use crate::error::{ErrorKind, Result};
use crate::format::{Condemned, FrameKind, State, pack_key};
use crate::id::{ChunkId, PackId};
use crate::index::Index;
use crate::pack::frames::for_each_frame;
use crate::pack::reader::rows_in;
use crate::pack::{Framer, PackSink, SegmentBuilder};
use crate::read::{Reader, VerifiedBases};
use crate::store::{Store, View};

/// Copies what is good in damaged packs to new packs.
pub(crate) struct Saver<'s> {
    store: &'s Store,
    /// Reads the store as it is, including bases in damaged packs.
    reader: Reader<'s>,
    /// The index without the damaged packs.
    index: Index,
    is_dry: bool,
    data: PackSink,
    meta: PackSink,
    done: HashSet<ChunkId>,
    pub(crate) saved: u64,
    pub(crate) lost: u64,
}

impl<'s> Saver<'s> {
    /// Prepares to copy what only the `bad` packs of `view` have.
    pub(crate) fn new(
        store: &'s Store,
        view: &View,
        bad: &BTreeSet<PackId>,
        is_dry: bool,
    ) -> Result<Self> {
        let state = condemning(&view.state, bad);
        Ok(Self {
            store,
            reader: Reader::at(store, view.clone()),
            index: view.index.clone().at_state(&state)?,
            is_dry,
            data: store.pack_sink(),
            meta: store.pack_sink(),
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
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corrupt) => 0,
            Err(error) => return Err(error),
        };
        let rows = rows_in(&task.segment, task.position)?;
        let store = self.store;
        let told = move |_| store.host().check_stop();
        let mut data = Framer::new(FrameKind::Data, LEVEL, false, &mut self.data)?;
        let mut meta = Framer::new(FrameKind::Meta, LEVEL, false, &mut self.meta)?;
        for_each_frame(
            remote.as_ref(),
            &VerifiedBases(&self.reader),
            task.pack.id,
            &rows,
            size,
            &told,
            &mut |frame, decoded| {
                let framer = match frame.kind {
                    FrameKind::Data => &mut data,
                    FrameKind::Meta => &mut meta,
                };
                for chunk in frame.chunks_of(task.pack.id) {
                    let id = chunk.id;
                    // Other deltas may need the chunk as a base, and a base must be in a plain frame.
                    if self.index.find_plain(&id)?.is_some() || self.done.contains(&id) {
                        continue;
                    }
                    let decoded = decoded.as_ref().ok();
                    let Some(bytes) = decoded.and_then(|raw| chunk.verified(raw).ok()) else {
                        self.lost += u64::from(self.index.find(&id)?.is_none());
                        continue;
                    };
                    self.done.insert(id);
                    self.saved += 1;
                    if !self.is_dry {
                        framer.push(id, bytes)?;
                    }
                }
                Ok(())
            },
        )?;
        data.finish()?;
        meta.finish().map(|_| ())
    }

    /// Copies bases that are in deltas only. A delta can be used only if its bases are in plain frames.
    pub(crate) fn save_bases(&mut self) -> Result<()> {
        let mut framer = Framer::new(FrameKind::Data, LEVEL, false, &mut self.data)?;
        for segment in self.index.segments() {
            for base in segment.bases() {
                self.store.host().check_stop()?;
                let id = base?;
                if self.done.contains(&id) || self.index.find_plain(&id)?.is_some() {
                    continue;
                }
                let bytes = match self.reader.meta_chunk(&id) {
                    Ok(bytes) => bytes,
                    // The damage is reported with the paths that need it.
                    Err(error) if error.is_damage() => continue,
                    Err(error) => return Err(error),
                };
                self.done.insert(id);
                self.saved += 1;
                if !self.is_dry {
                    framer.push(id, &bytes)?;
                }
            }
        }
        framer.finish().map(|_| ())
    }

    /// Makes the new packs durable and returns them.
    pub(crate) fn finish(self) -> Result<SegmentBuilder> {
        let mut written = SegmentBuilder::default();
        for mut sink in [self.data, self.meta] {
            sink.close()?;
            for pack in sink.into_finished() {
                written.add(&pack)?;
            }
        }
        Ok(written)
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
