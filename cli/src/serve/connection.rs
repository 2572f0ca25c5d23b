//! Accepts connections while there is room, and answers their requests, all within time limits.
//!
//! A head must arrive in time on new and on reused connections, and a body must keep coming. A client that does not
//! read its answer is cut off (`pace`). The body of a refused request is read to its end, so that the next request can
//! follow; of a long one, only enough is read for the client to receive the refusal. A client that sends `Expect` gets
//! the refusal instead of `100 Continue`.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, EXPECT, HOST, HeaderName, HeaderValue, USER_AGENT};
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::Timestamp;
use store::{Error, Result};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::serve::Shared;
use crate::serve::answer::Answer;
use crate::serve::body::Body;
use crate::serve::journal::{Line, told};
use crate::serve::numbers::Running;
use crate::serve::pace::Paced;
use crate::serve::tls::Identity;

/// Maximum number of connections. Others wait until one ends.
const CONNECTIONS_MAX: u32 = 4096;
/// Maximum bytes and headers in the head of a request. The bytes are also the size of the send buffer.
const HEAD_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 100;
/// Maximum time for a head, and for an idle connection.
const HEAD_TIME: Duration = Duration::from_secs(60);
/// Maximum time for the next part of a body.
const PART_TIME: Duration = Duration::from_secs(30);
/// Minimum average rate of a body in bytes per second, after the first [`PART_TIME`].
const BODY_RATE_MIN: u64 = 4096;
/// Maximum bytes to read of an unwanted body. If it is longer, the connection ends.
const UNWANTED_BYTES_MAX: u64 = 8 << 20;
/// Pause when the system has no sockets left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Says whether the client uses https.
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// A protocol.
pub(crate) trait Door: Send + Sync + 'static {
    /// The name in the access log.
    const NAME: &'static str;

    /// Answers a request. The caller reads the rest of the body.
    fn answer(&self, head: &Parts, asked: &mut Asked) -> impl Future<Output = Answer> + Send;
}

/// The body of a request, as it arrives.
pub(crate) struct Asked {
    body: Incoming,
    received: u64,
    /// Total time spent waiting for the client.
    waited: Duration,
    part_time: Duration,
    /// Whether the client waits for `100 Continue`, which the first read of the body sends.
    awaits: bool,
}

impl Asked {
    /// The next part of the body; `None` at its end.
    ///
    /// # Errors
    /// If the body breaks off, or comes too slowly.
    pub(crate) async fn part(&mut self) -> Result<Option<Bytes>> {
        self.awaits = false;
        loop {
            let frame =
                std::future::poll_fn(|context| Pin::new(&mut self.body).poll_frame(context));
            let began = Instant::now();
            let frame = tokio::time::timeout(self.part_time, frame).await;
            self.waited += began.elapsed();
            let frame = frame.map_err(|_| Error::invalid("the body of the request stood still"))?;
            let Some(frame) = frame else {
                return Ok(None);
            };
            let frame = frame.map_err(|source| {
                Error::invalid("the body of the request broke off").because(source)
            })?;
            if let Ok(bytes) = frame.into_data() {
                self.received += bytes.len() as u64;
                self.check_pace()?;
                return Ok(Some(bytes));
            }
        }
    }

    /// The whole body.
    ///
    /// # Errors
    /// As [`Self::part`], and if the body has more than `bytes_max`.
    pub(crate) async fn whole(&mut self, bytes_max: usize) -> Result<Vec<u8>> {
        let mut whole = Vec::new();
        while let Some(part) = self.part().await? {
            if whole.len() + part.len() > bytes_max {
                return Err(Error::invalid(format!(
                    "the body of the request has more than {bytes_max} bytes"
                )));
            }
            whole.extend_from_slice(&part);
        }
        Ok(whole)
    }

    /// The length of the body according to the request.
    pub(crate) fn said_bytes(&self) -> Option<u64> {
        self.body.size_hint().exact()
    }

    fn check_pace(&self) -> Result<()> {
        match is_slow(self.received, self.waited, self.part_time) {
            true => Err(Error::invalid("the body of the request comes too slowly")),
            false => Ok(()),
        }
    }

    /// Reads the rest of the body. Returns whether the connection can be used again.
    async fn drain(&mut self) -> bool {
        let before = self.received;
        if self.awaits && !self.body.is_end_stream() {
            // The client gets the answer instead, and does not send the body.
            return false;
        }
        while !self.body.is_end_stream() {
            match self.part().await {
                Ok(None) => return true,
                Ok(Some(_)) if self.received - before <= UNWANTED_BYTES_MAX => {}
                _ => return false,
            }
        }
        true
    }
}

/// Whether a body is below the minimum rate. The time counts only while the server waited for the client.
fn is_slow(received: u64, waited: Duration, part_time: Duration) -> bool {
    let late = waited.saturating_sub(part_time);
    received < late.as_secs().saturating_mul(BODY_RATE_MIN)
}

/// The time limits for clients.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    head: Duration,
    part: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            head: HEAD_TIME,
            part: PART_TIME,
        }
    }
}

/// Limits the number of connections.
#[derive(Clone)]
pub(super) struct Room(Arc<Semaphore>);

impl Room {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(CONNECTIONS_MAX as usize)))
    }

    /// Waits until there are no connections.
    pub(super) async fn empty(&self) {
        // The semaphore is never closed.
        let _all = self.0.acquire_many(CONNECTIONS_MAX).await;
    }

    async fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).acquire_owned().await.ok()
    }
}

/// What serves an address.
pub(super) struct Behind<D> {
    pub(super) door: Arc<D>,
    pub(super) shared: Arc<Shared>,
    /// The certificate and key, if the door speaks TLS.
    pub(super) identity: Option<Arc<Identity>>,
    pub(super) times: Times,
}

/// Accepts connections until the server stops.
pub(super) async fn accept<D: Door>(
    listener: TcpListener,
    behind: Arc<Behind<D>>,
    room: Room,
    mut stopping: watch::Receiver<bool>,
) {
    loop {
        let next = async {
            let place = room.place().await?;
            Some((place, listener.accept().await))
        };
        let Some(Some((place, accepted))) = unless(&mut stopping, next).await else {
            return;
        };
        let Ok((stream, client)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (behind, stopping) = (Arc::clone(&behind), stopping.clone());
        tokio::spawn(async move {
            let numbers = Arc::clone(&behind.shared.numbers);
            numbers.connections.enter();
            welcome(stream, client, &behind, stopping).await;
            numbers.connections.leave();
            drop(place);
        });
    }
}

/// The result of `work`, or `None` if the server stops first.
async fn unless<T>(
    stopping: &mut watch::Receiver<bool>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = pin!(work);
    let mut stop = pin!(stopping.wait_for(|is_asked| *is_asked));
    std::future::poll_fn(|context: &mut Context<'_>| {
        if stop.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        work.as_mut().poll(context).map(Some)
    })
    .await
}

/// Does the TLS handshake if there is an identity, then answers the client.
async fn welcome<D: Door>(
    stream: TcpStream,
    client: SocketAddr,
    behind: &Behind<D>,
    mut stopping: watch::Receiver<bool>,
) {
    // Without this, the system delays small answers to send them together.
    let _slower = stream.set_nodelay(true);
    let Some(identity) = &behind.identity else {
        let stream = Paced::new(stream);
        let unread = stream.unread();
        return converse(stream, unread, client, behind, stopping).await;
    };
    let Some(agreed) = unless(&mut stopping, identity.greet(stream)).await else {
        return;
    };
    match agreed {
        Some(stream) => {
            let unread = stream.get_ref().0.unread();
            converse(stream, unread, client, behind, stopping).await;
        }
        None => behind.shared.numbers.failed_handshakes.add(1),
    }
}

/// Answers the requests of one connection. `unread` is set if a part of a request is not read.
async fn converse<D: Door>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    unread: Arc<AtomicBool>,
    client: SocketAddr,
    behind: &Behind<D>,
    mut stopping: watch::Receiver<bool>,
) {
    let is_secure = behind.identity.is_some();
    let (door, shared) = (Arc::clone(&behind.door), Arc::clone(&behind.shared));
    let times = behind.times;
    let service = service_fn(move |mut request: Request<Incoming>| {
        let (door, shared) = (Arc::clone(&door), Arc::clone(&shared));
        if is_secure {
            // A proxy may have set the scheme already; otherwise it is that of this connection.
            let https = HeaderValue::from_static("https");
            request
                .headers_mut()
                .entry(FORWARDED_PROTO)
                .or_insert(https);
        }
        let unread = Arc::clone(&unread);
        async move {
            let answer = respond(request, client, door.as_ref(), (shared, times, &unread));
            Ok::<_, Infallible>(answer.await)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(times.head)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    if unless(&mut stopping, connection.as_mut()).await.is_none() {
        connection.as_mut().graceful_shutdown();
        // Failures were logged with their requests.
        let _ended = connection.await;
    }
}

async fn respond<D: Door>(
    request: Request<Incoming>,
    client: SocketAddr,
    door: &D,
    (shared, times, unread): (Arc<Shared>, Times, &AtomicBool),
) -> Response<Body> {
    let (head, body) = request.into_parts();
    let began = Instant::now();
    let running = Running::new(Arc::clone(&shared.numbers));
    let expected = head.headers.get(EXPECT).map(HeaderValue::as_bytes);
    let mut asked = Asked {
        body,
        received: 0,
        waited: Duration::ZERO,
        part_time: times.part,
        awaits: expected.is_some_and(|told| told.eq_ignore_ascii_case(b"100-continue")),
    };
    let answer = match is_addressed(&head) {
        true => door.answer(&head, &mut asked).await,
        false => {
            let why = "a request must have one Host header, and only before HTTP/1.1 none";
            Answer::text(StatusCode::BAD_REQUEST, format!("{why}\n")).because(why)
        }
    };
    let mut answer = answer.measured(head.method == Method::HEAD);
    if !asked.drain().await {
        let close = HeaderValue::from_static("close");
        answer.headers.insert(CONNECTION, close);
        unread.store(true, Ordering::Relaxed);
    }
    let agent = head
        .headers
        .get(USER_AGENT)
        .and_then(|agent| agent.to_str().ok());
    let mut line = Line {
        time: Timestamp::now(),
        door: D::NAME,
        client: client.to_string(),
        method: head.method.to_string(),
        path: told(head.uri.path()),
        status: answer.status.as_u16(),
        sent: 0,
        received: asked.received,
        whole: false,
        secs: 0.0,
        agent: agent.map(told),
        token: answer.token.take(),
        error: None,
    };
    let end = Box::new(move |sent: u64, is_whole: bool, error: Option<String>| {
        (line.sent, line.whole, line.error) = (sent, is_whole, error);
        line.secs = began.elapsed().as_secs_f64();
        running.answered(line.status, sent, line.received, is_whole);
        shared.journal.tell(&line);
    });
    let mut response = Response::new(Body::new(answer.content, answer.error, end));
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers;
    response
}

/// Whether a request says which host it is for, as RFC 9112, section 3.2, demands.
fn is_addressed(head: &Parts) -> bool {
    let hosts = head.headers.get_all(HOST).iter().count();
    hosts == 1 || (hosts == 0 && head.version < Version::HTTP_11)
}

#[cfg(test)]
mod tests {
    use store::Precious;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::serve::journal::Journal;
    use crate::serve::numbers::Numbers;

    /// Longer than any answer takes.
    const PATIENCE: Duration = Duration::from_secs(30);
    const LONG: Duration = Duration::from_secs(60 * 60);

    /// Answers with the length of the body, if that is at most ten bytes.
    struct Measure;

    impl Door for Measure {
        const NAME: &'static str = "test";

        async fn answer(&self, _head: &Parts, asked: &mut Asked) -> Answer {
            match asked.whole(10).await {
                Ok(body) => Answer::text(hyper::StatusCode::OK, body.len().to_string()),
                Err(error) => Answer::text(hyper::StatusCode::BAD_REQUEST, error.to_string()),
            }
        }
    }

    /// Sends bytes to a door, and returns all answers until the door closes the connection.
    fn ask(times: Times, bytes: &[u8]) -> String {
        let runtime = crate::serve::runtime().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let numbers = Arc::new(Numbers::default());
            let log = dir.path().join("log");
            let shared = Arc::new(Shared {
                journal: Journal::open(Some(&log), &Precious::default(), Arc::clone(&numbers))
                    .unwrap(),
                numbers,
            });
            let behind = Arc::new(Behind {
                door: Arc::new(Measure),
                shared,
                identity: None,
                times,
            });
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let (_stop, stopping) = watch::channel(false);
            tokio::spawn(accept(listener, behind, Room::new(), stopping));
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(bytes).await.unwrap();
            let mut heard = Vec::new();
            let closed = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut heard)).await;
            closed.expect("it is closed").unwrap();
            String::from_utf8(heard).unwrap()
        })
    }

    #[test]
    fn a_head_must_come_in_time_also_the_second_one() {
        let times = Times {
            head: Duration::from_millis(200),
            part: LONG,
        };
        assert!(!ask(times, b"GET / HT").contains("200"));
        let head = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
        assert_eq!(ask(times, head).matches("HTTP/1.1 200").count(), 1);
        let begun = [&head[..], b"GET /"].concat();
        assert_eq!(ask(times, &begun).matches("HTTP/1.1 200").count(), 1);
    }

    #[test]
    fn a_body_must_keep_coming_and_end_before_it_is_too_long() {
        let times = Times {
            head: LONG,
            part: Duration::from_millis(200),
        };
        let head = "POST / HTTP/1.1\r\nHost: x\r\n";
        let heard = ask(
            times,
            format!("{head}Content-Length: 5\r\n\r\nab").as_bytes(),
        );
        assert!(
            heard.starts_with("HTTP/1.1 400") && heard.ends_with("stood still"),
            "{heard}"
        );
        // A body that is too long is read to its end, so that the next request is parsed correctly.
        let long = format!("{head}Content-Length: 11\r\n\r\n0123456789x");
        let next = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        let heard = ask(times, format!("{long}{next}").as_bytes());
        assert!(heard.contains("has more than 10 bytes"), "{heard}");
        assert!(heard.ends_with("\r\n\r\n0"), "{heard}");
    }

    #[test]
    fn a_body_is_slow_by_what_it_brought_on_average() {
        let second = Duration::from_secs(1);
        let is_slow = |received, secs: u32| is_slow(received, second * secs, second * 30);
        assert!(!is_slow(0, 30) && is_slow(0, 31));
        assert!(!is_slow(10 * BODY_RATE_MIN, 40) && is_slow(10 * BODY_RATE_MIN - 1, 40));
    }
}
