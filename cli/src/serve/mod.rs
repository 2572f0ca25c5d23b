//! serve: one process that serves one store over foreign protocols; each protocol is a door.
//!
//! A `Server` opens doors and answers until it is asked to stop; then running requests get some time to end. A door
//! gets the head and the body of a request, and returns an answer. All doors share connections, limits, the access log
//! and the counters. Doors reach the store only through `source`, which follows the state and reads on threads that may
//! block. A server has no state except caches, so it may be killed at any time.

mod ahead;
pub(crate) mod answer;
pub(crate) mod body;
mod buffer;
mod certificate;
mod connection;
mod foreign;
pub(crate) mod front;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
pub(crate) mod hub;
pub(crate) mod journal;
mod memo;
mod memory;
pub(crate) mod numbers;
mod pace;
pub(crate) mod page;
mod pass;
pub(crate) mod patience;
mod person;
mod proven;
pub(crate) mod range;
pub(crate) mod s3;
pub(crate) mod source;
pub(crate) mod spool;
pub(crate) mod text;
pub(crate) mod tls;
pub(crate) mod tokens;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use store::{Error, Result};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::ui::failure::one_line;
pub(crate) use connection::{Asked, Door};
use connection::{Behind, Room, Times, accept};
use journal::Journal;
use numbers::Numbers;
use tls::Identity;

/// Time for running requests to end after the server is asked to stop.
const STOP_TIME: Duration = Duration::from_secs(25);
/// How often to check for signals.
const SIGNAL_PAUSE: Duration = Duration::from_millis(50);
/// How often to look at the files of the certificate.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// Threads that read and write the store. More are not faster, and each takes memory.
const BLOCKING_THREADS_MAX: usize = 40;

/// Connections that the system holds until they are accepted.
const WAITING_MAX: u32 = 1024;
/// Bytes that the system holds of what is sent to a client on this host.
const NEAR_BYTES: u32 = 256 << 10;

/// What users of newer Hub clients need to know.
pub(crate) const XET_NOTE: &str = "huggingface_hub 1.20 and newer sends files of 64 MiB and more, and all of Dataset.push_to_hub, by Xet alone, which this server does not speak: set HF_HUB_DISABLE_XET=1 where you upload";

/// What all doors of a server share.
pub(crate) struct Shared {
    pub(crate) journal: Journal,
    pub(crate) numbers: Arc<Numbers>,
}

/// A server whose doors are opened one after another.
pub(crate) struct Server {
    shared: Arc<Shared>,
    room: Room,
    stop: watch::Sender<bool>,
    accepting: Vec<JoinHandle<()>>,
    /// The certificate and key of all doors, if they speak TLS.
    identity: Option<Arc<Identity>>,
}

/// The runtime of a server.
///
/// # Errors
/// If the system cannot create threads.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_name("serve")
        .build()
        .map_err(|source| Error::unavailable("threads for the server").because(source))
}

impl Server {
    /// A server without doors. Its doors speak TLS if there is an identity.
    pub(crate) fn new(shared: Arc<Shared>, identity: Option<Arc<Identity>>) -> Self {
        let server = Self {
            shared,
            room: Room::new(),
            stop: watch::channel(false).0,
            accepting: Vec::new(),
            identity,
        };
        server.look_at_identity();
        server
    }

    /// Opens a door at `address` and returns its address; port 0 chooses a free port.
    ///
    /// # Errors
    /// If the address cannot be used.
    pub(crate) fn open<D: Door>(
        &mut self,
        address: SocketAddr,
        door: Arc<D>,
    ) -> Result<SocketAddr> {
        let listener = listen(address)?;
        let address = listener.local_addr();
        let address =
            address.map_err(|source| Error::unavailable("the own address").because(source))?;
        let behind = Behind {
            door,
            shared: Arc::clone(&self.shared),
            identity: self.identity.clone(),
            times: Times::default(),
        };
        let (room, stopping) = (self.room.clone(), self.stop.subscribe());
        let accepting = accept(listener, Arc::new(behind), room, stopping);
        self.accepting.push(tokio::spawn(accepting));
        Ok(address)
    }

    /// Answers until `stop` is set. Then `stopping` tells the doors, no new requests are accepted, and running ones may
    /// end. If that takes too long, sets `give_up`.
    pub(crate) async fn serve(
        self,
        stop: &AtomicBool,
        give_up: &AtomicBool,
        stopping: impl FnOnce(),
    ) {
        let mut looked: Option<Instant> = None;
        while !stop.load(Ordering::Relaxed) {
            tokio::time::sleep(SIGNAL_PAUSE).await;
            if looked.is_none_or(|at| at.elapsed() >= LOOK_PAUSE) {
                looked = Some(Instant::now());
                self.look_at_identity();
            }
        }
        stopping();
        // The send fails if all doors are gone.
        let _told = self.stop.send(true);
        for accepting in self.accepting {
            let _ended = accepting.await;
        }
        let is_empty = tokio::time::timeout(STOP_TIME, self.room.empty()).await;
        if is_empty.is_err() {
            give_up.store(true, Ordering::Relaxed);
        }
    }

    /// Takes a new certificate, and logs once when it cannot be used, or the one in use has expired or soon will. Does not
    /// wait: the file system of the files may not respond.
    fn look_at_identity(&self) {
        let Some(identity) = self.identity.clone() else {
            return;
        };
        let shared = Arc::clone(&self.shared);
        let looking = move || {
            if let Some(error) = identity.look() {
                shared.journal.event("tls", &one_line(&error));
            }
            shared.numbers.certificate(identity.until());
            if let Some(news) = identity.news() {
                shared.journal.event("tls", &news);
            }
        };
        drop(tokio::task::spawn_blocking(looking));
    }
}

fn listen(address: SocketAddr) -> Result<TcpListener> {
    bind(address).map_err(|source| {
        Error::unavailable(format!("listen on {address}"))
            .because(source)
            .hint("name another address; port 0 takes any that is free")
    })
}

fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    socket.set_reuseaddr(true)?;
    if address.ip().is_loopback() {
        // Clients on this host need no more, and all of it stays in the caches of a core. Far ones may need much more.
        socket.set_send_buffer_size(NEAR_BYTES)?;
    }
    socket.bind(address)?;
    socket.listen(WAITING_MAX)
}
