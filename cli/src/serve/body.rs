//! Bodies of answers: those in memory, and files that are read while they are sent, one piece ahead.
//!
//! The first piece is read before the status is sent, so that a failure becomes an error status. A later failure ends
//! the connection, so that no client takes wrong or missing bytes for the file.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use store::{Error, Result};

use crate::serve::pass::Pass;
use crate::serve::source::{Sight, Source};
use crate::serve::spool::Following;
use crate::ui::failure::one_line;

/// The body of an answer.
pub(crate) enum Content {
    Whole(Bytes),
    /// Part of a file of the store.
    File(Box<FileBody>),
    /// Part of a file that is still arriving from an upstream.
    Arriving(Box<Following>),
    /// The answer to HEAD: the length of the body that GET would get.
    HeadOf(u64),
}

type Reading = Pin<Box<dyn Future<Output = Result<Bytes>> + Send>>;

/// Part of a file of the store.
pub(crate) struct FileBody {
    source: Arc<Source>,
    sight: Sight,
    content: store::Content,
    pass: Pass,
    /// The range that is not requested from the store yet.
    rest: Range<u64>,
    /// The number of bytes that are not handed over yet.
    left: u64,
    ready: Option<Bytes>,
    reading: Option<Reading>,
    /// Whether the last piece was read without waiting: then the next one is read when it is wanted, not before.
    is_at_hand: bool,
}

impl FileBody {
    /// The bytes of `content` in `range`, which must be inside of it.
    ///
    /// # Errors
    /// If the first piece cannot be read.
    pub(crate) async fn open(
        source: Arc<Source>,
        sight: Sight,
        content: store::Content,
        range: Range<u64>,
    ) -> Result<Self> {
        let mut body = Self {
            pass: source.pass(),
            source,
            sight,
            content,
            left: range.end.saturating_sub(range.start),
            rest: range,
            ready: None,
            reading: None,
            is_at_hand: false,
        };
        if let Some(reading) = body.ask() {
            let first = reading.await?;
            body.rest.start += first.len() as u64;
            body.ready = Some(first);
        }
        Ok(body)
    }

    /// The number of bytes that are not handed over yet.
    pub(crate) fn len(&self) -> u64 {
        self.left
    }

    fn ask(&self) -> Option<Reading> {
        if self.rest.is_empty() {
            return None;
        }
        let (source, sight) = (Arc::clone(&self.source), Arc::clone(&self.sight));
        let (content, rest, pass) = (self.content, self.rest.clone(), self.pass.clone());
        Some(Box::pin(async move {
            let piece = source.piece(sight, content, pass, rest.start, rest.end);
            piece.await
        }))
    }

    /// The next piece, if it can be read without waiting.
    fn at_hand(&mut self) -> Option<Bytes> {
        let (content, rest) = (&self.content, &self.rest);
        let bytes = match rest.is_empty() {
            true => None,
            false => self
                .source
                .at_hand(content, &self.pass, rest.start, rest.end),
        };
        self.is_at_hand = bytes.is_some();
        self.rest.start += bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
        bytes
    }

    fn next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        if let Some(ready) = self.ready.take() {
            // Reads the next piece while this one is sent, if there is memory for both.
            if !self.is_at_hand && self.source.has_room() {
                self.read_ahead(context);
            }
            self.left = self.left.saturating_sub(ready.len() as u64);
            return Poll::Ready(Some(Ok(ready)));
        }
        if self.reading.is_none() {
            if let Some(bytes) = self.at_hand() {
                self.left = self.left.saturating_sub(bytes.len() as u64);
                return Poll::Ready(Some(Ok(bytes)));
            }
            self.reading = self.ask();
        }
        match self.poll(context) {
            None => Poll::Ready(None),
            Some(Poll::Pending) => Poll::Pending,
            Some(Poll::Ready(Err(error))) => Poll::Ready(Some(Err(error))),
            Some(Poll::Ready(Ok(bytes))) => {
                self.ready = Some(bytes);
                self.next(context)
            }
        }
    }

    fn read_ahead(&mut self, context: &mut Context<'_>) {
        self.ready = self.at_hand();
        if self.ready.is_some() {
            return;
        }
        self.reading = self.ask();
        match self.poll(context) {
            Some(Poll::Ready(Ok(next))) => self.ready = Some(next),
            Some(Poll::Ready(Err(error))) => {
                self.reading = Some(Box::pin(async { Err(error) }));
            }
            _ => {}
        }
    }

    /// Polls the pending read, if there is one.
    fn poll(&mut self, context: &mut Context<'_>) -> Option<Poll<Result<Bytes>>> {
        let polled = self.reading.as_mut()?.as_mut().poll(context);
        if let Poll::Ready(done) = &polled {
            self.reading = None;
            if let Ok(bytes) = done {
                self.rest.start += bytes.len() as u64;
            }
        }
        Some(polled)
    }
}

/// Called at the end of a body: the bytes sent, whether that was all, and the failure.
pub(super) type End = Box<dyn FnOnce(u64, bool, Option<String>) + Send>;

/// A body that is being sent. Reports when it ends or is dropped.
pub(super) struct Body {
    content: Content,
    sent: u64,
    is_broken: bool,
    /// A failure before any byte, while the head of the answer goes out.
    failed: Option<Error>,
    error: Option<String>,
    end: Option<End>,
}

impl Body {
    pub(super) fn new(content: Content, error: Option<String>, end: End) -> Self {
        Self {
            content,
            sent: 0,
            is_broken: false,
            failed: None,
            error,
            end: Some(end),
        }
    }

    fn left(&self) -> u64 {
        match &self.content {
            Content::Whole(bytes) => bytes.len() as u64,
            Content::File(file) => file.len(),
            Content::Arriving(file) => file.len(),
            Content::HeadOf(_) => 0,
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>>>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let next = match &mut self.content {
            Content::Whole(bytes) if bytes.is_empty() => return Poll::Ready(None),
            Content::Whole(bytes) => Poll::Ready(Some(Ok(std::mem::take(bytes)))),
            Content::File(file) => file.next(context),
            Content::Arriving(file) => file.next(context),
            Content::HeadOf(_) => return Poll::Ready(None),
        };
        match next {
            Poll::Ready(Some(Ok(bytes))) => {
                self.sent += bytes.len() as u64;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Poll::Ready(Some(Err(error))) => {
                self.is_broken = true;
                self.error = Some(one_line(&error));
                if self.sent > 0 {
                    return Poll::Ready(Some(Err(error)));
                }
                // A failure ends the connection, and the head with it that is not sent yet.
                self.failed = Some(error);
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left())
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        let is_whole = self.left() == 0 && !self.is_broken;
        if !is_whole {
            let left = || "the connection ended before the answer".to_owned();
            self.error.get_or_insert_with(left);
        }
        if let Some(end) = self.end.take() {
            end(self.sent, is_whole, self.error.take());
        }
    }
}
