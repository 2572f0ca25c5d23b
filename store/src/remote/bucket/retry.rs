//! Retries after an answer broke off. object_store retries reads of objects and requests without an answer, but not
//! when a listing or an error text breaks off in the middle.

use std::future::Future;
use std::time::{Duration, Instant};

use object_store::Result;
use object_store::client::{HttpError, HttpErrorKind};

use super::connect::by_status;
use crate::remote::failure::in_chain;

/// The number of attempts, including the first.
const TRIES: u32 = 5;
/// A failure that took longer than this was already retried by object_store until its deadline.
const QUICK: Duration = Duration::from_secs(30);

/// Waits for what `ask` returns, and repeats it when the answer breaks off, but not after `deadline`. `ask` must be
/// safe to repeat.
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
