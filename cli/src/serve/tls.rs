//! TLS for doors: one certificate with its key, reloaded when the files change, and handshakes with a time limit.
//!
//! If the pair cannot be used, the server does not start. If a later pair cannot be used, the access log says so, and
//! the old pair stays in use.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use jiff::Timestamp;
use rustix::fs::{Mode, OFlags};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use store::{Error, Result};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::serve::certificate::{Phase, Term};
use crate::serve::pace::Paced;

/// Maximum time for a handshake.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// Maximum size of a file of certificates or of a key.
const PEM_BYTES_MAX: u64 = 1 << 20;
/// The first byte of a TLS client.
const HANDSHAKE: u8 = 0x16;
/// The answer to a client that does not speak TLS.
const PLAIN: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 43\r\nConnection: close\r\n\r\nthis address speaks TLS: ask with https://\n";

/// A certificate and its key, from their files.
pub(crate) struct Identity {
    certificate: PathBuf,
    key: PathBuf,
    current: RwLock<Pair>,
    /// What the files looked like when they were last read.
    stamps: Mutex<[Stamp; 2]>,
    /// The last phase of the current pair that was logged.
    told: Mutex<Phase>,
}

/// A pair in use.
#[derive(Clone)]
struct Pair {
    config: Arc<ServerConfig>,
    /// Its validity period; `None` if the certificates cannot be parsed.
    term: Option<Term>,
}

/// Detects changes of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stamp(u64, u64, i64, i64);

impl Identity {
    /// Loads the pair from PEM files. The file of certificates begins with the server's own, followed by intermediate
    /// ones.
    ///
    /// # Errors
    /// If the server cannot use the pair.
    pub(crate) fn open(certificate: &Path, key: &Path) -> Result<Self> {
        let stamps = stamps(certificate, key);
        Ok(Self {
            current: RwLock::new(load(certificate, key)?),
            stamps: Mutex::new(stamps),
            told: Mutex::new(Phase::Good),
            certificate: certificate.to_owned(),
            key: key.to_owned(),
        })
    }

    /// Whether other users may read the key.
    pub(crate) fn is_exposed(&self) -> bool {
        self.key
            .metadata()
            .is_ok_and(|found| found.mode() & 0o077 != 0)
    }

    /// Takes a newer pair, if there is one. Returns once for each that cannot be used, why. Blocks; on an unresponsive file
    /// system only the first caller does.
    pub(crate) fn look(&self) -> Option<Error> {
        let mut stamps_seen = self.stamps.try_lock().ok()?;
        let stamps = stamps(&self.certificate, &self.key);
        if stamps == *stamps_seen {
            return None;
        }
        *stamps_seen = stamps;
        match load(&self.certificate, &self.key) {
            Ok(pair) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = pair;
                *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Phase::Good;
                None
            }
            Err(error) => Some(error),
        }
    }

    fn pair(&self) -> Pair {
        let current = self.current.read();
        current.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The end of the current pair's validity, if known.
    pub(crate) fn until(&self) -> Option<Timestamp> {
        self.pair().term.map(|term| term.until())
    }

    /// A message about the validity of the current pair, once for each phase.
    pub(crate) fn news(&self) -> Option<String> {
        let term = self.pair().term?;
        let phase = term.phase(Timestamp::now());
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if *told == phase {
            return None;
        }
        *told = phase;
        let news = term.told(phase)?;
        Some(format!("{}: {news}", self.certificate.display()))
    }

    /// Does the handshake. Returns the connection, if it succeeds.
    pub(super) async fn greet(&self, stream: TcpStream) -> Option<TlsStream<Paced>> {
        let config = self.pair().config;
        let agreed = tokio::time::timeout(HANDSHAKE_TIME, agree(config, stream)).await;
        agreed.ok().flatten()
    }
}

async fn agree(config: Arc<ServerConfig>, stream: TcpStream) -> Option<TlsStream<Paced>> {
    let mut first = [0];
    if stream.peek(&mut first).await.ok()? == 0 {
        return None;
    }
    if first != [HANDSHAKE] {
        // If the client is gone, the answer is lost. Its request is read, so that it can receive the answer.
        let mut stream = Paced::new(stream);
        let _told = stream.write_all(PLAIN).await;
        let _ended = stream.shutdown().await;
        return None;
    }
    let accepted = TlsAcceptor::from(config).accept(Paced::new(stream)).await;
    accepted.ok()
}

fn stamps(certificate: &Path, key: &Path) -> [Stamp; 2] {
    [certificate, key].map(|path| match path.metadata() {
        Ok(found) => Stamp(found.ino(), found.size(), found.mtime(), found.mtime_nsec()),
        Err(_) => Stamp::default(),
    })
}

fn load(certificate: &Path, key: &Path) -> Result<Pair> {
    let chain = chain(certificate)?;
    let secret = secret(key)?;
    let term = Term::of(&chain);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|source| Error::unavailable("TLS").because(source))?;
    let config = config.with_no_client_auth().with_single_cert(chain, secret);
    let mut config = config.map_err(|source| {
        let (shown, key) = (certificate.display(), key.display());
        match source {
            rustls::Error::InconsistentKeys(_) => {
                Error::invalid(format!("{key}: is not the key of the first certificate in {shown}"))
                    .hint("the server's own certificate comes first in its file, those of the authorities between behind it")
            }
            source => Error::invalid(format!("{shown} and {key}: cannot be used together")).because(source),
        }
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let config = Arc::new(config);
    Ok(Pair { config, term })
}

fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let text = read(path)?;
    let found: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|source| not_pem(path, "certificates").because(source))?;
    match found.is_empty() {
        false => Ok(found),
        true => {
            let error = Error::invalid(format!(
                "{}: expected a certificate in PEM, found none",
                path.display()
            ));
            Err(match has(&text, "PRIVATE KEY-----") {
                true => {
                    error.hint("it holds a key: --tls-cert and --tls-key may have been mixed up")
                }
                false => error.hint("a certificate in PEM begins with -----BEGIN CERTIFICATE-----"),
            })
        }
    }
}

fn secret(path: &Path) -> Result<PrivateKeyDer<'static>> {
    let text = read(path)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|source| {
        let error = Error::invalid(format!("{}: expected a private key in PEM, found none", path.display()));
        match () {
            () if has(&text, "ENCRYPTED") => {
                error.hint("the key is encrypted, and nobody can be asked for its password: take that away with `openssl pkey`")
            }
            () if has(&text, "BEGIN CERTIFICATE-----") => {
                error.hint("it holds a certificate: --tls-cert and --tls-key may have been mixed up")
            }
            () => error.because(source).hint("a key in PEM begins with -----BEGIN PRIVATE KEY-----"),
        }
    })
}

fn not_pem(path: &Path, what: &str) -> Error {
    Error::invalid(format!("{}: expected {what} in PEM", path.display()))
}

fn has(text: &[u8], words: &str) -> bool {
    String::from_utf8_lossy(text).contains(words)
}

/// Reads a regular file. Opening a pipe or reading a device might never end.
fn read(path: &Path) -> Result<Vec<u8>> {
    let unreadable = |source| Error::io("read", path, source);
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file =
        rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| unreadable(errno.into()))?;
    let file = File::from(file);
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(Error::invalid(format!(
            "{}: is not a regular file",
            path.display()
        )));
    }
    let mut bytes = Vec::new();
    file.take(PEM_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.len() as u64 > PEM_BYTES_MAX {
        let text = format!(
            "{}: is longer than a certificate or key can be, {PEM_BYTES_MAX} bytes",
            path.display()
        );
        return Err(Error::invalid(text));
    }
    Ok(bytes)
}
