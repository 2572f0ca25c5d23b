//! Ranges of files: never outside of them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| cli::fuzzing::range(data));
