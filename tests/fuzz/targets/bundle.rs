//! Bundles: an opened bundle lists objects inside of the file, and returns each in its length or an error.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::bundle(data);
});
