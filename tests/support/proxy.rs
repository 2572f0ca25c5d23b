//! A proxy between a client and one HTTP/1.1 server. It counts traffic, slows it down, and injects faults of networks
//! and buckets. It changes no header that S3 signs, and keeps the host name that the client sent.
//!
//! Requests and answers are read whole and passed on, each on a new connection to the server; each connection of a
//! client has a thread. With the same seed, the requests of a sequential client meet the same faults.

mod faults;
mod http;
mod tls;

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

pub use faults::{Fault, Schedule};
use http::Message;
pub use tls::{Tls, make_authority, make_pair};

/// How many of the most recent keys a late listing omits.
const LATE_KEYS: usize = 8;
/// How many times per second a slow link passes bytes.
const SLICES_PER_SECOND: u64 = 20;

/// How slow the link is. The default is not slow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slowness {
    /// Delay of each request and of each new connection.
    pub delay: Duration,
    /// Bytes per second in each direction of each connection; `None` for no limit.
    pub bytes_per_second: Option<u64>,
}

/// One recorded request.
#[derive(Clone, Debug)]
pub struct Passed {
    /// The method and the target with its query, like `GET /tests/prefix/format`.
    pub asked: String,
    /// The status of the answer to the client; 0 if there was none.
    pub status: u16,
    /// Bytes from the client, including headers.
    pub sent: u64,
    /// Bytes to the client, including headers.
    pub received: u64,
    /// The injected fault.
    pub fault: Option<Fault>,
}

/// Requests and bytes since the proxy was made or last cleared.
#[derive(Clone, Default)]
pub struct Traffic(pub Vec<Passed>);

/// A proxy that serves until it is dropped. Later requests are reset, also on connections that were kept open.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    upstream: String,
    slowness: Slowness,
    state: Mutex<State>,
}

struct State {
    over: bool,
    number: u64,
    schedule: Schedule,
    passed: Vec<Passed>,
    written: VecDeque<String>,
}

impl Proxy {
    /// A proxy on loopback for the server at `endpoint`, such as `http://127.0.0.1:9000`.
    pub fn new(endpoint: &str, slowness: Slowness) -> Self {
        Self::listening("127.0.0.1:0", endpoint, slowness)
    }

    /// A proxy at a given address.
    pub fn listening(address: &str, endpoint: &str, slowness: Slowness) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let state = State {
            over: false,
            number: 0,
            schedule: Schedule::Fine,
            passed: Vec::new(),
            written: VecDeque::new(),
        };
        let shared = Arc::new(Shared {
            upstream: endpoint.trim_start_matches("http://").to_owned(),
            slowness,
            state: Mutex::new(state),
        });
        let proxy = Self {
            address,
            shared: Arc::clone(&shared),
        };
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if shared.state().over {
                    return;
                }
                let shared = Arc::clone(&shared);
                // A failure of the connection is for the client to notice.
                std::thread::spawn(move || drop(shared.serve(&client)));
            }
        });
        proxy
    }

    /// The endpoint to give to the client in place of the server's.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the faults, and restarts the numbering of requests.
    pub fn set(&self, schedule: Schedule) {
        let mut state = self.shared.state();
        state.schedule = schedule;
        state.number = 0;
    }

    /// The number of requests so far, answered or not.
    pub fn count(&self) -> u64 {
        self.shared.state().number
    }

    /// The traffic since the last call.
    pub fn take(&self) -> Traffic {
        Traffic(std::mem::take(&mut self.shared.state().passed))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.state().over = true;
        // Wakes the thread that accepts.
        drop(TcpStream::connect(self.address));
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves one connection of a client until its end.
    fn serve(&self, client: &TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        std::thread::sleep(self.slowness.delay);
        let mut reader = BufReader::new(client);
        while let Some(request) = Message::request(&mut reader)? {
            if self.state().over {
                return reset(client).map(drop);
            }
            let sent = request.encode().len();
            self.crawl(sent);
            let fault = self.begin(&request);
            let mut passed = Passed {
                asked: request.first.trim_end_matches(" HTTP/1.1").to_owned(),
                status: 0,
                sent: sent as u64,
                received: 0,
                fault,
            };
            let answered = self.answer(client, &request, &mut passed);
            self.state().passed.push(passed);
            if !answered? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Counts a request and chooses its fault.
    fn begin(&self, request: &Message) -> Option<Fault> {
        let mut state = self.state();
        state.number += 1;
        let number = state.number;
        state.schedule.next(number, &request.first)
    }

    /// Answers one request. Returns false if the connection is closed afterwards.
    fn answer(
        &self,
        mut client: &TcpStream,
        request: &Message,
        passed: &mut Passed,
    ) -> io::Result<bool> {
        std::thread::sleep(self.slowness.delay);
        if let Some(mut refusal) = passed.fault.and_then(Fault::refusal) {
            if request.asked().0 == "HEAD" {
                refusal.body.clear();
            }
            passed.status = refusal.status();
            passed.received = refusal.send(&mut client)? as u64;
            return Ok(request.stays_open());
        }
        if passed.fault == Some(Fault::Reset) {
            return reset(client);
        }
        let Ok(answer) = self.ask(request, passed.fault) else {
            return reset(client);
        };
        match passed.fault {
            Some(Fault::Lost) => reset(client),
            Some(fault @ (Fault::Truncated | Fault::Stalled)) => {
                let bytes = answer.encode();
                let half = bytes.len() - answer.body.len().div_ceil(2);
                let begin = bytes.get(..half).unwrap_or(&bytes);
                passed.status = answer.status();
                passed.received = begin.len() as u64;
                if answer.body.is_empty() {
                    passed.received = 0;
                } else {
                    client.write_all(begin)?;
                }
                if fault == Fault::Stalled {
                    // Waits until the client closes its side.
                    let _gone = client.read(&mut [0]);
                }
                reset(client)
            }
            _ => {
                passed.status = answer.status();
                passed.received = answer.encode().len() as u64;
                self.pass(client, &answer.encode())?;
                Ok(request.stays_open())
            }
        }
    }

    /// Passes the request to the server.
    fn ask(&self, request: &Message, fault: Option<Fault>) -> io::Result<Message> {
        let (method, target) = request.asked();
        let mut server = TcpStream::connect(&self.upstream)?;
        server.set_nodelay(true)?;
        let mut forwarded = request.clone();
        forwarded.set("connection", Some("close"));
        forwarded.send(&mut server)?;
        let mut answer = Message::answer(&mut BufReader::new(&server), method)?;
        answer.set("connection", None);
        let mut state = self.state();
        if ["PUT", "POST"].contains(&method) && answer.status() == 200 {
            let path = target.split('?').next().unwrap_or(target);
            state.written.push_back(path.to_owned());
            if state.written.len() > LATE_KEYS {
                state.written.pop_front();
            }
        }
        if fault == Some(Fault::Late) && target.contains("list-type=2") {
            faults::hide(&mut answer, |key| {
                state.written.iter().any(|target| target.ends_with(key))
            });
        }
        Ok(answer)
    }

    /// Sends bytes at the speed of the link.
    fn pass(&self, mut client: &TcpStream, bytes: &[u8]) -> io::Result<()> {
        let Some(rate) = self.slowness.bytes_per_second else {
            return client.write_all(bytes);
        };
        let slice = usize::try_from(rate / SLICES_PER_SECOND)
            .unwrap_or(1)
            .max(1);
        for bytes in bytes.chunks(slice) {
            self.crawl(bytes.len());
            client.write_all(bytes)?;
        }
        Ok(())
    }

    /// Waits for the time that this many bytes take.
    fn crawl(&self, bytes: usize) {
        if let Some(rate) = self.slowness.bytes_per_second {
            let nanos = bytes as u64 * 1_000_000_000 / rate.max(1);
            std::thread::sleep(Duration::from_nanos(nanos));
        }
    }
}

impl Traffic {
    /// The number of requests.
    pub fn requests(&self) -> usize {
        self.0.len()
    }

    /// Bytes from the client to the server.
    pub fn sent(&self) -> u64 {
        self.0.iter().map(|passed| passed.sent).sum()
    }

    /// Bytes from the server to the client.
    pub fn received(&self) -> u64 {
        self.0.iter().map(|passed| passed.received).sum()
    }

    /// The number of requests with a fault.
    pub fn faults(&self) -> usize {
        let hit = |passed: &&Passed| passed.fault.is_some();
        self.0.iter().filter(hit).count()
    }

    /// The requests whose method and target contain all of `words`.
    pub fn with(&self, words: &[&str]) -> Self {
        let fits = |passed: &&Passed| words.iter().all(|word| passed.asked.contains(word));
        Self(self.0.iter().filter(fits).cloned().collect())
    }
}

impl fmt::Debug for Traffic {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            out,
            "{} requests, {} bytes sent, {} bytes received",
            self.requests(),
            self.sent(),
            self.received()
        )?;
        for passed in &self.0 {
            writeln!(
                out,
                "  {} -> {}, {} sent, {} received, {:?}",
                passed.asked, passed.status, passed.sent, passed.received, passed.fault
            )?;
        }
        Ok(())
    }
}

/// Closes a connection with a reset. Returns false.
fn reset(client: &TcpStream) -> io::Result<bool> {
    set_socket_linger(client, Some(Duration::ZERO))?;
    Ok(false)
}
