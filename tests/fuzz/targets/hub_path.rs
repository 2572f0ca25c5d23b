//! Paths of requests at the Hub door: what is accepted is a repo that a Hub would name so.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| cli::fuzzing::hub_path(data));
