//! Stored frames: never more bytes than were announced, whatever the codec makes of them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use store::codec::{Decoder, Encoder, LEVEL};

fuzz_target!(|data: &[u8]| {
    let Some((len, frame)) = data.split_first_chunk() else {
        return;
    };
    let raw_len = u32::from_le_bytes(*len) & 0xff_ffff;
    let (mut decoder, mut out) = (Decoder::new().unwrap(), Vec::new());
    if let Ok(raw) = decoder.decode("x", frame, raw_len, &mut out) {
        assert_eq!(raw.len(), raw_len as usize);
    }
    let mut stored = Vec::new();
    Encoder::new(LEVEL)
        .unwrap()
        .encode(frame, &mut stored)
        .unwrap();
    assert!(stored.len() <= frame.len() + 1);
    let raw_len = u32::try_from(frame.len()).unwrap();
    let raw = decoder.decode("x", &stored, raw_len, &mut out).unwrap();
    assert_eq!(raw, frame);
});
