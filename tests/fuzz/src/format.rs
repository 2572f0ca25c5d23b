//! The object `format`: an accepted object is the same after it is written again, or is never written.

use store::format::Format;

use super::seal;

/// Returns whether anything was accepted.
pub fn run(data: &[u8]) -> bool {
    let mut accepted = false;
    for bytes in [data, &seal::text(data)] {
        if let Ok(format) = Format::decode(bytes) {
            accepted = true;
            match format.encode() {
                Ok(again) => assert_eq!(Format::decode(&again).unwrap(), format),
                // An object that is not fully understood is only read.
                Err(_) => assert!(format.check_writable().is_err()),
            }
        }
    }
    accepted
}
