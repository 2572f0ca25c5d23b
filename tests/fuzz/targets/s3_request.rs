//! S3 requests: a signature is never accepted unless it was made with the secret.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::s3_request(data);
});
