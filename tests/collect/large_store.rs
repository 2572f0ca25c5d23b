//! A store of millions of chunks for `tests/run collect`: real segments, lists and log entries, over packs that have
//! only a size. Refs reach every other pack; the rest is garbage.
//!
//! `large_store make DIR MILLIONS` makes it, `large_store open DIR` measures opening and lookups.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a tool of the tests that cannot go on stops, and says what it found"
)]

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use store::codec::Encoder;
use store::format::{
    Change, Content, Extra, FrameKind, ListChild, ListNode, PackChunk, PackHeader, PackKind,
    Provenance, Root, SegmentEntry, SegmentFrame, SegmentPack, Sides, Who, pack_key, segment_key,
    write_segment,
};
use store::pack::{EncodedFrame, PackWriter, SegmentBuilder};
use store::remote::{Objects, Write};
use store::{ChunkId, Host, PackId, SegmentId, Store, log};
use support::Random;

const CHUNK_BYTES: u32 = 64 << 10;
const FRAME_CHUNKS: u32 = 16;
const PACK_FRAMES: u32 = 64;
const PACK_CHUNKS: u64 = (FRAME_CHUNKS * PACK_FRAMES) as u64;
const FRAME_BYTES: u32 = FRAME_CHUNKS * CHUNK_BYTES;
const PACK_BYTES: u32 = 65 << 20;
const SEGMENT_CHUNKS: u64 = 10_000 * PACK_CHUNKS;
const LOOKUPS: u64 = 1_000_000;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["make", dir, millions] => {
            let packs = millions.parse::<u64>().unwrap() * 1_000_000 / PACK_CHUNKS;
            make(Path::new(dir), packs * PACK_CHUNKS);
        }
        ["open", dir] => open(Path::new(dir)),
        _ => println!("usage: large_store make DIR MILLIONS | open DIR"),
    }
}

fn chunk_id(number: u64) -> ChunkId {
    let mut random = Random::new(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5bf0);
    let mut id = [0; 32];
    for part in id.chunks_exact_mut(8) {
        part.copy_from_slice(&random.draw().to_le_bytes());
    }
    ChunkId(id)
}

fn pack_id(number: u64) -> PackId {
    let mut random = Random::new(!number);
    let [a, b] = [random.draw(), random.draw()];
    PackId(((u128::from(a) << 64) | u128::from(b)).to_be_bytes())
}

fn is_live(chunk: u64) -> bool {
    (chunk / PACK_CHUNKS).is_multiple_of(2)
}

fn host() -> Host {
    Host {
        cache_dir: None,
        who: Who::default(),
        memory_bytes: 256 << 20,
        threads: 2,
        stop: Arc::default(),
    }
}

fn make(dir: &Path, chunks: u64) {
    let remote = Arc::new(Objects::directory(dir).unwrap());
    let store = Store::init(remote.clone(), host()).unwrap();
    let mut changes = Vec::new();
    for begin in (0..chunks).step_by(usize::try_from(SEGMENT_CHUNKS).unwrap()) {
        let end = chunks.min(begin + SEGMENT_CHUNKS);
        changes.push(segment(dir, store.provenance(), begin, end));
        for pack in begin / PACK_CHUNKS..end / PACK_CHUNKS {
            let path = dir.join(pack_key(pack_id(pack)));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            File::create(path)
                .unwrap()
                .set_len(PACK_BYTES.into())
                .unwrap();
        }
    }
    let remote: Arc<dyn Write> = remote;
    let live = (0..chunks).filter(|chunk| is_live(*chunk));
    let (content, added) = lists(&remote, store.provenance(), live);
    changes.push(added);
    changes.push(Change::SetRef {
        name: "project/large/file".parse().unwrap(),
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
    });
    let mut state = store.state().unwrap();
    log::commit(remote.as_ref(), &mut state, &Who::default(), &mut |_, _| {
        Ok(changes.clone())
    })
    .unwrap();
}

/// A segment over the chunks `begin..end`.
fn segment(dir: &Path, made: Provenance, begin: u64, end: u64) -> Change {
    let count = u32::try_from(end - begin).unwrap();
    let mut entries: Vec<SegmentEntry> = (0..count)
        .map(|at| SegmentEntry {
            id: chunk_id(begin + u64::from(at)),
            frame: at / FRAME_CHUNKS,
            offset: at % FRAME_CHUNKS * CHUNK_BYTES,
            len: CHUNK_BYTES,
        })
        .collect();
    entries.sort_unstable_by_key(|entry| entry.id);
    let frames: Vec<SegmentFrame> = (0..count / FRAME_CHUNKS)
        .map(|at| SegmentFrame {
            pack: at / PACK_FRAMES,
            offset: PackHeader::LEN + at % PACK_FRAMES * FRAME_BYTES,
            stored_len: FRAME_BYTES,
            raw_len: FRAME_BYTES,
            kind: FrameKind::Data,
        })
        .collect();
    let packs: Vec<SegmentPack> = (begin / PACK_CHUNKS..end / PACK_CHUNKS)
        .map(|number| SegmentPack {
            id: pack_id(number),
            kind: PackKind::Data,
            len: PACK_BYTES,
        })
        .collect();
    let id = SegmentId::random().unwrap();
    let path = dir.join(segment_key(id));
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut file = std::io::BufWriter::new(File::create(path).unwrap());
    let entries = || entries.iter().copied();
    let info = write_segment(&mut file, id, made, &packs, &frames, &[], entries).unwrap();
    std::io::Write::flush(&mut file).unwrap();
    Change::AddSegment { segment: id, info }
}

/// Writes list nodes over `chunks`, level by level, in metadata packs. Returns the content at the top, and the segment
/// that offers the nodes.
fn lists(
    remote: &Arc<dyn Write>,
    made: Provenance,
    chunks: impl Iterator<Item = u64>,
) -> (Content, Change) {
    let mut added = SegmentBuilder::default();
    let mut children: Vec<ListChild> = Vec::new();
    let mut nodes = Nodes::new(remote, made, 0);
    for chunk in chunks {
        children.push(ListChild {
            id: chunk_id(chunk),
            size: CHUNK_BYTES.into(),
        });
        if ListNode::is_full(&children) {
            nodes.push(std::mem::take(&mut children), &mut added);
        }
    }
    nodes.push(children, &mut added);
    let mut level = 0;
    let mut above = nodes.finish(&mut added);
    while above.len() > 1 {
        level += 1;
        let mut nodes = Nodes::new(remote, made, level);
        let mut children = Vec::new();
        for child in above {
            children.push(child);
            if ListNode::is_full(&children) {
                nodes.push(std::mem::take(&mut children), &mut added);
            }
        }
        nodes.push(children, &mut added);
        above = nodes.finish(&mut added);
    }
    let top = above.first().unwrap();
    let content = Content {
        size: top.size,
        depth: level + 1,
        root: top.id,
    };
    (content, added.write(remote.as_ref(), made).unwrap().1)
}

/// The nodes of one level, each in its own frame.
struct Nodes<'r> {
    remote: &'r Arc<dyn Write>,
    made: Provenance,
    level: u8,
    pack: Option<PackWriter>,
    written: Vec<ListChild>,
}

impl<'r> Nodes<'r> {
    fn new(remote: &'r Arc<dyn Write>, made: Provenance, level: u8) -> Self {
        Self {
            remote,
            made,
            level,
            pack: None,
            written: Vec::new(),
        }
    }

    fn push(&mut self, children: Vec<ListChild>, added: &mut SegmentBuilder) {
        if children.is_empty() {
            return;
        }
        let level = self.level;
        let node = ListNode { level, children };
        let bytes = node.encode();
        let (id, len) = (ChunkId::of(&bytes), u32::try_from(bytes.len()).unwrap());
        let mut stored = Vec::new();
        Encoder::encode_raw(&bytes, &mut stored);
        let mut pack = self
            .pack
            .take()
            .unwrap_or_else(|| PackWriter::begin(self.remote, PackKind::Meta, self.made).unwrap());
        pack.push(EncodedFrame {
            stored,
            raw_len: len,
            chunks: vec![PackChunk { id, len }],
            bases: Vec::new(),
        })
        .unwrap();
        self.written.push(ListChild {
            id,
            size: node.size(),
        });
        match pack.is_full(store::Portions::default()) {
            true => added.add(&pack.finish().unwrap()).unwrap(),
            false => self.pack = Some(pack),
        }
    }

    fn finish(self, added: &mut SegmentBuilder) -> Vec<ListChild> {
        if let Some(pack) = self.pack {
            added.add(&pack.finish().unwrap()).unwrap();
        }
        self.written
    }
}

/// Measures opening, and a lookup when the segments are in memory.
fn open(dir: &Path) {
    let began = Instant::now();
    let store = Store::open(Arc::new(Objects::directory(dir).unwrap()), host()).unwrap();
    let view = store.view().unwrap();
    println!("open: {:.1} ms", began.elapsed().as_secs_f64() * 1e3);
    let chunks: u64 = view
        .index
        .segments()
        .map(|segment| segment.layout().chunks())
        .sum();
    for (what, first) in [("there", 0), ("missing", 1 << 40)] {
        let mut random = Random::new(1);
        let ids: Vec<ChunkId> = (0..LOOKUPS)
            .map(|_| chunk_id(first + random.below(chunks)))
            .collect();
        for temperature in ["first", "again"] {
            let began = Instant::now();
            let found = ids
                .iter()
                .filter(|id| view.index.find(id).unwrap().is_some())
                .count();
            let micros = began.elapsed().as_secs_f64() * 1e6 / LOOKUPS as f64;
            println!("find, {what}, {temperature}: {micros:.2} us ({found} found)");
        }
    }
}
