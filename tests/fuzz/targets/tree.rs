//! Trees: what is accepted has no other spelling.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::tree(data);
});
