//! The object `format`: what is accepted is written back the same, or not at all.
#![no_main]

use libfuzzer_sys::fuzz_target;
use store::format::Format;

fuzz_target!(|data: &[u8]| {
    for bytes in [data, &fuzz::sealed(data)] {
        if let Ok(format) = Format::decode(bytes) {
            match format.encode() {
                Ok(again) => assert_eq!(Format::decode(&again).unwrap(), format),
                // What is not understood in full is read, and never written.
                Err(_) => assert!(format.check_writable().is_err()),
            }
        }
    }
});
