//! Sockets that cut off clients which read almost nothing of their answers.
//!
//! Unsent bytes hold memory, and a client that reads a byte per second would hold it indefinitely. When the server
//! closes a connection that has unread input, it first reads the input for a while: closing a socket with unread bytes
//! resets the connection, and the client would lose the answer.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// The time in which a client must read [`LEAST_BYTES`].
const WINDOW: Duration = Duration::from_secs(30);
/// The minimum number of bytes to read in that time, if there are as many.
const LEAST_BYTES: usize = 16 << 10;
/// Limits on reading unwanted input. Most clients send a whole file before they read the answer, and files may be large.
/// A slow sender holds its connection no longer than `time`.
const UNWANTED: Unwanted = Unwanted {
    time: Duration::from_secs(30),
    longest: Duration::from_secs(10 * 60),
    quiet: Duration::from_secs(5),
    bytes: 64 << 30,
};
/// The number of bytes that extend the total time by a second.
const SECOND_BYTES: u64 = 1 << 20;
const UNWANTED_AT_ONCE: usize = 16 << 10;

/// The total time, the longest total time for much input, the time without any input, and the bytes.
#[derive(Clone, Copy)]
struct Unwanted {
    time: Duration,
    longest: Duration,
    quiet: Duration,
    bytes: u64,
}

impl Unwanted {
    /// The total time after so many bytes.
    fn time_of(&self, bytes: u64) -> Duration {
        let more = Duration::from_secs(bytes / SECOND_BYTES);
        self.time.saturating_add(more).min(self.longest)
    }
}

/// The state of reading unwanted input.
struct Lingering {
    began: Instant,
    quiet: Pin<Box<Sleep>>,
    bytes: u64,
}

/// A socket that checks how fast the client reads.
pub(super) struct Paced {
    stream: TcpStream,
    /// The timer; runs while something waits to be sent, and cuts the client off.
    window: Option<Pin<Box<Sleep>>>,
    time: Duration,
    taken_bytes: usize,
    /// Set if a part of a request was left unread.
    is_unread: Arc<AtomicBool>,
    unwanted: Unwanted,
    /// Whether sending has ended.
    is_shut: bool,
    lingering: Option<Lingering>,
}

impl Paced {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self::within(stream, WINDOW, UNWANTED)
    }

    fn within(stream: TcpStream, time: Duration, unwanted: Unwanted) -> Self {
        Self {
            stream,
            window: None,
            time,
            taken_bytes: 0,
            is_unread: Arc::default(),
            unwanted,
            is_shut: false,
            lingering: None,
        }
    }

    /// The flag to set if the client sends more than is read.
    pub(super) fn unread(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_unread)
    }

    /// Reads and discards input.
    fn linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let mut room = [0; UNWANTED_AT_ONCE];
            let mut into = ReadBuf::new(&mut room);
            let read = Pin::new(&mut self.stream).poll_read(context, &mut into);
            let bytes = into.filled().len();
            let is_sure = self.is_unread.load(Ordering::Relaxed) || self.lingering.is_some();
            match read {
                Poll::Ready(Ok(())) if bytes > 0 => {}
                Poll::Pending if is_sure => {}
                _ => return Poll::Ready(()),
            }
            let unwanted = self.unwanted;
            let lingering = self.lingering.get_or_insert_with(|| Lingering {
                began: Instant::now(),
                quiet: Box::pin(sleep(unwanted.quiet)),
                bytes: 0,
            });
            if read.is_pending() {
                return lingering.quiet.as_mut().poll(context);
            }
            lingering.bytes += bytes as u64;
            let time = unwanted.time_of(lingering.bytes);
            let left = time.saturating_sub(lingering.began.elapsed());
            if lingering.bytes >= unwanted.bytes || left.is_zero() {
                return Poll::Ready(());
            }
            lingering.quiet = Box::pin(sleep(unwanted.quiet.min(left)));
        }
    }

    fn begin_anew(&mut self) {
        self.window = None;
        self.taken_bytes = 0;
    }

    fn judge(
        &mut self,
        context: &mut Context<'_>,
        sent: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match sent {
            Poll::Ready(Ok(bytes)) => {
                self.taken_bytes += bytes;
                if self.taken_bytes >= LEAST_BYTES {
                    self.begin_anew();
                }
                sent
            }
            Poll::Ready(Err(_)) => sent,
            Poll::Pending => {
                let time = self.time;
                let window = self.window.get_or_insert_with(|| Box::pin(sleep(time)));
                match window.as_mut().poll(context) {
                    Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
                    Poll::Pending => Poll::Pending,
                }
            }
        }
    }
}

impl AsyncRead for Paced {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Paced {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(context, sent)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.judge(context, sent)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Everything was sent, so the measurement starts again.
        self.begin_anew();
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_shut {
            ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
            self.is_shut = true;
        }
        self.linger(context).map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// More than the system buffers for a client that does not read.
    const MUCH: usize = 32 << 20;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        (listener.accept().await.unwrap().0, client)
    }

    fn run<T>(test: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(test)
    }

    #[test]
    fn who_takes_next_to_nothing_is_cut_off() {
        run(async {
            let (server, mut client) = pair().await;
            let mut paced = Paced::within(server, Duration::from_millis(200), UNWANTED);
            let reading = tokio::spawn(async move {
                // An occasional byte is not enough.
                while client.read_u8().await.is_ok() {
                    sleep(Duration::from_millis(20)).await;
                }
            });
            let error = paced.write_all(&vec![0; MUCH]).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            drop(paced);
            reading.abort();
        });
    }

    /// Closes a connection with unread input. Returns the bytes that the client could send, and what it received.
    async fn end(unwanted: Unwanted, is_unread: bool) -> (usize, io::Result<Vec<u8>>) {
        let (server, mut client) = pair().await;
        let mut paced = Paced::within(server, WINDOW, unwanted);
        paced.unread().store(is_unread, Ordering::Relaxed);
        let sending = tokio::spawn(async move {
            let mut sent = 0;
            while sent < MUCH {
                let part = (MUCH - sent).min(64 << 10);
                match client.write(&vec![0; part]).await {
                    Ok(bytes) => sent += bytes,
                    Err(_) => break,
                }
            }
            let _shut = client.shutdown().await;
            let mut heard = Vec::new();
            let read = client.read_to_end(&mut heard).await;
            (sent, read.map(|_| heard))
        });
        paced.write_all(b"no").await.unwrap();
        // Waits until unread input has arrived.
        paced.stream.peek(&mut [0]).await.unwrap();
        paced.shutdown().await.unwrap();
        drop(paced);
        sending.await.unwrap()
    }

    #[test]
    fn who_sends_more_than_is_wanted_hears_why_within_limits() {
        let hour = Duration::from_secs(60 * 60);
        let patient = Unwanted {
            time: hour,
            longest: hour,
            quiet: hour,
            bytes: u64::MAX,
        };
        for is_unread in [true, false] {
            let (sent, heard) = run(end(patient, is_unread));
            assert_eq!(heard.unwrap(), b"no", "{is_unread}");
            assert_eq!(sent, MUCH, "{is_unread}");
        }
        let bytes = 1 << 20;
        let (sent, _) = run(end(Unwanted { bytes, ..patient }, true));
        assert!(sent < MUCH, "{sent}");
        // For a client that stays without sending, the server waits only if more input must come, and not indefinitely.
        let stays = |is_unread| async move {
            let (server, client) = pair().await;
            let quiet = Duration::from_millis(50);
            let mut paced = Paced::within(server, WINDOW, Unwanted { quiet, ..patient });
            paced.unread().store(is_unread, Ordering::Relaxed);
            paced.shutdown().await.unwrap();
            drop(client);
        };
        run(stays(false));
        run(stays(true));
    }

    #[test]
    fn what_nobody_wants_is_read_longer_the_more_comes_and_not_for_ever() {
        let secs = |bytes: u64| UNWANTED.time_of(bytes).as_secs();
        assert_eq!([0, 1, 1 << 20, 100 << 20].map(secs), [30, 30, 31, 130]);
        assert_eq!([1 << 30, u64::MAX].map(secs), [600, 600]);
    }

    #[test]
    fn who_keeps_taking_is_served_however_long_that_takes() {
        run(async {
            let (server, mut client) = pair().await;
            let mut paced = Paced::within(server, Duration::from_secs(30), UNWANTED);
            let reading = tokio::spawn(async move {
                let mut bytes = Vec::new();
                client.read_to_end(&mut bytes).await.unwrap();
                bytes.len()
            });
            paced.write_all(&vec![0; MUCH]).await.unwrap();
            paced.flush().await.unwrap();
            drop(paced);
            assert_eq!(reading.await.unwrap(), MUCH);
        });
    }
}
