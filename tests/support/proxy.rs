//! A proxy between a client and one HTTP/1.1 server: counts what passes, makes it slow, and does to it what
//! networks and buckets do. It changes no header that S3 signs, and passes the name of the host as the client sent it.
//!
//! A request is read whole, passed on, and its answer read whole, each on a connection of its own to the server; a
//! thread for each connection of a client. Requests of one client at a time meet the same faults for the same seed.

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

/// How many of the keys that were written last a late listing does not show.
const LATE_KEYS: usize = 8;
/// What a slow link passes at once.
const SLICES_PER_SECOND: u64 = 20;

/// How slow the way is. The default is not at all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slowness {
    /// Added to every request, and to every new connection.
    pub delay: Duration,
    /// Bytes per second in each direction of each connection; without a limit when none.
    pub bytes_per_second: Option<u64>,
}

/// One request as it was seen.
#[derive(Clone, Debug)]
pub struct Passed {
    /// `GET /tests/prefix/format`, the query too.
    pub asked: String,
    /// Of the answer that went to the client; 0 when none did.
    pub status: u16,
    /// Bytes from the client, headers too.
    pub sent: u64,
    /// Bytes to the client, headers too.
    pub received: u64,
    /// What was done to it.
    pub fault: Option<Fault>,
}

/// Requests and bytes since the proxy was made or last cleared.
#[derive(Clone, Default)]
pub struct Traffic(pub Vec<Passed>);

/// A proxy that serves until it is dropped; what is asked afterwards is reset, also on connections that were kept open.
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

    /// The same at an address of one's own choice.
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
                // A connection that breaks is the client's to notice.
                std::thread::spawn(move || drop(shared.serve(&client)));
            }
        });
        proxy
    }

    /// What the client is told instead of the server's endpoint.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Other faults from now on; numbers of requests begin anew.
    pub fn set(&self, schedule: Schedule) {
        let mut state = self.shared.state();
        state.schedule = schedule;
        state.number = 0;
    }

    /// Requests that have come so far, answered or not.
    pub fn count(&self) -> u64 {
        self.shared.state().number
    }

    /// What has passed since the last call.
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

    /// One connection of a client, to its end.
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

    /// Counts a request and throws the dice for it.
    fn begin(&self, request: &Message) -> Option<Fault> {
        let mut state = self.state();
        state.number += 1;
        let number = state.number;
        state.schedule.next(number, &request.first)
    }

    /// Answers one request; false when the connection is gone after it.
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
                    // Until the client closes its side.
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

    /// Asks the server.
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

    /// Sends as fast as the link is.
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

    /// The time that so many bytes take.
    fn crawl(&self, bytes: usize) {
        if let Some(rate) = self.slowness.bytes_per_second {
            let nanos = bytes as u64 * 1_000_000_000 / rate.max(1);
            std::thread::sleep(Duration::from_nanos(nanos));
        }
    }
}

impl Traffic {
    /// Requests.
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

    /// Requests to which something was done.
    pub fn faults(&self) -> usize {
        let hit = |passed: &&Passed| passed.fault.is_some();
        self.0.iter().filter(hit).count()
    }

    /// Those whose method and target contain all of `words`.
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

/// Closes a connection so that the other side sees it broken; false.
fn reset(client: &TcpStream) -> io::Result<bool> {
    set_socket_linger(client, Some(Duration::ZERO))?;
    Ok(false)
}
