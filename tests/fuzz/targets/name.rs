//! Names as people write them, and keys: what is accepted is printed the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::name(data);
});
