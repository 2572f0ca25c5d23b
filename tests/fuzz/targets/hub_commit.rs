//! Commits of Hub clients: they mean the same however the body is split.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::hub_commit(data);
});
