//! What a pass relies on without marking each chunk: a whole version, a whole segment.

use super::beside::{memory, name, open, put_through, source};
use crate::format::{Content, FrameKind, Node, PackKind, Root, Who};
use crate::id::ChunkId;
use crate::log;
use crate::pack::{EncodedFrame, PackWriter, SegmentBuilder};
use crate::progress::Unwatched;
use crate::put::{PutRequest, put};
use crate::read::Reader;
use crate::session::all_offered;
use crate::store::Store;
use crate::tree::ListBuilder;

/// A version whose deepest file was lost in a repair, below a tree that is otherwise whole.
#[test]
fn a_base_is_whole_only_if_its_deepest_file_is() {
    let remote = memory();
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("a/b/c");
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::write(dir.path().join("a/first"), vec![1; 100_000]).unwrap();
    std::fs::write(deep.join("file"), b"deep").unwrap();
    let store = open(remote.clone());
    put(&store, &PutRequest::new(dir.path(), name()), &Unwatched).unwrap();
    let view = store.view().unwrap();
    let root = view.state.version(&name(), None).unwrap().1.root;
    let reader = Reader::at(&store, view.clone());
    assert!(all_offered(&reader, &view.index, &root).unwrap());
    let at = view.index.find(&ChunkId::of(b"deep")).unwrap().unwrap();
    assert_eq!(at.kind, FrameKind::Data);
    let mut state = view.state.clone();
    let condemned = crate::format::Condemned {
        entry: 1,
        time: jiff::Timestamp::UNIX_EPOCH,
    };
    state.condemned.insert(at.pack, condemned);
    let now = view.index.clone().at_state(&state).unwrap();
    assert!(!all_offered(&reader, &now, &root).unwrap());
}

/// One segment at two states. What the later state has condemned is no longer offered.
#[test]
fn a_segment_that_stays_is_not_whole_when_a_pack_of_it_is_condemned() {
    let (remote, source) = (memory(), source(9));
    put_through(remote.clone(), source.path()).unwrap();
    let view = open(remote).view().unwrap();
    let file = std::fs::read(source.path().join("00")).unwrap();
    let store = open(memory());
    let len = store.chunker().cut(&file, true).unwrap();
    let id = ChunkId::of(&file[..len]);
    let (at, _) = view.index.rely(&id).unwrap().unwrap();
    let place = view.index.at(at).unwrap().1;
    let mut state = view.state.clone();
    let condemned = crate::format::Condemned {
        entry: 1,
        time: jiff::Timestamp::UNIX_EPOCH,
    };
    let other = view.index.packs().find(|pack| pack.id != place.pack);
    state.condemned.insert(other.unwrap().id, condemned);
    let now = view.index.clone().at_state(&state).unwrap();
    assert!(
        view.index.still_offered(&now).unwrap(),
        "nothing counts on that one"
    );
    state.condemned.insert(place.pack, condemned);
    let now = view.index.clone().at_state(&state).unwrap();
    assert!(!view.index.still_offered(&now).unwrap());
}

/// Trees as deep as a put accepts them take memory, but no stack.
#[test]
fn the_depth_of_a_base_costs_no_stack() {
    let remote = memory();
    let store = open(remote);
    let (content, depth) = nested(&store, 30_000);
    let view = store.view().unwrap();
    let reader = Reader::at(&store, view.clone());
    let root = Root::Tree {
        content,
        totals: crate::format::Totals {
            entries: depth,
            bytes: 0,
        },
    };
    let check = move || all_offered(&reader, &view.index, &root).unwrap();
    let checked = std::thread::scope(|scope| {
        let small = std::thread::Builder::new().stack_size(256 << 10);
        small.spawn_scoped(scope, check).unwrap().join().unwrap()
    });
    assert!(checked);
}

/// Nested trees, in one pack of a store.
fn nested(store: &Store, depth: u64) -> (Content, u64) {
    use crate::format::{Totals, TreeEncoder, TreeEntry};
    let mut builder = SegmentBuilder::default();
    let mut pack = PackWriter::begin(store.remote(), PackKind::Meta, store.provenance()).unwrap();
    let mut content = Content::empty();
    let mut frame = EncodedFrame::default();
    let mut raw = Vec::new();
    for level in 0..depth {
        let mut bytes = Vec::new();
        let mut encoder = TreeEncoder::new(&mut bytes);
        if level > 0 {
            let totals = Totals {
                entries: level,
                bytes: 0,
            };
            let node = Node::Tree { content, totals };
            encoder
                .push(
                    &TreeEntry {
                        name: b"d".to_vec(),
                        node,
                    },
                    &mut bytes,
                )
                .unwrap();
        }
        let id = ChunkId::of(&bytes);
        let len = u32::try_from(bytes.len()).unwrap();
        frame.chunks.push(crate::format::PackChunk { id, len });
        raw.extend_from_slice(&bytes);
        let mut list = ListBuilder::default();
        let sink = &mut |_: &[u8]| unreachable!("one chunk");
        list.push(id, len, sink).unwrap();
        content = list.finish(sink).unwrap();
        if raw.len() > 200_000 || level + 1 == depth {
            crate::codec::Encoder::encode_raw(&raw, &mut frame.stored);
            frame.raw_len = u32::try_from(raw.len()).unwrap();
            pack.push(std::mem::take(&mut frame)).unwrap();
            raw.clear();
        }
    }
    builder.add(&pack.finish().unwrap()).unwrap();
    let remote = store.remote().as_ref();
    let (_, change) = builder.write(remote, store.provenance()).unwrap();
    let mut state = store.state().unwrap();
    log::commit(remote, &mut state, &Who::default(), &mut |_, _| {
        Ok(vec![change.clone()])
    })
    .unwrap();
    (content, depth)
}
