//! The object `format`: what is accepted is written back the same, or not at all.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::format(data);
});
