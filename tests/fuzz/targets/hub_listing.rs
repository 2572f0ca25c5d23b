//! Listings of an upstream: accepted ones stay inside of a tree, and have one meaning.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::hub_listing(data);
});
