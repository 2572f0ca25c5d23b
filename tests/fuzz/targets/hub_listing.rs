//! What an upstream says is in a commit: what is accepted is inside of a tree, and has one meaning.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| cli::fuzzing::hub_listing(data));
