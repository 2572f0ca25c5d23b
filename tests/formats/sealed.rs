//! Malformed sealed text: `format` and log entries.
//!
//! Most are sealed again after the change, since a wrong checksum would hide every other defect.

use serde_json::{Value, json};

use crate::malformed::Defect;

const ZEROS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Valid objects, from which each defect differs in one place.
pub(crate) fn good() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("format", seal(&format())),
        ("log", [seal(&log()), before()].concat()),
    ]
}

/// Every malformed object of these kinds.
pub(crate) fn defects() -> Vec<Defect> {
    let mut defects = Vec::new();
    for (kind, named) in [
        ("format", format_defects()),
        ("log", [entry_defects(), change_defects()].concat()),
    ] {
        defects.extend(named.into_iter().map(|(name, bytes)| (kind, name, bytes)));
    }
    for (kind, value) in [("format", format_text()), ("log", log().to_string())] {
        defects.extend(shapes(kind, &value));
    }
    defects
}

/// Defects of the two lines of a sealed text.
fn shapes(kind: &'static str, text: &str) -> Vec<Defect> {
    let good = seal_text(text);
    let at = good.len() - 10;
    let flipped = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    vec![
        (kind, "empty", Vec::new()),
        (kind, "bit-flipped-in-json", flipped(10)),
        (kind, "bit-flipped-in-checksum", flipped(at)),
        (kind, "checksum-line-missing", format!("{text}\n").into()),
        (kind, "truncated", good[..at].to_vec()),
        (kind, "newline-twice", [&good[..], b"\n"].concat()),
        (
            kind,
            "crlf",
            String::from_utf8(good.clone())
                .unwrap()
                .replace('\n', "\r\n")
                .into(),
        ),
        (
            kind,
            "json-on-two-lines",
            seal_text(&text.replacen(',', ",\n", 1)),
        ),
        (kind, "not-json", seal_text("{magic}")),
        (kind, "not-utf8", seal_bytes(b"{\"magic\":\"\xff\"}")),
        (
            kind,
            "nested-too-deep",
            seal_text(&format!("{{\"a\":{}", "[".repeat(10_000))),
        ),
        (kind, "not-an-object", seal_text("[1,2,3]")),
    ]
}

fn format() -> Value {
    serde_json::from_str(&format_text()).unwrap()
}

fn format_text() -> String {
    json!({
        "magic": "store-format", "version": 2, "id": "07".repeat(16), "hash": "blake3",
        "chunker": {
            "algorithm": "fastcdc-v2020", "min": 16384, "avg": 65536, "max": 262_144,
            "normalization": 2, "seed": 0, "tensors": 1,
        },
        "features": { "compatible": [], "read_only": [], "incompatible": [] },
    })
    .to_string()
}

fn format_defects() -> Vec<(&'static str, Vec<u8>)> {
    let with = |path: &str, value: Value| seal(&changed(format(), path, value));
    vec![
        (
            "magic-of-another-object",
            with("/magic", json!("store-log")),
        ),
        ("later-version", with("/version", json!(7))),
        ("interim-version", with("/version", json!(1))),
        ("version-negative", with("/version", json!(-1))),
        ("hash-unknown", with("/hash", json!("sha256"))),
        ("hash-missing", with("/hash", Value::Null)),
        (
            "unknown-incompatible-feature",
            with("/features/incompatible", json!(["warp"])),
        ),
        (
            "unknown-read-only-feature",
            with("/features/read_only", json!(["warp"])),
        ),
        (
            "chunker-unknown",
            with("/chunker/algorithm", json!("rabin")),
        ),
        ("chunker-min-too-small", with("/chunker/min", json!(62))),
        ("chunker-min-odd", with("/chunker/min", json!(16385))),
        (
            "chunker-min-not-below-avg",
            with("/chunker/min", json!(65536)),
        ),
        (
            "chunker-avg-not-below-max",
            with("/chunker/avg", json!(262_144)),
        ),
        (
            "chunker-max-too-large",
            with("/chunker/max", json!(1_u64 << 23)),
        ),
        (
            "chunker-max-above-32-bits",
            with("/chunker/max", json!(1_u64 << 32)),
        ),
        (
            "chunker-normalization-4",
            with("/chunker/normalization", json!(4)),
        ),
        (
            "chunker-tensors-unknown",
            with("/chunker/tensors", json!(7)),
        ),
        (
            "chunker-tensors-negative",
            with("/chunker/tensors", json!(-1)),
        ),
        ("chunker-missing", with("/chunker", Value::Null)),
        ("id-too-short", with("/id", json!("07"))),
        ("id-in-upper-case", with("/id", json!("AB".repeat(16)))),
    ]
}

fn log() -> Value {
    let content = json!({ "size": 70_000, "depth": 1, "root": "05".repeat(32) });
    json!({
        "magic": "store-log", "version": 2, "number": 42, "store": "06".repeat(16),
        "prev": prev(), "commit": "09".repeat(16),
        "time": "2025-01-02T03:04:05Z",
        "who": { "host": "node-1", "user": "ana", "program": "store 0.1.0" },
        "changes": [
            {
                "op": "set_ref", "name": "project/a/b", "version": 1,
                "root": {
                    "kind": "tree", "content": content, "totals": { "entries": 2, "bytes": 5 },
                },
                "sides": [{ "kind": "modes", "content": content }, { "kind": "times", "content": content }],
                "message": "", "expires": null,
            },
            {
                "op": "add_segment", "segment": "01".repeat(16), "chunks": 1, "packs": 1,
                "pack_bytes": 148, "raw_bytes": 3, "bytes": 204,
            },
        ],
    })
}

/// The predecessor of [`log`].
fn before() -> Vec<u8> {
    seal(&json!({
        "magic": "store-log", "version": 2, "number": 41, "store": "06".repeat(16), "prev": ZEROS,
        "commit": "08".repeat(16), "time": "2025-01-02T03:04:04Z",
        "who": { "host": "", "user": "", "program": "" }, "changes": [],
    }))
}

fn prev() -> String {
    let before = before();
    let line = before.split(|byte| *byte == b'\n').next().unwrap();
    blake3::hash(line).to_string()
}

/// Defects of an entry itself.
fn entry_defects() -> Vec<(&'static str, Vec<u8>)> {
    let with = |path: &str, value: Value| seal(&changed(log(), path, value));
    let twice = log()
        .to_string()
        .replacen("\"number\":42", "\"number\":42,\"number\":42", 1);
    let deep = format!("\"message\":{}{}", "[".repeat(200), "]".repeat(200));
    let deep = log().to_string().replacen("\"message\":\"\"", &deep, 1);
    vec![
        ("change-nested-too-deep", seal_text(&deep)),
        (
            "magic-of-another-object",
            with("/magic", json!("store-state")),
        ),
        ("later-version", with("/version", json!(3))),
        ("interim-version", with("/version", json!(1))),
        ("store-missing", with("/store", Value::Null)),
        ("prev-missing", with("/prev", Value::Null)),
        ("prev-too-short", with("/prev", json!("05"))),
        ("stands-for-nothing", with("/stands_for", json!(""))),
        ("until-negative", with("/until", json!(-1))),
        (
            "copy-of-another-entry",
            [seal(&log()), seal(&log())].concat(),
        ),
        (
            "copy-cut-short",
            [seal(&log()), before()[..99].to_vec()].concat(),
        ),
        (
            "copy-of-two-entries",
            [seal(&log()), before(), before()].concat(),
        ),
        ("another-number", with("/number", json!(43))),
        ("number-too-large", with("/number", json!(1e30))),
        ("number-twice", seal_text(&twice)),
        ("unknown-change", with("/changes/1/op", json!("warp"))),
        ("change-without-op", with("/changes/1", json!({}))),
        ("changes-missing", with("/changes", Value::Null)),
        ("commit-not-hex", with("/commit", json!("x".repeat(32)))),
        ("commit-missing", with("/commit", Value::Null)),
        (
            "time-of-no-calendar",
            with("/time", json!("2025-02-30T00:00:00Z")),
        ),
        (
            "time-without-zone",
            with("/time", json!("2025-01-02T03:04:05")),
        ),
    ]
}

/// Defects of changes.
fn change_defects() -> Vec<(&'static str, Vec<u8>)> {
    let folded = |into: Value| {
        let segment = "01".repeat(16);
        let drop = json!({ "op": "drop_segment", "segment": segment, "into": into });
        seal(&changed(log(), "/changes/1", drop))
    };
    let with = |path: &str, value: Value| seal(&changed(log(), path, value));
    vec![
        (
            "ref-leads-up",
            with("/changes/0/name", json!("project/a/../b")),
        ),
        (
            "ref-without-path",
            with("/changes/0/name", json!("project/a")),
        ),
        ("version-negative", with("/changes/0/version", json!(-1))),
        (
            "root-of-unknown-kind",
            with("/changes/0/root/kind", json!("socket")),
        ),
        (
            "content-too-deep",
            with("/changes/0/root/content/depth", json!(9)),
        ),
        (
            "content-of-depth-0-too-large",
            with(
                "/changes/0/sides/1/content",
                json!({ "size": 8_388_608, "depth": 0, "root": ZEROS }),
            ),
        ),
        (
            "content-empty-with-root",
            with("/changes/0/sides/1/content/size", json!(0)),
        ),
        (
            "content-root-too-short",
            with("/changes/0/sides/0/content/root", json!("05")),
        ),
        ("sides-missing", with("/changes/0/sides", Value::Null)),
        (
            "side-twice",
            with("/changes/0/sides/0/kind", json!("times")),
        ),
        (
            "sides-unsorted",
            with("/changes/0/sides/0/kind", json!("x")),
        ),
        (
            "side-of-no-kind",
            with("/changes/0/sides/0/kind", json!("")),
        ),
        (
            "side-of-odd-kind",
            with("/changes/0/sides/0/kind", json!("Modes")),
        ),
        (
            "feature-of-odd-name",
            with(
                "/changes/1",
                json!({ "op": "set_feature", "kind": "read_only", "name": "Warp" }),
            ),
        ),
        (
            "feature-of-unknown-kind",
            with(
                "/changes/1",
                json!({ "op": "set_feature", "kind": "helpful", "name": "warp" }),
            ),
        ),
        ("segment-folded-into-no-id", folded(json!("01"))),
        ("segment-folded-into-a-number", folded(json!(1))),
        (
            "segment-count-missing",
            with("/changes/1/chunks", Value::Null),
        ),
    ]
}

/// `json` with `value` at the JSON pointer `path`; null removes the field.
pub(crate) fn changed(mut json: Value, path: &str, value: Value) -> Value {
    let (parent, field) = path.rsplit_once('/').unwrap();
    let parent = json.pointer_mut(parent).unwrap();
    match parent {
        Value::Object(fields) if value.is_null() => drop(fields.remove(field).unwrap()),
        Value::Object(fields) => drop(fields.insert(field.to_owned(), value)),
        Value::Array(items) => items[field.parse::<usize>().unwrap()] = value,
        _ => panic!("{path}: no such place"),
    }
    json
}

pub(crate) fn seal(json: &Value) -> Vec<u8> {
    seal_text(&json.to_string())
}

fn seal_text(text: &str) -> Vec<u8> {
    seal_bytes(text.as_bytes())
}

fn seal_bytes(text: &[u8]) -> Vec<u8> {
    let line = format!("\nblake3 {}\n", blake3::hash(text));
    [text, line.as_bytes()].concat()
}

/// A zstd frame with one raw block (RFC 8878), written by hand so that it does not depend on the version of zstd.
pub(crate) fn compress(text: &[u8]) -> Vec<u8> {
    let len = u32::try_from(text.len()).unwrap();
    let block = (len << 3 | 1).to_le_bytes();
    let magic = [0x28, 0xb5, 0x2f, 0xfd];
    let single_segment_and_four_bytes_of_size = [0xa0];
    [
        &magic[..],
        &single_segment_and_four_bytes_of_size,
        &len.to_le_bytes(),
        &block[..3],
        text,
    ]
    .concat()
}

/// A zstd frame of one repeated byte, in blocks that store it once.
pub(crate) fn repeated(byte: u8, len: usize) -> Vec<u8> {
    const BLOCK_BYTES: usize = 128 << 10;
    let total = u32::try_from(len).unwrap().to_le_bytes();
    let mut frame = [&[0x28, 0xb5, 0x2f, 0xfd, 0xa0], &total[..]].concat();
    for start in (0..len).step_by(BLOCK_BYTES) {
        let size = BLOCK_BYTES.min(len - start);
        let is_last = u32::from(start + size == len);
        let head = u32::try_from(size).unwrap() << 3 | 1 << 1 | is_last;
        frame.extend_from_slice(&head.to_le_bytes()[..3]);
        frame.push(byte);
    }
    frame
}
