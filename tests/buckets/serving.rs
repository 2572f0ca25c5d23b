//! Doors to a store in a bucket that does not answer for a while: clients are told to retry before they give up, and
//! are answered once the bucket is back.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use support::servers::Server;

use crate::bucket::Bucket;

/// Less than the engine's limit for a bucket, and more than that of any door.
const PATIENCE: Duration = Duration::from_secs(25);
/// How often to check whether the bucket is back, and the pause between.
const TRIES_MAX: usize = 300;
const PAUSE: Duration = Duration::from_millis(200);

/// A connection to a server that can be held: then nothing passes, without an error.
struct Gate {
    address: String,
    is_held: Arc<AtomicBool>,
}

impl Gate {
    fn new(endpoint: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let is_held = Arc::new(AtomicBool::new(false));
        let (held, behind) = (Arc::clone(&is_held), endpoint.replace("http://", ""));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(&behind) else {
                    continue;
                };
                let ways = [
                    (client.try_clone(), server.try_clone()),
                    (Ok(server), Ok(client)),
                ];
                for (from, to) in ways {
                    let held = Arc::clone(&held);
                    // A client that gives up breaks the connection.
                    std::thread::spawn(move || drop(pass(from.unwrap(), to.unwrap(), &held)));
                }
            }
        });
        Self { address, is_held }
    }

    fn hold(&self, is_held: bool) {
        self.is_held.store(is_held, Ordering::Relaxed);
    }
}

/// Passes bytes unless the gate is held.
fn pass(mut from: TcpStream, mut to: TcpStream, is_held: &AtomicBool) -> std::io::Result<()> {
    let mut bytes = [0; 16 << 10];
    loop {
        let count = from.read(&mut bytes)?;
        while is_held.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
        }
        match count {
            0 => return to.shutdown(std::net::Shutdown::Write),
            count => to.write_all(&bytes[..count])?,
        }
    }
}

/// `store serve` with a bucket behind a gate, and both doors.
struct Served {
    bucket: Bucket,
    gate: Gate,
    child: Child,
    hub: String,
    s3: String,
}

impl Served {
    fn new(name: &str) -> Self {
        let server = Server::moto();
        let gate = Gate::new(&server.endpoint);
        let endpoint = gate.address.clone();
        let bucket = Bucket::new(name, Server { endpoint, ..server });
        bucket.env.write("in/a.txt", "inside");
        bucket.ok(["put", "in", "project/demo/org/data"]);
        let words = [
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--s3-listen",
            "127.0.0.1:0",
            "--access-log",
            "log",
            "--json",
        ];
        let mut command = bucket.command(words);
        // The default patience.
        command.env_remove("AWS_READ_TIMEOUT");
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let stdout = child.stdout.as_mut().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap();
        let address = |name: &str| told[name].as_str().unwrap().replace("http://", "");
        Self {
            hub: address("url"),
            s3: address("s3_url"),
            bucket,
            gate,
            child,
        }
    }

    /// Asserts that a door answers 503 with `told` while the bucket does not answer, and `body` before and afterwards.
    fn check(&self, address: &str, path: &str, (body, told): (&str, &str)) {
        assert!(ask(address, path).ends_with(body));
        self.gate.hold(true);
        let answer = ask(address, path);
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        let answer = answer.to_ascii_lowercase();
        assert!(answer.contains("\r\nretry-after: "), "{answer}");
        assert!(answer.contains(told), "{answer}");
        self.gate.hold(false);
        let back = (0..TRIES_MAX).find_map(|_| {
            let answer = ask(address, path);
            if answer.starts_with("HTTP/1.1 503 ") {
                std::thread::sleep(PAUSE);
                return None;
            }
            Some(answer)
        });
        let back = back.expect("it is back");
        assert!(
            back.starts_with("HTTP/1.1 200 ") && back.ends_with(body),
            "{back}"
        );
        let log = std::fs::read_to_string(self.bucket.env.path("log")).unwrap();
        assert!(log.contains("\"status\":503"), "{log}");
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended already.
        let _gone = self.child.kill();
        let _waited = self.child.wait();
    }
}

/// The whole answer, for a client that gives up after a while.
fn ask(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/html, */*\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream
        .read_to_end(&mut answer)
        .unwrap_or_else(|error| panic!("{path}: a client gave up: {error}"));
    String::from_utf8(answer).unwrap()
}

#[test]
fn clients_of_a_hub_are_told_that_the_bucket_is_away() {
    let served = Served::new("serving-hub");
    let path = "/project/demo/org/data/resolve/main/a.txt";
    served.check(&served.hub, path, ("inside", "x-error-message: "));
}

#[test]
fn clients_of_s3_are_told_that_the_bucket_is_away() {
    let served = Served::new("serving-s3");
    let told = "<code>serviceunavailable</code>";
    served.check(&served.s3, "/project.demo/org/data/a.txt", ("inside", told));
}

#[test]
fn readers_of_the_page_are_told_that_the_bucket_is_away() {
    let served = Served::new("serving-page");
    served.check(&served.hub, "/-/project/demo", ("</html>", "<html"));
}
