//! Paths of the pages: each one's own link leads to it again.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::page_path(data);
});
