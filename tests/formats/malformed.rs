//! Walks `fixtures/malformed`: every file is refused with the message in its `.error` file.
//!
//! Generators in this suite make the files; each breaks a valid object in one place.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use store::Error;
use store::format::{
    Format, Keep, ListNode, LogEntry, PackHeader, PackTable, PackTrailer, SegmentLayout, State,
    decode_kept, decode_times, decode_tree,
};

use crate::{beside, binary, bundle, checkpoint, sealed};

/// One malformed object: its kind, its defect, its bytes.
pub(crate) type Defect = (&'static str, &'static str, Vec<u8>);

const KINDS: [&str; 12] = [
    "bundle",
    "checkpoint",
    "format",
    "list",
    "log",
    "modes",
    "owners",
    "pack",
    "segment",
    "times",
    "tree",
    "xattrs",
];

#[test]
fn every_malformed_object_is_refused_with_the_words_beside_it() {
    if std::env::var_os("REGENERATE").is_some() {
        regenerate();
    }
    the_files_are_those_that_the_generators_make();
    let mut wrong = Vec::new();
    for kind in KINDS {
        let mut count = 0;
        for path in files(kind) {
            count += 1;
            let found = words(kind, &fs::read(&path).unwrap());
            let expected = fs::read_to_string(path.with_extension("error")).unwrap_or_default();
            if found != expected {
                let path = path.display();
                wrong.push(format!("{path}\n  expected {expected}  found    {found}"));
            }
        }
        assert!(count > 5, "{kind}: only {count} malformed objects");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_object_is_refused_at_every_length_but_its_own() {
    let good = [
        binary::good(),
        sealed::good(),
        checkpoint::good(),
        beside::good(),
        bundle::good(),
    ];
    for (kind, good) in good.concat() {
        assert_eq!(words(kind, &good), "accepted\n", "{kind}");
        for len in 0..good.len() {
            let whole_entries = matches!(kind, "tree" | "times" | "modes" | "owners" | "xattrs");
            let found = words(kind, good.get(..len).unwrap());
            // An entry is valid without the copy of its predecessor.
            let is_entry = kind == "log" && len == two_lines(&good);
            assert!(
                whole_entries || is_entry || found != "accepted\n",
                "{kind} of {len} bytes"
            );
        }
        if matches!(kind, "modes" | "bundle") {
            // One more byte may belong to another entry, or to unfinished data.
            continue;
        }
        let found = words(kind, &[&good[..], b"!"].concat());
        assert_ne!(found, "accepted\n", "{kind} with one byte more");
    }
}

/// The number of bytes in the first two lines.
fn two_lines(bytes: &[u8]) -> usize {
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
    lines.by_ref().take(2).map(<[u8]>::len).sum()
}

fn the_files_are_those_that_the_generators_make() {
    let mut expected = BTreeSet::new();
    for (kind, name, bytes) in defects() {
        let path = place(kind, name);
        let found = fs::read(&path).unwrap_or_default();
        assert!(found == bytes, "{} is another", path.display());
        assert!(expected.insert(path.clone()), "{} twice", path.display());
    }
    let found: BTreeSet<PathBuf> = KINDS.iter().flat_map(|kind| files(kind)).collect();
    let forgotten: Vec<_> = found.difference(&expected).collect();
    assert!(forgotten.is_empty(), "no generator makes {forgotten:?}");
}

fn defects() -> Vec<Defect> {
    let mut defects = binary::defects();
    defects.extend(sealed::defects());
    defects.extend(checkpoint::defects());
    defects.extend(beside::defects());
    defects.extend(bundle::defects());
    defects
}

/// The kind and the message of the error for these bytes.
fn words(kind: &str, bytes: &[u8]) -> String {
    match decode(kind, bytes) {
        Ok(()) => "accepted\n".to_owned(),
        Err(error) => bundle::without_place(&format!("{:?}: {error}\n", error.kind())),
    }
}

fn decode(kind: &str, bytes: &[u8]) -> Result<(), Error> {
    match kind {
        "bundle" => bundle::decode(bytes),
        "checkpoint" => State::decode("checkpoints/00000002", bytes).map(drop),
        "format" => Format::decode(bytes)?.check_writable(),
        "list" => ListNode::decode("list 0", bytes).map(drop),
        "log" => LogEntry::decode(42, bytes).map(drop),
        "pack" => decode_pack(bytes),
        "segment" => SegmentLayout::parse("segment 0", bytes)?.verify(bytes),
        "times" => decode_times("times 0", bytes).map(drop),
        "modes" => decode_kept(Keep::Modes, bytes).map(drop),
        "owners" => decode_kept(Keep::Owners, bytes).map(drop),
        "tree" => decode_tree("tree 0", bytes).map(drop),
        "xattrs" => decode_kept(Keep::Xattrs, bytes).map(drop),
        _ => panic!("{kind}: no such kind"),
    }
}

/// Decodes a pack as if without a segment: header, trailer, then the table.
fn decode_pack(bytes: &[u8]) -> Result<(), Error> {
    let len = bytes.len();
    let header = PackHeader::decode("pack 0", bytes)?;
    let trailer = bytes.get(len.saturating_sub(64)..).unwrap();
    let trailer = PackTrailer::decode("pack 0", len.try_into().unwrap(), trailer)?;
    let table = usize::try_from(trailer.table_offset).unwrap();
    PackTable::decode("pack 0", &header, &trailer, bytes.get(table..).unwrap()).map(drop)
}

fn regenerate() {
    for kind in KINDS {
        let dir = root().join(kind);
        if dir.exists() {
            fs::remove_dir_all(&dir).unwrap();
        }
        fs::create_dir_all(&dir).unwrap();
    }
    for (kind, name, bytes) in defects() {
        let path = place(kind, name);
        fs::write(&path, &bytes).unwrap();
        fs::write(path.with_extension("error"), words(kind, &bytes)).unwrap();
    }
}

fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap().join("fixtures/malformed")
}

fn place(kind: &str, name: &str) -> PathBuf {
    root().join(kind).join(name).with_extension(kind)
}

/// The malformed objects of `kind`, sorted by name.
pub(crate) fn files(kind: &str) -> Vec<PathBuf> {
    let dir = root().join(kind);
    let entries = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end != "error"))
        .collect();
    files.sort();
    files
}
