//! The body of an answer. It fails if no bytes arrive for too long, or if they arrive far too slowly.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use object_store::client::{HttpError, HttpErrorKind, HttpResponseBody};
use tokio::time::{Sleep, sleep};

use super::{Alive, sending_time};

/// A body, and how long its bytes have been awaited.
pub(super) struct Body {
    inner: HttpResponseBody,
    patience: Patience,
    path: String,
    alive: Alive,
    /// A timer and its start, while bytes are awaited.
    wait: Option<(Pin<Box<Sleep>>, Instant)>,
    /// The total wait so far, and the bytes received.
    waited: Duration,
    received: usize,
}

/// How long to wait for a body.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// For the next bytes.
    pub(super) stall_max: Duration,
    /// For all bytes, in addition to the time that they take over a slow line.
    pub(super) most: Duration,
}

/// The error when no bytes, or too few bytes, arrived in a time.
#[derive(Debug)]
struct Stalled {
    path: String,
    secs: u64,
    received: Option<usize>,
}

impl Body {
    /// Wraps `inner`, the body of the answer to a request for `path`.
    pub(super) fn new(
        inner: HttpResponseBody,
        patience: Patience,
        alive: Alive,
        path: &str,
    ) -> Self {
        Self {
            inner,
            patience,
            path: path.to_owned(),
            alive,
            wait: None,
            waited: Duration::ZERO,
            received: 0,
        }
    }

    fn stalled(&self, waited: Duration, received: Option<usize>) -> HttpError {
        let stalled = Stalled {
            path: self.path.clone(),
            secs: waited.as_secs(),
            received,
        };
        HttpError::new(HttpErrorKind::Timeout, stalled)
    }

    /// Passes on the frame that arrived after a wait. Fails if the body as a whole is too slow.
    fn came(&mut self, frame: Result<Frame<Bytes>, HttpError>) -> Result<Frame<Bytes>, HttpError> {
        if let Some((_, since)) = self.wait.take() {
            self.waited += since.elapsed();
        }
        let data = frame.as_ref().ok().and_then(Frame::data_ref);
        self.received = self.received.saturating_add(data.map_or(0, Bytes::len));
        let most = self.patience.most;
        match self.waited > most.saturating_add(sending_time(self.received)) {
            true => Err(self.stalled(self.waited, Some(self.received))),
            false => frame,
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
            self.alive.sign();
            return Poll::Ready(frame.map(|frame| self.came(frame)));
        }
        let stall_max = self.patience.stall_max;
        let begin = || (Box::pin(sleep(stall_max)), Instant::now());
        let (wait, _) = self.wait.get_or_insert_with(begin);
        ready!(wait.as_mut().poll(context));
        Poll::Ready(Some(Err(self.stalled(stall_max, None))))
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
        let (path, secs) = (&self.path, self.secs);
        match self.received {
            None => write!(out, "{path}: nothing came for {secs} s"),
            Some(received) => write!(out, "{path}: only {received} bytes came in {secs} s"),
        }
    }
}

impl std::error::Error for Stalled {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::wait::Wait;

    /// Delivers one frame, and then nothing.
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

    /// Delivers frames one at a time.
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
        // Shorter than the whole body takes, but longer than each frame.
        let patience = Patience {
            stall_max: Duration::from_secs(2),
            most: Duration::from_secs(60),
        };
        let mut body = Body::new(trickles, patience, Alive::default(), "/x");
        for _ in 0..9 {
            let frame = std::future::poll_fn(|context| {
                http_body::Body::poll_frame(Pin::new(&mut body), context)
            });
            let frame = Wait::shared().unwrap().on(frame).unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), "x");
        }
    }

    #[test]
    fn a_body_that_only_drips_is_given_up() {
        let drips = HttpResponseBody::new(Trickles(u32::MAX, None));
        let patience = Patience {
            stall_max: Duration::from_secs(30),
            most: Duration::from_secs(1),
        };
        let mut body = Body::new(drips, patience, Alive::default(), "/x");
        let mut next = || {
            let frame = std::future::poll_fn(|context| {
                http_body::Body::poll_frame(Pin::new(&mut body), context)
            });
            Wait::shared().unwrap().on(frame).unwrap()
        };
        let error = (0..100).find_map(|_| next().err()).unwrap();
        assert_eq!(error.kind(), HttpErrorKind::Timeout);
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.starts_with("/x: only "), "{cause}");
        assert!(cause.ends_with(" bytes came in 1 s"), "{cause}");
    }

    #[test]
    fn what_came_is_passed_on_and_a_stall_is_an_error_that_names_the_object() {
        let stalls = HttpResponseBody::new(Stalls(Some(Bytes::from_static(b"abc"))));
        let mut body = Body::new(
            stalls,
            Patience {
                stall_max: Duration::from_millis(20),
                most: Duration::from_secs(60),
            },
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
