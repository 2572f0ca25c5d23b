//! A TLS front for a server without TLS. Its certificate for 127.0.0.1 is from an unknown authority; `openssl` makes
//! both each time.

use std::io::{self, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tempfile::TempDir;

use super::http::Message;

/// Serves until it is dropped.
pub struct Tls {
    address: SocketAddr,
    over: Arc<AtomicBool>,
    dir: TempDir,
}

impl Tls {
    /// A front for the server at `endpoint`, such as `http://127.0.0.1:9000`.
    pub fn new(endpoint: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = Arc::new(config(dir.path()));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let upstream = endpoint.trim_start_matches("http://").to_owned();
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                let (config, upstream) = (Arc::clone(&config), upstream.clone());
                // A client that does not trust the certificate closes the connection.
                std::thread::spawn(move || drop(serve(config, client, &upstream)));
            }
        });
        Self { address, over, dir }
    }

    /// The endpoint for the client.
    pub fn endpoint(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The certificate of the authority, as PEM.
    pub fn authority(&self) -> PathBuf {
        self.dir.path().join("authority.pem")
    }
}

impl Drop for Tls {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        drop(TcpStream::connect(self.address));
    }
}

/// Serves one connection until its end.
fn serve(config: Arc<ServerConfig>, client: TcpStream, upstream: &str) -> io::Result<()> {
    let connection = ServerConnection::new(config).map_err(io::Error::other)?;
    let mut reader = BufReader::new(StreamOwned::new(connection, client));
    while let Some(mut request) = Message::request(&mut reader)? {
        let is_last = !request.stays_open();
        request.set("connection", Some("close"));
        let mut server = TcpStream::connect(upstream)?;
        request.send(&mut server)?;
        let mut answer = Message::answer(&mut BufReader::new(&server), request.asked().0)?;
        answer.set("connection", None);
        answer.send(reader.get_mut())?;
        if is_last {
            break;
        }
    }
    let stream = reader.get_mut();
    stream.conn.send_close_notify();
    stream.flush()
}

/// Makes `authority.pem`, which no client trusts by default, and its key.
pub fn make_authority(dir: &Path) {
    openssl(dir, "authority", &["-subj", &subject("authority")]);
}

/// Makes `NAME.pem` and `NAME.key` for 127.0.0.1, signed by the authority in `dir`.
pub fn make_pair(dir: &Path, name: &str) {
    let server = subject(name);
    let signed = [
        &["-subj", server.as_str()][..],
        &["-CA", "authority.pem", "-CAkey", "authority.key"],
        &["-addext", "subjectAltName=IP:127.0.0.1"],
        &["-addext", "basicConstraints=critical,CA:FALSE"],
    ];
    openssl(dir, name, &signed.concat());
}

fn subject(name: &str) -> String {
    format!("/CN={name} of the tests")
}

fn config(dir: &Path) -> ServerConfig {
    make_authority(dir);
    make_pair(dir, "server");
    let certificate = CertificateDer::from_pem_file(dir.join("server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(dir.join("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap()
}

/// Makes `name.pem` and `name.key`.
fn openssl(dir: &Path, name: &str, words: &[&str]) {
    let done = Command::new("openssl")
        .args(["req", "-x509", "-nodes", "-days", "2"])
        .args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args([
            "-keyout",
            &format!("{name}.key"),
            "-out",
            &format!("{name}.pem"),
        ])
        .args(words)
        .current_dir(dir)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "openssl: {told}");
}
