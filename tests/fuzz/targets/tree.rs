//! Trees: what is accepted has no other spelling.
#![no_main]

use libfuzzer_sys::fuzz_target;
use store::format::{TreeEncoder, decode_tree};

fuzz_target!(|data: &[u8]| {
    if let Ok(entries) = decode_tree("x", data) {
        let mut again = Vec::new();
        let mut encoder = TreeEncoder::new(&mut again);
        for entry in &entries {
            encoder.push(entry, &mut again).unwrap();
        }
        assert_eq!(again, data);
    }
});
