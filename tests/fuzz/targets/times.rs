//! Times: accepted input has no other encoding, and means the same when it arrives in pieces.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::times(data);
});
