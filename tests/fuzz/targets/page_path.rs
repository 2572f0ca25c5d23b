//! Paths of pages: the link to an accepted page leads to the same page.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::page_path(data);
});
