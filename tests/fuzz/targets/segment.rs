//! Segments: lookups in garbage find nothing or a position in range; a segment that verifies finds all its chunks.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::segment(data);
});
