//! serve: one process that answers protocols of others, its doors, out of one store.
//!
//! `run` listens until it is asked to stop, then lets what runs end, for a while. A door is handed the head of a request
//! and its body, and gives an answer; connections, limits, the access log and the numbers are the same for all doors.
//! `source` is the one way from a door to the store: it follows its state, and reads on threads that may block.
//! It holds no state but caches: it may be killed at any moment.

pub(crate) mod answer;
pub(crate) mod body;
mod connection;
pub(crate) mod hub;
pub(crate) mod journal;
pub(crate) mod numbers;
mod pace;
pub(crate) mod source;
pub(crate) mod text;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use store::{Error, Result};
use tokio::net::TcpListener;
use tokio::sync::watch;

pub(crate) use connection::{Asked, Door};
use connection::{Room, accept};
use journal::Journal;
use numbers::Numbers;

/// How long what runs may go on once the server is asked to stop.
const STOP_TIME: Duration = Duration::from_secs(25);
/// How often it is looked whether a signal came.
const SIGNAL_PAUSE: Duration = Duration::from_millis(50);
/// Threads on which the store is read and written; more are no quicker, and each takes memory.
const BLOCKING_THREADS_MAX: usize = 48;

/// What all doors of a server share.
pub(crate) struct Shared {
    pub(crate) journal: Journal,
    pub(crate) numbers: Arc<Numbers>,
}

/// A door and where it is.
pub(crate) struct Opening<D> {
    pub(crate) address: SocketAddr,
    pub(crate) door: Arc<D>,
}

/// What a server needs to know of the world around it.
pub(crate) struct Signals<'s> {
    /// Set when somebody asks to stop.
    pub(crate) stop: &'s AtomicBool,
    /// Set here when what still runs is given up.
    pub(crate) give_up: Arc<AtomicBool>,
    /// Told where the server listens, before the first request is answered.
    pub(crate) listening: &'s dyn Fn(SocketAddr) -> Result<()>,
}

/// The runtime of a server.
///
/// # Errors
/// When the system gives no threads.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_name("serve")
        .build()
        .map_err(|source| Error::unavailable("threads for the server").because(source))
}

/// Answers at `opening` until it is asked to stop.
///
/// # Errors
/// When nobody may listen there.
pub(crate) async fn run<D: Door>(
    opening: Opening<D>,
    shared: Arc<Shared>,
    signals: Signals<'_>,
) -> Result<()> {
    let listener = listen(opening.address).await?;
    let address = listener.local_addr();
    let address =
        address.map_err(|source| Error::unavailable("the own address").because(source))?;
    let (stop, stopping) = watch::channel(false);
    let room = Room::new();
    let accepting = tokio::spawn(accept(
        listener,
        Arc::clone(&opening.door),
        shared,
        room.clone(),
        stopping,
    ));
    (signals.listening)(address)?;
    while !signals.stop.load(Ordering::Relaxed) {
        tokio::time::sleep(SIGNAL_PAUSE).await;
    }
    // Whoever listens is told, or has gone.
    let _told = stop.send(true);
    let _ended = accepting.await;
    let is_empty = tokio::time::timeout(STOP_TIME, room.empty()).await;
    if is_empty.is_err() {
        signals.give_up.store(true, Ordering::Relaxed);
    }
    Ok(())
}

async fn listen(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|source| {
        Error::unavailable(format!("listen on {address}"))
            .because(source)
            .hint("name another address with --listen; port 0 takes any that is free")
    })
}
