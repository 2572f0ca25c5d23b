//! Log entries: an accepted entry is the same after it is written again, and is applied whole or not at all.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::log(data);
});
