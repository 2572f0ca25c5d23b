//! Ranges of files: never outside of them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::range(data);
});
