//! The parsers of the doors, for fuzzing only. Each takes any input, panics if an invariant is broken, and returns
//! whether it accepted anything.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    missing_docs,
    reason = "a broken word ends the run"
)]

use crate::serve::range::Wanted;
use crate::serve::s3::keys::Keys;
use crate::serve::{s3, text};
use hyper::http::request::Parts;
use hyper::{Method, Request};
use jiff::Timestamp;

/// The date in the examples that AWS publishes.
const NOW: &str = "2013-05-24T00:00:00Z";
const KEYS: &str =
    "[[key]]\nid = \"trainer\"\nsecret = \"at least sixteen characters\"\nnamespaces = [\"*\"]\n";

pub use crate::serve::hub::fuzzing::{
    body as hub_body, commit as hub_commit, listing as hub_listing, path as hub_path,
};
pub use crate::serve::page::fuzzing::path as page_path;

/// Ranges are always inside of the file.
pub fn range(data: &[u8]) -> bool {
    let (size, rest) = data.split_first_chunk::<2>().unwrap_or((&[7, 0], data));
    let size = u64::from(u16::from_le_bytes(*size));
    let Ok(asked) = std::str::from_utf8(rest) else {
        return false;
    };
    let Wanted::Part(range) = Wanted::parse(asked, size) else {
        return false;
    };
    assert!(range.start < range.end && range.end <= size, "{range:?}");
    true
}

/// S3 requests: a line with the path, then headers. A signature is never accepted unless it was made with the secret.
pub fn s3_request(data: &[u8]) -> bool {
    let Ok(asked) = std::str::from_utf8(data) else {
        return false;
    };
    let keys = Keys::parse(KEYS).unwrap();
    let now: Timestamp = NOW.parse().unwrap();
    let (uri, headers) = asked.split_once('\n').unwrap_or((asked, ""));
    let signed = "AWS4-HMAC-SHA256 Credential=trainer/20130524/x/s3/aws4_request,SignedHeaders=host;x-amz-content-sha256;x-amz-date,Signature=";
    let known = format!(
        "host:h\nx-amz-date:20130524T000000Z\nx-amz-content-sha256:UNSIGNED-PAYLOAD\nauthorization:{signed}{}",
        "0".repeat(64)
    );
    let mut accepted = false;
    for headers in [headers.to_owned(), format!("{headers}\n{known}")] {
        if let Some(head) = head(uri, &headers) {
            assert!(s3::sign::check(&head, &keys, now).is_err());
            accepted |= s3_target(&head);
        }
    }
    accepted
}

/// Whether the path of the request is a valid target.
fn s3_target(head: &Parts) -> bool {
    let query = text::pairs(head.uri.query().unwrap_or_default());
    let Ok(target) = s3::route::Target::parse(head.uri.path()) else {
        return false;
    };
    for method in [Method::GET, Method::HEAD, Method::PUT, Method::OPTIONS] {
        // The call may be refused, but must not panic.
        let _called = target.call(&method, &query);
    }
    if let s3::route::Target::Bucket(name) | s3::route::Target::Object(name, _) = &target
        && let Some(namespace) = s3::route::namespace(name)
    {
        assert_eq!(s3::route::bucket(&namespace), *name);
    }
    let _asked = s3::list::Asked::parse(&query);
    true
}

fn head(uri: &str, headers: &str) -> Option<Parts> {
    let mut request = Request::builder().uri(uri);
    for line in headers.lines() {
        if let Some((name, value)) = line.split_once(':') {
            request = request.header(name, value);
        }
    }
    Some(request.body(()).ok()?.into_parts().0)
}
