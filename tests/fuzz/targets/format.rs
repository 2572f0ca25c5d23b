//! The object `format`: what is accepted is written back the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use store::format::Format;

fuzz_target!(|data: &[u8]| {
    for bytes in [data, &fuzz::sealed(data)] {
        if let Ok(format) = Format::decode(bytes) {
            let again = format.encode().unwrap();
            assert_eq!(Format::decode(&again).unwrap(), format);
        }
    }
});
