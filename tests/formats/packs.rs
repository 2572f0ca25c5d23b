//! Malformed packs: headers, trailers, and tables that contradict themselves.
//!
//! Checksums are corrected after each change, since a wrong one would hide every other defect.

use crate::binary::Named;

/// A pack, assembled from arbitrary parts.
pub(crate) struct Pack {
    header: Vec<u8>,
    stored: u32,
    frames: Vec<[u32; 3]>,
    chunks: Vec<u32>,
    /// Frames that have a base, once for each base.
    bases: Vec<u32>,
    table_offset: Option<u32>,
    counts: Option<[u32; 2]>,
}

impl Default for Pack {
    fn default() -> Self {
        Self {
            header: pack_header(7, [0; 16]),
            stored: 6,
            frames: vec![[4, 3, 1], [2, 1, 1]],
            chunks: vec![3, 1],
            bases: Vec::new(),
            table_offset: None,
            counts: None,
        }
    }
}

impl Pack {
    fn one(frame: [u32; 3], chunks: &[u32]) -> Self {
        Self {
            stored: frame[0].min(1000),
            frames: vec![frame],
            chunks: chunks.to_vec(),
            ..Self::default()
        }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let count = |len: usize| u32::try_from(len).unwrap();
        let counts = self
            .counts
            .unwrap_or([count(self.frames.len()), count(self.chunks.len())]);
        let table_offset = self.table_offset.unwrap_or(80 + self.stored);
        let mut table = Vec::new();
        for frame in &self.frames {
            for number in frame {
                table.extend_from_slice(&number.to_le_bytes());
            }
            table.extend_from_slice(&[4; 8]);
        }
        for (seed, len) in (1..).zip(&self.chunks) {
            table.extend_from_slice(&[seed; 32]);
            table.extend_from_slice(&len.to_le_bytes());
        }
        for frame in &self.bases {
            table.extend_from_slice(&frame.to_le_bytes());
            table.extend_from_slice(&[8; 32]);
        }
        table.extend_from_slice(b"STOREPKE\x02\0\0\0");
        let bases = count(self.bases.len());
        for number in [table_offset, counts[0], counts[1], bases, 0] {
            table.extend_from_slice(&number.to_le_bytes());
        }
        let checksum = blake3::hash(&[self.header.clone(), table.clone()].concat());
        let frames = vec![0; usize::try_from(self.stored).unwrap()];
        [&self.header, &frames, &table, &checksum.as_bytes()[..]].concat()
    }
}

/// A pack whose frames have a base for each of these positions.
pub(crate) fn with_bases(frames: &[u32]) -> Pack {
    Pack {
        bases: frames.to_vec(),
        ..Pack::default()
    }
}

/// The bit in a frame's raw length that marks metadata.
pub(crate) const META: u32 = 1 << 31;

/// A pack of both kinds, whose two frames have these raw lengths and kinds.
pub(crate) fn mixed(words: [u32; 2]) -> Pack {
    Pack {
        header: pack_header_of(2, 7, [0; 16]),
        frames: vec![[4, words[0], 1], [2, words[1], 1]],
        ..Pack::default()
    }
}

/// The header of the pack `id`, with its checksum.
fn pack_header(id: u8, key: [u8; 16]) -> Vec<u8> {
    pack_header_of(0, id, key)
}

fn pack_header_of(kind: u8, id: u8, key: [u8; 16]) -> Vec<u8> {
    let began = [5, 0, 0, 0, 0, 0, 0, 0];
    let parts = [
        b"STOREPAK".as_slice(),
        &[2, 0, kind],
        &[0; 5],
        &[id; 16],
        &[6; 16],
        &began,
        &key,
    ];
    let fields = parts.concat();
    let sum = blake3::hash(&fields);
    [&fields, &sum.as_bytes()[..8]].concat()
}

pub(crate) fn defects() -> Named {
    let good = Pack::default().bytes();
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    let trailer = good.len() - 64;
    let other = Pack {
        header: pack_header(8, [0; 16]),
        ..Pack::default()
    };
    let swapped = [&other.bytes()[..80], &good[80..]].concat();
    let of_a_key = Pack {
        header: pack_header(7, [9; 16]),
        ..Pack::default()
    };
    vec![
        ("empty", Vec::new()),
        ("header-cut-short", good[..79].to_vec()),
        ("header-only", good[..80].to_vec()),
        ("header-magic", with(0, b'X')),
        ("header-later-version", with(8, 3)),
        ("header-interim-version", with(8, 1)),
        ("header-unknown-kind", with(10, 3)),
        ("header-padding", with(15, 1)),
        ("header-of-another-pack", swapped),
        ("header-of-another-store", with(33, 1)),
        ("header-of-another-entry", with(48, 1)),
        ("header-sum-flipped", with(79, 0)),
        ("encrypted", of_a_key.bytes()),
        ("sum-of-a-frame-flipped", with(86 + 12, 1)),
        ("first-byte-missing", good[1..].to_vec()),
        ("last-byte-missing", good[..good.len() - 1].to_vec()),
        ("byte-behind", [&good[..], b"!"].concat()),
        ("middle-missing", [&good[..90], &good[110..]].concat()),
        ("trailer-magic", with(trailer, b'X')),
        ("trailer-later-version", with(trailer + 8, 3)),
        ("trailer-padding", with(trailer + 31, 1)),
        ("checksum-flipped", with(good.len() - 1, 0)),
        ("table-flipped", with(trailer - 1, 1)),
    ]
}

/// Tables that contradict themselves or the pack that they end.
#[expect(clippy::too_many_lines, reason = "one entry for each defect")]
pub(crate) fn table_defects() -> Named {
    let of = |pack: Pack| pack.bytes();
    let default = Pack::default;
    let placed = |table_offset| {
        of(Pack {
            table_offset: Some(table_offset),
            ..default()
        })
    };
    let counted = |counts| {
        of(Pack {
            counts: Some(counts),
            ..default()
        })
    };
    vec![
        (
            "frame-of-metadata-in-a-pack-of-data",
            of(Pack::one([4, META | 3, 1], &[3])),
        ),
        (
            "frame-of-data-in-a-pack-of-metadata",
            of(Pack {
                header: pack_header_of(1, 7, [0; 16]),
                ..Pack::one([4, 3, 1], &[3])
            }),
        ),
        ("frame-of-metadata-of-no-bytes", mixed([3, META]).bytes()),
        ("frame-of-metadata-too-large", mixed([3, u32::MAX]).bytes()),
        ("table-begins-in-header", placed(79)),
        ("table-begins-behind-end", placed(u32::MAX)),
        ("more-frames-than-bytes", counted([u32::MAX, 2])),
        ("more-chunks-than-bytes", counted([2, u32::MAX])),
        (
            "no-frames",
            of(Pack {
                stored: 0,
                frames: vec![],
                chunks: vec![],
                ..default()
            }),
        ),
        (
            "frames-leave-a-gap",
            of(Pack {
                stored: 7,
                ..default()
            }),
        ),
        (
            "frames-run-into-the-table",
            of(Pack {
                stored: 5,
                ..default()
            }),
        ),
        ("frame-without-chunks", of(Pack::one([4, 3, 0], &[]))),
        (
            "frame-with-chunks-of-nobody",
            of(Pack::one([4, 3, 2], &[3])),
        ),
        (
            "frame-with-most-chunks",
            of(Pack::one([4, 3, u32::MAX], &[3])),
        ),
        (
            "frame-longer-than-its-chunks",
            of(Pack::one([4, 4, 1], &[3])),
        ),
        (
            "frame-shorter-than-its-chunks",
            of(Pack::one([4, 3, 2], &[3, u32::MAX])),
        ),
        ("frame-of-no-bytes", of(Pack::one([2, 0, 1], &[0]))),
        ("frame-expands", of(Pack::one([5, 3, 1], &[3]))),
        ("frame-of-codec-only", of(Pack::one([1, 3, 1], &[3]))),
        (
            "frame-too-large",
            of(Pack::one([1000, (8 << 20) + 1, 3], &[4 << 20, 4 << 20, 1])),
        ),
        ("chunk-empty", of(Pack::one([4, 3, 2], &[0, 3]))),
        (
            "chunk-too-large",
            of(Pack::one([1000, (4 << 20) + 1, 1], &[(4 << 20) + 1])),
        ),
        ("chunks-left-over", of(Pack::one([4, 3, 1], &[3, 3]))),
        ("base-of-no-frame", of(with_bases(&[0, 2]))),
        ("bases-unsorted", of(with_bases(&[1, 0]))),
        ("bases-too-many-of-a-frame", of(with_bases(&[1; 1025]))),
        (
            "base-of-metadata",
            of(Pack {
                bases: vec![1],
                ..mixed([3, META | 1])
            }),
        ),
    ]
}
