//! Stored frames: decoding never produces more bytes than announced, with any codec.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::frame(data);
});
