//! A connection whose other end must take what it asked for: a client that takes next to nothing for a while is cut
//! off.
//!
//! What waits to be sent holds memory; a client that reads a byte a second would hold it for ever.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// How long a client may take for the least that it must take.
const WINDOW: Duration = Duration::from_secs(30);
/// Bytes that it must take in that time, as long as there are so many.
const LEAST_BYTES: usize = 16 << 10;

/// A socket that watches how quickly it is emptied.
pub(super) struct Paced {
    stream: TcpStream,
    /// Ends when the client took too little; runs while something waits to be sent.
    window: Option<Pin<Box<Sleep>>>,
    time: Duration,
    taken_bytes: usize,
}

impl Paced {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self::within(stream, WINDOW)
    }

    fn within(stream: TcpStream, time: Duration) -> Self {
        Self {
            stream,
            window: None,
            time,
            taken_bytes: 0,
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
        // All that there was is on its way: what comes next is another story.
        self.begin_anew();
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// More than the system takes for a client that does not read.
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
            let mut paced = Paced::within(server, Duration::from_millis(200));
            let reading = tokio::spawn(async move {
                // A byte now and then is not enough.
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

    #[test]
    fn who_keeps_taking_is_served_however_long_that_takes() {
        run(async {
            let (server, mut client) = pair().await;
            let mut paced = Paced::within(server, Duration::from_secs(30));
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
