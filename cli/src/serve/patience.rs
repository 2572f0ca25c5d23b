//! Time limits for answers that wait for the store. They are shorter than the clients' own limits.
//!
//! The engine retries an unreachable bucket for minutes. A Hub client takes a Hub for offline after ten seconds without
//! a byte, and uses its cache; a client that is told to retry does so.

use std::future::Future;
use std::time::Duration;

use store::Error;

/// Maximum time to read the newest state of the store.
pub(crate) const LOOK_TIME: Duration = Duration::from_secs(8);
/// Maximum time to answer a question, and for the first bytes of a file.
pub(crate) const ANSWER_TIME: Duration = Duration::from_secs(9);

/// The result of `work`, if it is ready within `time`. Blocking work continues, so a retry may find it done.
///
/// # Errors
/// Those of `work`; unavailable, if it takes longer.
pub(crate) async fn within<T, E: From<Error>>(
    time: Duration,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    match tokio::time::timeout(time, work).await {
        Ok(done) => done,
        Err(_) => Err(Error::unavailable("the store gives no answer in time").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_too_long_is_to_be_asked_again() {
        let runtime = crate::serve::runtime().unwrap();
        let wait = |time, work: Duration| {
            let work = async move {
                tokio::time::sleep(work).await;
                Ok::<_, Error>(())
            };
            runtime.block_on(async { within(time, work).await })
        };
        let long = Duration::from_secs(60 * 60);
        assert!(wait(long, Duration::ZERO).is_ok());
        let error = wait(Duration::from_millis(20), long).unwrap_err();
        assert_eq!(error.kind(), store::ErrorKind::Unavailable);
    }
}
