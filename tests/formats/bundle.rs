//! Malformed bundles: stores in one file.

use std::fs;
use std::path::Path;

use store::Error;
use store::format::{BUNDLE_ENDS, BUNDLE_RECORDS, BundleEnd, encode_bundle_start};
use store::remote::{Options, open};
use tempfile::NamedTempFile;

use crate::malformed::Defect;

/// Valid bundles: with an object, with another object in its place, and with a removed object. Defects differ from the
/// first in one place.
pub(crate) fn good() -> Vec<(&'static str, Vec<u8>)> {
    let removed = [records(), record(2, 0, b"format", 0, b"")].concat();
    vec![
        ("bundle", whole(&records())),
        ("bundle", whole(&removed)),
        ("bundle", whole(&[])),
    ]
}

fn records() -> Vec<u8> {
    let first = record(1, 0, b"format", 3, b"one");
    let log = record(1, 0, b"log/000000/00000001", 40, &[7; 40]);
    [first, log, record(1, 0, b"format", 3, b"two")].concat()
}

/// A bundle that ends with its last record.
fn whole(records: &[u8]) -> Vec<u8> {
    let bytes = BUNDLE_RECORDS + records.len() as u64;
    [
        encode_bundle_start(BundleEnd { number: 3, bytes }),
        records.to_vec(),
    ]
    .concat()
}

/// A record with the right checksum.
fn record(kind: u8, flag: u8, key: &[u8], body_bytes: u64, body: &[u8]) -> Vec<u8> {
    let key_bytes = u16::try_from(key.len()).unwrap().to_le_bytes();
    let mut head = [&[kind, flag][..], &key_bytes, &[0; 4]].concat();
    head.extend(body_bytes.to_le_bytes());
    head.extend(1_700_000_000_000_u64.to_le_bytes());
    let sum = blake3::hash(&[&head[..], key].concat());
    head.extend(&sum.as_bytes()[..8]);
    [&head[..], key, body].concat()
}

/// The valid bundle with other ends.
fn with_end(number: u64, bytes: u64) -> Vec<u8> {
    [encode_bundle_start(BundleEnd { number, bytes }), records()].concat()
}

/// The valid bundle with other bytes at an offset.
fn with(at: u64, bytes: &[u8]) -> Vec<u8> {
    let mut whole = whole(&records());
    let at = usize::try_from(at).unwrap();
    whole[at..at + bytes.len()].copy_from_slice(bytes);
    whole
}

/// Every malformed bundle.
pub(crate) fn defects() -> Vec<Defect> {
    let len = whole(&records()).len();
    let mut endless = whole(&records());
    for at in BUNDLE_ENDS.into_iter().flatten() {
        endless[usize::try_from(at).unwrap()] ^= 1;
    }
    let behind = |record: Vec<u8>| whole(&[records(), record].concat());
    let defects = vec![
        ("empty", Vec::new()),
        ("magic", with(0, b"STOREBDM")),
        ("later-version", with(8, &[2])),
        ("start-cut-short", whole(&[])[..2000].to_vec()),
        ("cut-short", whole(&records())[..len - 1].to_vec()),
        ("no-whole-end", endless),
        ("something-in-the-padding", with(11, &[1])),
        ("end-before-the-records", with_end(3, BUNDLE_RECORDS - 1)),
        ("end-of-the-last-number", with_end(u64::MAX, len as u64)),
        ("end-in-a-head", with_end(3, BUNDLE_RECORDS + 20)),
        ("end-in-a-key", with_end(3, BUNDLE_RECORDS + 34)),
        ("end-in-an-object", with_end(3, BUNDLE_RECORDS + 40)),
        ("head-flipped", with(BUNDLE_RECORDS + 9, &[1])),
        ("key-flipped", with(BUNDLE_RECORDS + 32, b"g")),
        ("unknown-kind", behind(record(3, 0, b"format", 0, b""))),
        ("reserved-byte", behind(record(1, 1, b"format", 0, b""))),
        ("key-of-no-text", behind(record(1, 0, b"\xff\xfe", 0, b""))),
        (
            "object-behind-the-end",
            behind(record(1, 0, b"format", 4, b"abc")),
        ),
        (
            "object-of-all-bytes",
            behind(record(1, 0, b"format", u64::MAX, b"")),
        ),
    ];
    let named = defects.into_iter();
    named.map(|(name, bytes)| ("bundle", name, bytes)).collect()
}

/// Opens these bytes as a bundle, and reads everything in it.
pub(crate) fn decode(bytes: &[u8]) -> Result<(), Error> {
    // In memory if possible, since there are thousands.
    let memory = Path::new("/dev/shm");
    let file = match memory.is_dir() {
        true => NamedTempFile::new_in(memory),
        false => NamedTempFile::new(),
    };
    let file = file.unwrap();
    fs::write(file.path(), bytes).unwrap();
    let url = format!("bundle:{}", file.path().display());
    let objects = open(&url, &Options::default())?;
    for info in objects.list("")? {
        objects.get(&info.key)?;
    }
    Ok(())
}

/// The message without the path of the bundle. What is none has no URL of one.
pub(crate) fn without_place(said: &str) -> String {
    let Some((kind, message)) = said.split_once(": ") else {
        return said.to_owned();
    };
    for (begins, named) in [("bundle:/", "bundle:FILE"), ("/", "FILE")] {
        if let Some((_, behind)) = message
            .strip_prefix(begins)
            .and_then(|rest| rest.split_once(": "))
        {
            return format!("{kind}: {named}: {behind}");
        }
    }
    said.to_owned()
}
