//! Properties of every layout over generated input: a decoded value equals the one that was encoded, a decoded value
//! encodes to the same bytes, and no input makes a decoder panic.
//!
//! A failing case is printed with the seed that reproduces it.

use jiff::Timestamp;
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::id::{ChunkId, CommitId, EntryId, PackId, SegmentId, StoreId};

mod segments;
mod states;
use segments::{base, look_up_all, segment};
use states::{entry, state};

fn chunk_id() -> impl Strategy<Value = ChunkId> {
    any::<[u8; 32]>().prop_map(ChunkId)
}

fn pack_id() -> impl Strategy<Value = PackId> {
    any::<[u8; 16]>().prop_map(PackId)
}

fn segment_id() -> impl Strategy<Value = SegmentId> {
    any::<[u8; 16]>().prop_map(SegmentId)
}

fn content() -> impl Strategy<Value = Content> {
    let one = (1..=u64::from(CHUNK_BYTES_MAX), chunk_id());
    let many = (8_u64.., 1..=CONTENT_DEPTH_MAX, chunk_id());
    prop_oneof![
        Just(Content::empty()),
        one.prop_map(|(size, root)| Content {
            size,
            depth: 0,
            root
        }),
        many.prop_map(|(size, depth, root)| Content { size, depth, root }),
    ]
}

fn sides() -> impl Strategy<Value = Sides> {
    let others = btree_map("[a-z0-9-]{1,64}", content(), 0..3);
    (content(), others).prop_map(|(times, others)| {
        let others = others.into_iter();
        let others = others.map(|(kind, content)| Side { kind, content });
        others.fold(Sides::of_times(times), Sides::with)
    })
}

/// Unknown fields with arbitrary JSON.
fn extra() -> impl Strategy<Value = Extra> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<u64>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<String>().prop_map(Into::into),
    ];
    let value = leaf.prop_recursive(3, 8, 3, |inside| {
        prop_oneof![
            vec(inside.clone(), 0..3).prop_map(Into::into),
            btree_map(any::<String>(), inside, 0..3)
                .prop_map(|fields| serde_json::Value::Object(fields.into_iter().collect())),
        ]
    });
    btree_map("x[a-z\\\\\"]{1,9}", value, 0..3)
}

fn totals() -> impl Strategy<Value = Totals> {
    any::<(u64, u64)>().prop_map(|(entries, bytes)| Totals { entries, bytes })
}

fn root() -> impl Strategy<Value = Root> {
    prop_oneof![
        (content(), any::<bool>()).prop_map(|(content, executable)| Root::File {
            content,
            executable
        }),
        (content(), totals()).prop_map(|(content, totals)| Root::Tree { content, totals }),
    ]
}

fn time() -> impl Strategy<Value = Timestamp> {
    (0..253_402_207_200_i64, 0..1_000_000_000_i32)
        .prop_map(|(secs, nanos)| Timestamp::new(secs, nanos).unwrap())
}

fn who() -> impl Strategy<Value = Who> {
    any::<[String; 3]>().prop_map(|[host, user, program]| Who {
        host,
        user,
        program,
    })
}

fn ref_name() -> impl Strategy<Value = RefName> {
    let component = "[a-z\u{e4}\u{4e2d} .=+][a-z0-9._-]{2,8}";
    ("team|project", vec(component, 2..5))
        .prop_map(|(first, rest)| format!("{first}/{}", rest.join("/")).parse().unwrap())
}

fn origin() -> impl Strategy<Value = Origin> {
    let store = || any::<[u8; 16]>().prop_map(StoreId);
    let fields = (
        store(),
        ref_name(),
        1..u64::MAX,
        time(),
        who(),
        option::of(store()),
    );
    fields.prop_map(|(store, name, version, time, who, via)| Origin {
        store,
        name,
        version,
        time,
        who,
        via,
    })
}

fn info() -> impl Strategy<Value = SegmentInfo> {
    any::<(u64, u32, u64, u64, u64)>().prop_map(|(chunks, packs, pack_bytes, raw_bytes, bytes)| {
        SegmentInfo {
            chunks,
            packs,
            pack_bytes,
            raw_bytes,
            bytes,
            pass: None,
            added: None,
        }
    })
}

fn node() -> impl Strategy<Value = Node> {
    let target = vec(1..=255_u8, 1..40);
    let tree = content().prop_filter("a tree has a header", |content| content.size >= 8);
    prop_oneof![
        (content(), any::<bool>()).prop_map(|(content, executable)| Node::File {
            content,
            executable
        }),
        target.prop_map(|target| Node::Symlink { target }),
        (tree, totals()).prop_map(|(content, totals)| Node::Tree { content, totals }),
    ]
}

fn tree() -> impl Strategy<Value = Vec<TreeEntry>> {
    let name = vec(prop_oneof![1..b'/', b'0'..=255], 1..20)
        .prop_filter("no name leads up", |name| !matches!(&**name, b"." | b".."));
    btree_map(name, node(), 0..8).prop_map(|entries| {
        let entries = entries.into_iter();
        entries
            .map(|(name, node)| TreeEntry { name, node })
            .collect()
    })
}

fn encode_tree(entries: &[TreeEntry]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = TreeEncoder::new(&mut out);
    for entry in entries {
        encoder.push(entry, &mut out).unwrap();
    }
    out
}

fn list() -> impl Strategy<Value = ListNode> {
    let child = (chunk_id(), 1..=u64::from(CHUNK_BYTES_MAX));
    let child = child.prop_map(|(id, size)| ListChild { id, size });
    (0..CONTENT_DEPTH_MAX, vec(child, 1..20))
        .prop_map(|(level, children)| ListNode { level, children })
}

fn times() -> impl Strategy<Value = Vec<Time>> {
    let near = (1_700_000_000..1_700_000_100_i64, Just(0));
    let any = (any::<i64>(), 0..=TIME_NANOS_MAX);
    let time = prop_oneof![near, any].prop_map(|(secs, nanos)| Time { secs, nanos });
    vec(time, 0..20)
}

fn encode_times(times: &[Time]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = TimesEncoder::new(&mut out);
    times.iter().for_each(|time| encoder.push(*time, &mut out));
    out
}

fn pack() -> impl Strategy<Value = (PackHeader, PackTable)> {
    let chunks = vec((chunk_id(), 1..=1_u32 << 20), 1..5);
    let frames = vec((chunks, any::<prop::sample::Index>()), 1..5);
    (0..3_u8, pack_id(), frames).prop_map(|(byte, id, frames)| {
        let kind = PackKind::from_byte(byte).unwrap();
        let mut table = PackTable::default();
        for (chunks, stored) in frames {
            let raw_len: u32 = chunks.iter().map(|(_, len)| len).sum();
            let stored = stored.index(usize::try_from(raw_len).unwrap());
            let is_even = raw_len.is_multiple_of(2);
            let is_data = kind != PackKind::Meta && (kind == PackKind::Data || is_even);
            let number = u32::try_from(table.frames.len()).unwrap();
            let bases = (0..raw_len % 3 * u32::from(is_data)).map(|_| base(number));
            table.bases.extend(bases);
            table.frames.push(PackFrame {
                stored_len: 2 + u32::try_from(stored).unwrap(),
                raw_len,
                kind: [FrameKind::Meta, FrameKind::Data][usize::from(is_data)],
                chunks: u32::try_from(chunks.len()).unwrap(),
                sum: FrameSum(raw_len.to_be_bytes().repeat(2).try_into().unwrap()),
            });
            let chunks = chunks.into_iter().map(|(id, len)| PackChunk { id, len });
            table.chunks.extend(chunks);
        }
        let made = Provenance {
            store: StoreId(id.0),
            began: u64::from(byte),
        };
        (PackHeader { kind, id, made }, table)
    })
}

/// Decodes the header, table and trailer of a pack, without its frames.
fn decode_pack(header: &[u8], pack_len: u64, tail: &[u8]) -> crate::Result<PackTable> {
    let header = PackHeader::decode("x", header)?;
    let trailer = &tail[tail.len().saturating_sub(64)..];
    let trailer = PackTrailer::decode("x", pack_len, trailer)?;
    PackTable::decode("x", &header, &trailer, tail)
}

/// Runs every decoder on the same bytes. Objects named by their hash must have only one valid encoding.
fn decode_everything(bytes: &[u8]) {
    drop(unseal::<serde_json::Value>("x", bytes));
    drop(Format::decode(bytes));
    drop(LogEntry::decode(1, bytes));
    drop(State::decode("x", bytes));
    drop(decode_pack(bytes, bytes.len().try_into().unwrap(), bytes));
    look_up_all(bytes);
    if let Ok(entries) = decode_tree("x", bytes) {
        assert_eq!(encode_tree(&entries), bytes);
    }
    if let Ok(node) = ListNode::decode("x", bytes) {
        assert_eq!(node.encode(), bytes);
    }
    if let Ok(times) = decode_times("x", bytes) {
        assert_eq!(encode_times(&times), bytes);
    }
    drop(RefSpec::parse(bytes));
    drop(Target::parse(bytes));
    let text = String::from_utf8_lossy(bytes);
    assert!(parse_log_key(&text).is_none_or(|number| log_key(number) == text));
    assert!(parse_pack_key(&text).is_none_or(|id| pack_key(id) == text));
}

/// `bytes` with random bytes changed, inserted and cut off.
fn mutated(bytes: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<prop::sample::Index>(), any::<u8>(), 0..4_u8);
    (bytes, vec(change, 1..6)).prop_map(|(mut bytes, changes)| {
        for (at, byte, what) in changes {
            let at = at.index(bytes.len().max(1));
            match what {
                _ if bytes.is_empty() => (),
                0 => bytes.truncate(at),
                1 => bytes.insert(at, byte),
                _ => bytes[at] = byte,
            }
        }
        bytes
    })
}

fn any_object() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..300),
        Just(Format::new(StoreId([7; 16])).encode().unwrap()),
        entry().prop_map(|entry| entry.encode().unwrap()),
        state().prop_map(|state| state.encode().unwrap()),
        pack().prop_map(|(header, table)| {
            [&header.encode()[..], &table.encode(&header).unwrap()].concat()
        }),
        segment().prop_map(|(bytes, _)| bytes),
        tree().prop_map(|entries| encode_tree(&entries)),
        list().prop_map(|node| node.encode()),
        times().prop_map(|times| encode_times(&times)),
    ]
}

/// Whether `decode` notices flipped bits at a few places; the unit tests of each layout flip every byte.
fn check_flips(bytes: &[u8], decode: impl Fn(&[u8]) -> bool) -> Result<(), TestCaseError> {
    let mut flipped = bytes.to_vec();
    let step = 1 + bytes.len() / 8;
    for at in (bytes.len() % step..bytes.len()).step_by(step) {
        flipped[at] ^= 1 << (at % 8);
        prop_assert!(!decode(&flipped), "byte {} was flipped unnoticed", at);
        flipped[at] = bytes[at];
    }
    Ok(())
}

proptest! {
    #[test]
    fn formats_survive(
        id: [u8; 16],
        seed: u64,
        normalization in 0..=3_u8,
        tensors in 0..=1_u32,
        features: [Vec<String>; 1],
    ) {
        let mut format = Format::new(StoreId(id));
        format.chunker.seed = seed;
        format.chunker.normalization = normalization;
        format.chunker.tensors = tensors;
        [format.features.compatible] = features;
        let bytes = format.encode().unwrap();
        prop_assert_eq!(Format::decode(&bytes).unwrap(), format);
        check_flips(&bytes, |bytes| Format::decode(bytes).is_ok())?;
    }

    #[test]
    fn log_entries_survive(entry in entry()) {
        let bytes = entry.encode().unwrap();
        prop_assert_eq!(&LogEntry::decode(entry.number, &bytes).unwrap(), &entry);
        check_flips(&bytes, |bytes| LogEntry::decode(entry.number, bytes).is_ok())?;
    }

    #[test]
    fn checkpoints_survive(state in state()) {
        let bytes = state.encode().unwrap();
        prop_assert_eq!(&State::decode("x", &bytes).unwrap(), &state);
        check_flips(&bytes, |bytes| State::decode("x", bytes).is_ok())?;
    }

    /// A program keeps a field that it does not know, from the entry through every checkpoint.
    #[test]
    fn unknown_fields_are_carried_through_checkpoints(mut state in state(), entry in entry(), known in extra()) {
        state.extra = known;
        let mut entry = entry;
        (entry.number, entry.store, entry.prev) = (state.number + 1, state.store, state.entry);
        entry.changes.retain(|change| matches!(change, Change::SetRef { .. }));
        for change in &mut entry.changes {
            if let Change::SetRef { name, version, .. } = change {
                *version = state.refs.last(name).unwrap() + 1;
            }
        }
        entry.changes.truncate(1);
        let read = LogEntry::decode(entry.number, &entry.encode().unwrap()).unwrap();
        let before = state.clone();
        state.apply(&read).unwrap();
        let mut carried = State::decode("x", &state.encode().unwrap()).unwrap();
        carried = State::decode("x", &carried.encode().unwrap()).unwrap();
        prop_assert_eq!(&carried, &state);
        prop_assert_eq!(&carried.extra, &before.extra);
        for (name, found) in &before.refs.all().unwrap() {
            prop_assert_eq!(&carried.refs.all().unwrap()[name].extra, &found.extra);
            for (number, version) in &found.versions {
                prop_assert_eq!(&carried.refs.all().unwrap()[name].versions[number], version);
            }
        }
        if let Some(Change::SetRef { name, version, extra, sides, .. }) = entry.changes.first() {
            let carried = &carried.refs.all().unwrap()[name].versions[version];
            prop_assert_eq!(&carried.extra, extra);
            prop_assert_eq!(&carried.sides, sides);
        }
    }

    #[test]
    fn a_refused_entry_changes_nothing(state in state(), mut entry in entry()) {
        let mut folded = state.clone();
        entry.number = state.number + 1;
        (entry.store, entry.prev) = (state.store, state.entry);
        match folded.apply(&entry) {
            Ok(()) => prop_assert_eq!(folded.number, entry.number),
            Err(_) => prop_assert_eq!(folded, state),
        }
    }

    #[test]
    fn trees_survive(entries in tree()) {
        let bytes = encode_tree(&entries);
        prop_assert_eq!(decode_tree("x", &bytes).unwrap(), entries);
    }

    #[test]
    fn list_nodes_survive(node in list()) {
        prop_assert_eq!(ListNode::decode("x", &node.encode()).unwrap(), node);
    }

    #[test]
    fn times_survive(times in times()) {
        prop_assert_eq!(decode_times("x", &encode_times(&times)).unwrap(), times);
    }

    #[test]
    fn pack_tables_survive((header, table) in pack()) {
        let tail = table.encode(&header).unwrap();
        let frames: u64 = table.frames.iter().map(|frame| u64::from(frame.stored_len)).sum();
        let len = u64::from(PackHeader::LEN) + frames + u64::try_from(tail.len()).unwrap();
        let head = header.encode();
        prop_assert_eq!(&decode_pack(&head, len, &tail).unwrap(), &table);
        check_flips(&tail, |tail| decode_pack(&head, len, tail).is_ok())?;
        check_flips(&head, |head| decode_pack(head, len, &tail).is_ok())?;
    }

    #[test]
    fn segments_find_what_was_written((bytes, entries) in segment(), other in chunk_id()) {
        let layout = SegmentLayout::parse("x", &bytes).unwrap();
        layout.verify(&bytes).unwrap();
        for (position, entry) in (0..).zip(&entries) {
            prop_assert_eq!(layout.find(&bytes, &entry.id), Some(position));
            prop_assert_eq!(layout.entry(&bytes, position).unwrap(), *entry);
        }
        let there = entries.iter().any(|entry| entry.id == other);
        prop_assert_eq!(layout.find(&bytes, &other).is_some(), there);
        check_flips(&bytes, |bytes| {
            SegmentLayout::parse("x", bytes).is_ok_and(|layout| layout.verify(bytes).is_ok())
        })?;
    }

    #[test]
    fn names_survive(name in ref_name(), version in option::of(1..u64::MAX), path in "[a-z@:]{1,9}(/[a-z. ]{3,4}){0,3}") {
        prop_assert_eq!(&name.as_str().parse::<RefName>().unwrap(), &name);
        let path = path.into_bytes();
        let spec = RefSpec { name, version: version.map(At::Number), path };
        prop_assert_eq!(spec.to_string().parse::<RefSpec>().unwrap(), spec);
    }

    #[test]
    fn keys_survive(number: u64, id: [u8; 16]) {
        prop_assert_eq!(parse_log_key(&log_key(number)), Some(number));
        prop_assert_eq!(parse_checkpoint_key(&checkpoint_key(number)), Some(number));
        prop_assert_eq!(parse_pack_key(&pack_key(PackId(id))), Some(PackId(id)));
        prop_assert_eq!(parse_segment_key(&segment_key(SegmentId(id))), Some(SegmentId(id)));
    }

    #[test]
    fn no_decoder_panics(bytes in mutated(any_object())) {
        decode_everything(&bytes);
    }
}

#[test]
fn no_decoder_panics_on_text_or_magic_alone() {
    for bytes in [
        &b""[..],
        b"tree\x01\0\0\0",
        b"time\x01\0\0\0",
        b"clst\x01\0\0\0",
        b"STOREPAK",
        b"STORESEG\x02\0\0",
        b"{}\nblake3 \n",
        &[0xff; 200],
    ] {
        decode_everything(bytes);
    }
}
