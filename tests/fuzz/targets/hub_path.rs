//! Paths of requests at the Hub door: an accepted repo id is one that a Hub would accept.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::hub_path(data);
});
