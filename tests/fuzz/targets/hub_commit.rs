//! Commits of clients of a Hub: the same in whatever pieces they come.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| cli::fuzzing::hub_commit(data));
