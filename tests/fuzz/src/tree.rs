//! Trees: accepted input has no other encoding.

use store::format::{TreeEncoder, decode_tree};

/// Returns whether anything was accepted.
pub fn run(data: &[u8]) -> bool {
    let Ok(entries) = decode_tree("x", data) else {
        return false;
    };
    let mut again = Vec::new();
    let mut encoder = TreeEncoder::new(&mut again);
    for entry in &entries {
        encoder.push(entry, &mut again).unwrap();
    }
    assert_eq!(again, data);
    true
}
