//! Log entries: what is accepted is written back the same, and folds in whole or not at all.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::log(data);
});
