//! Checkpoints: an accepted checkpoint is the same after it is written again.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::checkpoint(data);
});
