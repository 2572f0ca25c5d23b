//! Failed connections: which of them are retried, and what the error says.
//!
//! If no server ever responded, a name that does not resolve or a refused connection is most likely a mistake in a
//! setting, so it is given up long before the deadline. An endpoint that has responded once gets all of the deadline.
//! Waiting does not make a certificate trusted.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use object_store::client::{HttpError, HttpErrorKind};

/// After this time, a first connection is not retried. Shorter in tests.
const FIRST_MAX: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });

/// What is known about the endpoints of a bucket.
#[derive(Debug)]
pub(in crate::remote::bucket) struct Endpoints {
    known: Mutex<HashMap<String, Endpoint>>,
    /// Descriptions of proxies, by the prefix of the endpoints that are reached through them.
    proxies: Vec<(&'static str, String)>,
}

#[derive(Debug)]
enum Endpoint {
    Answered,
    /// Has never answered so far.
    Tried {
        times: u32,
        since: Instant,
    },
}

/// Why no connection could be made.
#[derive(Debug)]
pub(in crate::remote::bucket) struct NoConnection {
    endpoint: String,
    /// The proxy on the way there, if known.
    proxy: Option<String>,
    /// How often and for how long connecting was tried, if it was given up.
    given_up: Option<(u32, Duration)>,
    /// Whether the certificate of the server is not trusted.
    pub(in crate::remote::bucket) is_untrusted: bool,
    /// Whether the server does not speak TLS.
    pub(in crate::remote::bucket) is_plain: bool,
    why: String,
}

impl Endpoints {
    pub(super) fn new(proxies: &[(&'static str, String)]) -> Self {
        Self {
            known: Mutex::default(),
            proxies: proxies.to_vec(),
        }
    }

    /// Records that `endpoint` answered.
    pub(super) fn answered(&self, endpoint: &str) {
        let mut known = self.lock();
        match known.get_mut(endpoint) {
            Some(state) => *state = Endpoint::Answered,
            None => drop(known.insert(endpoint.to_owned(), Endpoint::Answered)),
        }
    }

    /// Turns a failed connection to `endpoint` into an error, which decides whether it is retried.
    pub(super) fn failed(&self, endpoint: &str, error: HttpError) -> HttpError {
        let (is_untrusted, is_nobody) = (is_untrusted(&error), is_nobody(&error));
        let is_plain = is_plain(&error);
        let tried = self.tried(endpoint);
        let is_over = tried.is_some_and(|(_, time)| time >= FIRST_MAX);
        let given_up = tried.filter(|_| (is_nobody || is_plain) && is_over);
        let kind = match given_up.is_some() || is_untrusted {
            // Prevents retries: object_store considers this kind of failure final.
            true => HttpErrorKind::Unknown,
            false => error.kind(),
        };
        let no_connection = NoConnection {
            endpoint: endpoint.to_owned(),
            proxy: self.proxy(endpoint),
            given_up,
            is_untrusted,
            is_plain,
            why: root(&error),
        };
        HttpError::new(kind, no_connection)
    }

    /// Returns how often and how long connecting was tried, including this time; `None` if the endpoint has ever
    /// answered.
    fn tried(&self, endpoint: &str) -> Option<(u32, Duration)> {
        let mut known = self.lock();
        let state = known
            .entry(endpoint.to_owned())
            .or_insert_with(|| Endpoint::Tried {
                times: 0,
                since: Instant::now(),
            });
        match state {
            Endpoint::Answered => None,
            Endpoint::Tried { times, since } => {
                *times = times.saturating_add(1);
                Some((*times, since.elapsed()))
            }
        }
    }

    fn proxy(&self, endpoint: &str) -> Option<String> {
        let mut proxies = self.proxies.iter();
        let found = proxies.find(|(scheme, _)| endpoint.starts_with(scheme));
        found.map(|(_, told)| told.clone())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Endpoint>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for NoConnection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "no connection to {}", self.endpoint)?;
        if let Some(proxy) = &self.proxy {
            write!(out, " ({proxy})")?;
        }
        write!(out, ": {}", self.why)?;
        match self.given_up {
            Some((times, time)) => {
                let secs = time.as_secs();
                write!(
                    out,
                    "; tried {times} times in {secs} s, and {}",
                    match self.is_plain {
                        true => "nothing there speaks TLS",
                        false => "no server responded",
                    }
                )
            }
            None => Ok(()),
        }
    }
}

impl StdError for NoConnection {}

/// Iterates over an error and its causes.
fn chain(error: &HttpError) -> impl Iterator<Item = &(dyn StdError + 'static)> {
    let error: &(dyn StdError + 'static) = error;
    std::iter::successors(Some(error), |error| cause(*error))
}

/// Returns the cause of an error. An `io::Error` does not report the error that it wraps as its source.
fn cause<'e>(error: &'e (dyn StdError + 'static)) -> Option<&'e (dyn StdError + 'static)> {
    match error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref)
    {
        Some(held) => Some(held),
        None => error.source(),
    }
}

fn is_untrusted(error: &HttpError) -> bool {
    let mut chain = chain(error).filter_map(<dyn StdError>::downcast_ref);
    chain.any(|error| matches!(error, rustls::Error::InvalidCertificate(_)))
}

/// Whether the server answered with something other than TLS.
fn is_plain(error: &HttpError) -> bool {
    chain(error).any(|error| {
        let of_tls = error.downcast_ref::<rustls::Error>();
        // TCP connections do not end while connecting, so the TLS handshake must have ended.
        let ended = error.downcast_ref().map(io::Error::kind) == Some(io::ErrorKind::UnexpectedEof);
        matches!(of_tls, Some(rustls::Error::InvalidMessage(_))) || ended
    })
}

/// Whether the connection was refused, or the name does not resolve. The type of the latter error is private to hyper.
fn is_nobody(error: &HttpError) -> bool {
    chain(error).any(|error| {
        let refused = error.downcast_ref().map(io::Error::kind);
        refused == Some(io::ErrorKind::ConnectionRefused) || error.to_string() == "dns error"
    })
}

/// Returns the text of the last cause.
fn root(error: &HttpError) -> String {
    chain(error)
        .last()
        .map(ToString::to_string)
        .unwrap_or_default()
}
