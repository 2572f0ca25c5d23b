//! How long an answer may wait for the store: less than clients wait for an answer.
//!
//! A bucket that is away is asked again for minutes by the engine. Clients of a Hub take ten seconds without a byte for a
//! Hub that is away, and go on with what they have; whoever is told to come again does.

use std::future::Future;
use std::time::Duration;

use store::Error;

/// How long one look at the store may take.
pub(crate) const LOOK_TIME: Duration = Duration::from_secs(8);
/// How long an answer to a question may take in all, and the first bytes of a file.
pub(crate) const ANSWER_TIME: Duration = Duration::from_secs(9);

/// What `work` says, if it says it within `time`. What blocks goes on, so that who comes again may find it done.
///
/// # Errors
/// What `work` says; unavailable, when it takes longer.
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
        assert_eq!(error.kind(), store::Kind::Unavailable);
    }
}
