//! What an upstream says is in a commit: what is accepted is inside of a tree, and has one meaning.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::hub_listing(data);
});
