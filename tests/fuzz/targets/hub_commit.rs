//! Commits of clients of a Hub: the same in whatever pieces they come.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::hub_commit(data);
});
