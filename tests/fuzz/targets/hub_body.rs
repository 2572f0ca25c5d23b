//! Bodies of requests at the Hub door, and cursors of its pages.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::hub_body(data);
});
