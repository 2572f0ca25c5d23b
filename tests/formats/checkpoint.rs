//! Malformed checkpoints, assembled from arbitrary parts.
//!
//! Sums and checksums are right unless they are the defect, since a wrong one would hide every other defect.

use serde_json::{Value, json};

use crate::bombs;
use crate::malformed::Defect;
use crate::sealed::{changed, compress, seal};

const EMPTY: &str = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";

/// A valid checkpoint, from which each defect differs in one place.
pub(crate) fn good() -> Vec<(&'static str, Vec<u8>)> {
    vec![("checkpoint", Parts::default().bytes())]
}

/// The head of a valid checkpoint and its rows, which the fuzz target seals.
pub(crate) fn open() -> Vec<u8> {
    let parts = Parts::default();
    let head = parts.head.to_string().into_bytes();
    let rows = parts.blocks.iter().map(|rows| block(rows));
    [head, b"\n".to_vec(), rows.collect::<Vec<_>>().concat()].concat()
}

/// Every malformed checkpoint.
pub(crate) fn defects() -> Vec<Defect> {
    let all = [
        whole_defects(),
        head_defects(),
        index_defects(),
        ref_defects(),
        version_defects(),
        bombs::of_checkpoints(),
    ];
    let all = all.into_iter().flatten();
    all.map(|(name, bytes)| ("checkpoint", name, bytes))
        .collect()
}

/// Compressed bytes, and their uncompressed length.
pub(crate) type Packed = (Vec<u8>, usize);

pub(crate) type Named = Vec<(&'static str, Vec<u8>)>;

/// A checkpoint of one ref with one version.
pub(crate) struct Parts {
    header: Vec<u8>,
    /// Blocks of rows: name, number, value.
    blocks: Vec<Vec<(&'static str, u64, Vec<u8>)>>,
    head: Value,
    /// Replaces the index, which has the name, lengths and rows of each block.
    index: Option<Vec<u8>>,
    rows: u64,
    end: Vec<u8>,
}

fn header(version: u16) -> Vec<u8> {
    [&b"STORECKP"[..], &version.to_le_bytes(), &[0; 6]].concat()
}

impl Default for Parts {
    fn default() -> Self {
        Self {
            header: header(3),
            blocks: vec![
                vec![("team/a/b", 0, ref_row([3, 1, 3, 0], ""))],
                vec![("team/a/b", 3, version(&[]))],
            ],
            head: head(),
            index: None,
            rows: 2,
            end: [&3_u16.to_le_bytes()[..], &[0; 6], b"STORECKP"].concat(),
        }
    }
}

impl Parts {
    fn bytes(&self) -> Vec<u8> {
        let (mut stored, mut index) = (Vec::new(), Vec::new());
        for rows in &self.blocks {
            let raw = block(rows);
            let packed = compress(&raw);
            let (name, number, _) = &rows[0];
            index.extend(index_row(name, *number, &packed, raw.len(), rows.len()));
            stored.extend(packed);
        }
        let index = self.index.clone().unwrap_or(index);
        self.around(&stored, self.head.to_string().as_bytes(), &index)
    }

    /// The object with these blocks, this head and this index.
    fn around(&self, blocks: &[u8], head: &[u8], index: &[u8]) -> Vec<u8> {
        let packed = |bytes: &[u8]| (compress(bytes), bytes.len());
        self.around_packed(blocks, &packed(head), &packed(index))
    }

    /// The same with compressed head and index.
    pub(crate) fn around_packed(&self, blocks: &[u8], head: &Packed, index: &Packed) -> Vec<u8> {
        let mut end = [&head.0[..], &index.0].concat();
        let lens = [head.0.len(), head.1, index.0.len(), index.1];
        for len in lens {
            end.extend((len as u64).to_le_bytes());
        }
        end.extend(self.rows.to_le_bytes());
        let checksum = blake3::hash(&end);
        let header = &self.header[..];
        [header, blocks, &end, checksum.as_bytes(), &self.end].concat()
    }

    fn with_rows(blocks: Vec<Vec<(&'static str, u64, Vec<u8>)>>) -> Vec<u8> {
        let rows = blocks.iter().map(|rows| rows.len() as u64).sum();
        let parts = Self {
            blocks,
            rows,
            ..Self::default()
        };
        parts.bytes()
    }

    /// A checkpoint with this value of its version.
    fn of(value: Vec<u8>) -> Vec<u8> {
        Self::with_rows(vec![
            vec![("team/a/b", 0, ref_row([3, 1, 3, 0], ""))],
            vec![("team/a/b", 3, value)],
        ])
    }

    /// A checkpoint with this value of its ref.
    fn of_ref(name: &'static str, value: Vec<u8>) -> Vec<u8> {
        Self::with_rows(vec![
            vec![(name, 0, value)],
            vec![("team/a/b", 3, version(&[]))],
        ])
    }
}

fn block(rows: &[(&str, u64, Vec<u8>)]) -> Vec<u8> {
    let mut raw = Vec::new();
    for (name, number, value) in rows {
        raw.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
        raw.extend(name.as_bytes());
        raw.extend(number.to_le_bytes());
        raw.extend(u32::try_from(value.len()).unwrap().to_le_bytes());
        raw.extend(value);
    }
    raw
}

pub(crate) fn index_row(
    name: &str,
    number: u64,
    stored: &[u8],
    raw: usize,
    rows: usize,
) -> Vec<u8> {
    let mut row = Vec::new();
    row.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
    row.extend(name.as_bytes());
    row.extend(number.to_le_bytes());
    for len in [stored.len(), raw, rows] {
        row.extend(u32::try_from(len).unwrap().to_le_bytes());
    }
    row.extend(&blake3::hash(stored).as_bytes()[..8]);
    row
}

fn ref_row(fields: [u64; 4], tail: &str) -> Vec<u8> {
    let fields = fields.into_iter().flat_map(u64::to_le_bytes);
    fields.chain(tail.bytes()).collect()
}

/// The value of a version, in which other bytes replace the same number at some offsets.
fn version(changes: &[(usize, &[u8])]) -> Vec<u8> {
    let mut value = vec![4];
    value.extend(content(0, 0, EMPTY));
    value.extend(1_735_787_045_i64.to_le_bytes());
    value.extend(0_i32.to_le_bytes());
    value.extend(1_u16.to_le_bytes());
    value.push(5);
    value.extend(b"times");
    value.extend(content(9, 0, &"05".repeat(32)));
    for text in ["", "", "", "m"] {
        value.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
        value.extend(text.bytes());
    }
    for (at, bytes) in changes {
        value[*at..*at + bytes.len()].copy_from_slice(bytes);
    }
    value
}

/// Offsets of fields in [`version`].
const TIME: usize = 1 + 41;
const SIDES: usize = TIME + 12;
const KIND: usize = SIDES + 2;
const SIDE_DEPTH: usize = KIND + 1 + 5 + 8;

fn content(size: u64, depth: u8, root: &str) -> Vec<u8> {
    let root = (0..32).map(|at| u8::from_str_radix(&root[2 * at..2 * at + 2], 16).unwrap());
    let size = size.to_le_bytes().into_iter();
    size.chain([depth]).chain(root).collect()
}

fn gone() -> Value {
    json!({ "entry": 2, "time": "2025-01-02T03:04:05Z" })
}

pub(crate) fn head() -> Value {
    json!({
        "store": "06".repeat(16), "number": 2, "entry": "07".repeat(32), "layers": [],
        "namespaces": {
            "team/a": {
                "refs": 1, "versions": 1, "private_versions": 0, "bytes": 0, "version_bytes": 0,
            },
        },
        "segments": {
            "01".repeat(16): {
                "chunks": 1, "packs": 1, "pack_bytes": 148, "raw_bytes": 3, "bytes": 204,
            },
        },
        "dropped": { "02".repeat(16): gone() },
        "condemned": { "03".repeat(16): gone() },
    })
}

fn whole_defects() -> Named {
    let good = Parts::default().bytes();
    let flipped = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    let with = |header: Vec<u8>, end: Vec<u8>| {
        let parts = Parts {
            header,
            end,
            ..Parts::default()
        };
        parts.bytes()
    };
    let end = |version: u16, pad: u8, magic: &[u8]| {
        [&version.to_le_bytes()[..], &[0, 0, 0, 0, 0, pad], magic].concat()
    };
    let interim =
        json!({ "magic": "store-state", "version": 2, "store": "06".repeat(16), "number": 0 });
    vec![
        ("empty", Vec::new()),
        ("interim-format", compress(&seal(&interim))),
        ("truncated", good[..good.len() / 2].to_vec()),
        ("last-byte-missing", good[..good.len() - 1].to_vec()),
        ("byte-behind", [&good[..], b"!"].concat()),
        ("bit-flipped-in-the-first-block", flipped(60)),
        ("bit-flipped-in-the-checksum", flipped(good.len() - 20)),
        ("bit-flipped-in-the-index", flipped(good.len() - 100)),
        (
            "magic-of-another-object",
            with(
                [b"STORESEG", &header(3)[8..]].concat(),
                end(3, 0, b"STORECKP"),
            ),
        ),
        (
            "magic-at-the-end-of-another-object",
            with(header(3), end(3, 0, b"STORESGE")),
        ),
        ("later-version", with(header(4), end(4, 0, b"STORECKP"))),
        (
            "later-version-at-the-end",
            with(header(3), end(4, 0, b"STORECKP")),
        ),
        ("padding-not-zero", with(header(3), end(3, 1, b"STORECKP"))),
        ("other-rows-than-counted", {
            let parts = Parts {
                rows: 3,
                ..Parts::default()
            };
            parts.bytes()
        }),
    ]
}

fn head_defects() -> Named {
    let of = |head: Value| {
        let parts = Parts {
            head,
            ..Parts::default()
        };
        parts.bytes()
    };
    let with = |path: &str, value: Value| of(changed(head(), path, value));
    let layer = |number: u64| json!({ "number": number, "bytes": 9, "id": "08".repeat(32) });
    let first = json!({
        "store": "06".repeat(16), "number": 0, "entry": "07".repeat(32), "layers": [],
        "namespaces": {}, "segments": {}, "dropped": {}, "condemned": {},
    });
    let many: Vec<Value> = (0..9).rev().map(layer).collect();
    vec![
        (
            "head-not-json",
            Parts::default().around(&[], b"{store}", &[]),
        ),
        ("store-missing", with("/store", Value::Null)),
        ("entry-missing", with("/entry", Value::Null)),
        ("entry-too-short", with("/entry", json!("07"))),
        ("entry-before-the-first", of(first)),
        (
            "segment-live-and-dropped",
            with(&format!("/dropped/{}", "01".repeat(16)), gone()),
        ),
        (
            "pack-condemned-by-a-later-entry",
            with(&format!("/condemned/{}/entry", "03".repeat(16)), json!(3)),
        ),
        (
            "unknown-incompatible-feature",
            with(
                "/features",
                json!({ "compatible": [], "read_only": [], "incompatible": ["warp"] }),
            ),
        ),
        (
            "features-of-another-shape",
            with("/features", json!(["warp"])),
        ),
        ("segment-id-too-short", with("/segments/01", json!({}))),
        ("layers-missing", with("/layers", Value::Null)),
        (
            "layer-of-a-later-number",
            with("/layers", json!([layer(3)])),
        ),
        (
            "layers-out-of-order",
            with("/layers", json!([layer(0), layer(1)])),
        ),
        ("more-layers-than-allowed", with("/layers", json!(many))),
        (
            "layer-that-is-not-there",
            with("/layers", json!([layer(1)])),
        ),
        (
            "namespace-without-a-name",
            with("/namespaces/x", head()["namespaces"]["team/a"].clone()),
        ),
        ("namespaces-missing", with("/namespaces", Value::Null)),
        (
            "sum-of-a-namespace-wrong",
            with("/namespaces/team~1a/version_bytes", json!(1)),
        ),
    ]
}

fn index_defects() -> Named {
    let rows = &Parts::default().blocks;
    let packed: Vec<Vec<u8>> = rows.iter().map(|rows| compress(&block(rows))).collect();
    let raw: Vec<usize> = rows.iter().map(|rows| block(rows).len()).collect();
    let of = |index: Vec<Vec<u8>>| {
        let parts = Parts {
            index: Some(index.concat()),
            ..Parts::default()
        };
        parts.bytes()
    };
    let row = |at: usize| {
        let (name, number, _) = &rows[at][0];
        index_row(name, *number, &packed[at], raw[at], 1)
    };
    let second = |raw: usize, rows: usize| index_row("team/a/b", 3, &packed[1], raw, rows);
    let two_frames = [&packed[1][..], &compress(b"")].concat();
    let blocks = [&packed[0][..], &two_frames].concat();
    let index = [row(0), index_row("team/a/b", 3, &two_frames, raw[1], 1)].concat();
    let head = head().to_string();
    vec![
        ("block-not-in-the-index", of(vec![row(0)])),
        ("index-out-of-order", of(vec![row(1), row(0)])),
        (
            "index-row-cut-short",
            of(vec![row(0), row(1)[..20].to_vec()]),
        ),
        (
            "block-longer-than-said",
            of(vec![row(0), second(raw[1] - 1, 1)]),
        ),
        (
            "block-shorter-than-said",
            of(vec![row(0), second(raw[1] + 1, 1)]),
        ),
        (
            "block-larger-than-allowed",
            of(vec![row(0), second(65 << 20, 1)]),
        ),
        (
            "block-of-other-rows-than-said",
            of(vec![row(0), second(raw[1], 2)]),
        ),
        (
            "block-of-another-first-row",
            of(vec![
                row(0),
                index_row("team/a/b", 2, &packed[1], raw[1], 1),
            ]),
        ),
        (
            "block-in-two-frames",
            Parts::default().around(&blocks, head.as_bytes(), &index),
        ),
    ]
}

fn ref_defects() -> Named {
    vec![
        (
            "rows-out-of-order",
            Parts::with_rows(vec![
                vec![
                    ("team/a/c", 0, ref_row([0; 4], "")),
                    ("team/a/b", 0, ref_row([3, 1, 3, 0], "")),
                ],
                vec![("team/a/b", 3, version(&[]))],
            ]),
        ),
        (
            "row-twice",
            Parts::with_rows(vec![
                vec![("team/a/b", 0, ref_row([3, 1, 3, 0], ""))],
                vec![("team/a/b", 3, version(&[])), ("team/a/b", 3, version(&[]))],
            ]),
        ),
        (
            "version-of-no-ref",
            Parts::of_ref("team/a/a", ref_row([3, 1, 3, 0], "")),
        ),
        (
            "ref-of-no-namespace",
            Parts::of_ref("x", ref_row([0; 4], "")),
        ),
        (
            "ref-cut-short",
            Parts::of_ref("team/a/b", ref_row([3, 1, 3, 0], "")[..31].to_vec()),
        ),
        (
            "version-above-the-last",
            Parts::of_ref("team/a/b", ref_row([2, 1, 3, 0], "")),
        ),
        (
            "other-versions-than-counted",
            Parts::of_ref("team/a/b", ref_row([3, 2, 3, 0], "")),
        ),
        (
            "ref-of-other-bytes",
            Parts::of_ref("team/a/b", ref_row([3, 1, 3, 7], "")),
        ),
        (
            "tail-of-a-ref-not-json",
            Parts::of_ref("team/a/b", ref_row([3, 1, 3, 0], "{")),
        ),
    ]
}

fn version_defects() -> Named {
    let tail = |text: &str| [&version(&[])[..], text.as_bytes()].concat();
    let whole = version(&[]);
    vec![
        ("unknown-flag", Parts::of(version(&[(0, &[64])]))),
        ("executable-tree", Parts::of(version(&[(0, &[3])]))),
        (
            "content-too-deep",
            Parts::of(version(&[(SIDE_DEPTH, &[9])])),
        ),
        (
            "time-beyond-its-years",
            Parts::of(version(&[(TIME, &i64::MAX.to_le_bytes())])),
        ),
        (
            "time-of-two-signs",
            Parts::of(version(&[(TIME + 8, &(-1_i32).to_le_bytes())])),
        ),
        ("side-of-no-kind", Parts::of(version(&[(KIND, &[0])]))),
        ("kind-of-capitals", Parts::of(version(&[(KIND + 1, b"T")]))),
        (
            "more-sides-than-there",
            Parts::of(version(&[(SIDES, &[2])])),
        ),
        (
            "text-not-utf8",
            Parts::of([&whole[..whole.len() - 1], &[0xff]].concat()),
        ),
        (
            "version-cut-short",
            Parts::of(whole[..whole.len() - 1].to_vec()),
        ),
        ("tail-of-a-version-not-json", Parts::of(tail("!"))),
        (
            "origin-of-another-shape",
            Parts::of(tail(r#"{"origin":1}"#)),
        ),
    ]
}
