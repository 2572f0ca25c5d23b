//! Packs, read without a segment: header, trailer, table.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::pack(data);
});
