//! What writers of other programs may add: frames, and versions that are one file, with or without the feature that
//! they need.

use std::sync::Arc;

use store::codec::{DeltaBase, Elements, Encoder, LEVEL};
use store::format::{
    Change, Content, Extra, FeatureKind, FrameKind, PackChunk, PackKind, Root, Sides, Who,
};
use store::pack::{EncodedFrame, PackWriter, SegmentBuilder};
use store::remote::Prune;
use store::{ChunkId, PackId, Store};

use crate::stores::name;
use crate::world::World;

/// A chunk, and the chunks that it is a delta of; without them it is plain.
pub(crate) type Stranger<'b> = (&'b [u8], &'b [&'b [u8]]);

/// Uploads a pack with one frame for each of `chunks`; plain ones are raw. Returns the change that makes it live, and
/// its id.
pub(crate) fn upload(store: &Store, chunks: &[Stranger<'_>]) -> (Change, PackId) {
    let mut encoder = Encoder::new(LEVEL).unwrap();
    let mut pack = PackWriter::begin(store.remote(), PackKind::Data, store.provenance()).unwrap();
    for (bytes, bases) in chunks {
        let (mut stored, raw_len) = (Vec::new(), u32::try_from(bytes.len()).unwrap());
        let ids: Vec<ChunkId> = bases.iter().map(|base| ChunkId::of(base)).collect();
        match bases.is_empty() {
            true => Encoder::encode_raw(bytes, &mut stored),
            false => {
                let base = DeltaBase {
                    ids: ids.clone(),
                    skip: 0,
                };
                let elements = Elements { width: 2, phase: 0 };
                encoder
                    .encode_delta(bytes, elements, &base, &bases.concat(), &mut stored)
                    .unwrap();
            }
        }
        let chunk = PackChunk {
            id: ChunkId::of(bytes),
            len: raw_len,
        };
        let frame = EncodedFrame {
            stored,
            raw_len,
            chunks: vec![chunk],
            bases: ids,
        };
        pack.push_as(FrameKind::Data, frame).unwrap();
    }
    let written = pack.finish().unwrap();
    let mut builder = SegmentBuilder::default();
    builder.add(&written).unwrap();
    let made = store.provenance();
    let (_, added) = builder.write(store.remote().as_ref(), made).unwrap();
    (added, written.header.id)
}

/// Commits one entry with these changes.
pub(crate) fn commit(world: &World, remote: &Arc<dyn Prune>, changes: &[Change]) {
    let store = world.open(remote.clone()).unwrap();
    let mut state = store.state().unwrap();
    let remote = store.remote().as_ref();
    store::log::commit(remote, &mut state, &Who::default(), &mut |_, _| {
        Ok(changes.to_vec())
    })
    .unwrap();
}

/// The change that permits deltas in the store.
pub(crate) fn learn() -> Change {
    Change::SetFeature {
        kind: FeatureKind::Incompatible,
        name: "delta-frames".to_owned(),
    }
}

/// The change that sets the first version of a ref: a file of one chunk, without times.
pub(crate) fn file(target: &str, bytes: &[u8]) -> Change {
    let content = Content {
        size: bytes.len() as u64,
        depth: 0,
        root: ChunkId::of(bytes),
    };
    Change::SetRef {
        name: name(target),
        version: 1,
        root: Root::File {
            content,
            executable: false,
        },
        sides: Sides::default(),
        message: String::new(),
        expires: None,
        origin: None,
        ends: Vec::new(),
        private: false,
        extra: Extra::new(),
    }
}
