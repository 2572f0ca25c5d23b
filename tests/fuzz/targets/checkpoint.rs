//! Checkpoints: what is accepted is written back the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::checkpoint(data);
});
