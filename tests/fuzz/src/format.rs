//! The object `format`: what is accepted is written back the same, or not at all.

use store::format::Format;

use super::seal;

/// Whether anything was accepted.
pub fn run(data: &[u8]) -> bool {
    let mut accepted = false;
    for bytes in [data, &seal::text(data)] {
        if let Ok(format) = Format::decode(bytes) {
            accepted = true;
            match format.encode() {
                Ok(again) => assert_eq!(Format::decode(&again).unwrap(), format),
                // What is not understood in full is read, and never written.
                Err(_) => assert!(format.check_writable().is_err()),
            }
        }
    }
    accepted
}
