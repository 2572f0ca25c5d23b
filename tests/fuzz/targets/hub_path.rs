//! Paths of requests at the Hub door: what is accepted is a repo that a Hub would name so.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::hub_path(data);
});
