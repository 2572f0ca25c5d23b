//! Segments: lookups in garbage find nothing or a position within; what verifies finds all its chunks.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::segment(data);
});
