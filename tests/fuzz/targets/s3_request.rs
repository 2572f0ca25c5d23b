//! Requests for S3: no signature is right that was not made with the secret.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| cli::fuzzing::s3_request(data));
