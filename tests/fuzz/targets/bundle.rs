//! Bundles: what is opened lists objects within the file, and gives each in its length or an error.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::bundle(data);
});
