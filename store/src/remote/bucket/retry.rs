//! Retries after an answer broke off: object_store retries the bytes of objects and answers that never began, but not
//! the middle of a listing or of an error's text.

use std::future::Future;
use std::time::{Duration, Instant};

use object_store::Result;
use object_store::client::{HttpError, HttpErrorKind};

use super::connect::by_status;
use super::errors::in_chain;

/// How often, the first time included.
const TRIES: u32 = 5;
/// A failure that took longer was tried again by object_store until its deadline.
const QUICK: Duration = Duration::from_secs(30);

/// What `ask` brings. It may be done more than once, and must bear that; not after `deadline`.
pub(in crate::remote) async fn retry<T, F: Future<Output = Result<T>>>(
    deadline: Duration,
    ask: impl Fn() -> F,
) -> Result<T> {
    let begun = Instant::now();
    let mut tries = TRIES;
    loop {
        let answer = ask().await.map_err(by_status);
        tries -= 1;
        let passes = |error: &object_store::Error| {
            let kind = in_chain::<HttpError>(error).map(HttpError::kind);
            let broke_off = [HttpErrorKind::Interrupted, HttpErrorKind::Timeout];
            kind.is_some_and(|kind| broke_off.contains(&kind))
        };
        match answer {
            Err(error) if tries > 0 && passes(&error) && begun.elapsed() < QUICK.min(deadline) => {}
            answer => return answer,
        }
    }
}
