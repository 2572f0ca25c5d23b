//! Stored frames: decoding never produces more bytes than announced, with any codec.

use store::ChunkId;
use store::codec::{Bases, Decoder, DeltaBase, Elements, Encoder, LEVEL};

/// Returns these bytes for every chunk.
struct Held<'h>(&'h [u8]);

impl Bases for Held<'_> {
    fn append(&self, _ids: &[ChunkId], out: &mut Vec<u8>) -> store::Result<()> {
        out.extend_from_slice(self.0);
        Ok(())
    }
}

/// Returns whether anything was accepted.
pub fn run(data: &[u8]) -> bool {
    let Some((len, frame)) = data.split_first_chunk() else {
        return false;
    };
    let raw_len = u32::from_le_bytes(*len) & 0xff_ffff;
    let (mut decoder, mut out) = (Decoder::new().unwrap(), Vec::new());
    let held = Held(&data[data.len() / 2..]);
    let decoded = decoder.decode("x", frame, raw_len, &held, &mut out);
    let accepted = decoded.map(|raw| assert_eq!(raw.len(), raw_len as usize));
    let accepted = accepted.is_ok();
    delta(data, &mut decoder);
    let mut stored = Vec::new();
    Encoder::new(LEVEL)
        .unwrap()
        .encode(frame, &mut stored)
        .unwrap();
    assert!(stored.len() <= frame.len() + 1);
    let raw_len = u32::try_from(frame.len()).unwrap();
    let raw = decoder
        .decode_plain("x", &stored, raw_len, &mut out)
        .unwrap();
    assert_eq!(raw, frame);
    accepted
}

/// Encodes the first half of the input as a delta of the second half, and decodes it.
fn delta(data: &[u8], decoder: &mut Decoder) {
    let Some((layout, data)) = data.split_first() else {
        return;
    };
    let width = [2, 4][usize::from(layout & 1)];
    let phase = usize::from(layout >> 1) % width;
    let skip = usize::from(layout >> 4);
    let (raw, base) = data.split_at(data.len() / 2 - (data.len() / 2).min(skip));
    if raw.len() < phase || base.len() < raw.len() + skip {
        return;
    }
    let (elements, ids) = (Elements { width, phase }, vec![ChunkId([7; 32])]);
    let named = DeltaBase {
        ids,
        skip: skip as u32,
    };
    let (mut stored, mut out) = (Vec::new(), Vec::new());
    let mut encoder = Encoder::new(LEVEL).unwrap();
    encoder
        .encode_delta(raw, elements, &named, base, &mut stored)
        .unwrap();
    let len = u32::try_from(raw.len()).unwrap();
    if len > 0 {
        let found = decoder
            .decode("x", &stored, len, &Held(base), &mut out)
            .unwrap();
        assert_eq!(found, raw);
    }
}
