//! The body of an answer, which fails when nothing of it comes for too long.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use object_store::client::{HttpError, HttpErrorKind, HttpResponseBody};
use tokio::time::{Sleep, sleep};

use super::Alive;

/// A body, and how long one has waited for its next bytes.
pub(super) struct Body {
    inner: HttpResponseBody,
    stall_max: Duration,
    path: String,
    alive: Alive,
    /// Runs only while bytes are asked for and do not come.
    wait: Option<Pin<Box<Sleep>>>,
}

/// Nothing came for so long.
#[derive(Debug)]
struct Stalled {
    path: String,
    secs: u64,
}

impl Body {
    /// `inner`, which answers a request for `path`.
    pub(super) fn new(
        inner: HttpResponseBody,
        stall_max: Duration,
        alive: Alive,
        path: &str,
    ) -> Self {
        Self {
            inner,
            stall_max,
            path: path.to_owned(),
            alive,
            wait: None,
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(context) {
            self.wait = None;
            self.alive.sign();
            return Poll::Ready(frame);
        }
        let stall_max = self.stall_max;
        let wait = self.wait.get_or_insert_with(|| Box::pin(sleep(stall_max)));
        ready!(wait.as_mut().poll(context));
        let stalled = Stalled {
            path: self.path.clone(),
            secs: stall_max.as_secs(),
        };
        Poll::Ready(Some(Err(HttpError::new(HttpErrorKind::Timeout, stalled))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl fmt::Display for Stalled {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: nothing came for {} s", self.path, self.secs)
    }
}

impl std::error::Error for Stalled {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::wait::Wait;

    /// One frame, and then nothing any more.
    struct Stalls(Option<Bytes>);

    impl http_body::Body for Stalls {
        type Data = Bytes;
        type Error = HttpError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
            match self.0.take() {
                Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
                None => Poll::Pending,
            }
        }
    }

    /// Frames that come one at a time.
    struct Trickles(u32, Option<Pin<Box<Sleep>>>);

    impl http_body::Body for Trickles {
        type Data = Bytes;
        type Error = HttpError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
            if self.0 == 0 {
                return Poll::Ready(None);
            }
            let pause = || Box::pin(sleep(Duration::from_millis(300)));
            ready!(self.1.get_or_insert_with(pause).as_mut().poll(context));
            (self.0, self.1) = (self.0 - 1, None);
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"x")))))
        }
    }

    #[test]
    fn a_slow_body_is_no_stall() {
        let trickles = HttpResponseBody::new(Trickles(9, None));
        // Shorter than all of it takes, longer than any of its frames.
        let mut body = Body::new(trickles, Duration::from_secs(2), Alive::default(), "/x");
        for _ in 0..9 {
            let frame = std::future::poll_fn(|context| {
                http_body::Body::poll_frame(Pin::new(&mut body), context)
            });
            let frame = Wait::shared().unwrap().on(frame).unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), "x");
        }
    }

    #[test]
    fn what_came_is_passed_on_and_a_stall_is_an_error_that_names_the_object() {
        let stalls = HttpResponseBody::new(Stalls(Some(Bytes::from_static(b"abc"))));
        let mut body = Body::new(
            stalls,
            Duration::from_millis(20),
            Alive::default(),
            "/bucket/packs/ab/x",
        );
        let mut next = || {
            let frame = std::future::poll_fn(|context| {
                http_body::Body::poll_frame(Pin::new(&mut body), context)
            });
            Wait::shared().unwrap().on(frame).unwrap()
        };
        assert_eq!(next().unwrap().into_data().unwrap(), "abc");
        let error = next().unwrap_err();
        assert_eq!(error.kind(), HttpErrorKind::Timeout);
        let cause = std::error::Error::source(&error).unwrap();
        assert_eq!(
            cause.to_string(),
            "/bucket/packs/ab/x: nothing came for 0 s"
        );
    }
}
