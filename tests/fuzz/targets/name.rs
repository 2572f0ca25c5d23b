//! Names as people write them, and keys: an accepted name is printed the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::name(data);
});
