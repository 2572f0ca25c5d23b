//! Malformed lists of kept metadata: modes, owners and extended attributes.

use crate::malformed::Defect;

type Named = Vec<(&'static str, Vec<u8>)>;

/// Valid lists, from which each defect differs in one place.
pub(crate) fn good() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("modes", kept(b"mode", &[0xed, 3, 0xff, 0x1f])),
        ("owners", kept(b"ownr", &[0, 0, 0xe8, 7, 0x64])),
        // No attribute, two attributes, and one whose value is longer than the first byte of its length says.
        (
            "xattrs",
            kept(
                b"xatr",
                &[
                    b"\0\x02\x06user.a\0\x06user.b\x02v\0\x01\x01n\x80\x01",
                    &[7; 128][..],
                ]
                .concat(),
            ),
        ),
    ]
}

/// Every malformed list of these kinds.
pub(crate) fn defects() -> Vec<Defect> {
    let of = |kind, defects: Named| {
        defects
            .into_iter()
            .map(move |(name, bytes)| (kind, name, bytes))
    };
    of("modes", modes_defects())
        .chain(of("owners", owners_defects()))
        .chain(of("xattrs", xattrs_defects()))
        .collect()
}

/// A list with this magic.
fn kept(magic: &[u8; 4], bytes: &[u8]) -> Vec<u8> {
    [magic.as_slice(), b"\x01\0\0\0", bytes].concat()
}

fn modes_defects() -> Named {
    let modes = |bytes| kept(b"mode", bytes);
    vec![
        ("empty", Vec::new()),
        ("no-entries", modes(&[])),
        ("header-cut-short", b"mode\x01\0\0".to_vec()),
        ("magic", kept(b"ownr", &[0, 0])),
        ("later-version", b"mode\x02\0\0\0\0".to_vec()),
        ("padding", b"mode\x01\0\0\x01\0".to_vec()),
        ("of-13-bits", modes(&[0x80, 0x20])),
        (
            "of-65-bits",
            modes(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]),
        ),
        ("cut-short", modes(&[0, 0x80])),
        ("spelled-long", modes(&[0x80, 0])),
    ]
}

fn owners_defects() -> Named {
    let owners = |bytes| kept(b"ownr", bytes);
    vec![
        ("empty", Vec::new()),
        ("no-entries", owners(&[])),
        ("magic", kept(b"mode", &[0, 0])),
        ("later-version", b"ownr\x02\0\0\0\0\0".to_vec()),
        ("group-missing", owners(&[0])),
        ("user-of-nobody", owners(&[0xff, 0xff, 0xff, 0xff, 0xf, 0])),
        (
            "group-above-32-bits",
            owners(&[0, 0x80, 0x80, 0x80, 0x80, 0x10]),
        ),
        ("spelled-long", owners(&[0, 0x80, 0])),
    ]
}

fn xattrs_defects() -> Named {
    let xattrs = |bytes: &[u8]| kept(b"xatr", bytes);
    vec![
        ("empty", Vec::new()),
        ("no-entries", xattrs(b"")),
        ("magic", kept(b"mode", b"\0")),
        ("later-version", b"xatr\x02\0\0\0\0".to_vec()),
        ("padding", b"xatr\x01\0\0\x01\0".to_vec()),
        ("names-out-of-order", xattrs(b"\x02\x01b\0\x01a\0")),
        ("name-twice", xattrs(b"\x02\x01a\0\x01a\0")),
        ("name-empty", xattrs(b"\x01\0\0")),
        ("name-with-a-zero", xattrs(b"\x01\x02a\0\0")),
        (
            "name-of-256-bytes",
            xattrs(&[b"\x01\x80\x02", &[b'n'; 256][..], b"\0"].concat()),
        ),
        ("name-cut-short", xattrs(b"\x01\x02a")),
        ("value-missing", xattrs(b"\x01\x01a")),
        ("value-cut-short", xattrs(b"\x01\x01a\x05vw")),
        ("value-above-64-kib", xattrs(b"\x01\x01a\x81\x80\x04v")),
        ("more-than-an-entry-holds", xattrs(b"\x81\x80\x20")),
        ("count-above-64-bits", xattrs(&[0xff; 10])),
        ("spelled-long", xattrs(b"\x80\0")),
        ("second-entry-cut-short", xattrs(b"\0\x01")),
    ]
}
