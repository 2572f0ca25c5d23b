//! List nodes: accepted input has no other encoding.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::list(data);
});
