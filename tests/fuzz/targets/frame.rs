//! Stored frames: never more bytes than were announced, whatever the codec makes of them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::frame(data);
});
