//! Modes, owners and extended attributes: accepted input has no other encoding.

use store::format::{Keep, decode_kept};

/// Returns whether anything was accepted.
pub fn run(data: &[u8]) -> bool {
    let mut accepted = false;
    for keep in Keep::ALL {
        if let Ok(entries) = decode_kept(keep, data) {
            accepted = true;
            let mut again = Vec::new();
            keep.begin(&mut again);
            entries.iter().for_each(|entry| entry.push(&mut again));
            assert_eq!(again, data);
        }
    }
    accepted
}
