//! Requests for S3: no signature is right that was not made with the secret.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::s3_request(data);
});
