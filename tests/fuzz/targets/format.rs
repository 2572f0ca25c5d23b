//! The object `format`: an accepted object is the same after it is written again, or is never written.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::format(data);
});
